"""Where data parallel differs from one rank by nature, each by its formula; and SyncBatchNorm, which doesn't."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.lab import run_ranks

EPS = 1e-5


def normalise(x, axes=(0, 2, 3)):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPS)


def rows(n, lengths, features=(2, 3, 3)):
    """Data cut into n shards of these lengths."""
    x = np.random.default_rng(n).normal(1, 2, size=(sum(lengths), *features))
    return x, np.split(x, np.cumsum(lengths)[:-1])


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_without_sync_each_rank_normalises_by_its_own_shard(mode):
    lengths = [4, 4, 4]
    _, shards = rows(3, lengths)
    weights = np.cos(np.arange(72.0)).reshape(4, 2, 3, 3)

    def program():
        ms.init()
        ms.set_context(mode=mode)
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        bn = nn.BatchNorm2d(2, dtype=ms.float64).set_train()
        f = ms.value_and_grad(lambda x: ops.sum(bn(x) * Tensor(weights)), None, bn.trainable_params())
        _, grads = f(Tensor(shards[ms.get_rank()]))
        reduced = nn.DistributedGradReducer(bn.trainable_params())(grads)
        return [t.asnumpy() for t in (bn.moving_mean, bn.moving_variance, *reduced)]
    for rank, (mean, variance, gamma, beta) in enumerate(run_ranks(program, 3)):
        x = shards[rank]
        np.testing.assert_allclose(mean, 0.1 * x.mean((0, 2, 3)), rtol=1e-12)
        np.testing.assert_allclose(variance, 0.9 + 0.1 * x.var((0, 2, 3), ddof=1), rtol=1e-12)
        # the gradient is the mean of what each shard's own statistics give
        np.testing.assert_allclose(gamma, np.mean([(normalise(s) * weights).sum((0, 2, 3)) for s in shards], 0), rtol=1e-10)
        np.testing.assert_allclose(beta, weights.sum((0, 2, 3)), rtol=1e-10)


@settings(max_examples=12)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.sampled_from([ms.GRAPH_MODE, ms.PYNATIVE_MODE]))
def test_sync_batch_norm_is_the_batch_norm_of_the_whole(lengths, mode):
    """Output, gradients (to x too) and moving statistics, also with shards of unequal length."""
    n = len(lengths)
    whole, shards = rows(n, lengths)
    starts = np.cumsum([0, *lengths])

    def program(shards, cell):
        ms.init()
        ms.set_context(mode=mode)
        if n > 1 and len(shards) > 1:
            ms.set_auto_parallel_context(parallel_mode="data_parallel")
        bn = cell(2, dtype=ms.float64).set_train()
        me = ms.get_rank()
        weights = Tensor(np.cos(np.arange(whole.size, dtype=float)).reshape(whole.shape)[starts[me]:starts[me] + len(shards[me])])
        f = ms.value_and_grad(lambda x: ops.sum(ops.square(bn(x)) * weights), 0, bn.trainable_params())
        _, (dx, dp) = f(Tensor(shards[me]))
        total = nn.DistributedGradReducer(bn.trainable_params(), mean=False)(dp)
        return dx.asnumpy(), [t.asnumpy() for t in (bn.moving_mean, bn.moving_variance, *total)]
    dx, rest = run_ranks(program, 1, [whole], nn.BatchNorm2d)[0]
    ranks = run_ranks(program, n, shards, nn.SyncBatchNorm)
    np.testing.assert_allclose(np.concatenate([r[0] for r in ranks]), dx, rtol=1e-9, atol=1e-10)
    for _, mine in ranks:
        for a, b in zip(mine, rest, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("narrow", [ms.float16, ms.bfloat16], ids=["float16", "bfloat16"])
def test_sync_batch_norm_counts_and_sums_in_float32(narrow):
    """10,000 values a rank and channel: float16 counts up to 65504, bfloat16 exactly up to 256."""
    x = np.random.default_rng(0).normal(5, 3, size=(30, 2, 25, 40)).astype(np.float32)

    def program(cell):
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        bn = cell(2).to_float(narrow).set_train()
        y = bn(Tensor(x[ms.get_rank()::ms.get_group_size()]))
        return y.dtype, y.astype(ms.float32).asnumpy(), bn.moving_mean.asnumpy(), bn.moving_variance.asnumpy()
    dtype, whole, *moving = run_ranks(program, 1, nn.BatchNorm2d)[0]
    for r, (mine, y, *own) in enumerate(run_ranks(program, 3, nn.SyncBatchNorm)):
        assert mine == dtype == narrow
        np.testing.assert_allclose(y, whole[r::3], rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(own, moving, rtol=1e-5)


def test_sync_batch_norm_in_groups():
    whole, shards = rows(4, [2, 2, 2, 2])

    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        bn = nn.SyncBatchNorm(2, process_groups=[[0, 2], [1, 3]], dtype=ms.float64).set_train()
        return bn(Tensor(shards[ms.get_rank()])).asnumpy()
    out = run_ranks(program, 4)
    for pair in ((0, 2), (1, 3)):
        want = normalise(np.concatenate([shards[r] for r in pair]))
        np.testing.assert_allclose(np.concatenate([out[r] for r in pair]), want, rtol=1e-10)
    assert whole.shape == (8, 2, 3, 3)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_no_gradient_flows_through_the_moving_statistics(mode):
    ms.set_context(mode=mode)
    bn = nn.BatchNorm1d(3, dtype=ms.float64).set_train()

    def f(x):
        bn(x)
        return ops.sum(bn.moving_mean)
    x = np.random.default_rng(0).normal(size=(5, 3))
    value, grad = ms.value_and_grad(f)(Tensor(x))
    np.testing.assert_allclose(value.asnumpy(), 0.1 * x.mean(0).sum(), rtol=1e-12)
    assert (grad.asnumpy() == 0).all()


def test_evaluation_uses_the_moving_statistics():
    x = np.random.default_rng(0).normal(size=(5, 3))
    bn = nn.BatchNorm1d(3, moving_mean_init=0.5, moving_var_init=4, dtype=ms.float64)
    np.testing.assert_allclose(bn(Tensor(x)).asnumpy(), (x - 0.5) / np.sqrt(4 + EPS), rtol=1e-12)
    own = nn.BatchNorm1d(3, use_batch_statistics=True, dtype=ms.float64)
    np.testing.assert_allclose(own(Tensor(x)).asnumpy(), normalise(x, 0), rtol=1e-10)
    assert [p.name for p in bn.get_parameters()] == ["mean", "variance", "gamma", "beta"]
    net = nn.SequentialCell(nn.BatchNorm1d(3))
    assert [p.name for p in net.get_parameters()] == ["0.moving_mean", "0.moving_variance", "0.gamma", "0.beta"]
    assert [p.name for p in nn.BatchNorm1d(3, affine=False).trainable_params()] == []


def reduced_gradient(loss, shards):
    """The averaged gradient on ranks that hold these shards of (logits, labels)."""
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        scale = ms.Parameter(np.ones(3), name="scale")
        x, y = shards[ms.get_rank()]
        grads = ms.grad(lambda: loss(Tensor(x) * scale, Tensor(y)), None, (scale,))()
        return nn.DistributedGradReducer([scale])(grads)[0].asnumpy()
    return run_ranks(program, len(shards))[0]


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def row_gradients(x, y):
    """d(-log softmax(x · scale)[y]) / d scale at scale = 1, row by row."""
    return (softmax(x) - np.eye(3)[y]) * x


@pytest.mark.parametrize("kind", ["weighted", "ignored", "unequal"])
def test_a_mean_over_ranks_is_the_mean_of_the_ranks_means(kind):
    """So weights, ignored rows and unequal shards make it another number than the mean over all rows."""
    rng = np.random.default_rng(4)
    lengths = [2, 5, 3] if kind == "unequal" else [4, 4, 4]
    shards = [(rng.normal(size=(k, 3)), rng.integers(0, 3, k)) for k in lengths]
    w = np.array([0.5, 2.0, 1.0])
    loss = {"weighted": nn.CrossEntropyLoss(weight=Tensor(w)), "ignored": nn.CrossEntropyLoss(ignore_index=1),
            "unequal": nn.CrossEntropyLoss()}[kind]
    share = {"weighted": lambda y: w[y], "ignored": lambda y: (y != 1).astype(float), "unequal": lambda y: np.ones(len(y))}[kind]
    means = [(row_gradients(x, y) * share(y)[:, None]).sum(0) / share(y).sum() for x, y in shards]
    np.testing.assert_allclose(reduced_gradient(loss, shards), np.mean(means, 0), rtol=1e-10)
    x, y = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    one = (row_gradients(x, y) * share(y)[:, None]).sum(0) / share(y).sum()
    assert np.abs(one - np.mean(means, 0)).max() > 1e-3
