"""Small random graphs to be searched, and the best plan by trying all of them."""
from itertools import product
from math import prod

import numpy as np

from minispore import Parameter, Tensor, nn, ops
from minispore.common.tree import flatten
from minispore.graph.compile import is_input, trace
from minispore.graph.passes import simplify
from minispore.parallel.cost import cluster_of
from minispore.parallel.layout import whole
from minispore.parallel.logical import asked_of_parameters, check_of, goals, inherit, rule_of
from minispore.parallel.mesh import Mesh
from minispore.parallel.search.modes import spaces
from minispore.parallel.search.task import Task

SIZES = (2, 4, 6, 8, 64, 512)


def task_of(fn, inputs, devices: int, cluster="a100", given=None) -> Task:
    """The task of a function of tensors, whose inputs are whole."""
    leaves, skeleton = flatten((tuple(inputs), {}), is_input)
    graph = simplify(trace(getattr(fn, "_run", fn), leaves, skeleton)[0])
    inherit(graph)
    mesh, rules = Mesh(devices), {node: rule_of(node) for node in graph.nodes}
    checks = {node: check_of(node, rules[node], mesh) for node in graph.nodes if node.op.strategy is not None}
    known = {v: (given or whole)(len(v.shape)) for v in graph.inputs}
    known = {v: [layout] for v, layout in known.items()} | asked_of_parameters(graph, mesh, rules, checks)
    return Task(graph, mesh, cluster_of(cluster), rules, known, checks, goals(graph), lambda v, made: whole(len(v.shape)))


def random_task(rng: np.random.Generator, devices: int, most: int) -> Task:
    """A graph of at most `most` ops of a few kinds, with residual connections and several outputs now and then; on one of three
    clusters, so that computing or communicating is dear."""
    def pick(some):
        return some[rng.integers(len(some))]
    a, b, c = pick(SIZES), pick(SIZES), pick(SIZES)
    x = Tensor(np.zeros((a, b), np.float32))
    w, u = (Parameter(np.zeros(shape, np.float32), name=name) for shape, name in (((b, c), "w"), ((c, b), "u")))
    steps = [pick(("w", "u", "relu", "sum", "add", "softmax", "transpose", "mul")) for _ in range(rng.integers(1, most + 1))]

    def network(x):
        values = [x]
        for step in steps:
            h = values[-1]
            if step == "w" and h.ndim == 2 and h.shape[1] == b:
                h = ops.matmul(h, w)
            elif step == "u" and h.ndim == 2 and h.shape[1] == c:
                h = ops.MatMul()(h, u)
            elif step == "sum" and h.ndim == 2:
                h = ops.ReduceSum()(h, int(rng.integers(2)))
            elif step == "softmax" and h.ndim:
                h = ops.Softmax()(h)
            elif step == "transpose" and h.ndim == 2:
                h = ops.Transpose()(h, (1, 0))
            else:
                same = [v for v in values if v.shape == h.shape]
                h = {"add": ops.Add(), "mul": ops.Mul()}[step](h, pick(same)) if step in ("add", "mul") else ops.ReLU()(h)
            values.append(h)
        return tuple(values[-1 - int(rng.integers(2)):][:2]) if len(values) > 2 else values[-1]
    return task_of(network, [x], devices, pick(("a100", "ascend910", "cpu")))


def small_task(n: int) -> tuple[Task, float]:
    """Number n of the random tasks that are small enough to try all plans, and what the best of these costs."""
    rng = np.random.default_rng(n)
    devices, most = ((8, 4), (4, 5))[n % 2]
    while True:
        task = random_task(rng, devices, most)
        space, = spaces(task)
        best = brute_force(space.problem)
        if best is not None:
            return task, best


def training(net, loss=None):
    """A training step of a network."""
    return nn.TrainOneStepCell(nn.WithLossCell(net, loss or nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9))


def zeros(*shape, dtype=np.float32):
    return Tensor(np.zeros(shape, dtype))


def brute_force(problem, most=40_000_000) -> float | None:
    """The least total of all decisions, each of them looked at; None if there are more than `most`."""
    sizes = problem.sizes
    if prod(sizes) > most:
        return None
    outer = 0
    while prod(sizes[outer:]) > 2_000_000:
        outer += 1
    return min(float(totals(problem.tables, sizes, fixed).min()) for fixed in product(*map(range, sizes[:outer])))


def totals(tables, sizes, fixed=()) -> np.ndarray:
    """What all decisions cost, an array with a dim for each variable but the first, which are fixed."""
    outer = len(fixed)
    total = np.zeros(sizes[outer:])
    for scope, costs in tables.items():
        part = costs[tuple(fixed[v] if v < outer else slice(None) for v in scope)]
        inner = [v - outer for v in scope if v >= outer]
        shape = [1] * len(total.shape)
        for v, n in zip(inner, np.shape(part), strict=True):
            shape[v] = n
        total = total + np.reshape(part, shape)
    return total
