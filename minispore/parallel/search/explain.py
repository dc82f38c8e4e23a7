"""What a search has found, and why."""
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf

from minispore.graph.ir import Node
from minispore.parallel.complete import Plan
from minispore.parallel.redistribution import route
from minispore.parallel.search.choices import node_choices
from minispore.parallel.search.task import Task, kept_in
from minispore.parallel.sharding import Assignment, as_strategy
from minispore.parallel.simulator.timeline import duration

MOST = 3                    # groups of axes that the next best is looked for in


@dataclass(eq=False)
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
        return self.task.seconds(self.plan)

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
    def _parts(self):
        return self.task.parts(self.plan)

    @cached_property
    def _wants(self) -> dict:
        """{value: the layouts in which it is wanted}."""
        out: dict = {}
        for node in self.task.graph.nodes:
            for v, want in zip(node.ins, self.plan.want[node], strict=True):
                out.setdefault(v, []).append(want)
        return out

    def strategy(self, node: Node, assignment: Assignment | None = None) -> tuple:
        """A node's split counts, as `shard` takes them. assignment: another than the plan's."""
        assignment = self.plan.assignment[node] if assignment is None else assignment
        return as_strategy(self.plan.rule[node], {f: self.plan.mesh.count(axes) for f, axes in assignment.items()})

    def collectives(self, node: Node) -> Counter:
        """The collectives that its inputs' moves take."""
        out = Counter()
        for v, want in zip(node.ins, self.plan.want[node], strict=True):
            have = kept_in(self.plan, v)
            if have != want and (v.node is not None or v in self.task.stored):
                out.update(m.op for m in route(self.plan.mesh, v.shape, have, want)[1] if m.op != "slice")
        return out

    def next_best(self, node: Node) -> tuple[tuple, float] | None:
        """(strategy, seconds of the whole step) of the best other way to split this node, all others as they are."""
        task, plan = self.task, self.plan
        compute, moves = self._parts
        now = compute[node] + sum(s for (v, user), s in moves.items() if user is node or v in node.outs)
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
            kept = kept_in(plan, v).reduced()
            after = sum(s for (w, user), s in self._parts[1].items() if w is v and user is not None)
            return task.exchange(v, made, kept) + after
        wants = [*self._wants.get(v, ()), *([task.final(v, made.reduced(), plan.layout)] if v in task.graph.results() else [])]
        return sum(task.exchange(v, made, want) for want in wants)

    def show(self, most: int = 40) -> str:
        """What was found as text: the totals, and for the `most` dearest ops the strategy, its parts and the next best."""
        compute, moves = self._parts
        spent = {node: compute[node] + sum(s for (v, user), s in moves.items() if user is node) for node in compute}
        lines = [f"{self.mode} on {self.plan.mesh.n} × {self.task.cluster}: {duration(self.seconds)} a step = "
                 f"{duration(sum(compute.values()))} computing + {duration(sum(moves.values()))} moving; "
                 f"memory {self.memory:,} bytes a rank" + (f" of {self.limit:,}" if self.limit is not None else "")]
        if self.data_parallel is not None:
            other = self.task.seconds(self.data_parallel)
            lines.append(f"pure data parallel: {duration(other)}, {other / max(self.seconds, 1e-30):.2f} times as long, memory "
                         f"{self.task.memory(self.data_parallel):,} bytes")
        lines.append("no bound is known" if self.bound is None else
                     f"no plan of these choices is below {duration(self.bound)}: at most {self.gap:.2%} above the best")
        for node in sorted(spent, key=spent.get, reverse=True)[:most]:
            other = self.next_best(node)
            causes = ", ".join(f"{n} {op}" for op, n in self.collectives(node).items())
            moving = duration(spent[node] - compute[node]) + (f" ({causes})" if causes else "")
            lines.append(f"{node.op.name}{' of ' + node.scope if node.scope else ''} {self.strategy(node)}: "
                         f"{duration(compute[node])} + {moving}"
                         + (f"; next best {other[0]}: {duration(other[1])} a step" if other else ""))
        return "\n".join(lines)

    def __str__(self):
        return self.show()


def groups_of(plan: Plan) -> list[tuple[int, ...]]:
    """Axes in groups: one by one if they are few, else as the plan uses them, and what is over in the last."""
    n = len(plan.mesh.axes)
    used = [axes for assignment in plan.assignment.values() for axes in assignment.values() if axes]
    cuts = sorted({0, n, *(min(axes) for axes in used), *(max(axes) + 1 for axes in used)}) if n > MOST else range(n + 1)
    return [tuple(range(a, b)) for a, b in pairwise([*cuts[:-1][:MOST], n])]
