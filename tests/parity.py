"""A traced step on the ranks of a mesh, in lock-step, against one device."""
from copy import copy
from dataclasses import dataclass, field
from itertools import count

import numpy as np

import minispore as ms
from minispore import Tensor, ops
from minispore.common.recorder import recorder
from minispore.graph.compile import trace_call
from minispore.graph.ir import Graph, Node
from minispore.graph.passes import simplify
from minispore.ops.rule import Rule
from minispore.ops.strategy import Strategy
from minispore.parallel.complete import Completion
from minispore.parallel.lockstep import LockStep
from minispore.parallel.logical import asked_of_parameters, check_of, goals, leaving, rule_of
from minispore.parallel.mesh import Mesh
from minispore.parallel.partition import Partitioned, partition
from minispore.parallel.sharding import as_strategy, assignments, candidates, fits

ROWS = 12                   # what a partial input is reduced from; 2, 3, 4 and 6 divide it
TOLERANCE = 1e-10
Forced = dict[Node, dict]   # {factor: axes} of nodes that a strategy can't say it of


class Choice:
    """What a Check is to completion, for an assignment that is given as such."""
    strategy = Strategy(())

    def __init__(self, options):
        self.options = options              # free axes -> assignments


def cut(graph: Graph, rules, mesh: Mesh, given=None, forced: Forced | None = None, **switches) -> Partitioned:
    """compile_graph, with the assignments of some nodes forced."""
    checks = {node: check_of(node, rules[node], mesh) for node in graph.nodes if node.op.strategy is not None}
    given = {**asked_of_parameters(graph, mesh, rules, checks), **(given or {})}
    for node, assignment in (forced or {}).items():
        checks[node] = Choice(lambda free, a=assignment: [a] if {x for axes in a.values() for x in axes} <= set(free) else [])
    plan = Completion(graph, mesh, rules, given, checks, **switches).run()
    return partition(graph, plan, leaving(goals(graph), plan))


def evaluate(graph: Graph, feed: dict) -> list[np.ndarray]:
    """The graph's results on one device, node by node."""
    at = dict(feed)
    for node in graph.nodes:
        out = node.op.compute(node.op.infer(*node.ins), [at[v] if v in at else v.array for v in node.ins])
        at.update(zip(node.outs, [out] if node.single else out, strict=True))
    return [at[v] if v in at else v.array for v in graph.results()]


def assert_equal(mine, expected, what):
    for i, (a, b) in enumerate(zip(mine, expected, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, (what, i)
        if b.dtype.kind == "f":
            off = np.abs(a - b).max(initial=0) / (1 + np.abs(b).max(initial=0))
            assert off <= TOLERANCE, f"{what}: result {i} is off by {off}"
        else:
            assert np.array_equal(a, b), f"{what}: result {i} differs"


@dataclass
class Traced:
    """The graph of one call of a function and its gradients, with its inputs and one device's results.

    partial: {input: (kind, number of mesh axes over which it arrives partial)}; it is reduced from 12 rows in the graph.
    gradients: without them the inputs have one consumer each, so that partial ones stay so wherever the op allows it.
    """
    fn: object
    arrays: list
    partial: dict = field(default_factory=dict)
    differentiable: bool = True
    gradients: bool = True

    def __post_init__(self):
        self.marked, self.reducing = [], {}
        arrays = [rows(a, self.partial[i][0], i) if i in self.partial else a for i, a in enumerate(self.arrays)]
        wrt = tuple(i for i, a in enumerate(arrays) if a.dtype.kind == "f")
        step = self.loss if self.differentiable else self.called
        if self.differentiable and self.gradients:
            step = ms.value_and_grad(step, wrt)
        self.graph = simplify(trace_call(step, *map(Tensor, arrays)))
        self.feed = dict(zip(self.graph.inputs, arrays, strict=True))
        self.expected = evaluate(self.graph, self.feed)
        self.rules = {node: rule_of(node) for node in self.graph.nodes}
        here = set(self.graph.nodes)
        self.forward = [node for node in self.marked if node in here]
        self.reducing = {i: node for i, node in self.reducing.items() if node in here}

    def called(self, *xs):
        nodes, inputs = recorder().graph.nodes, []
        for i, x in enumerate(xs):
            if i in self.partial:
                x = (ops.ReduceSum if self.partial[i][0] == "sum" else ops.ReduceMax)()(x, 0)
                self.reducing[i] = nodes[-1]
            inputs.append(x)
        start = len(nodes)
        out = self.fn(*inputs)
        self.marked = nodes[start:]
        return out

    def loss(self, *xs):
        """A number that depends on each element of the result in a way of its own. Not linearly, so that a sum that is
        still to be made can't pass for made."""
        out, total = self.called(*xs), 0
        for t in out if isinstance(out, tuple) else (out,):
            weights = Tensor(np.cos(np.arange(t.size, dtype=float)).reshape(t.shape))
            total = total + ops.sum(ops.tanh(t * 0.3) * weights)
        return total

    def nodes(self) -> list[Node]:
        """The function's nodes that differ in op or shapes; where inputs arrive partial, those that take them."""
        partial = {v for node in self.reducing.values() for v in node.outs}
        return list({(repr(node.op), *(v.shape for v in node.ins)): node for node in self.forward[::-1]
                     if not partial or partial & set(node.ins)}.values())[::-1]

    def reduced_over(self, mesh: Mesh) -> Forced | None:
        """The reductions' assignments on this mesh; None if it has too few axes."""
        forced = {}
        for i, node in self.reducing.items():
            axes = tuple(mesh.axes)[-self.partial[i][1]:]
            if len(axes) < self.partial[i][1] or ROWS % mesh.count(axes):
                return None
            forced[node] = {self.rules[node].ins[0][0][0]: axes}
        return forced

    def assert_parity(self, mesh: Mesh, forced: Forced | None = None, given=None, **switches):
        program = cut(self.graph, self.rules, mesh, given, forced, **switches)
        assert_equal(LockStep(program, self.feed).run(), self.expected, mesh)
        return program

    def sharded(self, mesh: Mesh, node: Node):
        """Every legal split of a node, one after the other: yields assignments to be forced, empty where the node has got
        a strategy instead."""
        rule, op = self.rules[node], node.op
        named = {f for term in rule.ins for dim in term for f in dim}
        try:
            for counts in candidates(rule, mesh):
                if all(n == 1 or f in named for f, n in counts.items()) and rule.ins:
                    node.op = copy(op).shard(as_strategy(rule, counts))
                    yield {}
                else:
                    node.op = op
                    yield {node: next(a for a in assignments(rule, mesh, counts, list(mesh.axes)) if fits(rule, mesh, a))}
        finally:
            node.op = op


def partials(arrays):
    """Which inputs may arrive partial, how: each sum and maximum over one and two mesh axes, and all sums at once."""
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    alone = [{i: (kind, axes)} for i in floats for kind in ("sum", "max") for axes in (1, 2)]
    return [{}, *alone, *([{i: ("sum", 1) for i in floats}] if len(floats) > 1 else [])]


def directed(first: Traced, devices, every: int = 1) -> int:
    """Each node split in all ways with whole inputs, and with partial ones, with and without gradients; where one input
    alone is partial, in every `every`-th way. Returns how many there were."""
    done, turn = 0, count()
    wanted = [(partial, gradients) for partial in partials(first.arrays) for gradients in (True, False)
              if gradients or (partial and first.differentiable)]
    for partial, gradients in wanted:
        case = Traced(first.fn, first.arrays, partial, first.differentiable, gradients)
        for mesh in map(Mesh, devices):
            made = case.reduced_over(mesh)
            for node in case.nodes() if made is not None else ():
                for forced in case.sharded(mesh, node):
                    if len(partial) != 1 or next(turn) % every == 0:
                        case.assert_parity(mesh, {**made, **forced}, settle=done % 2 == 0)
                        done += 1
    return done


def splits(rule: Rule, mesh: Mesh) -> list[dict]:
    """All assignments of a rule, not only the row-major ones."""
    return [a for counts in candidates(rule, mesh)
            for a in assignments(rule, mesh, counts, list(mesh.axes)) if fits(rule, mesh, a)]


def rows(array, kind, seed):
    """12 arrays whose sum or maximum is the given one."""
    rng = np.random.default_rng(seed)
    if kind == "sum":
        out = rng.integers(-3, 4, (ROWS, *array.shape)).astype(float)
        out[0] = array - out[1:].sum(0)
        return out
    out = array - rng.uniform(0.5, 1, (ROWS, *array.shape))
    np.put_along_axis(out, rng.integers(0, ROWS, (1, *array.shape)), array[None], 0)
    return out
