"""Where each value lies: one arena for all intermediate results, planned from when each is last used."""
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from minispore.common.holes import with_hole
from minispore.graph.ir import Graph, Value

ALIGN = 64              # bytes: a cache line, and a vector register


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
    """Give memory when a value is made, take it back after its last use, best fit first. elsewhere: values that need none.

    An op that may overwrite its input does, where that input dies with it.
    """
    last = {root.get(v, v): i for i, node in enumerate(graph.nodes) for v in (*node.outs, *node.ins)}
    last |= {root.get(v, v): len(graph.nodes) for v in graph.results()}
    dying: dict[int, list[Value]] = {}
    for v, i in last.items():
        dying.setdefault(i, []).append(v)
    offset: dict[Value, int] = {}
    free: list[tuple[int, int]] = []            # (offset, bytes), in order of offset, never touching
    size, inherited = 0, {}
    for i, node in enumerate(graph.nodes):
        ending = [u for u in dying.get(i, ()) if u in offset and u in node.ins] if node.op.overwrites else []
        for v in node.outs:
            if v in root or v in elsewhere:
                continue
            need = bytes_of(v)
            heir = next((u for u in ending if u.shape == v.shape and u.dtype == v.dtype), None)
            if heir is not None:
                offset[v] = offset.pop(heir)
                inherited[heir] = v
                continue
            fit = min((hole for hole in free if hole[1] >= need), key=lambda h: h[1], default=None)
            if fit is None:
                offset[v] = size
                size += need
            else:
                free.remove(fit)
                offset[v] = fit[0]
                if fit[1] > need:
                    free = with_hole(free, fit[0] + need, fit[1] - need)
        for v in dying.get(i, ()):
            if v in offset:
                free = with_hole(free, offset[v], bytes_of(v))
    offset |= {u: offset[_end(u, inherited)] for u in inherited}
    return Plan(offset, size)


def _end(v: Value, inherited: dict[Value, Value]) -> Value:
    while v in inherited:
        v = inherited[v]
    return v


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
