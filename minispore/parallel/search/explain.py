"""What a search has found, and why."""
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from minispore.graph.ir import Node
from minispore.parallel.complete import Plan
from minispore.parallel.redistribution import route
from minispore.parallel.search.choices import node_choices
from minispore.parallel.search.task import Task, kept_in
from minispore.parallel.sharding import as_strategy


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

    @property
    def memory(self) -> int:
        """Most bytes a rank has alive at once: parameters, optimizer states, gradients, activations."""
        return self.task.peak(self.plan)[0]

    @cached_property
    def _parts(self):
        return self.task.parts(self.plan)

    def strategy(self, node: Node) -> tuple:
        """A node's split counts, as `shard` takes them."""
        mesh = self.plan.mesh
        return as_strategy(self.plan.rule[node], {f: mesh.count(axes) for f, axes in self.plan.assignment[node].items()})

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
        best = None
        for choice in node_choices(task, node, [(a,) for a in plan.mesh.axes]) if len(plan.mesh.axes) <= 3 else \
                node_choices(task, node, groups_of(plan)):
            if choice.assignment == plan.assignment[node] or as_strategy(plan.rule[node], {
                    f: plan.mesh.count(a) for f, a in choice.assignment.items()}) == self.strategy(node):
                continue
            spent = choice.seconds + sum(task.exchange(v, kept_in(plan, v), want)
                                         for v, want in zip(node.ins, choice.ins, strict=True))
            for v, lay in zip(node.outs, choice.kept, strict=True):
                spent += self.users_seconds(v, lay)
            if best is None or spent < best[1]:
                strategy = as_strategy(plan.rule[node], {f: plan.mesh.count(a) for f, a in choice.assignment.items()})
                best = strategy, spent
        return best and (best[0], self.seconds - now + best[1])

    def users_seconds(self, v, made) -> float:
        """Seconds of all moves of a value that is made in another layout."""
        task, plan = self.task, self.plan
        if task.kept(v):
            kept = kept_in(plan, v).reduced()
            after = sum(s for (w, user), s in self._parts[1].items() if w is v and user is not None)
            return task.exchange(v, made, kept) + after
        wants = [want for node in task.graph.nodes for w, want in zip(node.ins, plan.want[node], strict=True) if w is v]
        wants += [task.final(v, made.reduced(), plan.layout)] if v in task.graph.results() else []
        return sum(task.exchange(v, made, want) for want in wants)

    def show(self, most: int = 40) -> str:
        """What was found as text: the totals, and for the `most` dearest ops the strategy, its parts and the next best."""
        compute, moves = self._parts
        spent = {node: compute[node] + sum(s for (v, user), s in moves.items() if user is node) for node in compute}
        lines = [f"{self.mode} on {self.plan.mesh.n} × {self.task.cluster}: {micro(self.seconds)} a step = "
                 f"{micro(sum(compute.values()))} computing + {micro(sum(moves.values()))} moving; "
                 f"memory {self.memory:,} bytes a rank" + (f" of {self.limit:,}" if self.limit is not None else "")]
        if self.data_parallel is not None:
            other = self.task.seconds(self.data_parallel)
            lines.append(f"pure data parallel: {micro(other)}, {other / max(self.seconds, 1e-30):.2f} times as long, memory "
                         f"{self.task.peak(self.data_parallel)[0]:,} bytes")
        lines.append("no bound is known" if self.bound is None else
                     f"no plan of these choices is below {micro(self.bound)}: at most {100 * self.gap:.2f} % above the best")
        for node in sorted(spent, key=spent.get, reverse=True)[:most]:
            other = self.next_best(node)
            causes = ", ".join(f"{n} {op}" for op, n in self.collectives(node).items())
            lines.append(f"{node.op.name}{' of ' + node.scope if node.scope else ''} {self.strategy(node)}: "
                         f"{micro(compute[node])} + {micro(spent[node] - compute[node])}" + (f" ({causes})" if causes else "")
                         + (f"; next best {other[0]}: {micro(other[1])} a step" if other else ""))
        return "\n".join(lines)

    def __str__(self):
        return self.show()


def groups_of(plan: Plan) -> list[tuple[int, ...]]:
    """The groups of axes that a plan uses as one."""
    cuts = set()
    for assignment in plan.assignment.values():
        for axes in assignment.values():
            if axes:
                cuts |= {min(axes), max(axes) + 1}
    edges = sorted({0, len(plan.mesh.axes)} | cuts)
    return [tuple(range(a, b)) for a, b in pairwise(edges)][:3]


def micro(seconds: float) -> str:
    """Seconds for people."""
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"
