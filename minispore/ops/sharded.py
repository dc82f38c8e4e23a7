"""Layouts asked for between ops: `reshard` for one tensor, `pinned` for what goes into a function and comes out of it."""
from collections.abc import Callable
from functools import wraps

from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.ops.control import Identity
from minispore.ops.strategy import Strategy


def reshard(tensor, layout) -> Tensor:
    """The same tensor; in a logical program (semi-auto parallel) from here on in this layout.

    Args:
        layout: a `Layout`'s, e.g. layout("dp", "mp"), or a tuple of split counts, one a dim.

    MindSpore: `ops.reshard`.

    >>> reshard(Tensor([[1.0, 2.0]]), (1, 2)).tolist()
    [[1.0, 2.0]]
    """
    return Identity().shard(None, (layout,))(tensor)


def pinned(name: str, fn: Callable, strategy: Strategy) -> Callable:
    """fn, with its tensor arguments and results in the layouts of a strategy; entries None leave them as they are."""
    @wraps(fn)
    def call(*args, **kwargs):
        leaves, skeleton = flatten(args, is_tensor)
        out = fn(*unflatten(skeleton, _in(name, "in_strategy", strategy.ins, leaves)), **kwargs)
        leaves, skeleton = flatten(out, is_tensor)
        return unflatten(skeleton, _in(name, "out_strategy", strategy.outs, leaves))
    return call


def _in(name, what, entries, tensors):
    if entries is None:
        return tensors
    if len(entries) != len(tensors):
        raise ValueError(f"{name}.shard: {what} {entries} has {len(entries)} entries for {len(tensors)} tensors of shapes "
                         f"{[t.shape for t in tensors]}; give one a tensor, None for those that may lie as they like")
    return [t if entry is None else reshard(t, entry) for t, entry in zip(tensors, entries, strict=True)]
