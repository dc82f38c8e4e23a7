"""What is searched: a graph to be laid out over a mesh, and what a plan for it costs.

The cost of a plan is a sum: seconds of every op on its pieces, and of bringing every value from the layout in which it is kept to
that in which each of its users wants it. A value that several want (and every input and parameter) is kept in one layout, to
which it is brought once. Overlap, bucketing, and moves that several users share are left to the simulator.
"""
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from minispore.common.state import ALGORITHM_DEFAULTS
from minispore.graph import memory
from minispore.graph.ir import Graph, Node, Value
from minispore.ops.rule import Rule
from minispore.parallel.complete import Completion, Plan
from minispore.parallel.cost import Cluster, exchange_seconds, move_seconds, op_seconds
from minispore.parallel.cost.compute import float_size
from minispore.parallel.halo import halos
from minispore.parallel.layout import TensorLayout, local_shape, whole
from minispore.parallel.legality import Check
from minispore.parallel.mesh import Mesh
from minispore.parallel.sharding import Assignment

Layouts = tuple[TensorLayout, ...]


@dataclass(eq=False)
class Task:
    """given: layouts of inputs and parameters that are decided, the stored one first; goal: {result: the value whose layout it
    leaves in, or the layout}, leave(value, as it is kept) for the others. apart: values gathered anew for each use.
    taken(plan): bytes that a rank's compiled program takes, where that is known. algorithm: see parallel/algorithm.py."""
    graph: Graph
    mesh: Mesh
    cluster: Cluster
    rules: dict[Node, Rule]
    given: dict[Value, list[TensorLayout]]
    checks: dict[Node, Check]
    goal: dict[Value, Value | TensorLayout]
    leave: Callable[[Value, TensorLayout], TensorLayout]
    apart: frozenset[Value] = frozenset()
    taken: Callable[[Plan], int] | None = None
    algorithm: dict = field(default_factory=lambda: dict(ALGORITHM_DEFAULTS))
    _seconds: dict = field(default_factory=dict)

    @cached_property
    def users(self) -> Counter:
        """How often each value is wanted."""
        return Counter(v for node in self.graph.nodes for v in node.ins) + Counter(self.graph.results())

    @cached_property
    def stored(self) -> set[Value]:
        """Inputs and parameters."""
        return {*self.graph.inputs, *self.graph.parameters.values()}

    def kept(self, v: Value) -> bool:
        """Whether it has a layout of its own choice, apart from that in which it is made."""
        return v in self.stored or (v.node is not None and self.users[v] > 1)

    # ---- seconds ------------------------------------------------------------------------------------------

    def exchange(self, v: Value, src: TensorLayout, dst: TensorLayout) -> float:
        """Seconds from one layout to another. Constants are cut when a rank's program is made."""
        if src == dst or (v.node is None and v not in self.stored):
            return 0.0
        key = v.shape, v.dtype.itemsize, src, dst
        if key not in self._seconds:
            self._seconds[key] = exchange_seconds(self.cluster, self.mesh, *key)
        return self._seconds[key]

    def compute(self, node: Node, assignment: Assignment, ins: Layouts, outs: Layouts) -> float:
        """Seconds of an op on its pieces, and of the neighbours' rows it needs."""
        mesh = self.mesh
        read = [(v, self.bytes(v, lay)) for v, lay in zip(node.ins, ins, strict=True)]
        bytes = sum(n for _, n in read) + sum(self.bytes(v, lay) for v, lay in zip(node.outs, outs, strict=True))
        pieces = mesh.count(a for axes in assignment.values() for a in axes)
        spent = op_seconds(self.cluster.device, node.op, node.op.flops(*node.ins) / pieces, bytes, float_size(node),
                           sum(n for v, n in read if v.node is None))
        return spent + sum(move_seconds(self.cluster, mesh, halo, node.ins[i].shape, node.ins[i].dtype.itemsize)
                           for i, halo in halos(mesh, node, self.rules[node], assignment, ins))

    def final(self, v: Value, kept: TensorLayout, layout: dict[Value, TensorLayout]) -> TensorLayout:
        """The layout in which a result leaves. layout: of inputs and parameters."""
        goal = self.goal.get(v)
        return layout[goal] if isinstance(goal, Value) else self.leave(v, kept) if goal is None else goal

    def parts(self, plan: Plan) -> tuple[dict[Node, float], dict[tuple, float]]:
        """What a plan costs: seconds of each node, and of each move, as {(value, who wants it): seconds}; None wants a value
        to be kept, "result" that it leaves."""
        compute = {node: self.compute(node, plan.assignment[node], plan.want[node], tuple(plan.layout[v] for v in node.outs))
                   for node in self.graph.nodes}
        moves = {(v, None): self.exchange(v, plan.layout[v], kept) for v, kept in plan.settle.items()}
        for node in self.graph.nodes:
            for v, want in zip(node.ins, plan.want[node], strict=True):
                moves[v, node] = moves.get((v, node), 0.0) + self.exchange(v, kept_in(plan, v), want)
        for v in dict.fromkeys(self.graph.results()):
            if v.node is not None or v in self.stored:
                kept = kept_in(plan, v)
                moves[v, "result"] = self.exchange(v, kept, self.final(v, kept, plan.layout))
        return compute, moves

    def seconds(self, plan: Plan) -> float:
        """What a plan costs."""
        compute, moves = self.parts(plan)
        return sum(compute.values()) + sum(moves.values())

    # ---- memory ----------------------------------------------------------------------------------------------

    @cached_property
    def alive(self) -> dict[Value, tuple[int, int]]:
        """{value that takes memory: (node that makes it, last that reads it)}, by number; parameters and inputs live all along.

        A view is its source's memory, a parameter's new value that of the old one where it can be written in place."""
        graph, end = self.graph, len(self.graph.nodes)
        root = memory.roots(graph, lambda v: v.node is not None)
        spared = {graph.assigned[p] for p in memory.in_place(graph, root)}
        span = {v: (0, end) for v in self.stored}
        for i, node in enumerate(graph.nodes):
            for v in node.outs:
                if v not in root and v not in spared:
                    span[v] = i, i
            for v in node.ins:
                owner = root.get(v, v)
                if owner in span and owner not in self.stored:
                    span[owner] = span[owner][0], i
        for v in graph.results():
            owner = root.get(v, v)
            if owner in span:
                span[owner] = span[owner][0], end
        return span

    def bytes(self, v: Value, layout: TensorLayout) -> int:
        """Of a rank's piece."""
        return prod(local_shape(self.mesh, v.shape, layout)) * v.dtype.itemsize

    def curve(self, plan: Plan) -> np.ndarray:
        """Bytes alive while each node runs."""
        change = np.zeros(len(self.graph.nodes) + 2, np.int64)
        for v, (begin, end) in self.alive.items():
            size = self.bytes(v, kept_in(plan, v))
            change[begin] += size
            change[end + 1] -= size
        return change.cumsum()[:-1]

    def peak(self, plan: Plan) -> tuple[int, int]:
        """(most bytes alive at once, the node at which that is)."""
        curve = self.curve(plan)
        return int(curve.max()), int(curve.argmax())

    def memory(self, plan: Plan) -> int:
        """Bytes that a rank takes. The compiled program, where it is known, also holds the copies that moves make and collectives
        are under way in, and its arena has gaps; the curve is the part of it that is a sum."""
        if plan.memory is None:
            plan.memory = self.peak(plan)[0] if self.taken is None else self.taken(plan)
        return plan.memory

    def peaks(self, plan: Plan, limit: int, most: int = 8) -> list[int]:
        """The nodes at which most bytes are alive, of those where it's more than the limit; each in a part of the program of its
        own, since neighbours say nearly the same."""
        curve = self.curve(plan)
        parts = np.array_split(np.arange(len(curve)), most)
        tops = [int(part[curve[part].argmax()]) for part in parts if len(part)]
        return [at for at in tops if curve[at] > limit]

    # ---- what needs no search ----------------------------------------------------------------------------------

    def completed(self, parameters_whole: bool = False) -> Plan:
        """The plan of sharding propagation. parameters_whole: no parameter is split that isn't already, which without strategies
        is data parallel."""
        given = dict(self.given)
        if parameters_whole:
            given |= {v: [whole(len(v.shape))] for v in self.graph.parameters.values() if v not in given}
        return Completion(self.graph, self.mesh, dict(self.rules), given, self.checks, self.apart).run()


def kept_in(plan: Plan, v: Value) -> TensorLayout:
    """The layout from which a value's users take it."""
    return plan.settle.get(v) or plan.layout[v]
