"""Where each value lies: one arena for all intermediate results, planned from when each is last used."""
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from minispore.graph.ir import Graph, Value

ALIGN = 64              # bytes: a cache line, and a vector register
ENDLESS = 1 << 60       # bytes


@dataclass
class Plan:
    """offset: bytes from the arena's begin, for every value that owns memory; size: of the arena, in bytes."""
    offset: dict[Value, int]
    size: int


def roots(graph: Graph, may_alias: Callable[[Value], bool]) -> dict[Value, Value]:
    """For each value that only looks at another one's memory, whose memory that is."""
    root: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op.view and may_alias(root.get(node.ins[0], node.ins[0])):
            root[node.outs[0]] = root.get(node.ins[0], node.ins[0])
    return root


def in_place(graph: Graph, root: dict[Value, Value]) -> set:
    """The parameters whose new value can be written straight over the old one, because nobody reads that any more.

    Only the node that makes the new value may read the old one in the same moment, if its op allows that.
    """
    place = {node: i for i, node in enumerate(graph.nodes)}
    last = {root.get(v, v): node for node in graph.nodes for v in node.ins}
    kept = {root.get(v, v) for v in graph.outputs} | {v for v in graph.assigned.values() if v.node is None}
    out = set()
    for p, v in graph.assigned.items():
        old = graph.parameters.get(p)
        reader = last.get(old)
        free = v.node is not None and v not in root and old not in kept
        if free and (reader is None or place[reader] < place[v.node] or (reader is v.node and v.node.op.overwrites)) \
                and list(graph.assigned.values()).count(v) == 1:
            out.add(p)
    return out


class Places(NamedTuple):
    """Where the values of a program lie that is to run (after `overlap`). root: see roots; in_place: see in_place; plan: of the
    arena, which holds what the program makes; parameters and inputs have arrays of their own."""
    root: dict[Value, Value]
    in_place: set
    plan: Plan


def places(graph: Graph) -> Places:
    """Memory for a program."""
    owned = {v for n in graph.nodes for v in n.outs} | set(graph.inputs)
    root = roots(graph, lambda v: v in owned)
    written = in_place(graph, root)
    return Places(root, written, plan(graph, root, {graph.assigned[p] for p in written}))


def plan(graph: Graph, root: dict[Value, Value], elsewhere=frozenset()) -> Plan:
    """Give each value memory from the node that makes it to the last that reads it: the largest first, each into the smallest gap
    that those leave which live at the same time (Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
    2020). elsewhere: values that need none.
    """
    spans = lives(graph, root, elsewhere)
    order = sorted(dict.fromkeys(spans.values()), key=lambda span: (-bytes_of(span.first), span.begin))
    begin, end, low, high = np.zeros((4, len(order)), np.int64)
    place: dict[Span, int] = {}
    for i, span in enumerate(order):
        beside = np.flatnonzero((begin[:i] <= span.end) & (end[:i] >= span.begin))
        beside = beside[low[beside].argsort(kind="stable")]
        starts = np.concatenate([[0], np.maximum.accumulate(high[beside])])
        gaps = np.concatenate([low[beside], [ENDLESS]]) - starts
        need = bytes_of(span.first)
        place[span] = int(starts[np.where(gaps < need, ENDLESS + 1, gaps).argmin()])
        begin[i], end[i], low[i], high[i] = span.begin, span.end, place[span], place[span] + need
    return Plan({v: place[span] for v, span in spans.items()}, int(high.max(initial=0)))


@dataclass(eq=False)
class Span:
    """When memory is in use, from node number `begin` to `end`; first: the value that comes first into it."""
    first: Value
    begin: int
    end: int


def lives(graph: Graph, root: dict[Value, Value], elsewhere=frozenset()) -> dict[Value, Span]:
    """{value that owns memory: when}. An op that may overwrite its input does, where that input dies with it: the two have one
    memory."""
    last = {root.get(v, v): i for i, node in enumerate(graph.nodes) for v in (*node.outs, *node.ins)}
    last |= {root.get(v, v): len(graph.nodes) for v in graph.results()}
    out: dict[Value, Span] = {}
    for i, node in enumerate(graph.nodes):
        ending = [v for v in dict.fromkeys(node.ins) if v in out and last[v] == i] if node.op.overwrites else []
        for v in node.outs:
            if v in root or v in elsewhere:
                continue
            heir = next((u for u in ending if (u.shape, u.dtype) == (v.shape, v.dtype)), None)
            if heir is None:
                out[v] = Span(v, i, last[v])
            else:
                ending.remove(heir)
                out[v] = out[heir]
                out[v].end = last[v]
    return out


def taken(graph: Graph) -> dict[str, int]:
    """Bytes that a program takes which is to run (after `overlap`), by what for, and in all."""
    out = {"parameters": sum(prod(v.shape) * v.dtype.itemsize for v in graph.parameters.values()),
           "inputs": sum(prod(v.shape) * v.dtype.itemsize for v in graph.inputs), "intermediate": places(graph).plan.size}
    return out | {"total": sum(out.values())}


def bytes_of(v: Value) -> int:
    """Memory of a value, rounded up to whole cache lines."""
    return -(-max(prod(v.shape) * v.dtype.itemsize, 1) // ALIGN) * ALIGN


def arena(size: int) -> np.ndarray:
    """`size` bytes whose first lies at a cache line's begin."""
    raw = np.empty(size + ALIGN, np.uint8)
    skip = -raw.ctypes.data % ALIGN
    return raw[skip:skip + size]
