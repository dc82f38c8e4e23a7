"""Reverse-mode differentiation: adds the gradient's nodes to the graph that is being recorded.

Because the gradients of ops are written with ops, it works the same on a symbolic graph and on a tape, and what it
adds can be differentiated again.
"""
from minispore.common.dtype import is_float
from minispore.common.tensor import Tensor
from minispore.graph.ir import Graph, Value
from minispore.ops import functional as F
from minispore.ops.primitive import checked_gradients


def gradients(graph: Graph, start: int, seeds: list[tuple[Value, Tensor]], wrt: list[Value]) -> list[Tensor]:
    """Σ over seeds (y, dy) of dy · ∂y/∂x, for each x of wrt, through the nodes from number `start` on.

    A value that no seed depends on gets zeros. Nodes with `gradient_waits` (Send, Receive) take part even where
    no gradient reaches them, because their partner on another rank waits for it.
    """
    wanted = set(wrt)
    needed = set(wrt)
    nodes = graph.nodes[start:]
    for node in nodes:
        if node.op.gradient_waits or any(v in needed for v in node.ins):
            needed.update(v for v in node.outs if is_float(v.dtype))
    cotangents: dict[Value, Tensor] = {}

    def accumulate(value, grad):
        cotangents[value] = cotangents[value] + grad if value in cotangents else grad

    for value, seed in seeds:
        if value in needed:
            accumulate(value, seed)
    for node in reversed(nodes):
        reached = any(v in cotangents for v in node.outs) and any(v in needed for v in node.outs)
        if not reached and not node.op.gradient_waits:
            continue
        douts = [cotangents.get(v) if v in wanted else cotangents.pop(v, None) for v in node.outs]
        douts = [F.zeros(v.shape, v.dtype) if d is None else d for d, v in zip(douts, node.outs, strict=True)]
        for v, d in zip(node.outs, douts, strict=True):
            _belongs(d, v)
        outs = [Tensor._symbol(v) for v in node.outs]
        pair = (outs[0], douts[0]) if node.single else (outs, douts)
        grads = checked_gradients(f"{node.op.name}.gradient", node.op.gradient(*map(Tensor._symbol, node.ins), *pair), node.ins)
        for value, grad in zip(node.ins, grads, strict=True):
            if value in needed and grad is not None:
                accumulate(value, grad() if callable(grad) else grad)
    grads = [cotangents[v] if v in cotangents else F.zeros(v.shape, v.dtype) for v in wrt]
    for v, d in zip(wrt, grads, strict=True):
        _belongs(d, v)
    return grads


def _belongs(gradient: Tensor | None, value: Value) -> None:
    """A finished gradient wants the layout of its value."""
    if gradient is not None and gradient._value is not None:
        gradient._value.wants(value)
