"""Nested tuples, lists and dicts of tensors, taken apart into a flat list and put together again."""
from collections.abc import Callable
from typing import Any


def flatten(tree: Any, is_leaf: Callable[[Any], bool]) -> tuple[list, Any]:
    """(leaves, skeleton). What isn't a leaf or a container stays in the skeleton as a constant.

    >>> leaves, skeleton = flatten((1.5, ["a", 2.5], {"k": 3.5}), lambda x: isinstance(x, float))
    >>> leaves
    [1.5, 2.5, 3.5]
    >>> unflatten(skeleton, [10, 20, 30])
    (10, ['a', 20], {'k': 30})
    """
    leaves: list = []

    def walk(node):
        if is_leaf(node):
            leaves.append(node)
            return _Leaf(len(leaves) - 1)
        if isinstance(node, dict):
            return {k: walk(v) for k, v in node.items()}
        if isinstance(node, (list, tuple)):
            items = [walk(v) for v in node]
            return _like(node, items)
        return node

    return leaves, walk(tree)


def unflatten(skeleton: Any, leaves: list) -> Any:
    """The tree again, with new leaves in the places of the old ones."""
    if isinstance(skeleton, _Leaf):
        return leaves[skeleton]
    if isinstance(skeleton, dict):
        return {k: unflatten(v, leaves) for k, v in skeleton.items()}
    if isinstance(skeleton, (list, tuple)):
        return _like(skeleton, [unflatten(v, leaves) for v in skeleton])
    return skeleton


class _Leaf(int):
    """The place of leaf number n."""

    def __repr__(self):
        return f"leaf{int(self)}"


def _like(sequence, items):
    if hasattr(sequence, "_fields"):            # a named tuple takes its items one by one
        return type(sequence)(*items)
    return tuple(items) if isinstance(sequence, tuple) else list(items)
