"""What the search returns is legal and equals one device: random networks with random strategies, and trainings on ranks."""
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import assert_equal, evaluate
from random_networks import Draw, Network
from test_parity_networks import step_of, stored

import minispore as ms
from minispore import Tensor, nn
from minispore.communication import init
from minispore.graph.compile import trace_call
from minispore.graph.passes import simplify
from minispore.lab import run_ranks
from minispore.parallel.cost import cluster_of
from minispore.parallel.lockstep import LockStep
from minispore.parallel.logical import compile_graph
from minispore.parallel.mesh import Mesh
from minispore.parallel.search import Task, search
from minispore.parallel.search.optimum import lean

EXAMPLES = int(os.environ.get("SEARCH_EXAMPLES", 60))


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_searched_plans_of_random_networks_equal_one_device(data):
    def pick(xs):
        return data.draw(st.sampled_from(list(xs)))

    drawn = Draw(pick, pick([2, 3, 4, 6]))
    net = Network(drawn)
    step = step_of(net, drawn.yes()) if drawn.parameters else net
    graph = simplify(trace_call(step, Tensor(drawn.x)))
    mode, cluster = pick(["recursive_programming", "dynamic_programming", "ilp"]), cluster_of(pick(["cpu", "a100", "ascend910"]))
    feed = stored(graph, drawn.x)
    expected = evaluate(graph, feed)
    found, thrifty = [], drawn.yes()

    def choose(graph, mesh, rules, given, checks, goal, leave, apart, draft):
        found.append(search(Task(graph, mesh, cluster, rules, given, checks, goal, leave, frozenset(apart)), mode, seconds=5))
        return lean(found[-1].plan, graph) if thrifty else found[-1].plan
    program = compile_graph(graph, Mesh(drawn.mesh.n), choose=choose)
    assert found[0].seconds == pytest.approx(found[0].task.seconds(program.plan))
    assert found[0].bound is None or found[0].bound <= found[0].seconds * (1 + 1e-6)
    assert_equal(LockStep(program, feed).run(), expected, f"{mode} on {drawn.mesh.n}")


def losses(mode=None, **settings):
    """Of a small network's training on this rank."""
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(2)
    if mode:
        ms.set_auto_parallel_context(parallel_mode="auto_parallel", search_mode=mode, full_batch=True, **settings)
    net = nn.SequentialCell(nn.Dense(12, 24, dtype=ms.float64), nn.ReLU(), nn.Dense(24, 4, dtype=ms.float64))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.01))
    rng = np.random.default_rng(0)
    x, y = Tensor(rng.normal(size=(12, 12))), Tensor(rng.normal(size=(12, 4)))
    return [float(step(x, y)) for _ in range(4)]


@pytest.mark.parametrize("mode", ["sharding_propagation", "recursive_programming", "dynamic_programming", "ilp"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_auto_parallel_trains_as_one_rank_does(mode, ranks):
    expected, = run_ranks(losses, 1)
    for mine in run_ranks(losses, ranks, mode):
        np.testing.assert_allclose(mine, expected, rtol=1e-10)


def test_auto_parallel_with_optimizer_parallel():
    expected, = run_ranks(losses, 1)

    def program():
        return losses("recursive_programming", enable_parallel_optimizer=True,
                      parallel_optimizer_config={"parallel_optimizer_threshold": 0, "optimizer_level": "level3"})
    for mine in run_ranks(program, 4):
        np.testing.assert_allclose(mine, expected, rtol=1e-10)


def test_where_no_plan_fits_all_ranks_are_told():
    def program():
        ms.set_context(max_device_memory="0.000001GB")
        try:
            losses("ilp")
        except ValueError as e:
            return str(e)
    told = run_ranks(program, 2)
    assert told[0] == told[1] and "keeps the memory limit of 1,073 bytes" in told[0]
