"""What a search has found, and why: totals, and a table of rows, which `show` writes and lab/draw/plan.py draws."""
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from math import inf
from typing import NamedTuple

from minispore.graph.ir import Node, Value
from minispore.parallel.complete import Plan
from minispore.parallel.redistribution import route
from minispore.parallel.search.alike import what
from minispore.parallel.search.choices import node_choices
from minispore.parallel.search.task import Task, kept_in
from minispore.parallel.sharding import Assignment, as_strategy
from minispore.parallel.simulator.timeline import duration, size

MOST = 3                    # groups of axes that the next best is looked for in
ROUNDING = 1e-6             # of a step: a smaller difference is none


class Row(NamedTuple):
    """What `count` ops that are alike cost together; 0 of what is no op. computing, moving: seconds; memory: bytes that their
    results take at the moment when most is taken; scope: the cell that calls them, * for numbers that differ; shape: of what each
    gives; other: the next best strategy; extra: seconds that it adds to the step, each of them changed alone."""
    op: str
    count: int
    computing: float
    moving: float
    memory: int
    collectives: Counter
    scope: str = ""
    shape: tuple = ()
    strategy: tuple | None = None
    other: tuple | None = None
    extra: float = 0.0


@dataclass(eq=False, repr=False)
class Found:
    """plan: the layouts; bound: what no plan of the same choices can cost less than, where the mode proves that (seconds);
    data_parallel: that plan, where no strategy forbids it; limit: bytes; took: seconds the search took."""
    task: Task
    mode: str
    plan: Plan
    bound: float | None
    data_parallel: Plan | None
    limit: int | None
    took: float

    @cached_property
    def seconds(self) -> float:
        """Predicted seconds of a step, without overlap."""
        return sum(sum(part.values()) for part in self.parts)

    def result(self) -> Plan:
        """The plan, which knows how it was found."""
        self.plan.found = self
        return self.plan

    @property
    def gap(self) -> float | None:
        """How far above the bound the plan may be, relative to it; 0 is proved to be the best."""
        return None if self.bound is None else max(self.seconds - self.bound, 0.0) / max(self.bound, 1e-30)

    @cached_property
    def memory(self) -> int:
        """Bytes a rank takes: parameters, optimizer states, gradients, activations, and the copies that moves make."""
        return self.task.memory(self.plan)

    @cached_property
    def parts(self) -> tuple[dict, dict]:
        """Seconds of each node and of each move, as `Task.parts` has them."""
        return self.task.parts(self.plan)

    @cached_property
    def _results(self) -> set[Value]:
        return {v for v in self.task.graph.results() if v.node is not None or v in self.task.stored}

    @cached_property
    def _wants(self) -> dict[Value, list]:
        """{value: the layouts in which it is wanted}."""
        out: dict = defaultdict(list)
        for node in self.task.graph.nodes:
            for v, want in zip(node.ins, self.plan.want[node], strict=True):
                out[v].append(want)
        for v in self._results:
            out[v].append(self.final(v))
        return out

    def final(self, v: Value):
        """The layout in which a result leaves."""
        return self.task.final(v, kept_in(self.plan, v), self.plan.layout)

    @cached_property
    def moves(self) -> dict[Node | None, list[tuple]]:
        """{node: (value, from which layout, to which) of its own moves}: of its inputs to where it wants them, of its outputs to
        where they are kept and where they leave. None has those of inputs and parameters."""
        plan, out = self.plan, defaultdict(list)
        for node in self.task.graph.nodes:
            out[node] += [(v, kept_in(plan, v), want) for v, want in zip(node.ins, plan.want[node], strict=True)]
        for v, kept in plan.settle.items():
            out[v.node].append((v, plan.layout[v], kept))
        for v in self._results:
            out[v.node].append((v, kept_in(plan, v), self.final(v)))
        return out

    @cached_property
    def _after(self) -> tuple[Counter, Counter]:
        """({value: seconds until it lies as it is kept}, {value: seconds of its moves from there to its users})."""
        out = Counter(), Counter()
        for (v, user), seconds in self.parts[1].items():
            out[user is not None][v] += seconds
        return out

    def strategy(self, node: Node, assignment: Assignment | None = None) -> tuple:
        """A node's split counts, as `shard` takes them. assignment: another than the plan's."""
        assignment = self.plan.assignment[node] if assignment is None else assignment
        return as_strategy(self.plan.rule[node], {f: self.plan.mesh.count(axes) for f, axes in assignment.items()})

    def collectives(self, node: Node | None) -> Counter:
        """The collectives that its moves take."""
        out = Counter()
        for v, have, want in self.moves[node]:
            if have != want and (v.node is not None or v in self.task.stored):
                out.update(m.op for m in route(self.plan.mesh, v.shape, have, want)[1] if m.op != "slice")
        return out

    def next_best(self, node: Node) -> tuple[tuple, float] | None:
        """(strategy, seconds of the whole step) of the best other way to split this node, all others as they are."""
        task, plan = self.task, self.plan
        now = self.parts[0][node] + sum(some[v] for some in self._after for v in node.outs)
        now += sum(task.exchange(v, kept_in(plan, v), want) for v, want in zip(node.ins, plan.want[node], strict=True))
        others = {}
        for choice in node_choices(task, node, groups_of(plan)):
            strategy = self.strategy(node, choice.assignment)
            spent = choice.seconds + sum(task.exchange(v, kept_in(plan, v), want)
                                         for v, want in zip(node.ins, choice.ins, strict=True))
            spent += sum(self.users_seconds(v, lay) for v, lay in zip(node.outs, choice.kept, strict=True))
            others[strategy] = min(spent, others.get(strategy, inf))
        others.pop(self.strategy(node), None)
        best = min(others, key=others.get, default=None)
        return best and (best, self.seconds - now + others[best])

    def users_seconds(self, v, made) -> float:
        """Seconds of all moves of a value that is made in another layout."""
        task, plan = self.task, self.plan
        if task.kept(v):
            return task.exchange(v, made, kept_in(plan, v).reduced()) + self._after[1][v]
        wants = [task.final(v, made.reduced(), plan.layout)] if v in self._results else self._wants[v]
        return sum(task.exchange(v, made, want) for want in wants)          # it has one user at most

    # ---- the table -------------------------------------------------------------------------------------------

    def rows(self, most: int | None = None) -> list[Row]:
        """The dearest first, by their shares of the step and of the memory: `most` rows of ops, one for all others, and one for
        inputs and parameters. Their sums are the plan's. A network of many equal layers has no more rows than one of a few."""
        groups = defaultdict(list)
        for node in self.task.graph.nodes:
            groups[self.situation(node)].append(node)
        every = [(self.row(nodes), nodes[0]) for nodes in groups.values()]
        seconds, memory = self.seconds or 1.0, self.held.total() or 1
        every.sort(key=lambda pair: -(pair[0].computing + pair[0].moving) / seconds - pair[0].memory / memory)
        rows = [self.with_next_best(*pair) for pair in every[:most]]
        if others := [row for row, _ in every[len(rows):]]:
            rows.append(together("all others", others))
        moving = sum(self.task.exchange(*move) for move in self.moves[None])
        stored = Row("inputs and parameters", 0, 0.0, moving, self.held[None], self.collectives(None))
        return rows + [stored] * bool(stored.memory or stored.moving)

    def situation(self, node: Node) -> tuple:
        """All that a row and its next best depend on: nodes are alike if it is equal."""
        task, plan = self.task, self.plan
        ins = [(v.shape, str(v.dtype), v.node is None, v in task.stored, task.kept(v), kept_in(plan, v), want)
               for v, want in zip(node.ins, plan.want[node], strict=True)]
        outs = [(v.shape, str(v.dtype), task.kept(v), plan.layout[v], kept_in(plan, v),
                 frozenset(Counter(self._wants[v]).items())) for v in node.outs]
        split = frozenset((factor, axes) for factor, axes in plan.assignment[node].items() if axes)
        return what(node), str(node.op.strategy), numberless(node.scope), split, tuple(ins), tuple(outs)

    def row(self, nodes: list[Node]) -> Row:
        """Of nodes that are alike."""
        first, n, scopes = nodes[0], len(nodes), {node.scope for node in nodes}
        return Row(first.op.name, n, n * self.parts[0][first], n * sum(self.task.exchange(*move) for move in self.moves[first]),
                   sum(self.held[node] for node in nodes), Counter({op: n * k for op, k in self.collectives(first).items()}),
                   scopes.pop() if len(scopes) == 1 else numberless(first.scope), first.outs[0].shape if first.outs else (),
                   self.strategy(first))

    def with_next_best(self, row: Row, node: Node) -> Row:
        """The row of nodes like this one, and what the next best would add."""
        other = self.next_best(node)
        if other is None:
            return row
        extra = other[1] - self.seconds
        return row._replace(other=other[0], extra=row.count * extra if abs(extra) > ROUNDING * self.seconds else 0.0)

    @cached_property
    def held(self) -> Counter:
        """{node: bytes that its results take at the moment when most is taken}; None: inputs and parameters."""
        out, (_, at) = Counter(), self.task.peak(self.plan)
        for v, (begin, end) in self.task.alive.items():
            if begin <= at <= end:
                out[v.node] += self.task.bytes(v, kept_in(self.plan, v))
        return out

    def show(self, most: int = 40) -> str:
        """What was found as text: the totals, and the rows: op, cell, strategy, computing + moving, memory, the next best."""
        compute, moves = self.parts
        lines = [f"{self.mode} on {self.plan.mesh.n} × {self.task.cluster}: {duration(self.seconds)} a step = "
                 f"{duration(sum(compute.values()))} computing + {duration(sum(moves.values()))} moving; "
                 f"memory {self.memory:,} bytes a rank" + (f" of {self.limit:,}" if self.limit is not None else "")]
        if self.data_parallel is not None:
            other = self.task.seconds(self.data_parallel)
            lines.append(f"pure data parallel: {duration(other)}, {other / max(self.seconds, 1e-30):.2f} times as long, memory "
                         f"{self.task.memory(self.data_parallel):,} bytes")
        lines.append("no bound is known" if self.bound is None else
                     f"no plan of these choices is below {duration(self.bound)}: at most {self.gap:.2%} above the best")
        return "\n".join([*lines, *map(line, self.rows(most))])

    def __str__(self):
        return self.show()

    def __repr__(self):
        return f"Found: {self.mode} on {self.plan.mesh.n} × {self.task.cluster}: {duration(self.seconds)} a step"

    def _repr_svg_(self) -> str:
        """In a notebook it shows itself as a map."""
        from minispore.lab.draw.plan import plan  # only wanted there
        return plan(self).svg


# ---- rows in words -------------------------------------------------------------------------------------------

def line(row: Row) -> str:
    """A row as text."""
    causes = f" ({named(row.collectives)})" if row.collectives else ""
    parts = [times(row), f"of {row.scope}" if row.scope else "", "" if row.strategy is None else split_as(row.strategy)]
    held = f", holds {size(row.memory)}" if row.memory else ""
    other = f"; next best {split_as(row.other)}: {more(row.extra)}" if row.other is not None else ""
    return f"{' '.join(filter(None, parts))}: {duration(row.computing)} + {duration(row.moving)}{causes}{held}{other}"


def times(row: Row) -> str:
    """The op, and how many there are."""
    return f"{row.op} × {row.count:,}" if row.count > 1 else row.op


def split_as(strategy: tuple) -> str:
    """A strategy in few words.

    >>> split_as(((4, 1), (1, 2))), split_as(((1, 1), ())), split_as(((2,), (2,), (2,), ()))
    ('(4, 1) (1, 2)', 'not split', '3 × (2,) ()')
    """
    if all(n == 1 for counts in strategy for n in counts):
        return "not split"
    runs = [(counts, len(list(same))) for counts, same in groupby(strategy)]
    return " ".join(f"{n} × {counts}" if n > 2 else " ".join([str(counts)] * n) for counts, n in runs)


def named(collectives: Counter) -> str:
    """How many of which."""
    return ", ".join(f"{n:,} {op}" for op, n in collectives.items())


def more(seconds: float) -> str:
    """A difference, with its sign."""
    return f"{'−' if seconds < 0 else '+'}{duration(abs(seconds))}"


def together(name: str, rows: list[Row]) -> Row:
    """The sum of some rows."""
    return Row(name, sum(r.count for r in rows), sum(r.computing for r in rows), sum(r.moving for r in rows),
               sum(r.memory for r in rows), sum((r.collectives for r in rows), Counter()))


def numberless(scope: str) -> str:
    """A cell's name with * for its numbers: those of equal layers are one."""
    return re.sub(r"\d+", "*", scope)


def groups_of(plan: Plan) -> list[tuple[int, ...]]:
    """Axes in groups: one by one if they are few, else as the plan uses them, and what is over in the last."""
    n = len(plan.mesh.axes)
    used = [axes for assignment in plan.assignment.values() for axes in assignment.values() if axes]
    cuts = sorted({0, n, *(min(axes) for axes in used), *(max(axes) + 1 for axes in used)}) if n > MOST else range(n + 1)
    return [tuple(range(a, b)) for a, b in pairwise([*cuts[:-1][:MOST], n])]
