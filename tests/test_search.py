"""Search: every mode against trying all plans, the plans' structure where the answer is known, memory limits, explanations."""
from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from search_graphs import random_task, small_task, task_of, totals, training, zeros

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.graph.ir import Graph
from minispore.lab import run_ranks
from minispore.parallel import compile
from minispore.parallel.complete import Completion
from minispore.parallel.layout import TensorLayout
from minispore.parallel.search import Task, eliminate, integer, modes, optimum, search
from minispore.parallel.search.agree import agreed
from minispore.parallel.search.alike import alike
from minispore.parallel.search.choices import Space
from minispore.parallel.search.messages import Messages
from minispore.parallel.search.modes import MODES, spaces
from minispore.parallel.search.problem import Problem
from minispore.parallel.search.task import kept_in

GRAPHS = [*range(60), *(pytest.param(n, marks=pytest.mark.slow) for n in range(60, 300))]


@pytest.mark.parametrize("n", GRAPHS)
def test_ilp_and_dynamic_programming_find_the_best_of_all_plans(n):
    task, best = small_task(n)
    for mode in ("ilp", "dynamic_programming"):
        found = search(task, mode)
        assert found.bound == pytest.approx(best, rel=1e-6)
        assert found.seconds <= best * (1 + 1e-9)           # less only where it is data parallel, which isn't among the choices
    for mode in MODES:
        found = search(task, mode)
        assert found.seconds <= task.seconds(found.data_parallel) * (1 + 1e-12)


@pytest.mark.parametrize("n", range(20))
def test_ilp_finds_the_best_of_the_plans_that_keep_a_memory_limit(n):
    rng = np.random.default_rng(n)
    while True:
        task = random_task(rng, 4, 3)
        space, = spaces(task)
        if prod(space.problem.sizes) < 200_000:
            break
    sizes = space.problem.sizes
    seconds = totals(space.problem.tables, sizes)
    peak = np.max([totals({(v,): amount for v, amount in space.amounts(at).items()}, sizes)
                   for at in range(len(task.graph.nodes) + 1)], axis=0)
    possible = np.unique(peak[np.isfinite(seconds)])
    for limit in {possible[0], possible[len(possible) // 2]}:
        best = seconds[peak <= limit].min()
        found = optimum.optimum(space, int(limit), 20.0)
        assert task.peak(found.plan)[0] <= limit
        assert found.bound <= best * (1 + 1e-9) and task.seconds(found.plan) <= best * (1 + 2e-3)
    assert optimum.optimum(space, int(possible[0]) - 1, 20.0) == (None, np.inf)
    assert task.peak(optimum.smallest([space]))[0] == possible[0]


@pytest.mark.parametrize("mode", MODES)
def test_a_searched_program_equals_one_device(mode):
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(16, 64, dtype=ms.float64), nn.ReLU(), nn.Dense(64, 8, dtype=ms.float64))
    step = training(net)
    rng = np.random.default_rng(0)
    x, y = Tensor(rng.normal(size=(8, 16))), Tensor(rng.normal(size=(8, 8)))
    for cluster in ("cpu", "a100"):
        for devices in (1, 2, 4, 6):
            one = compile(step, x, y, device_num=1).lockstep(x, y).run()
            many = compile(step, x, y, device_num=devices, parallel_mode="auto_parallel", search_mode=mode,
                           cluster=cluster).lockstep(x, y).run()
            for a, b in zip(one, many, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_ilp_keeps_a_memory_limit_and_names_the_smallest_that_works():
    net = nn.SequentialCell(nn.Dense(64, 512), nn.ReLU(), nn.Dense(512, 64))
    step = training(net)

    def compiled(memory):
        program = compile(step, zeros(256, 64), zeros(256, 64), device_num=4, parallel_mode="auto_parallel", search_mode="ilp",
                          cluster="a100", memory=memory)
        assert program.memory["total"] == program.plan.memory           # of the compiled program
        return program
    free = compiled(None).plan
    with pytest.raises(ValueError, match="the smallest that was found to work is") as e:
        compiled(1000)
    smallest = int(str(e.value).split("to work is ")[1].split(" bytes")[0].replace(",", ""))
    tight = compiled(smallest).plan
    assert tight.memory <= smallest < free.memory
    assert tight.seconds >= free.seconds
    with pytest.raises(ValueError, match="keeps the memory limit"):
        compiled(int(smallest * optimum.LESS) - 1)
    between = compiled((smallest + free.memory) // 2).plan
    assert between.memory <= (smallest + free.memory) // 2
    assert free.seconds * (1 - 1e-9) <= between.seconds <= tight.seconds * (1 + 1e-9)
    assert between.gap < 0.05               # the bound is about sums; the compiled program needs room for copies beside


@pytest.mark.parametrize("wrong, says", [
    ({"memory": 0}, "memory=0 must be a whole number of bytes"), ({"memory": "1GB"}, "memory='1GB' must be a whole number"),
    ({"memory": True}, "must be a whole number"), ({"cluster": "b100"}, "cluster 'b100' is unknown"),
    ({"search_mode": "best"}, "search_mode='best' must be one of"), ({"serch_mode": "ilp"}, "unknown setting 'serch_mode'")])
def test_what_compile_cannot_use_is_told(wrong, says):
    with pytest.raises(ValueError, match=says):
        compile(nn.Dense(4, 4), zeros(4, 4), device_num=2, **{"parallel_mode": "auto_parallel", **wrong})


def test_what_was_found_explains_itself():
    net = nn.SequentialCell(nn.Dense(64, 4096), nn.ReLU(), nn.Dense(4096, 4096), nn.ReLU(), nn.Dense(4096, 8))
    program = compile(training(net), zeros(8, 64), zeros(8, 8), device_num=4, parallel_mode="auto_parallel", search_mode="ilp",
                      cluster="a100")
    plan, text = program.plan, program.plan.show(1000)
    lines = text.split("\n")
    assert lines[0].startswith("ilp on 4 × a100 (8 a node): ") and lines[1].startswith("pure data parallel: ")
    assert lines[2].endswith("at most 0.00% above the best") and len(lines) == 3 + len(plan.rows())
    assert sum("1 all_reduce" in line for line in lines) == program.collectives["AllReduce"] == 1
    for node in program.logical.nodes:
        other = plan.next_best(node)
        assert other is None or (other[0] != plan.strategy(node) and other[1] >= plan.seconds * (1 - 1e-12))    # it is the best


def test_compile_searches_by_itself_on_one_rank_of_a_job():
    def program():
        ms.init()
        net = nn.Dense(8, 8)
        return ms.get_rank() == 0 and compile(net, zeros(8, 8), device_num=2, parallel_mode="auto_parallel").plan.mode
    assert run_ranks(program, 2) == ["recursive_programming", False]


def test_the_older_name_of_search_mode_is_the_same_setting():
    def mode(**settings):
        return compile(nn.Dense(8, 8), zeros(8, 8), device_num=2, parallel_mode="auto_parallel", **settings).plan.mode
    ms.set_auto_parallel_context(auto_parallel_search_mode="ilp")
    assert ms.get_auto_parallel_context("search_mode") == "ilp" and mode() == "ilp"
    with pytest.raises(ValueError, match="are one setting; give search_mode alone"):
        ms.set_auto_parallel_context(search_mode="ilp", auto_parallel_search_mode="dynamic_programming")


# ---- the parts ----------------------------------------------------------------------------------------------

def deep(layers=12):
    """The task of a network of equal layers: so many nodes that those which look alike decide together."""
    net = nn.SequentialCell([layer for _ in range(layers) for layer in (nn.Dense(64, 64), nn.ReLU())])
    return task_of(training(net), [zeros(32, 64), zeros(32, 64)], 4)


def test_equal_layers_make_one_choice_and_count_as_often_as_they_are():
    task = deep()
    space = spaces(task)[0]
    own = Space(task, space.groups, alike(task, None))
    assert len(space.problem.sizes) < len(own.problem.sizes) / 2
    dear = Problem(space.problem.sizes, {scope: costs * (1e3 if len(scope) == 1 else 1)      # so that much is split, and moved
                                         for scope, costs in space.problem.tables.items()})
    for problem in (space.problem, dear):
        choice = eliminate.solve(problem)[0]
        plan = space.plan(choice)
        assert space.problem.total(choice) == pytest.approx(task.seconds(plan))
    assert sum(task.parts(plan)[1].values()) > 0
    assert len(set(alike(task)[0].values())) < len(task.graph.nodes) == len(set(alike(task, None)[0].values()))


@pytest.mark.parametrize("network, colours", [
    (lambda x, p, q: (ops.MatMul()(x, p), ops.MatMul()(x, q)), 1),
    (lambda x, p, q: (ops.MatMul()(x, p), ops.MatMul(transpose_b=True)(x, q)), 2),                      # another attribute
    (lambda x, p, q: (ops.MatMul()(ops.relu(x), p), ops.MatMul()(ops.tanh(x), q)), 2),                  # another maker
    (lambda x, p, q: (ops.relu(ops.MatMul()(x, p)), ops.tanh(ops.MatMul()(x, q))), 2),                  # another reader
    (lambda x, p, q: (ops.exp(ops.relu(ops.MatMul()(x, p))), ops.sin(ops.relu(ops.MatMul()(x, q)))), 2),    # farther away
    (lambda x, p, q: (ops.dropout(x, 0.5), ops.dropout(x, 0.5)), 1)])                                   # other random numbers
def test_what_looks_alike_has_one_colour(network, colours):
    p, q = (Parameter(np.zeros((8, 8), np.float32), name=name) for name in "pq")
    task = task_of(lambda x: network(x, p, q), [zeros(8, 8)], 2)
    assert len({colour for node, colour in alike(task)[0].items() if node.op.fresh or node.op.name == "MatMul"}) == colours


def test_a_plan_that_costs_more_than_data_parallel_is_not_taken(monkeypatch):
    task = deep(2)
    rows = {v: [TensorLayout(((0, 1), ()))] for v in task.graph.parameters.values() if v.shape == (64, 64)}
    bad = Completion(task.graph, task.mesh, task.rules, {**task.given, **rows}).run()
    monkeypatch.setitem(modes.MODES, "bad", lambda *_: modes.Proposal(bad))
    found = search(task, "bad")
    assert found.seconds == task.seconds(found.data_parallel) < task.seconds(bad)
    assert search(task, "bad", task.peak(bad)[0]).plan is bad           # here data parallel doesn't fit


def test_what_has_no_choice_makes_no_large_table():
    star = Problem([3, *[1] * 100])
    for v in range(1, 101):
        star.add((0, v), [[2.0], [1.0], [3.0]])
    assert eliminate.solve(star) == ([1, *[0] * 100], True)


def test_recursive_programming_sees_what_one_more_axis_adds():
    """An AllReduce over 64 ranks costs hardly more than one over 2: counted axis by axis, data parallel would look six times as
    dear, and the plan be dearer than it."""
    net = nn.SequentialCell(nn.Dense(1024, 4096), nn.ReLU(), nn.Dense(4096, 1024))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.1))
    x = zeros(16384, 1024)
    found = compile(step, x, x, device_num=64, parallel_mode="auto_parallel", search_mode="recursive_programming",
                    cluster="a100").plan
    assert found.seconds < 0.9 * found.task.seconds(found.data_parallel)


def test_limits_at_one_moment_after_the_other_lead_to_the_same_plan(monkeypatch):
    task = deep(3)
    limit = search(task, "ilp").memory * 2 // 5
    expected = search(task, "ilp", limit)
    def peaks(self, plan, limit):
        most, at = self.peak(plan)
        return [at] if most > limit else []
    limits, decide = [], integer.decide

    def noted(problem, some=(), **options):
        limits.append(len(some))
        return decide(problem, some, **options)
    monkeypatch.setattr(Task, "peaks", peaks)
    monkeypatch.setattr(integer, "decide", noted)
    monkeypatch.setattr(optimum, "PRICINGS", 0)
    monkeypatch.setattr(optimum, "NEAR", (np.inf,))
    one = search(task, "ilp", limit, seconds=20)
    assert one.memory <= limit and one.seconds == pytest.approx(expected.seconds, rel=2e-3)
    assert limits == list(range(len(limits)))           # one more each time, and none forgotten


def test_values_are_alive_from_the_node_that_makes_them_to_the_last_that_reads_them():
    def network(x):
        a = ops.exp(x)
        b = ops.reshape(a, (-1,))           # a view: a's memory
        c = ops.tanh(b)
        return ops.sin(c) + ops.cos(b)
    task = task_of(network, [zeros(8, 4)], 2)
    numbers = {node.op.name: i for i, node in enumerate(task.graph.nodes)}
    spans = {v.node.op.name if v.node else "input": span for v, span in task.alive.items()}
    last = len(task.graph.nodes)
    assert spans == {"input": (0, last), "Exp": (numbers["Exp"], numbers["Cos"]), "Tanh": (numbers["Tanh"], numbers["Sin"]),
                     "Sin": (numbers["Sin"], numbers["Add"]), "Cos": (numbers["Cos"], numbers["Add"]),
                     "Add": (numbers["Add"], last)}
    plan = task.completed()
    assert task.curve(plan).tolist() == [sum(task.bytes(v, kept_in(plan, v)) for v, (begin, end) in task.alive.items()
                                             if begin <= i <= end) for i in range(last + 1)]


def random_problem(rng, chain=False) -> Problem:
    """A few variables with tables of one and two of them, some entries forbidden."""
    problem = Problem([int(n) for n in rng.integers(1, 5, rng.integers(2, 7))])
    n = len(problem.sizes)
    for a in range(n):
        problem.add([a], rng.random(problem.sizes[a]))
        for b in range(a + 1, n):
            if b == a + 1 if chain else rng.random() < 0.5:
                costs = rng.random((problem.sizes[a], problem.sizes[b])) * 2
                problem.add([a, b], np.where(rng.random(costs.shape) < 0.1, np.inf, costs))
    problem.add([], float(rng.random()))
    return problem


@pytest.mark.parametrize("seed", range(40))
def test_messages_bound_rises_to_what_the_best_decision_costs_and_not_above(seed):
    problem = random_problem(np.random.default_rng(seed), chain=seed % 2)
    totals = {choice: problem.total(choice) for choice in product(*map(range, problem.sizes))}
    best = min(totals.values())
    messages, bounds = Messages(problem), []
    for _ in range(60):
        bounds.append(messages.bound)
        choice = messages.sweep()
        assert sum(problem.total(choice) == t for t in totals.values())      # it's a decision, whatever it costs
        moved = sum(costs[choice[v]] for v, costs in enumerate(messages.one)) + messages.sure
        moved += sum(costs[choice[a], choice[b]] for (a, b), costs in messages.two.items())
        assert moved == pytest.approx(totals[tuple(choice)])                 # costs move, totals don't change
    if best == np.inf:
        assert messages.bound == np.inf
        return
    assert all(a <= b + 1e-12 for a, b in pairwise(bounds)) and bounds[-1] <= best + 1e-9
    if seed % 2:
        assert bounds[-1] == pytest.approx(best) == totals[tuple(choice)]
    over = totals[tuple(choice)] - messages.bound
    near = messages.near(over + 1e-9)
    for other, total in totals.items():
        assert total > totals[tuple(choice)] or all(c in some for c, some in zip(other, near, strict=True))
    assert problem.only(near).total([0] * len(near)) == pytest.approx(problem.total([some[0] for some in near]))


def test_a_grouping_whose_bound_is_no_lower_is_left_alone():
    space = spaces(deep(3))[0]
    best = optimum.optimum(space, None, 20.0)
    assert best.bound == pytest.approx(space.task.seconds(best.plan))
    other = optimum.optimum(space, None, 20.0, below=best.bound * 0.99)
    assert other.plan is None and best.bound * 0.9 < other.bound <= best.bound * (1 + 1e-9)


def test_rank_0_searches_and_its_error_is_everybodys():
    def program():
        ms.init()

        def make():
            assert ms.get_rank() == 0
            raise ValueError("no plan")
        with pytest.raises(ValueError, match="no plan"):
            agreed(Graph(), {}, make)
        return True
    assert run_ranks(program, 3) == [True] * 3
