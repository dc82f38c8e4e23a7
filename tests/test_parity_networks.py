"""Random networks, strategies and layouts: values, gradients and updated parameters equal one device's."""
import os
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import assert_equal, cut, evaluate, splits
from random_networks import Draw, Network
from test_mpi import msrun

import minispore as ms
from minispore import Tensor, nn
from minispore.common.state import current
from minispore.communication import init
from minispore.graph.compile import trace_call
from minispore.graph.passes import simplify
from minispore.lab import run_ranks
from minispore.parallel.lockstep import LockStep
from minispore.parallel.logical import rule_of

EXAMPLES = int(os.environ.get("PARITY_EXAMPLES", 600))
SEEN = Counter()


def optimizer(which, params):
    """Adam with a large eps: where a gradient is far below it, a step multiplies rounding by learning rate / eps."""
    return nn.Adam(params, 0.1, eps=1e-3) if which else nn.Momentum(params, 0.1, 0.9)


def step_of(net, adam):
    """A training step as a function that returns the loss and the gradients."""
    update = optimizer(adam, net.weights)
    backward = ms.value_and_grad(net, None, net.weights)

    def step(x):
        loss, grads = backward(x)
        update(grads)
        return loss, grads
    return step


def stored(graph, x):
    return {**dict(zip(graph.inputs, [x], strict=True)), **{v: p.asnumpy() for p, v in graph.parameters.items()}}


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_lock_step(data):
    def pick(xs):
        return data.draw(st.sampled_from(list(xs)))

    drawn = Draw(pick, pick([2, 3, 4, 6, 8, 12]))
    net, mesh = Network(drawn), drawn.mesh
    step = step_of(net, drawn.yes()) if drawn.parameters else net
    graph = simplify(trace_call(step, Tensor(drawn.x)))
    rules = {node: rule_of(node) for node in graph.nodes}
    given_layouts = {v: [drawn.layout(v.shape)] for v in (*graph.inputs, *graph.parameters.values()) if drawn.yes(3)}
    forced = {node: pick(splits(rules[node], mesh)) for node in graph.nodes if node.op.strategy is None and drawn.yes(12)}
    switches = {switch: not drawn.yes(4) for switch in ("lazy", "settle", "hints", "thrift")}
    feed = stored(graph, drawn.x)
    program = cut(graph, rules, mesh, given_layouts, forced, **switches)
    assert_equal(LockStep(program, feed).run(), evaluate(graph, feed), mesh)
    SEEN["networks"] += 1
    SEEN.update((m.op, m.src.kind) for m in program.moves())
    SEEN.update(type(node.op).__name__ for node in graph.nodes)


def test_redistributions_of_every_kind_occurred():
    if SEEN and EXAMPLES >= 600:            # fewer needn't meet all
        assert {op for op, _ in (k for k in SEEN if isinstance(k, tuple))} == {
            "slice", "all_gather", "all_to_all", "reduce_scatter", "all_reduce", "permute", "halo"}
        assert SEEN["all_reduce", "sum"] and SEEN["all_reduce", "max"]


# ---- real ranks -------------------------------------------------------------------------------------------

def drawn_by(seed, devices):
    """The first network of a seed that has parameters."""
    rng = random.Random(seed)
    return next(d for d in (Draw(lambda xs: rng.choice(list(xs)), devices) for _ in range(99)) if d.parameters)


def trained(drawn, adam, steps=3):
    """Losses, and the parameters with where this rank's piece of each lies."""
    ms.set_context(mode=ms.GRAPH_MODE)
    current().steps = 0                 # dropout masks differ from step to step
    net = Network(drawn)
    step = ms.jit(step_of(net, adam))
    losses = [float(step(Tensor(drawn.x))[0].asnumpy()) for _ in range(steps)]
    return losses, [(p.asnumpy(), p.layout.region(current().rank) if p.layout else ...) for p in net.weights]


def assert_trains_alike(mine, alone):
    for losses, params in mine:
        np.testing.assert_allclose(losses, alone[0], rtol=1e-9, atol=1e-9)
        for (piece, region), (whole, _) in zip(params, alone[1], strict=True):
            np.testing.assert_allclose(piece, whole[region], rtol=1e-9, atol=1e-9)


def semi_auto(seed, n):
    """What each rank runs: the same network, made anew from its seed."""
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    return trained(drawn_by(seed, n), seed % 2)


@pytest.mark.parametrize("seed", range(20))
def test_thread_ranks(seed):
    n = (2, 3, 4, 6, 8)[seed % 5]
    alone = run_ranks(lambda: trained(drawn_by(seed, n), seed % 2), 1)[0]
    assert_trains_alike(run_ranks(semi_auto, n, seed, n), alone)


PROGRAM = """
from test_parity_networks import assert_trains_alike, drawn_by, run_ranks, semi_auto, trained
from minispore.communication import get_group_size, get_rank, init
init()
n = get_group_size()
for seed in range(100, 106):
    alone = run_ranks(lambda: trained(drawn_by(seed, n), seed % 2), 1)[0]
    assert_trains_alike([semi_auto(seed, n)], alone)
print("equal")
"""


@pytest.mark.parametrize("n", [2, 4])
def test_mpi_ranks(tmp_path, n):
    assert msrun(tmp_path, n, PROGRAM).count("equal") == n
