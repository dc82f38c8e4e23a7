"""The choices: in which ways each op can be split, in which layouts each kept value can lie, and what all that costs.

The mesh's axes are taken in groups, each as one: for every group an op splits one of its rule's factors, or works on partial
sums in which it is linear, or repeats its work. So all ops meet in one mesh, and every choice is legal by the rule.
"""
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from minispore.graph.ir import Node, Value
from minispore.parallel.algorithm import considered
from minispore.parallel.complete import Plan, linear_groups
from minispore.parallel.layout import TensorLayout
from minispore.parallel.legality import Check
from minispore.parallel.mesh import Mesh
from minispore.parallel.redistribution import FEW, together
from minispore.parallel.search.problem import Problem
from minispore.parallel.search.task import Layouts, Task
from minispore.parallel.sharding import Assignment, fits, layouts

Axes = tuple[int, ...]
Roles = tuple[tuple[Axes, str | int | None], ...]   # what groups of axes do: split a factor, carry sums of linear[i], nothing


@dataclass(frozen=True)
class Choice:
    """A way to run an op: what its axes do, and the layouts that follow. kept: as outs, where an out_strategy asks for
    another layout than it makes."""
    roles: Roles
    assignment: Assignment
    ins: Layouts
    outs: Layouts
    kept: Layouts
    seconds: float


def groupings(mesh: Mesh, parts: int) -> list[tuple[Axes, ...]]:
    """All ways to take the axes in so many groups of neighbours; one by one, if there are no more axes than that.

    >>> groupings(Mesh(16), 2)
    [((0,), (1, 2, 3)), ((0, 1), (2, 3)), ((0, 1, 2), (3,))]
    """
    n = len(mesh.axes)
    if n <= parts:
        return [tuple((a,) for a in mesh.axes)]
    return [tuple(tuple(range(a, b)) for a, b in zip((0, *cuts), (*cuts, n), strict=True))
            for cuts in combinations(range(1, n), parts - 1)]


def node_choices(task: Task, node: Node, groups: Sequence[Axes], base: Roles = ()) -> Iterator[Choice]:
    """All a node may do with these groups of axes, after what `base` says of others."""
    rule, mesh, check = task.rules[node], task.mesh, task.checks.get(node)
    carried = [j for j, group in enumerate(linear_groups(node))
               if group and all(node.ins[i].node is not None and not task.kept(node.ins[i]) for i in group)]
    given = asked(check)
    factors = () if given else [f for f in rule.factors() if rule.sizes[f] > 1]
    starts = check.options(list(mesh.axes)) if given else [{}]
    for start, options in product(starts, product([None, *factors, *carried], repeat=len(groups))):
        roles = (*base, *zip(groups, options, strict=True))
        assignment, carry = dict(start), {}
        for axes, role in roles:
            table = assignment if isinstance(role, str) else carry
            if role is not None:
                table[role] = (*table.get(role, ()), *axes)
        used = [a for axes in (*assignment.values(), *carry.values()) for a in axes]
        if len(set(used)) < len(used) or not fits(rule, mesh, assignment):
            continue
        made = placed(node, rule, assignment, carry)
        if made is not None:
            ins, outs = made
            kept = check.out_layouts(assignment, outs) if check is not None and check.strategy.outs else outs
            spent = task.compute(node, assignment, ins, outs)
            spent += sum(task.exchange(v, a, b) for v, a, b in zip(node.outs, outs, kept, strict=True))
            yield Choice(roles, assignment, ins, tuple(outs), tuple(kept), spent)


def asked(check: Check | None) -> bool:
    """Whether the script says how an op's inputs are split."""
    return check is not None and check.strategy.ins is not None


def placed(node: Node, rule, assignment: Assignment, carry: dict[int, Axes]) -> tuple[Layouts, Layouts] | None:
    """Layouts of the inputs and outputs, with some inputs partial sums; None where what is left isn't a sum."""
    ins, outs = layouts(rule, assignment, node.op.reduction)
    if carry:
        if any(lay.kind != "sum" for lay in outs):
            return None
        for j, axes in carry.items():
            for i in linear_groups(node)[j]:
                ins[i] = replace(ins[i], partial=ins[i].partial | set(axes))
        summed = {a for axes in carry.values() for a in axes}
        outs = [replace(lay, partial=lay.partial | summed) for lay in outs]
    return tuple(ins), tuple(outs)


class Space:
    """The problem of a task for some groups of axes. colours: see alike.py; base: {colour of a node: what other axes do};
    only: the axes whose costs count, None for all.

    variables: for each variable of the problem its choices: of a node `Choice`s, of a kept value layouts.
    """

    def __init__(self, task: Task, groups: Sequence[Axes], colours: tuple[dict[Node, int], dict[Value, int]],
                 base: dict[int, Roles] | None = None, only: set[int] | None = None):
        self.only = only
        self.task, self.groups, self.problem, self.variables = task, tuple(groups), Problem(), []
        self.of_node, self.of_value, self.known = {}, {}, {}
        self.node_colours, self.value_colours = colours
        many = Counter(self.node_colours.values())
        for node, colour in self.node_colours.items():
            if colour not in self.of_node:
                choices = list(node_choices(task, node, groups, (base or {}).get(colour, ())))
                if not asked(task.checks.get(node)):
                    choices = considered(task, node, choices)
                if not choices:
                    raise ValueError(f"{node.op}: there is no way to lay it out over {task.mesh.n} devices for inputs of shape "
                                     f"{[v.shape for v in node.ins]} as its strategy asks; change the strategy")
                self.of_node[colour] = self.variable(choices)
                self.problem.add([self.of_node[colour]], many[colour] * np.array([c.seconds for c in choices]))
        self.connect()

    def variable(self, choices: list) -> int:
        self.variables.append(choices)
        return self.problem.variable(len(choices))

    def connect(self) -> None:
        """The kept values and their layouts, and what every move costs."""
        task, graph = self.task, self.task.graph
        made = defaultdict(Counter)                 # {colour of a kept value: {(variable, output): how many}}
        wanted = defaultdict(Counter)               # {colour of a kept value: {(variable, input): how many}}
        direct: Counter = Counter()                 # {(variable, output, variable, input): how many}, of values that aren't kept
        sample: dict = {colour: v for v, colour in self.value_colours.items()}
        for node in graph.nodes:
            mine = self.of_node[self.node_colours[node]]
            for k, v in enumerate(node.outs):
                if v in self.value_colours:
                    made[self.value_colours[v]][mine, k] += 1
            for i, v in enumerate(node.ins):
                if v in self.value_colours:
                    wanted[self.value_colours[v]][mine, i] += 1
                elif v.node is not None:
                    key = self.of_node[self.node_colours[v.node]], v.node.outs.index(v), mine, i
                    direct[key] += 1
                    sample[key] = v
        for colour in dict.fromkeys(self.value_colours.values()):
            v, makers, users = sample[colour], made[colour], wanted[colour]
            mine = self.of_value[colour] = self.variable(self.kept_layouts(v, makers, users))
            for (maker, k), n in makers.items():
                self.moves(v, maker, [c.kept[k] for c in self.variables[maker]], mine, self.variables[mine], n)
            for (user, i), n in users.items():
                self.moves(v, mine, self.variables[mine], user, [c.ins[i] for c in self.variables[user]], n)
        for key, n in direct.items():
            maker, k, user, i = key
            self.moves(sample[key], maker, [c.kept[k] for c in self.variables[maker]],
                       user, [c.ins[i] for c in self.variables[user]], n)
        for v in dict.fromkeys(graph.results()):
            if v.node is not None or v in task.stored:
                self.leave(v)

    def kept_layouts(self, v: Value, makers, users) -> list[TensorLayout]:
        """The layouts in which a value can be kept: what is decided, or whatever somebody makes or wants."""
        if v in self.task.given:
            return self.task.given[v][:1]
        some = [c.kept[k].reduced() for maker, k in makers for c in self.variables[maker]]
        some += [c.ins[i].reduced() for user, i in users for c in self.variables[user]]
        return list(dict.fromkeys(some)) or [TensorLayout(((),) * len(v.shape))]

    def moves(self, v: Value, a: int, sources: Sequence[TensorLayout], b: int, goals: Sequence[TensorLayout], n: int = 1) -> None:
        """Add what it costs n times to bring a value from where choices of `a` leave it to where those of `b` want it."""
        from_, to = ({lay: i for i, lay in enumerate(dict.fromkeys(some))} for some in (sources, goals))
        key = v.shape, v.dtype.itemsize, tuple(from_), tuple(to)        # many values have the same shape and the same choices
        if key not in self.known:
            self.known[key] = np.array([[self.exchange(v, src, dst) for dst in to] for src in from_])
        rows, columns = [from_[lay] for lay in sources], [to[lay] for lay in goals]
        self.problem.add((a, b), n * self.known[key][np.ix_(rows, columns)])

    def exchange(self, v: Value, src: TensorLayout, dst: TensorLayout) -> float:
        """Seconds of a move. One in which many axes go ways of their own isn't considered: its route would take long to find, and
        nobody wants it."""
        if self.only is not None:
            src, dst = along(src, self.only), along(dst, self.only)
        moved = src.axes | src.partial | dst.axes
        return np.inf if len(moved) > FEW and len(together(src, dst)) > FEW else self.task.exchange(v, src, dst)

    def leave(self, v: Value) -> None:
        """Add what it costs that a result leaves."""
        mine, sources = self.place(v)
        goal = self.task.goal.get(v)
        if isinstance(goal, Value):
            other = self.of_value[self.value_colours[goal]]
            self.moves(v, mine, sources, other, self.variables[other])
        else:
            self.problem.add([mine], [self.task.exchange(v, lay, self.task.leave(v, lay.reduced()) if goal is None else goal)
                                      for lay in sources])

    def place(self, v: Value) -> tuple[int, list[TensorLayout]]:
        """The variable that says in which layout users find a value, and the layout for each of its choices."""
        if v in self.value_colours:
            mine = self.of_value[self.value_colours[v]]
            return mine, self.variables[mine]
        mine = self.of_node[self.node_colours[v.node]]
        k = v.node.outs.index(v)
        return mine, [c.kept[k] for c in self.variables[mine]]

    def amounts(self, at: int) -> dict[int, np.ndarray]:
        """{variable: bytes of each of its choices} of what is alive while node number `at` runs."""
        out: dict[int, np.ndarray] = {}
        for v, (begin, end) in self.task.alive.items():
            if begin <= at <= end:
                mine, lies = self.place(v)
                out[mine] = out.get(mine, 0.0) + np.array([self.task.bytes(v, lay) for lay in lies], float)
        return out

    def least(self) -> tuple[list[np.ndarray], np.ndarray]:
        """(for each variable the choices with which each of its values is as small as any makes it, bytes at each moment of the
        program if all of them are)."""
        kept = [np.arange(len(choices)) for choices in self.variables]
        change = np.zeros(len(self.task.graph.nodes) + 2, np.int64)
        for v, (begin, end) in self.task.alive.items():
            mine, lies = self.place(v)
            size = np.array([self.task.bytes(v, lay) for lay in lies])
            kept[mine] = kept[mine][size[kept[mine]] == size.min()]
            change[begin] += size.min()
            change[end + 1] -= size.min()
        return kept, change.cumsum()[:-1]

    def plan(self, choice: Sequence[int]) -> Plan:
        """The plan of a decision."""
        task = self.task
        plan = Plan(task.mesh, dict(task.rules), apart=task.apart)
        for node in task.graph.nodes:
            mine = self.of_node[self.node_colours[node]]
            c = self.variables[mine][choice[mine]]
            plan.assignment[node], plan.want[node] = c.assignment, list(c.ins)
            for v, lay, kept in zip(node.outs, c.outs, c.kept, strict=True):
                plan.layout[v] = lay
                if kept != lay:
                    plan.settle[v] = kept
        for v, colour in self.value_colours.items():
            lay = self.variables[self.of_value[colour]][choice[self.of_value[colour]]]
            if v.node is None:
                plan.layout[v] = lay
            elif lay != plan.layout[v]:
                plan.settle[v] = lay
        for v in {v for node in task.graph.nodes for v in node.ins} | set(task.graph.results()):
            if v.node is None and v not in task.stored:
                plan.layout[v] = TensorLayout(((),) * len(v.shape))
        return plan


def along(lay: TensorLayout, axes: set[int]) -> TensorLayout:
    """What a layout does with some axes.

    >>> print(along(TensorLayout(((0, 1), ()), frozenset({2})), {1, 2}))
    (b, -) sum over c
    """
    return TensorLayout(tuple(tuple(a for a in dim if a in axes) for dim in lay.dims), lay.partial & axes,
                        lay.kind if lay.partial & axes else "sum")
