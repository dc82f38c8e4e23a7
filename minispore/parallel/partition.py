"""Partition: the logical graph becomes a list of steps that every rank takes, with the moves the plan needs.

Steps are the same for all ranks; `for_rank` makes one rank's program of them, a graph like any other.
"""
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from minispore.graph.ir import Graph, Node, Value
from minispore.ops.primitive import Piece, Pin, Primitive
from minispore.parallel.collectives import operation
from minispore.parallel.complete import Plan
from minispore.parallel.halo import Halo, halos
from minispore.parallel.layout import TensorLayout, local_shape, region, whole
from minispore.parallel.mesh import Mesh
from minispore.parallel.redistribution import Move, cheapest, remember


class Held(NamedTuple):
    """A value in one of the layouts in which it exists; `use` tells copies apart that are made anew for each use."""
    value: Value
    layout: TensorLayout
    use: int = 0

    def __str__(self):
        return f"{self.value!r}{self.layout}" + "'" * (self.use > 0)


@dataclass(frozen=True)
class Step:
    """A node run on slices, or a move of a value - of several, where a collective was fused."""
    do: Node | Move
    ins: tuple[Held, ...]
    outs: tuple[Held, ...]

    def __str__(self):
        what = self.do.op.upper() if isinstance(self.do, Move) else str(self.do.op)
        return f"{', '.join(map(str, self.outs))} = {what}({', '.join(map(str, self.ins))})"


@dataclass
class Partitioned:
    """The steps, and where the program's inputs, parameters and results lie."""
    graph: Graph
    plan: Plan
    steps: list[Step] = field(default_factory=list)
    results: list[Held] = field(default_factory=list)       # outputs, then the parameters' new values

    @property
    def mesh(self) -> Mesh:
        return self.plan.mesh

    def moves(self) -> list[Move]:
        """The moves, each as often as it moves a value."""
        return [s.do for s in self.steps if isinstance(s.do, Move) for _ in s.ins]

    def collectives(self) -> Counter:
        """How many tensors go through each kind of collective; slices are free."""
        return Counter(m.op for m in self.moves() if m.op != "slice")

    def show(self) -> str:
        """The steps as text."""
        return "\n".join(map(str, self.steps))

    def local_op(self, node: Node, rank: int) -> Primitive:
        """The op that a rank runs on its slices."""
        if type(node.op).local is Primitive.local:
            return node.op
        mesh, assignment = self.mesh, self.plan.assignment[node]
        pieces = {f: Piece(mesh.index(rank, axes), mesh.count(axes)) for f, axes in assignment.items() if axes}
        return node.op.local(self.plan.rule[node], pieces) if pieces else node.op

    def for_rank(self, rank: int) -> Graph:
        """One rank's program on slices."""
        old, mesh, at = self.graph, self.mesh, {}
        new = Graph(cells=old.cells)

        def local(held: Held) -> Value:
            if held not in at:
                v, layout, _ = held
                array = v.array[region(mesh, v.shape, layout, rank)] if v.node is None and v.array is not None else None
                at[held] = new.value(local_shape(mesh, v.shape, layout), v.dtype, array, v.name)
            return at[held]

        new.inputs = [local(Held(v, self.plan.layout[v])) for v in old.inputs]
        new.parameters = {p: local(Held(v, self.plan.layout[v])) for p, v in old.parameters.items()}
        for step in self.steps:
            ins = tuple(map(local, step.ins))
            if isinstance(step.do, Node) and isinstance(step.do.op, Pin):   # a name for strategies: nothing is computed
                at.update(zip(step.outs, ins, strict=True))
                continue
            outs = tuple(map(local, step.outs))
            if isinstance(step.do, Node):
                node = Node(self.local_op(step.do, rank), ins, outs, step.do.scope, step.do.single)
            else:
                node = Node(operation(mesh, step.do, rank, step.outs[0].value.shape), ins, outs, single=len(outs) == 1)
            for v in node.outs:
                v.node = node
            new.nodes.append(node)
        outs = list(map(local, self.results))
        new.outputs = outs[:len(old.outputs)]
        new.assigned = dict(zip(old.assigned, outs[len(old.outputs):], strict=True))
        return new


def partition(graph: Graph, plan: Plan, finals: dict[Value, TensorLayout]) -> Partitioned:
    """Cut a completed graph. finals: the layout in which a result leaves the program."""
    cut, mesh, apart = Partitioned(graph, plan), plan.mesh, plan.apart
    have: dict[Value, list[TensorLayout]] = {}
    uses = count(1)

    def bring(v: Value, goal: TensorLayout, keep: bool = False) -> Held:
        mine = have.setdefault(v, [plan.layout[v]])
        if v.node is None and v.array is not None and goal not in mine:
            mine.append(goal)                   # a constant is cut when the rank's program is made
        anew = v in apart and not keep
        use = next(uses) if anew else 0
        for move in cheapest(mesh, v.shape, mine, goal)[1]:
            if move.dst not in mine:
                source = Held(v, move.src, use if move.src not in mine else 0)
                cut.steps.append(Step(move, (source,), (Held(v, move.dst, use),)))
            if not anew:
                remember(mine, (move,))
        return Held(v, goal, use if goal not in mine else 0)

    wide: dict[tuple[Held, Halo], Held] = {}

    def widen(node: Node, ins: list[Held]) -> tuple[Held, ...]:
        for i, halo in halos(mesh, node, plan.rule[node], plan.assignment[node], plan.want[node]):
            key = ins[i], halo
            if key not in wide:                 # the gradient to the filter needs the rows that the convolution needed
                v, layout, use = ins[i]
                wide[key] = Held(graph.value(halo.shape(v.shape), v.dtype), layout, use)
                cut.steps.append(Step(halo, (ins[i],), (wide[key],)))
            ins[i] = wide[key]
        return tuple(ins)

    for node in graph.nodes:
        ins = widen(node, [bring(v, layout) for v, layout in zip(node.ins, plan.want[node], strict=True)])
        cut.steps.append(Step(node, ins, tuple(Held(v, plan.layout[v]) for v in node.outs)))
        for v in node.outs:
            have[v] = [plan.layout[v]]
            if v in plan.settle:
                bring(v, plan.settle[v], keep=True)
                if plan.layout[v].partial:
                    have[v].remove(plan.layout[v])
    cut.results = [bring(v, finals.get(v, whole(len(v.shape)))) for v in graph.results()]
    return cut
