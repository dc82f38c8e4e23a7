"""What a dataset feeds in semi-auto and auto mode: layouts of batches, and that training on them is one rank's."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
import minispore.dataset as ds
from minispore import Model, Parameter, Tensor, nn, ops
from minispore.common import random
from minispore.lab import run_ranks
from minispore.ops.primitive import Piece
from minispore.ops.random import Keep, Random
from minispore.parallel import Layout
from minispore.train import Accuracy, Callback, Metric
from minispore.train.metrics.metric import Rows

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(48, 8)), RNG.integers(0, 4, 48).astype(np.int32)


class Net(nn.Cell):
    """Two products, with dropout in between if p; split: strategies for so many ranks."""

    def __init__(self, split=None, p=0.0):
        super().__init__()
        rows, columns = split or (1, 1)
        self.first = Parameter(ms.initializer("normal", (8, 8), ms.float64) * 10, name="first")
        self.second = Parameter(ms.initializer("normal", (8, 4), ms.float64) * 10, name="second")
        self.one, self.two, self.drop = ops.MatMul(), ops.MatMul(), nn.Dropout(p=p)
        if split:
            self.one.shard(((rows, 1), (1, columns)))
            self.two.shard(((rows, columns), (columns, 1)))

    def construct(self, x):
        return self.two(self.drop(ops.tanh(self.one(x, self.first))), self.second)


def data(batch, shards=1, shard=0, rows=48, drop=True, shuffle=False):
    made = ds.NumpySlicesDataset((X[:rows], Y[:rows]), ["x", "y"], shuffle=shuffle, num_shards=shards, shard_id=shard)
    return made.batch(batch, drop_remainder=drop)


def semi_auto(**more):
    ms.set_seed(5)
    ms.init()
    if ms.get_group_size() > 1:
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", **more)


class Seen(Metric):
    """The labels, in the dataset's order."""

    def clear(self):
        self.rows = Rows()

    def update(self, *inputs):
        self.rows += inputs[1].asnumpy()

    def eval(self):
        return self.rows.value


class Losses(Callback):
    def __init__(self):
        self.losses = []

    def on_train_step_end(self, run_context):
        self.losses.append(float(run_context.original_args().net_outputs))


def trained(batch, strategy, sharing, split=None, p=0.0, rows=48, shuffle=False, epochs=2, valid_rows=19):
    """Losses, results of fit's evaluations and of eval, and whole parameters after training."""
    def program():
        semi_auto(dataset_strategy=strategy)
        n, me = ms.get_group_size(), ms.get_rank()
        shards, shard = sharing(me, n)
        net, seen = Net(split if n > 1 else None, p), Losses()
        model = Model(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.01), metrics={
            "accuracy": Accuracy(), "loss": nn.Loss(), "F1": nn.F1(), "seen": Seen()})
        ends = shards > 1 or not split          # else strategies would have to split a last batch that they don't divide
        valid = data(5 if ends else 4, shards, shard, rows=valid_rows, drop=False)
        model.fit(epochs, data(batch // shards, shards, shard, rows, shuffle=shuffle), valid, callbacks=seen)
        out = model.eval(data(12 // shards, shards, shard, rows=24, drop=False))
        last = model.predict(Tensor(X[:4]))
        return [seen.losses, *out.values(), *model.eval(valid).values(), last.asnumpy(),
                *(p.full().asnumpy() for p in net.trainable_params())]
    return program


def every(me, n):
    return n, me


def none(me, n):
    return 1, 0


def check(many, one):
    for rank in many:
        for a, b in zip(one, rank, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("n", "strategy", "sharing", "split", "p"), [
    (2, "data_parallel", every, None, 0), (2, "data_parallel", every, (1, 2), 0.4), (3, "data_parallel", every, None, 0.4),
    (4, "data_parallel", every, (2, 2), 0.4), (8, "data_parallel", every, None, 0), (4, "full_batch", none, (2, 2), 0.4),
    (3, "full_batch", none, None, 0), (2, "data_parallel", none, (2, 1), 0.4), (8, "full_batch", none, (2, 4), 0),
    (4, ((2, 1), (2,)), lambda me, n: (2, me // 2), None, 0.4),
    (4, (Layout((2, 2), ("mp", "dp"))("dp", "None"), Layout((2, 2), ("mp", "dp"))("dp")), lambda me, n: (2, me % 2), None, 0.4),
])
def test_training_equals_one_rank(n, strategy, sharing, split, p):
    """Losses, fit's and eval's metrics on data that don't divide, and parameters; also with dropout."""
    rows = 19 if sharing is not none or not split else 20
    one = run_ranks(trained(24, strategy, none, p=p, valid_rows=rows), 1)[0]
    check(run_ranks(trained(24, strategy, sharing, split, p, valid_rows=rows), n), one)


def test_shuffled_shards_are_one_ranks_batches():
    one = run_ranks(trained(12, "data_parallel", none, p=0.3, shuffle=True), 1)[0]
    check(run_ranks(trained(12, "data_parallel", every, p=0.3, shuffle=True), 4), one)


def test_columns_split_in_dim_1_are_fed_as_slices():
    def program():
        semi_auto(dataset_strategy=((2, 2), (2,)))
        me = ms.get_rank()
        half = slice(4 * (me % 2), 4 * (me % 2) + 4) if ms.get_group_size() > 1 else slice(0, 8)
        rows = (2, me // 2) if ms.get_group_size() > 1 else (1, 0)
        fed = ds.NumpySlicesDataset((X[:, half], Y), ["x", "y"], shuffle=False, num_shards=rows[0], shard_id=rows[1])
        net, seen = Net(), Losses()
        Model(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.01)).train(2, fed.batch(24 // rows[0]), seen)
        return [seen.losses, *(p.full().asnumpy() for p in net.trainable_params())]
    check(run_ranks(program, 4), run_ranks(program, 1)[0])


@settings(max_examples=8)
@given(st.integers(1, 23), st.sampled_from([2, 3, 4]), st.integers(1, 4), st.booleans())
def test_evaluation_counts_no_sample_twice(rows, n, per_batch, loss_only):
    def program():
        semi_auto()
        net = Net()
        shards = ms.get_group_size(), ms.get_rank()
        if loss_only:       # the network returns one number, so the rows that only fill can't be left out of its result
            return Model(nn.WithLossCell(net, nn.CrossEntropyLoss()), metrics={"loss"}).eval(
                data(per_batch * n // shards[0], *shards, rows=rows, drop=False))
        return Model(net, nn.CrossEntropyLoss(), metrics={"accuracy": Accuracy(), "loss": nn.Loss(), "roc": nn.F1()}).eval(
            data(per_batch * n // shards[0], *shards, rows=rows, drop=False))
    one = run_ranks(program, 1)[0]
    for result in run_ranks(program, n):
        assert result.keys() == one.keys()
        for key, value in one.items():
            np.testing.assert_allclose(result[key], value, rtol=1e-10, atol=1e-10)


def test_what_comes_out_of_a_sharded_dataset():
    def program():
        semi_auto()
        me = ms.get_rank()
        x, y = next(iter(data(2, 3, me)))
        row = next(data(2, 3, me).create_dict_iterator())
        net = Net()
        out = net(x)
        plain = next(iter(data(2)))[0]
        array, = next(data(2, 3, me).create_tuple_iterator(columns="x", output_numpy=True))
        assert x.shape == (2, 8) and x.layout.shape == (6, 8) and x.layout.batch and (x.asnumpy() == X[me:me + 4:3]).all()
        assert y.layout.local_shape == (2,) and row["y"].layout.shape == (6,) and type(array) is np.ndarray
        assert out.shape == out.asnumpy().shape == (2, 4) and out.layout.shape == (6, 4)
        assert plain.layout is None and net(plain).layout is None
        np.testing.assert_allclose(ops.sum(x).asnumpy(), X[:6].sum())
        np.testing.assert_array_equal(x.full().asnumpy(), X[[0, 3, 1, 4, 2, 5]])
        np.testing.assert_array_equal(out.full().asnumpy()[[0, 2, 4, 1, 3, 5]], net(Tensor(X[:6])).asnumpy())
    run_ranks(program, 3)


@pytest.mark.parametrize("through", [
    lambda d, other: d.batch(2).map(lambda x: x + 1, "x").take(3), lambda d, other: d.zip(other.rename(["x", "y"], ["a", "b"])),
    lambda d, other: d.concat(other), lambda d, other: d.shuffle(4).repeat(2).skip(1).project("x"),
    lambda d, other: d.filter(lambda x, y: True), lambda d, other: d.split([0.5, 0.5])[0],
    lambda d, other: d.batch(2, per_batch_map=lambda x, y, info: (x, y)), lambda d, other: d.take(8).split([4, 4])[1],
])
def test_stages_know_the_shard(through):
    def rows(n, shard):
        return ds.NumpySlicesDataset((X, Y), ["x", "y"], num_shards=n, shard_id=shard)
    assert through(rows(4, 3), rows(4, 3)).stage.share == (3, 4)


def test_sources_know_their_shard():
    inner = ds.DistributedSampler(2, 1, shuffle=False)
    outer = ds.DistributedSampler(3, 2, shuffle=False)
    outer.add_child(inner)
    nested = ds.NumpySlicesDataset(np.arange(12), "x", sampler=outer)
    assert nested.stage.share == (5, 6) and [int(x) for x, in nested] == list(range(12))[5::6]
    sampler = ds.SequentialSampler()
    assert ds.NumpySlicesDataset(X, sampler=sampler).stage.share == (0, 1)
    sampler.add_child(inner)
    assert ds.NumpySlicesDataset(X, sampler=sampler).stage.share == (1, 2)
    assert ds.GeneratorDataset(lambda: iter(range(9)), "x", num_shards=3, shard_id=1).stage.share == (1, 3)


LAYOUT = Layout((2, 2), ("dp", "mp"))


@pytest.mark.parametrize(("strategy", "sharing", "message"), [
    ("data_parallel", (2, 1), r"cut into 2 shards, but there are 4 devices; give it num_shards=get_group_size\(\)"),
    ("data_parallel", (4, 0), r"rank 1 of 4 holds piece 1 of 4 of the rows, but its dataset has shard_id=0; give shard_id=1"),
    ("full_batch", (4, 1), "every rank feeds all rows, but the dataset is cut into 4 shards; leave num_shards"),
    (((4, 1),), (4, 1), r"has 1 entries for the dataset's 2 columns \(x, y\); give one a column"),
    (((4,), (4,)), (4, 1), r"column 'x' of shape \(2, 8\) has 2 dims, its entry \(4,\) 1; give one for each dim"),
    ((LAYOUT("dp"), LAYOUT("dp")), (2, 0), r"column 'x' .* has 2 dims, its entry Layout.* 1"),
    (((3, 1), (3,)), (1, 0), r"column 'x' .* needs 3 devices, which does not divide the 4 there are"),
    (((2, 1), (2,)), (4, 1), r"column 'x' .* has its rows in 2 pieces, but the dataset is cut into 4 shards; they must agree"),
    (((4, 1), (2,)), (4, 1), r"column 'y' of shape \(2,\) has its rows in 2 pieces"),
    (((2, 1), (2,)), (2, 1), r"rank 1 of 4 holds piece 0 of 2 .* give shard_id=0"),
    ((LAYOUT("dp", "mp"), LAYOUT("mp")), (2, 0), r"column 'y' .* holds piece 1 of 2 of the rows"),
    ((Layout((2, 4), ("a", "b"))("a", "b"), LAYOUT("dp")), (2, 0), "the device matrix has 8 devices, this program 4"),
])
def test_refused_strategies(strategy, sharing, message):
    """Rank 1 of 4 is asked, without a cluster."""
    ms.common.state.current().launched_rank = 1
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=4, dataset_strategy=strategy)
    with pytest.raises(ValueError, match=message):
        next(iter(data(2, *sharing)))


def test_rows_without_a_batch_and_parts_of_different_shards_are_refused():
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=4)
    with pytest.raises(ValueError, match=r"column 'y' is a single number.*batch\(\) the dataset"):
        next(iter(ds.NumpySlicesDataset((X, Y), ["x", "y"], num_shards=4, shard_id=0)))
    sharded, all_rows = data(2, 4, 0), data(2).rename(["x", "y"], ["a", "b"])
    with pytest.raises(ValueError, match="zip: the datasets are sharded differently .*dataset 1: shard 0 of 1"):
        next(iter(sharded.zip(all_rows)))
    with pytest.raises(ValueError, match="concat: the datasets are sharded differently"):
        next(iter(sharded + data(2)))
    ms.reset_auto_parallel_context()
    assert next(iter(sharded.zip(all_rows)))[0].layout is None


def test_more_ranks_than_devices():
    def program():
        semi_auto(device_num=2)
        Net()(next(iter(data(4)))[0])
    with pytest.raises(RuntimeError, match="for device_num=2 devices, the job has 3 ranks"):
        run_ranks(program, 3)


# ---- steps and stops ----------------------------------------------------------------------------------

class Impatient(Callback):
    """Stops after the second step, on rank 1 only."""
    may_stop = True
    steps = 0

    def on_train_step_end(self, run_context):
        self.steps += 1
        if ms.get_rank() == 1 and self.steps == 2:
            run_context.request_stop()


@pytest.mark.parametrize("strategy", ["data_parallel", "full_batch"])
def test_a_stop_on_one_rank_ends_all(strategy):
    def program():
        semi_auto(dataset_strategy=strategy)
        net, stop = Net(), Impatient()
        fed = data(4, *((3, ms.get_rank()) if strategy == "data_parallel" else ()))
        Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1)).train(3, fed, stop)
        return stop.steps
    assert run_ranks(program, 3) == [2, 2, 2]


@pytest.mark.parametrize("evaluate", [True, False])
def test_unequal_steps_are_refused(evaluate):
    def program():
        semi_auto(full_batch=True)
        net = Net()
        model = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1), metrics={"accuracy"})
        fed = data(4, rows=12 + 4 * ms.get_rank())
        model.eval(fed) if evaluate else model.train(1, fed)
    with pytest.raises(RuntimeError, match=r"different numbers of steps an epoch \(rank 0: 3, rank 1: 4\)"):
        run_ranks(program, 2)


# ---- dropout --------------------------------------------------------------------------------------------

@settings(max_examples=60)
@given(st.integers(2, 6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 2), st.data())
def test_dropout_of_a_batch_of_shards_is_the_datasets(n, b, k, dims, draw):
    """Any piece of dim 0, and of another dim, has the numbers of the rows in the dataset's order."""
    shape = (n * b * k, *(4, 3)[:dims])
    one = Random(shape, Keep(0.5), ms.float64, ("here", 1), by_rows=True)
    with random.tracing():
        whole = one.forward()
        many = Random(shape, Keep(0.5), ms.float64, ("here", 1), by_rows=True, shards=(n, b))
        expected = whole.reshape(b, n, k, *shape[1:]).swapaxes(0, 1).reshape(shape)
        np.testing.assert_array_equal(many.forward(), expected)
        count = draw.draw(st.sampled_from([c for c in range(1, shape[0] + 1) if shape[0] % c == 0]))
        index = draw.draw(st.integers(0, count - 1))
        pieces, rows, columns = {"a": Piece(index, count)}, shape[0] // count, slice(None)
        if dims and draw.draw(st.booleans()):
            pieces["b"], columns = Piece(1, 2), slice(2, 4)
        part = many.local(many.bound_rule([], [shape]), pieces).forward()
    expected = expected[index * rows:(index + 1) * rows]
    np.testing.assert_array_equal(part, expected[:, columns] if dims else expected)


def test_dropout_on_the_batchs_rows_laid_end_to_end():
    """A mask for (rows · words, features): the words of a row stay together."""
    def program():
        semi_auto()
        n, me = ms.get_group_size(), ms.get_rank()
        fed = ds.NumpySlicesDataset(X.reshape(12, 4, 8), "x", shuffle=False, num_shards=n, shard_id=me).batch(12 // n)
        x, = next(iter(fed))
        net = ms.jit(lambda x: ops.reshape(ops.dropout(ops.reshape(x, (48, 8)), 0.5), (12, 4, 8)))
        return net(x).asnumpy()
    one, four = run_ranks(program, 1)[0], run_ranks(program, 4)
    for r, part in enumerate(four):
        np.testing.assert_array_equal(part, one[r::4])


# ---- AutoParallel --------------------------------------------------------------------------------------

def test_a_model_takes_the_settings_of_its_network():
    from minispore.parallel.auto_parallel import AutoParallel
    x = np.random.default_rng(0).normal(size=(26, 6))
    y = (x.sum(1) > 0).astype(np.int32)

    def run(n, wrap):
        ms.set_seed(1)
        net = nn.SequentialCell(nn.Dense(6, 8, dtype=ms.float64), nn.ReLU(), nn.Dense(8, 2, dtype=ms.float64))
        if wrap:
            net[0].matmul.shard(((1, 1), (2, 1)))
        network = AutoParallel(net).hsdp(threshold=0) if wrap else net
        shard = dict(num_shards=n, shard_id=ms.get_rank()) if n > 1 else {}
        data = ds.NumpySlicesDataset((x, y), shuffle=False, **shard).batch(8 // n)
        optimizer = nn.Adam(net.trainable_params(), 0.05)
        model = ms.Model(network, nn.CrossEntropyLoss(), optimizer, metrics={"accuracy", "loss"})
        model.train(2, data)
        assert ms.get_auto_parallel_context("parallel_mode") == "stand_alone"
        return {**model.eval(data), "rows": len(model.predict(Tensor(x[:8])))}, net[0].weight.shape, optimizer.moment1[0].shape

    def program():
        ms.init()
        return run(2, True)
    expected, *_ = run(1, False)
    for mine, *shapes in run_ranks(program, 2):
        assert mine == pytest.approx(expected, rel=1e-9) and shapes == [(4, 6), (4, 6)]
