"""Completion: from some strategies to a layout for every value, node by node, by local cost.

Five rules make it choose well:
    thrift   work that is split stays split: repeating an op on several ranks is the last resort;
    hint     a gradient wants the layout of its value, a parameter's new value that of the parameter (`Value.like`);
    lazy     a partial value with one consumer that is linear in it stays partial, when that costs no more;
    settle   a partial value with several consumers is reduced once, where it is made, straight into its hint;
    reuse    a value remembers every layout in which it exists already.
"""
from collections import Counter
from dataclasses import dataclass, field, replace

from minispore.graph.ir import Graph, Node, Value
from minispore.ops.rule import Rule
from minispore.parallel.halo import halo_cost
from minispore.parallel.layout import TensorLayout, whole
from minispore.parallel.mesh import Mesh
from minispore.parallel.redistribution import INFINITE, cheapest, remember, route
from minispore.parallel.sharding import Assignment, extend, layouts


@dataclass
class Plan:
    """What completion decides."""
    mesh: Mesh
    rule: dict[Node, Rule] = field(default_factory=dict)
    assignment: dict[Node, Assignment] = field(default_factory=dict)
    want: dict[Node, list[TensorLayout]] = field(default_factory=dict)      # layouts its inputs must have
    layout: dict[Value, TensorLayout] = field(default_factory=dict)         # in which a value is made, or stored
    settle: dict[Value, TensorLayout] = field(default_factory=dict)         # to which it is brought at once
    apart: frozenset[Value] = frozenset()                                   # what is moved anew for each use
    found: object = None                                                    # how it was searched (search/explain.py)
    memory: int | None = None                                               # bytes of a rank's program, once measured


class Completion:
    """Layouts for a graph. given: {value: layouts in which it exists when the program starts, the stored one first};
    checks: {node: Check} of the nodes with a strategy; apart: values whose redistributions aren't shared (each use of a
    fully sharded parameter gathers it anew, so that the whole can be freed in between).

    The switches turn one of the rules off, to see what it is worth.
    """

    def __init__(self, graph: Graph, mesh: Mesh, rules: dict[Node, Rule], given=None, checks=None, apart=(),
                 lazy=True, settle=True, hints=True, thrift=True):
        self.graph, self.mesh, self.plan = graph, mesh, Plan(mesh, rules, apart=frozenset(apart))
        self.checks, self.apart = checks or {}, self.plan.apart
        self.lazy, self.settling, self.hints, self.thrifty = lazy, settle, hints, thrift
        self.users = Counter(v for node in graph.nodes for v in node.ins) + Counter(graph.results())
        self.results = set(graph.results())
        self.have: dict[Value, list[TensorLayout]] = {}
        self.choices: dict[Value, list[TensorLayout]] = {}      # layouts at hand, until the first consumer takes one
        for v, known in (given or {}).items():
            self.have[v], self.plan.layout[v] = list(known), known[0]
            self.choices[v] = list(known)
        for v in {v for node in graph.nodes for v in node.ins} | self.results:
            if v.node is None and v.array is not None and v not in self.have:       # a constant: whole everywhere
                self.have[v], self.plan.layout[v] = [whole(len(v.shape))], whole(len(v.shape))

    def hint(self, v: Value) -> TensorLayout | None:
        """The layout a value should end up in, if that is known yet."""
        seen = set()
        while self.hints and v.like is not None and v not in seen:
            seen.add(v)
            v = v.like
            if v in self.plan.layout:
                return self.plan.settle.get(v, self.plan.layout[v]).reduced()
        return None

    def free(self, v: Value) -> bool:
        """Whether its first consumer may decide its layout: a parameter nothing is known of."""
        return v not in self.have

    # ---- what a node may do -----------------------------------------------------------------------------

    def options(self, node: Node):
        """(assignment, partial axes carried through) worth comparing."""
        rule, mesh = self.plan.rule[node], self.mesh
        inputs = [(t, v) for t, v in zip(rule.ins, node.ins, strict=True) if v in self.have and v not in self.apart]
        known = [(t, layout) for t, v in inputs for layout in self.have[v][::-1]]
        known += [(t, layout) for t, v in zip(rule.outs, node.outs, strict=True) if (layout := self.hint(v))]
        made = [(t, self.have[v][0]) for t, v in inputs]
        for carry in self.carries(node):
            free = [a for a in mesh.axes if a not in carry]
            if node in self.checks and self.checks[node].strategy.ins is not None:
                yield from ((a, carry) for a in self.checks[node].options(free))
                continue
            tried: list[Assignment] = []
            for lead, others in [(lead, others) for others in (known, made, []) for lead in known] + [(None, [])]:
                assignment: Assignment = {}
                for term, layout in [lead, *others] if lead else []:
                    assignment = extend(rule, mesh, assignment, term, layout, carry)
                if assignment not in tried:
                    tried.append(assignment)
                    yield assignment, carry

    def carries(self, node: Node) -> list[frozenset]:
        """Sets of axes over which inputs may stay partial sums, the largest first."""
        none = frozenset()
        out = [none]
        for group in linear_groups(node) if self.lazy else ():
            part = [self.have[v][-1].partial if v in self.have and self.have[v][-1].kind == "sum" else none for v in node.ins]
            both = frozenset.intersection(*[part[i] for i in group])
            both -= none.union(*[part[i] for i in range(len(part)) if i not in group])
            if both:
                out.insert(0, both)
        return out

    def price(self, node: Node, assignment: Assignment, carry: frozenset):
        """(ranks that repeat work, cost of bringing the inputs and making the outputs whole), layouts in, layouts out."""
        ins, outs = layouts(self.plan.rule[node], assignment, node.op.reduction)
        if carry:
            if any(lay.kind != "sum" for lay in outs):
                return (INFINITE, INFINITE), ins, outs
            group = next(g for g in linear_groups(node) if all(self.has_partial(node.ins[i], carry) for i in g))
            ins = [replace(lay, partial=carry) if i in group else lay for i, lay in enumerate(ins)]
            outs = [replace(lay, partial=lay.partial | carry) for lay in outs]
        cost = sum(cheapest(self.mesh, v.shape, self.have[v], lay)[0]
                   for v, lay in zip(node.ins, ins, strict=True) if not self.free(v))
        for v, lay in zip(node.outs, outs, strict=True):
            cost += route(self.mesh, v.shape, lay, self.hint(v) or lay.reduced())[0]
        cost += halo_cost(self.mesh, node, self.plan.rule[node], assignment, ins)
        return (self.repeated(node, assignment, carry) if self.thrifty else 1, cost), ins, outs

    def repeated(self, node, assignment, carry) -> int:
        """Over how many ranks the op would be repeated although some input is there in pieces only."""
        split = {a for v in node.ins if v in self.have and v not in self.apart for a in self.pieces_only(v)}
        return self.mesh.count(split - carry - {a for axes in assignment.values() for a in axes})

    def pieces_only(self, v: Value) -> set[int]:
        """The axes that split a value in every layout in which it exists."""
        known = self.choices.get(v) or self.have[v]
        return known[-1].axes if v in self.choices else set.intersection(*(lay.axes for lay in known))

    def has_partial(self, v, axes) -> bool:
        return v in self.have and any(axes <= lay.partial for lay in self.have[v])

    # ---- deciding -----------------------------------------------------------------------------------------

    def fetch(self, v: Value, layout: TensorLayout) -> None:
        """Note that v is needed in a layout from here on."""
        if self.free(v):
            self.have[v], self.plan.layout[v] = [layout], layout
        elif layout in self.choices.pop(v, ()):
            self.have[v] = [layout]             # a batch that is read by rows is one that lies in rows, as it would on a cluster
        elif v not in self.apart:
            remember(self.have[v], cheapest(self.mesh, v.shape, self.have[v], layout)[1])

    def best(self, node: Node):
        """(assignment, layouts in, layouts out) of a node, the cheapest."""
        priced = [(*self.price(node, *option), option[0]) for option in self.options(node)]
        cost, ins, outs, assignment = min(priced, key=lambda p: p[0], default=((INFINITE,), None, None, None))
        if cost[0] == INFINITE or cost[1] == INFINITE:
            raise ValueError(f"{node.op}: no layout can be found for inputs of shape {[v.shape for v in node.ins]}")
        return assignment, ins, outs

    def situation(self, node: Node):
        """All that `best` depends on: equal layers decide alike."""
        ins = ((v.shape, tuple(self.have.get(v, ())), tuple(self.choices.get(v, ())), v in self.apart) for v in node.ins)
        return node.op, repr(node.op), tuple(ins), tuple((v.shape, self.hint(v)) for v in node.outs), \
            node if node in self.checks else None

    def run(self) -> Plan:
        plan, known = self.plan, {}
        for node in self.graph.nodes:
            for v in node.ins:
                if self.free(v) and (layout := self.hint(v)):
                    self.have[v], plan.layout[v] = [layout], layout
            alike = self.situation(node)
            if alike not in known:
                known[alike] = self.best(node)
            assignment, ins, outs = known[alike]
            for v, layout in zip(node.ins, ins, strict=True):
                self.fetch(v, layout)
            plan.assignment[node], plan.want[node] = dict(assignment), list(ins)
            goals = self.checks[node].out_layouts(assignment, outs) \
                if node in self.checks and self.checks[node].strategy.outs else [None] * len(outs)
            for v, layout, goal in zip(node.outs, outs, goals, strict=True):
                plan.layout[v], self.have[v] = layout, [layout]
                self.settle(v, layout, goal)
        for v in [*self.graph.inputs, *self.graph.parameters.values(), *self.graph.results()]:
            if self.free(v):
                self.fetch(v, self.hint(v) or whole(len(v.shape)))
        return plan

    def settle(self, v: Value, layout: TensorLayout, goal: TensorLayout | None) -> None:
        """Bring a value to the layout asked for, or reduce it where several will want it reduced."""
        many = self.settling and self.users[v] > 1
        if goal is None and layout.partial and (many or v in self.results):
            goal = self.hint(v) or layout.reduced()
        if goal is not None and goal != layout:
            self.plan.settle[v] = goal
            self.fetch(v, goal)
            if layout.partial:
                self.have[v].remove(layout)


def linear_groups(node: Node) -> list[list[int]]:
    """Which inputs may be partial together; an op of any number of inputs says more than there are."""
    return [[i for i in group if i < len(node.ins)] for group in node.op.linear]
