"""Random numbers inside programs: new in every step, equal on any number of ranks and in both modes."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.common import random
from minispore.lab import run_ranks
from minispore.ops.primitive import Piece
from minispore.ops.random import Keep, Random

MODES = [ms.GRAPH_MODE, ms.PYNATIVE_MODE]


class Net(nn.Cell):
    """Dropout twice in one cell, once in another, and once as a function."""

    def __init__(self, features=6):
        super().__init__()
        self.first = nn.Dense(features, 8, dtype=ms.float64)
        self.drop = nn.Dropout(p=0.4)
        self.other = nn.SequentialCell(nn.Dropout(keep_prob=0.7), nn.Dense(8, 3, dtype=ms.float64))

    def construct(self, x):
        x = self.drop(ops.tanh(self.first(self.drop(x))))
        return ops.dropout(self.other(x), 0.2, self.training)


@settings(max_examples=12)
@given(st.integers(1, 8), st.integers(1, 3), st.sampled_from(MODES), st.sampled_from(MODES))
def test_training_with_dropout_equals_one_rank(n, per_rank, mode_one, mode_many):
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(4, n * per_rank, 6)), rng.normal(size=(4, n * per_rank, 3))

    def program(mode):
        ms.set_context(mode=mode)
        ms.set_seed(3)
        ms.init()
        me, ranks = ms.get_rank(), ms.get_group_size()
        if ranks > 1:
            ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        net = Net()
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.05)).set_train()
        for a, b in zip(x, y, strict=True):
            step(Tensor(a[me::ranks]), Tensor(b[me::ranks]))
        return [p.asnumpy() for p in net.trainable_params()]
    one = run_ranks(program, 1, mode_one)[0]
    for weights in run_ranks(program, n, mode_many):
        for a, b in zip(one, weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def masks(mode, calls=3, between=lambda net: None):
    """What a network that only drops makes of ones, call by call."""
    ms.set_context(mode=mode)
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dropout(p=0.5), nn.Dropout(p=0.5)).set_train()
    out = []
    for _ in range(calls):
        out.append(net(Tensor(np.ones((16, 16)))).asnumpy())
        between(net)
    return out


def test_masks_are_the_same_in_both_modes_and_new_in_every_step():
    graph, eager = masks(ms.GRAPH_MODE), masks(ms.PYNATIVE_MODE)
    for a, b in zip(graph, eager, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (graph[0] != graph[1]).any() and (graph[1] != graph[2]).any()
    share = np.mean([g > 0 for g in graph])
    assert abs(share - 0.25) < 0.05 and set(np.unique(graph)) == {0, 4}
    first, second = (masks(ms.PYNATIVE_MODE, 1)[0] for _ in range(2))       # the seed starts them anew
    np.testing.assert_array_equal(first, second)


def evaluate(net):
    net.set_train(False)
    np.testing.assert_array_equal(net(Tensor(np.ones((4, 4)))).asnumpy(), np.ones((4, 4)))
    net.set_train()


@pytest.mark.parametrize("mode", MODES)
def test_an_evaluation_in_between_changes_nothing(mode):
    for a, b in zip(masks(mode), masks(mode, between=evaluate), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_seed_matters():
    ms.set_seed(1)
    a = ops.dropout(Tensor(np.ones(64)))
    ms.set_seed(2)
    b = ops.dropout(Tensor(np.ones(64)))
    assert (a.asnumpy() != b.asnumpy()).any()
    ms.set_seed(1)
    assert (a.asnumpy() != ops.dropout(Tensor(np.ones(64)), seed=5).asnumpy()).any()


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_goes_where_values_went(mode):
    ms.set_context(mode=mode)
    def f(x):
        y, mask = ops.Dropout(0.5)(x)
        return ops.sum(y), mask
    (_, mask), grad = ms.value_and_grad(f, has_aux=True)(Tensor(np.ones((8, 8))))
    np.testing.assert_array_equal(grad.asnumpy(), mask.asnumpy())


@pytest.mark.parametrize("mode", MODES)
def test_functions_count_their_calls_too(mode):
    ms.set_context(mode=mode)
    grad = ms.grad(lambda x: ops.sum(ops.dropout(x) + 2 * ops.dropout(x)))
    ms.set_seed(1)
    first, second = (grad(Tensor(np.ones(64))).asnumpy() for _ in range(2))
    assert set(np.unique(first)) == {0, 2, 4, 6} and (first != second).any()


def test_a_slice_holds_its_part_of_the_whole():
    op = Random((6, 4), Keep(0.5), ms.float64, ("place", 1))
    whole = op().asnumpy()
    rule = op.bound_rule([], [(6, 4)])
    for factor, axis, size in (("a", 0, 6), ("b", 1, 4)):
        parts = [op.local(rule, {factor: Piece(i, 2)})().asnumpy() for i in range(2)]
        np.testing.assert_array_equal(np.concatenate(parts, axis), whole)
        assert parts[0].shape[axis] == size // 2


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 2))
def test_strided_rows_are_the_rows_of_the_whole(n, rows, dims):
    shape = (n * rows, *(3, 2)[:dims])
    whole = random.uniform(("k",), shape)
    for r in range(n):
        part = random.uniform(("k",), shape, region=(slice(r, n * rows, n), *(slice(0, k) for k in shape[1:])))
        np.testing.assert_array_equal(part, whole[r::n])


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_drops_the_same_values_on_any_number_of_ranks(batch_first, norm_first):
    """Also where the sequence comes before the batch, so that ranks share out dim 1."""
    x = np.random.default_rng(0).normal(size=(6, 4, 8))

    def program():
        ms.set_seed(1)
        ms.init()
        if ms.get_group_size() > 1:
            ms.set_auto_parallel_context(parallel_mode="data_parallel")
        layer = nn.TransformerEncoderLayer(8, 2, 5, 0.4, batch_first=batch_first, norm_first=norm_first, dtype=ms.float64)
        mine = x[ms.get_rank()::ms.get_group_size()]
        out = layer.set_train()(Tensor(mine if batch_first else mine.swapaxes(0, 1))).asnumpy()
        return out if batch_first else out.swapaxes(0, 1)
    one, three = run_ranks(program, 1)[0], run_ranks(program, 3)
    for r, part in enumerate(three):
        np.testing.assert_allclose(part, one[r::3], rtol=1e-10, atol=1e-12)
