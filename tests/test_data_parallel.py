"""Data parallel equals one rank: networks, optimizers, ranks and reductions drawn by hypothesis, in float64."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
import minispore.dataset as ds
from minispore import Model, Parameter, Tensor, nn, ops
from minispore.lab import run_ranks
from minispore.nn.wrap import broadcast_parameters


def groups(params):
    """Two groups, one with rate, decay and centralized gradients of its own, in the network's order."""
    return [{"params": params[1::2]}, {"params": params[::2], "lr": nn.ExponentialDecayLR(0.05, 0.5, 2), "weight_decay": 0.03,
                                       "grad_centralization": True}, {"order_params": params}]


class Clipped(nn.Cell):
    """An optimizer whose gradients are shortened to a common length of at most 0.1."""

    def __init__(self, optimizer):
        super().__init__(auto_prefix=False)
        self.optimizer, self.parameters = optimizer, optimizer.parameters

    def construct(self, gradients):
        length = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
        return self.optimizer([g * ops.minimum(0.1 / length, 1.0) for g in gradients])


OPTIMIZERS = {
    "SGD": lambda p: nn.SGD(p, 0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    "SGD nesterov": lambda p: nn.SGD(p, [0.1, 0.05, 0.02], momentum=0.9, nesterov=True),
    "SGD groups clipped": lambda p: Clipped(nn.SGD(groups(p), nn.WarmUpLR(0.1, 2), 0.9)),
    "Momentum": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.01, use_nesterov=True),
    "Momentum groups": lambda p: nn.Momentum(groups(p), nn.polynomial_decay_lr(0.1, 0.01, 3, 1, 2, 2.0), 0.9),
    "Adam": lambda p: nn.Adam(p, 0.05, weight_decay=0.01),
    "Adam amsgrad": lambda p: nn.Adam(p, 0.05, use_amsgrad=True),
    "Adam groups": lambda p: nn.Adam(groups(p), nn.InverseDecayLR(0.05, 0.5, 2)),
    "Adam clipped": lambda p: Clipped(nn.Adam(p, nn.CosineDecayLR(0.01, 0.05, 3))),
    "AdamWeightDecay": lambda p: nn.AdamWeightDecay(p, nn.PolynomialDecayLR(0.05, 0.01, 2, 2.0), weight_decay=0.1),
    "AdamWeightDecay groups clipped": lambda p: Clipped(nn.AdamWeightDecay(groups(p), 0.05)),
    "Lamb": lambda p: nn.Lamb(p, nn.NaturalExpDecayLR(0.05, 0.5, 2), weight_decay=0.1),
    "Lamb groups clipped": lambda p: Clipped(nn.Lamb(groups(p), 0.05)),
    "AdaMax": lambda p: nn.AdaMax(groups(p), 0.05),
    "Adagrad": lambda p: nn.Adagrad(groups(p), learning_rate=nn.cosine_decay_lr(0.01, 0.1, 3, 1, 3)),
    "ProximalAdagrad": lambda p: nn.ProximalAdagrad(groups(p), learning_rate=0.1, l1=0.01, l2=0.01),
    "FTRL": lambda p: nn.FTRL(groups(p), learning_rate=0.1, l1=0.01, l2=0.01),
    "Adadelta": lambda p: Clipped(nn.Adadelta(groups(p))),
    "RMSProp": lambda p: nn.RMSProp(p, nn.WarmUpLR(0.05, 2), momentum=0.5, weight_decay=0.01),
    "RMSProp centered groups clipped": lambda p: Clipped(nn.RMSProp(groups(p), 0.05, centered=True)),
}


def network(kind, features, hidden):
    if kind == "mlp":
        cells = [nn.Dense(features * features, hidden, dtype=ms.float64), nn.Tanh(),
                 nn.Dense(hidden, 3, activation="sigmoid", dtype=ms.float64)]
        return nn.SequentialCell(nn.Flatten(), *cells)
    return nn.SequentialCell(nn.Conv2d(1, hidden, 3, stride=2, has_bias=True, dtype=ms.float64), nn.ReLU(),
                             nn.MaxPool2d(2, 1, "same"), nn.Flatten(),
                             nn.Dense(hidden * (-(-features // 2)) ** 2, 3, has_bias=False, dtype=ms.float64))


def training(kind, features, hidden, optimizer, reduction, mode, n, per_rank, mean, steps=3):
    """A program that trains `steps` steps on its share of batches of n · per_rank rows; returns the weights."""
    rng = np.random.default_rng(features * 100 + hidden)
    x, y = rng.normal(size=(steps, n * per_rank, 1, features, features)), rng.integers(0, 3, (steps, n * per_rank))

    def program(share):
        rank, ranks = share
        def run():
            ms.set_context(mode=mode)
            ms.set_seed(5)
            ms.init()
            if ranks > 1 or mean is not None:
                ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=bool(mean))
            net = network(kind, features, hidden)
            loss = nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction=reduction))
            step = nn.TrainOneStepCell(loss, OPTIMIZERS[optimizer](net.trainable_params()))
            me = ms.get_rank() if rank is None else rank
            for i in range(steps):
                step(Tensor(x[i, me::ranks]), Tensor(y[i, me::ranks]))
            return [p.asnumpy() for p in net.trainable_params()]
        return run
    return program


@pytest.mark.filterwarnings("ignore:value_and_grad. the loss has shape")       # reduction "none" is meant here
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@settings(max_examples=10)
@given(kind=st.sampled_from(["mlp", "conv"]), features=st.integers(3, 6), hidden=st.integers(1, 4),
       reduction=st.sampled_from(["mean", "sum", "none"]), mode=st.sampled_from([ms.GRAPH_MODE, ms.PYNATIVE_MODE]),
       n=st.integers(1, 8), per_rank=st.integers(1, 3))
def test_equals_one_rank(kind, features, hidden, optimizer, reduction, mode, n, per_rank):
    """A mean loss is averaged over the ranks, a sum (or 'none', whose gradient is the sum's) is summed."""
    make = training(kind, features, hidden, optimizer, reduction, mode, n, per_rank, mean=reduction == "mean")
    one = run_ranks(make((0, 1)), 1)[0]
    for weights in run_ranks(make((None, n)), n):
        for a, b in zip(one, weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("degree", [None, 5])
def test_the_reducers_formula(mean, degree):
    def program():
        ms.init()
        ms.set_auto_parallel_context(gradients_mean=mean)
        params = [Parameter(np.zeros(2), name="a"), Parameter(np.zeros(3, np.float16), name="b"),
                  Parameter(np.zeros(1), name="own", layerwise_parallel=True)]
        me = ms.get_rank()
        grads = (Tensor(np.full(2, me + 1.0)), Tensor(np.full(3, me, np.float16)), Tensor(np.full(1, me * 1.0)))
        return [g.asnumpy() for g in nn.DistributedGradReducer(params, degree=degree)(grads)]
    divisor = (degree or 3) if mean else 1
    for r, (a, b, own) in enumerate(run_ranks(program, 3)):
        np.testing.assert_allclose(a, 6 / divisor, rtol=1e-12)
        np.testing.assert_allclose(b, np.float16(3 / divisor))
        assert b.dtype == np.float16 and own == r


def test_all_gradients_travel_as_one_message():
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        ms.set_context(mode=ms.GRAPH_MODE)
        net = network("mlp", 4, 3)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 0.1))
        step(Tensor(np.ones((2, 1, 4, 4))), Tensor(np.zeros(2, np.int32)))
        (call,) = ms.communication.get_record().collectives()
        return call.op, call.count == sum(p.size for p in net.trainable_params())
    assert run_ranks(program, 4) == [("AllReduce", True)] * 4


def test_broadcast_undoes_a_perturbed_rank():
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, parameter_broadcast=True)
        net = network("mlp", 3, 2)
        if ms.get_rank() == 2:
            for p in net.get_parameters():
                p.set_data(p + 1)
        own = Parameter(np.full(1, float(ms.get_rank())), name="own", layerwise_parallel=True)
        net.insert_param_to_cell("own", own)
        Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params()[1:], 0.1)).train(1, batches(6, 1))
        broadcast_parameters([own])
        assert own.asnumpy() == ms.get_rank()
        return [p.asnumpy() for p in net.trainable_params()[1:]]
    ranks = run_ranks(program, 3)
    assert all((a == b).all() for r in ranks for a, b in zip(r, ranks[0], strict=True))


def batches(rows, per_batch, features=3, drop=True):
    rng = np.random.default_rng(1)
    data = ds.NumpySlicesDataset((rng.normal(size=(rows, 1, features, features)), rng.integers(0, 3, rows).astype(np.int32)),
                                 ["x", "y"], num_shards=ms.get_group_size(), shard_id=ms.get_rank())
    return data.batch(per_batch, drop_remainder=drop)


@settings(max_examples=25)
@given(st.integers(1, 23), st.integers(1, 8), st.integers(1, 4))
def test_evaluation_counts_no_sample_twice(rows, n, per_batch):
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        net = network("mlp", 3, 2)
        return Model(net, nn.CrossEntropyLoss(), metrics={"accuracy", "loss"}).eval(batches(rows, per_batch, drop=False))
    one, many = run_ranks(program, 1)[0], run_ranks(program, n)
    for result in many:
        assert result["accuracy"] == one["accuracy"]
        assert abs(result["loss"] - one["loss"]) < 1e-10


def test_ranks_train_on_the_batches_of_one_rank():
    """Shuffled: the union of the ranks' k-th batches is one rank's k-th batch, so whole trainings agree."""
    def program():
        ms.init()
        ms.set_seed(3)
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        net = network("mlp", 3, 4)
        model = Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
        model.train(3, batches(48, 12 // ms.get_group_size()))
        return [p.asnumpy() for p in net.trainable_params()]
    one = run_ranks(program, 1)[0]
    for n in (2, 3, 4):
        for weights in run_ranks(program, n):
            for a, b in zip(one, weights, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_unequal_step_counts_are_refused():
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        net = network("mlp", 3, 2)
        data = ds.NumpySlicesDataset((np.zeros((4 + ms.get_rank(), 1, 3, 3)), np.zeros(4 + ms.get_rank(), np.int32)))
        Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params())).train(1, data.batch(1))
    with pytest.raises(RuntimeError, match=r"rank 0: 4, rank 1: 5\).*num_shards=get_group_size\(\)"):
        run_ranks(program, 2)


def test_initial_values_are_the_same_on_all_ranks_and_follow_the_seed():
    def program(seed):
        ms.init()
        ms.set_seed(seed)
        return [p.asnumpy() for p in network("conv", 4, 3).get_parameters()]
    a, b, other = run_ranks(program, 1, 7)[0], run_ranks(program, 3, 7)[2], run_ranks(program, 1, 8)[0]
    assert all((x == y).all() for x, y in zip(a, b, strict=True))
    assert not any((x == y).all() for x, y in zip(a, other, strict=True))


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda p: nn.DistributedGradReducer(p, degree=0), ValueError, "degree 0 must be a positive whole number"),
    (lambda p: nn.DistributedGradReducer(p, degree=2.0), ValueError, "degree 2.0 must be"),
    (lambda p: nn.DistributedGradReducer(p, group="g"), ValueError, "group 'g' does not exist"),
    (lambda p: nn.DistributedGradReducer(p)(()), ValueError, "got 0 gradients, it was made for 1"),
])
def test_bad_reducers(make, error, message):
    ms.init()
    with pytest.raises(error, match=message):
        make([Parameter(np.zeros(2), name="a")])


def test_a_reducer_in_a_logical_mode_is_refused():
    ms.init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    with pytest.raises(RuntimeError, match="the compiler reduces the gradients itself"):
        nn.DistributedGradReducer([Parameter(np.zeros(2), name="a")])


def test_ops_run_inside_the_script_with_hybrid_parallel():
    """Column-parallel Dense, written by hand: the gather's gradient gives each rank its columns' share."""
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="hybrid_parallel")
        me, n = ms.get_rank(), ms.get_group_size()
        whole = np.arange(8.0).reshape(4, 2)
        w = Parameter(whole[me * 4 // n:(me + 1) * 4 // n], name="w", layerwise_parallel=True)
        def f(x):
            part = ops.matmul(w, x)
            return ops.sum(ops.square(ops.AllGather()(part))) / n
        return ms.grad(f, None, w)(Tensor(np.array([[1.0], [2.0]]))).asnumpy()
    one = run_ranks(program, 1)[0]
    np.testing.assert_allclose(np.concatenate(run_ranks(program, 2)), one)
