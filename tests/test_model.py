"""Model: fit, evaluation of every kind of network, resuming, mixed precision's part, messages."""
import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
import minispore.dataset as ds
from minispore import Model, Tensor, nn, ops
from minispore.lab import run_ranks
from minispore.train import Callback, History, LambdaCallback, LearningRateScheduler, LossMonitor

MODES = pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])


def data(rows=12, batch=2, shuffle=True, columns=("x", "y")):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, 4)), rng.integers(0, 3, rows).astype(np.int32)
    arrays = (x, y, *[x] * (len(columns) - 2))[:len(columns)]
    return ds.NumpySlicesDataset(arrays, list(columns), shuffle=shuffle, num_shards=ms.get_group_size(),
                                 shard_id=ms.get_rank()).batch(batch)


def dense():
    return nn.SequentialCell(nn.Dense(4, 3, dtype=ms.float64))


def model(metrics=("accuracy",), optimizer=lambda p: nn.Momentum(p, 0.1, 0.9), **kwargs):
    net = dense()
    return Model(net, nn.CrossEntropyLoss(), optimizer(net.trainable_params()), metrics=metrics, **kwargs)


def state(m):
    return [p.asnumpy() for p in m.train_network.get_parameters()]


def load(m, values):
    for p, value in zip(m.train_network.get_parameters(), values, strict=True):
        p.set_data(value)


class Losing(nn.Cell):
    """A network that computes its loss itself, from all columns."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def construct(self, x, y):
        return ops.cross_entropy(self.net(x), y)


class LossAndMore(Losing):
    def construct(self, x, y):
        out = self.net(x)
        return ops.cross_entropy(out, y), out


# ---- fit --------------------------------------------------------------------------------------------------

@MODES
def test_fit_is_train_and_eval(mode, capsys):
    ms.set_context(mode=mode)
    ms.set_seed(1)
    history = History()
    m = model({"accuracy", "loss"})
    m.fit(3, data(), data(7, 3), callbacks=history, verbose=1)
    ms.set_seed(1)
    other, results = model({"accuracy", "loss"}), []
    other.train(3, data(), LambdaCallback(on_train_epoch_end=lambda run: results.append(other.eval(data(7, 3)))))
    assert all((a == b).all() for a, b in zip(state(m), state(other), strict=True))
    assert history.history["accuracy"] == [r["accuracy"] for r in results]
    assert history.history["loss"] == [r["loss"] for r in results]
    assert [f"accuracy {r['accuracy']:.4f}  loss {r['loss']:.4f}" in line
            for line, r in zip(capsys.readouterr().out.splitlines(), results, strict=True)] == [True] * 3


@pytest.mark.parametrize(("frequency", "epochs"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4]), (7, []), ([1, 5, 9], [1, 5])])
def test_valid_frequency(frequency, epochs):
    seen = []
    model().fit(5, data(), data(), frequency, LambdaCallback(
        on_train_epoch_end=lambda run: seen.append(run.original_args().cur_epoch_num)
        if "eval_results" in run.original_args() else None))
    assert seen == epochs


def test_eval_loss_is_the_mean_over_all_rows():
    seen = []
    m = model()
    m.fit(1, data(), data(7, 3), callbacks=LambdaCallback(
        on_train_epoch_end=lambda run: seen.append(run.original_args().eval_results["eval_loss"])))
    batch, = data(7, 7).create_dict_iterator(num_epochs=1)
    expected = ops.cross_entropy(m.predict(batch["x"]), batch["y"])
    assert seen == [pytest.approx(float(expected), rel=1e-12)]


def test_an_evaluation_is_one_and_training_goes_on_as_training():
    modes = []
    class Look(nn.Cell):
        def __init__(self):
            super().__init__()
            self.net = dense()
        def construct(self, x):
            modes.append(self.training)
            return self.net(x)
    net = Look()
    m = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1), metrics={"accuracy"})
    m.fit(2, data(), data(4))
    assert modes == ([True] * 6 + [False] * 2) * 2
    m.predict(Tensor(np.zeros((1, 4))))
    assert modes[-1] is False


def test_evaluation_in_fit_over_ranks():
    """Every rank has one rank's results, for any cut of the data."""
    def program():
        ms.init()
        ms.set_seed(4)
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        history = History()
        results = []
        model({"accuracy", "loss", "recall"}).fit(3, data(12, 12 // ms.get_group_size()), data(11, 2), callbacks=[
            history, LambdaCallback(on_train_epoch_end=lambda run: results.append(run.original_args().eval_results))])
        return results
    one = run_ranks(program, 1)[0]
    for n in (2, 3, 4):
        for results in run_ranks(program, n):
            for a, b in zip(one, results, strict=True):
                assert a["accuracy"] == b["accuracy"] and (a["recall"] == b["recall"]).all()
                assert b["eval_loss"] == b["loss"] == pytest.approx(a["loss"], rel=1e-9)


# ---- kinds of networks -----------------------------------------------------------------------------------------

@MODES
@pytest.mark.parametrize("kind", [Losing, LossAndMore])
def test_a_network_with_its_own_loss(mode, kind, capsys):
    ms.set_context(mode=mode)
    ms.set_seed(1)
    m = model()
    m.train(2, data())
    ms.set_seed(1)
    net = kind(dense())
    step = nn.TrainOneStepCell(Losing(net.net), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    if kind is Losing:
        other = Model(net, optimizer=step.optimizer, metrics={"loss"})
    else:
        class Step(nn.Cell):
            """A training step that returns more than the loss."""
            def __init__(self):
                super().__init__()
                self.step, self.net = step, net.net
            def construct(self, x, y):
                out = self.net(x)
                return self.step(x, y), out
        other = Model(Step())
        assert other.train_network is other.predict_network
    history = History()
    other.train(2, data(), [history, LossMonitor(6)])
    for a, b in zip(m.predict_network.trainable_params(), net.trainable_params(), strict=True):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    lines = capsys.readouterr().out.splitlines()
    assert [float(line.split()[-1]) for line in lines] == [pytest.approx(v, rel=1e-5) for v in history.history["net_output"]]
    if kind is Losing:
        loss = Model(m.predict_network, nn.CrossEntropyLoss(), metrics={"loss"}).eval(data(7, 3))
        assert other.eval(data(7, 3)) == loss and set(loss) == {"loss"}


@MODES
def test_all_of_a_tuple_is_differentiated(mode):
    """As in MindSpore: the gradient is that of the sum of all outputs."""
    ms.set_context(mode=mode)
    class Both(Losing):
        def construct(self, x, y):
            return ops.cross_entropy(self.net(x), y), weigh(ops.sum(ops.square(self.net(x))))
    class Added(Losing):
        def construct(self, x, y):
            return ops.cross_entropy(self.net(x), y) + ops.sum(ops.square(self.net(x)))
    def weights(kind):
        ms.set_seed(1)
        net = kind(dense())
        Model(net, optimizer=nn.SGD(net.trainable_params(), 0.01)).train(1, data())
        return net.trainable_params()[0].asnumpy()
    weigh = lambda out: out
    np.testing.assert_allclose(weights(Both), weights(Added), rtol=1e-12)
    weigh = ops.stop_gradient
    np.testing.assert_array_equal(weights(Both), weights(Losing))


def test_a_training_cell_needs_no_optimizer():
    net = dense()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 0.1))
    m, before = Model(step), net.trainable_params()[0].asnumpy()
    m.train(1, data(), LearningRateScheduler(lambda rate, step: rate / 2))
    assert float(step.optimizer.get_lr()) == pytest.approx(0.1 / 2 ** 6)
    assert m.train_network is step and not np.array_equal(before, net.trainable_params()[0].asnumpy())
    with pytest.raises(ValueError, match="no optimizer was given"):
        Model(Losing(dense())).train(1, data())


def test_its_cells():
    m = model()
    assert isinstance(m.train_network, nn.TrainOneStepCell) and m.eval_network is m.predict_network
    judge = Losing(m.predict_network)
    assert Model(m.predict_network, eval_network=judge).eval_network is judge


@pytest.mark.parametrize("n", [2, 3])
def test_the_loss_of_a_network_alone_over_uneven_shards(n):
    def program():
        ms.init()
        ms.set_seed(1)
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        return Model(Losing(dense()), metrics={"loss"}).eval(data(7, 2))["loss"]
    one = run_ranks(program, 1)[0]
    assert run_ranks(program, n) == [pytest.approx(one, rel=1e-12)] * n


def test_an_endless_dataset_has_epochs_of_its_size():
    steps = []
    model().train(2, data().repeat(), LambdaCallback(
        on_train_step_end=lambda run: steps.append(run.original_args().cur_step_num)))
    assert steps == list(range(1, 13))


def test_sink_mode_is_accepted():
    ms.set_seed(1)
    m = model()
    m.train(1, data(), dataset_sink_mode=True)
    ms.set_seed(1)
    other = model()
    other.fit(1, data(), data(), dataset_sink_mode=False, valid_dataset_sink_mode=True)
    assert all((a == b).all() for a, b in zip(state(m), state(other), strict=True))
    assert other.eval(data(), dataset_sink_mode=True) == other.eval(data())
    with pytest.warns(UserWarning, match="sink_size=3 is left out of account"):
        model().train(1, data(), dataset_sink_mode=True, sink_size=3)


# ---- going on ----------------------------------------------------------------------------------------------------

EPOCHS, STEPS = 3, 6


class Snapshots(Callback):
    """The state after every step, and the steps' data."""

    def on_train_begin(self, run_context):
        self.states, self.numbers, self.rows = {}, [], []

    def on_train_step_end(self, run_context):
        a = run_context.original_args()
        self.states[a.cur_step_num] = [p.asnumpy() for p in a.train_network.get_parameters()]
        self.numbers.append((a.cur_epoch_num, a.cur_step_num))
        self.rows.append(a.train_dataset_element[0].asnumpy())


@settings(max_examples=20)
@given(st.integers(0, EPOCHS * STEPS - 1), st.sampled_from([1, 2, 3]), st.sampled_from([ms.GRAPH_MODE, ms.PYNATIVE_MODE]),
       st.sampled_from([lambda p: nn.Adam(p, 0.05), lambda p: nn.SGD(p, [0.1, 0.2, 0.05, 0.3, 0.01, 0.02], momentum=0.9)]))
def test_a_resumed_training_is_the_undisturbed_one(done, n, mode, optimizer):
    """Bitwise, from any step: the same data, numbers and states."""
    def program():
        ms.init()
        ms.set_context(mode=mode)
        ms.set_seed(3)
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        whole, rest = Snapshots(), Snapshots()
        m = model(optimizer=optimizer)
        begin = state(m)
        train = data(STEPS * 2 * n)
        m.train(EPOCHS, train, whole)
        other = model(optimizer=optimizer)
        load(other, whole.states[done] if done else begin)
        epoch, step = divmod(done, STEPS)
        other.train(EPOCHS, train, rest, initial_epoch=epoch, initial_step=step)
        return whole, rest
    for whole, rest in run_ranks(program, n):
        assert rest.numbers == whole.numbers[done:] and len(whole.numbers) == EPOCHS * STEPS
        assert all((a == b).all() for a, b in zip(rest.rows, whole.rows[done:], strict=True))
        for number, arrays in rest.states.items():
            assert all((a == b).all() for a, b in zip(arrays, whole.states[number], strict=True))


def test_progress_of_a_resumed_epoch(capsys):
    model().train(2, data(), initial_epoch=1, initial_step=4, verbose=1)
    assert "epoch 2/2 [####################] 6/6  loss" in capsys.readouterr().out


# ---- mixed precision and loss scale: Model's part --------------------------------------------------------------------

class Scale(nn.Cell):
    """The update cell of a loss-scale manager."""


class Manager:
    def __init__(self, drop=True, cell=True):
        self.drop, self.cell, self.seen = drop, Scale() if cell else None, []

    def get_update_cell(self):
        return self.cell

    def get_loss_scale(self):
        return 4.0

    def get_drop_overflow_update(self):
        return self.drop

    def update_loss_scale(self, overflow):
        self.seen.append(overflow)


class ScaledStep(nn.Cell):
    """Like nn.TrainOneStepWithLossScaleCell: (loss, overflow, scale). Every third step overflows, with a loss of NaN."""

    def __init__(self, network, optimizer, scale_sense):
        super().__init__(auto_prefix=False)
        assert isinstance(scale_sense, Scale)
        self.network, self.optimizer, self.calls = network, optimizer, 0

    def construct(self, *inputs):
        self.calls += 1
        overflow = self.calls % 3 == 0
        loss = self.network(*inputs)
        return Tensor(np.array(np.nan)) if overflow else loss, Tensor(np.array(overflow)), Tensor(4.0)


@pytest.fixture
def amp(monkeypatch):
    """A stand-in for train.amp: what it was asked for."""
    asked, module = [], ModuleType("minispore.train.amp")
    class Half(nn.Cell):
        def __init__(self, network):
            super().__init__(auto_prefix=False)
            self.network = network
        def construct(self, x):
            return ops.cast(self.network(x), ms.float16)
    def auto_mixed_precision(network, amp_level):
        asked.append(amp_level)
        return Half(network)
    module.auto_mixed_precision, module.DynamicLossScaleManager = auto_mixed_precision, Manager
    monkeypatch.setitem(sys.modules, "minispore.train.amp", module)
    monkeypatch.setattr(ms.train, "amp", module, raising=False)
    monkeypatch.setattr(nn, "TrainOneStepWithLossScaleCell", ScaledStep, raising=False)
    return asked


@pytest.mark.parametrize(("level", "more", "cast", "scaled"), [
    ("O2", {}, "O2", True), ("O3", {}, "O3", False), ("O2", {"keep_batchnorm_fp32": False}, "O3", True),
    ("O3", {"keep_batchnorm_fp32": True}, "O2", False), ("O2", {"loss_scale_manager": None}, "O2", False),
    ("O3", {"loss_scale_manager": Manager()}, "O3", True), ("auto", {}, "O3", False)])
def test_amp_levels(amp, level, more, cast, scaled):
    if level == "auto":
        with pytest.warns(UserWarning, match="no Ascend device here"):
            ms.set_context(device_target="Ascend")
    m = model({"accuracy", "loss"}, amp_level=level, **more)
    assert amp == [cast] and isinstance(m.train_network, ScaledStep) == scaled
    seen = []
    m.eval(data(), LambdaCallback(on_eval_step_end=lambda run: seen.append([t.dtype for t in run.original_args().net_outputs])))
    assert seen[0][:2] == [np.float32, np.float32]          # loss and outputs


def test_steps_with_overflow(amp, capsys):
    """(loss, overflow, scale): the first is shown, the manager hears of the second, and a NaN there is no alarm."""
    manager = Manager()
    model(loss_scale_manager=manager).train(1, data(), LossMonitor(), verbose=1)
    assert manager.seen == [False, False, True] * 2
    lines = [line for line in capsys.readouterr().out.splitlines() if "loss is" in line]
    assert [line.endswith("nan") for line in lines] == [False, False, True] * 2


def test_a_fixed_scale_without_dropping():
    manager = Manager(drop=False, cell=False)
    m = model(loss_scale_manager=manager)
    m.train(1, data())
    assert m.train_network.sens == 4 and not manager.seen


@MODES
def test_with_minispores_own_amp(mode):
    module = pytest.importorskip("minispore.train.amp")
    ms.set_context(mode=mode)
    net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 3))
    manager = module.DynamicLossScaleManager(2.0 ** 30, 2, 1000)        # overflows in float16, until it has come down
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 4)).astype(np.float32)
    train = ds.NumpySlicesDataset((x, x[:, :3].argmax(1).astype(np.int32)), ["x", "y"]).batch(8)
    m = Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9), {"accuracy", "loss"}, amp_level="O2",
              loss_scale_manager=manager)
    history = History()
    m.fit(20, train, train, callbacks=[history, LossMonitor(0)])
    assert history.history["accuracy"][-1] > 0.9 and history.history["loss"][-1] < 0.5
    assert 1 <= manager.get_loss_scale() < 2.0 ** 30
    assert {t.dtype for t in net.trainable_params()} == {np.dtype(np.float32)}


# ---- build ---------------------------------------------------------------------------------------------------------------

def test_build_finds_errors_and_changes_nothing():
    ms.set_context(mode=ms.GRAPH_MODE)
    m = model()
    before = state(m)
    m.build(data(), data(5, 1), epoch=2)
    assert all((a == b).all() for a, b in zip(before, state(m), strict=True))
    m.train(1, data())
    assert not (before[0] == state(m)[0]).all()
    net = nn.Dense(5, 3, dtype=ms.float64)
    wrong = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params()), metrics={"accuracy"})
    with pytest.raises(ValueError, match="4 features, 5 are needed"):
        wrong.build(data())
    with pytest.raises(ValueError, match="4 features, 5 are needed"):
        wrong.build(valid_dataset=data())


# ---- messages ----------------------------------------------------------------------------------------------------------------

class Two(nn.Cell):
    def construct(self, a, b):
        return a + b


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: model().train(1, [(1, 2)]), TypeError, "Model.train: train_dataset is a list; it must be a dataset, e.g. ds.Numpy"),
    (lambda: model().fit(1, data(), [1]), TypeError, "Model.fit: valid_dataset is a list"),
    (lambda: model().eval([1]), TypeError, "Model.eval: valid_dataset is a list"),
    (lambda: model().train(1, data(1, 2).batch(2, drop_remainder=True)), ValueError, "train_dataset has no batch"),
    (lambda: model().train(1, data(columns=("x", "y", "z"))), ValueError,
     r"Model.train: the dataset gives 3 columns \(x, y, z\). With a loss_fn it must give two, the network's data and the label, "
     r"SequentialCell.construct\(x\).*dataset.project"),
    (lambda: model().train(1, data(columns=("x",))), ValueError, r"gives 1 columns \(x\)"),
    (lambda: Model(Two(), nn.CrossEntropyLoss(), nn.SGD(dense().trainable_params())).train(1, data()), ValueError,
     r"Two.construct\(a, b\)"),
    (lambda: Model(Two(), nn.CrossEntropyLoss(), nn.SGD(dense().trainable_params())).train(1, data(columns=("x", "y", "z"))),
     ValueError, r"gives 3 columns \(x, y, z\). With a loss_fn it must give two"),
    (lambda: Model(Losing(dense()), optimizer=nn.SGD(dense().trainable_params())).train(1, data(columns=("x",))), ValueError,
     r"gives 1 columns \(x\). All of them go to the network, Losing.construct\(x, y\)"),
    (lambda: Model(dense(), optimizer=nn.SGD(dense().trainable_params())).train(1, data()), ValueError, "give Model a loss_fn"),
    (lambda: model().eval(data(columns=("x", "y", "z"))), ValueError, "Model.eval: the dataset gives 3 columns.*The last one is"),
    (lambda: model(None).eval(data()), ValueError, "Model.eval: no metrics were given"),
    (lambda: model(None).fit(1, data(), data()), ValueError, "Model.fit: no metrics were given"),
    (lambda: Model(dense(), metrics={"loss", "accuracy"}).eval(data()), ValueError,
     r"the metric 'loss' among \['accuracy', 'loss'\]"),
    (lambda: Model(dense(), metrics={"loss"}).eval(data()), ValueError, r"All of them go to the network.*give Model a loss_fn"),
    (lambda: model(speed=3, fast=1), ValueError, "there is no argument fast, speed"),
    (lambda: model(boost_level="O1"), ValueError, "boost_level='O1'"),
    (lambda: model(amp_level="O1"), ValueError, "amp_level 'O1' must be"),
    (lambda: model(amp_level="auto"), ValueError, "is O2 on GPU and O3 on Ascend, but device_target is 'CPU'"),
    (lambda: Model(dense(), amp_level="O2"), ValueError, "amp_level='O2' needs an optimizer"),
    (lambda: Model(dense(), loss_scale_manager=Manager()), ValueError, "a loss_scale_manager needs an optimizer"),
    (lambda: model(eval_network=3), TypeError, "eval_network is a int"),
    (lambda: model(eval_indexes=[0, 1]), ValueError, r"eval_indexes \[0, 1\] must be a list of three"),
    (lambda: Model(dense(), eval_network=Two(), eval_indexes=[0, 1, 2], metrics={"accuracy"}).eval(
        ds.NumpySlicesDataset((np.ones(3), np.ones(3))).batch(3)), ValueError, "returned 1 values, eval_indexes are"),
    (lambda: model().train(2, data(), initial_epoch=2), ValueError, "nothing is left to do from initial_epoch=2"),
    (lambda: model().train(2, data(), initial_step=6), ValueError, "each has 6 steps.*give initial_epoch=1"),
    (lambda: model().train(2, data(), initial_step=-1), ValueError, "initial_step=-1 must be a whole number ≥ 0"),
    (lambda: model().train(2, data(), dataset_sink_mode=1), TypeError, "dataset_sink_mode 1 must be True or False"),
    (lambda: model().train(2, data(), sink_size=0), ValueError, "sink_size 0 must be -1"),
    (lambda: model().fit(2, data(), data(), 0), TypeError, "valid_frequency 0 must be"),
    (lambda: model().fit(2, data(), data(), [1, 2.5]), TypeError, "valid_frequency .* must be"),
    (lambda: model().train(1, ds.NumpySlicesDataset((["a", "b"], [0, 1]), ["text", "y"]).batch(2)), TypeError,
     "column 'text' holds <U1, which a Tensor can't.*project"),
])
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()


class Rows:
    """An iterable of `made` rows that says it has `said`."""

    def __init__(self, said, made):
        self.said, self.made = said, made

    def __len__(self):
        return self.said

    def __iter__(self):
        return iter([(np.ones(4), np.int32(0))] * self.made)


def train_on(source, epochs=1):
    rows = ds.GeneratorDataset(source, ["x", "y"], num_shards=ms.get_group_size(), shard_id=ms.get_rank())
    model().train(epochs, rows.batch(2))


@pytest.mark.parametrize("made, words", [(4, "gave 2 batches in epoch 1"), (8, "gave 4 batches in epoch 1")])
def test_a_dataset_of_another_length_than_it_says_is_warned_of(made, words):
    with pytest.warns(UserWarning, match=f"{words} on rank 0, but get_dataset_size.. says 3"):
        train_on(Rows(6, made))


def test_a_source_that_can_not_begin_anew_is_no_training_without_steps():
    once = iter([(np.ones(4), np.int32(0))] * 4)
    with pytest.raises(RuntimeError, match="gave 0 batches in epoch 1 on rank 0, but get_dataset_size.. says 2.*begin anew"):
        train_on(once)


@pytest.mark.parametrize("made, words", [(12, "gave 2 batches"), (24, "gave more than 3 batches")])
def test_a_rank_whose_shard_has_another_length_says_so(made, words):
    def program():
        ms.communication.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        train_on(Rows(18, made if ms.get_rank() == 1 else 18), epochs=2)
    with pytest.raises(RuntimeError, match=f"{words} in epoch 1 on rank 1, but get_dataset_size.. says 3"):
        run_ranks(program, 3)


def test_a_rank_without_a_row_left_evaluates_with_the_others():
    def program():
        ms.communication.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        ms.set_seed(1)
        x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30, dtype=np.int32) % 3
        rows = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False, num_shards=ms.get_group_size(), shard_id=ms.get_rank())
        m = model({"accuracy", "loss"})
        with pytest.raises((RuntimeError, ValueError), match="no samples|no batch"):
            m.eval(rows.filter(lambda x, y: False).batch(1))
        return m.eval(rows.filter(lambda x, y: y != 1).batch(1))         # in shard 1 of 3, none
    one = run_ranks(program, 1)[0]
    assert run_ranks(program, 3) == [pytest.approx(one, rel=1e-12)] * 3
