"""Callbacks: which moments are called, what they see, how they end a training, on one rank and on several."""
import json
import os
import signal
import sys
import threading
from types import ModuleType

import numpy as np
import pytest

import minispore as ms
import minispore.dataset as ds
from minispore import CollectiveError, Model, nn
from minispore.lab import run_ranks
from minispore.train import (
    Callback,
    EarlyStopping,
    History,
    LambdaCallback,
    LearningRateScheduler,
    LossMonitor,
    Metric,
    OnRequestExit,
    ReduceLROnPlateau,
    RunContext,
    SummaryCollector,
    TimeMonitor,
)
from minispore.train.callback.callback import AT_EPOCHS, AT_STEPS, NEVER, Arguments, when_it_may_stop

MODES = pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
MOMENTS = ["begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"]


def data(rows=12, batch=2, shuffle=True):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, 4)), rng.integers(0, 3, rows).astype(np.int32)
    return ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=shuffle, num_shards=ms.get_group_size(),
                                 shard_id=ms.get_rank()).batch(batch)


def model(rate=0.1, metrics=("accuracy",)):
    net = nn.SequentialCell(nn.Dense(4, 3, dtype=ms.float64))
    return Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), rate, 0.9), metrics=metrics)


class Value(Metric):
    """A metric whose values are given beforehand, one an evaluation."""

    def __init__(self, values):
        super().__init__()
        self.values = iter(values)

    def clear(self): ...
    def update(self, *inputs): ...
    def eval(self):
        return next(self.values)


def fit(values, *callbacks):
    """Model.fit with a metric "v" of these values, one an epoch; the model."""
    m = model(metrics={"v": Value(values)})
    m.fit(len(values), data(), data(), callbacks=list(callbacks))
    return m


# ---- moments ------------------------------------------------------------------------------------------------

def recorder(names, seen):
    """A callback class that overrides these names and notes each call."""
    def note(name):
        return lambda self, run_context: seen.append(name)
    return type("Recorder", (Callback,), {name: note(name) for name in names})


def train_order(prefix, epochs, steps):
    epoch = [f"{prefix}epoch_begin", *[f"{prefix}step_begin", f"{prefix}step_end"] * steps, f"{prefix}epoch_end"]
    return [f"{prefix}begin", *epoch * epochs, f"{prefix}end"]


def test_moments_of_training_evaluation_and_fit():
    seen = []
    names = [f"on_{kind}_{m}" for kind in ("train", "eval") for m in MOMENTS]
    callback = recorder(names, seen)()
    model().train(2, data(), callback)
    assert seen == train_order("on_train_", 2, 6)
    seen.clear()
    model().eval(data(), callback)
    assert seen == train_order("on_eval_", 1, 6)
    seen.clear()
    model().fit(1, data(), data(4), callbacks=callback)
    once = train_order("on_train_", 1, 6)
    assert seen == once[:-2] + train_order("on_eval_", 1, 2) + once[-2:]


def test_the_old_names_are_called():
    seen = []
    callback = recorder(MOMENTS, seen)()
    model().train(2, data(), callback)
    assert seen == train_order("", 2, 6)
    seen.clear()
    model().eval(data(), callback)
    assert seen == train_order("", 1, 6)
    with pytest.raises(ValueError, match="Recorder overrides begin, epoch_begin, .* name them on_train_"):
        model().fit(1, data(), data(), callbacks=callback)


def test_a_new_name_hides_the_old_one():
    seen = []
    model().train(1, data(), recorder(["on_train_epoch_end", "epoch_end", "end"], seen)())
    assert seen == ["on_train_epoch_end", "end"]


def test_callbacks_are_contexts():
    seen = []
    class Managed(Callback):
        def __enter__(self):
            seen.append("enter")
            return Other()
        def __exit__(self, kind, value, trace):
            seen.append(kind)
    class Other(Callback):
        def on_train_begin(self, run_context):
            seen.append("begin")
        def on_train_step_end(self, run_context):
            if fail:
                raise KeyError("mine")
    fail = False
    model().train(1, data(), Managed())
    assert seen == ["enter", "begin", None]
    fail = True
    with pytest.raises(KeyError, match="mine"):
        model().train(1, data(), Managed())
    assert seen[3:] == ["enter", "begin", KeyError]


def test_what_callbacks_see():
    seen = {}
    class Look(Callback):
        def on_train_step_end(self, run_context):
            a = run_context.original_args()
            seen["step"] = a.copy()
            assert a["cur_step_num"] == a.cur_step_num and a.get("nothing", 7) == 7 and "metrics" not in a
            assert [t.shape for t in a.train_dataset_element] == [(2, 4), (2,)]
            with pytest.raises(AttributeError, match="the run has no 'nothing'; it has"):
                _ = a.nothing
            a.mine = a.get("mine", 0) + 1
        def on_eval_step_end(self, run_context):
            seen["eval"] = run_context.original_args().copy()
        def on_train_epoch_end(self, run_context):
            seen["epoch"] = run_context.original_args().copy()
    m, train, valid, look = model(), data(), data(5, 1), Look()
    m.fit(3, train, valid, callbacks=look, dataset_sink_mode=True)
    a = seen["step"]
    assert (a["epoch_num"], a["batch_num"], a["cur_epoch_num"], a["cur_step_num"]) == (3, 6, 3, 18)
    assert a["train_network"] is m.train_network and a["network"] is m.predict_network
    assert a["optimizer"] is m.train_network.optimizer and isinstance(a["loss_fn"], nn.CrossEntropyLoss)
    assert a["train_dataset"] is train and a["valid_dataset"] is valid and a["list_callback"] == [look]
    assert a["parallel_mode"] == "stand_alone" and a["device_number"] == 1 and a["mode"] == "train"
    assert a["dataset_sink_mode"] is True and a["net_outputs"].shape == ()
    b = seen["eval"]
    assert (b["mode"], b["batch_num"], b["cur_step_num"]) == ("eval", 5, 5) and b["eval_network"] is m.eval_network
    loss, outputs, label = b["net_outputs"]
    assert loss.shape == () and outputs.shape == (1, 3) and label.shape == (1,)
    c = seen["epoch"]
    assert (c["mode"], c["batch_num"], c["cur_step_num"], c["mine"]) == ("train", 6, 18, 18)
    assert set(c["metrics"]) == {"accuracy"} and set(c["eval_results"]) == {"accuracy", "eval_loss"}
    assert c["net_outputs"] is a["net_outputs"]


@pytest.mark.parametrize(("callbacks", "message"), [
    ([print], "must be a train.Callback object.*LambdaCallback"),
    (3, "callback 3 is a int"),
    (LossMonitor, "callback LossMonitor is a class; give an object of it"),
])
@pytest.mark.parametrize("call", ["train", "fit", "eval"])
def test_what_is_no_callback(callbacks, message, call):
    run = {"train": lambda m: m.train(1, data(), callbacks), "fit": lambda m: m.fit(1, data(), callbacks=callbacks),
           "eval": lambda m: m.eval(data(), callbacks)}[call]
    with pytest.raises(TypeError, match=message):
        run(model())
    with pytest.raises(TypeError, match="original_args is a int"):
        RunContext(3)


# ---- monitors -------------------------------------------------------------------------------------------------

def test_loss_monitor(capsys):
    model().fit(2, data(), data(), callbacks=LossMonitor(4))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", loss is")[0] for line in lines if "loss is" in line] == [
        "epoch: 1 step: 4", "epoch: 2 step: 2", "epoch: 2 step: 6"]
    assert [line.split(", metrics: {'accuracy': 0.")[0] for line in lines if "metrics" in line] == [
        "Eval result: epoch 1", "Eval result: epoch 2"]
    model().train(1, data(), LossMonitor(0))
    assert capsys.readouterr().out == ""


def test_loss_monitor_ends_a_training_that_makes_no_sense():
    x, last = np.ones((6, 4)), LastStep()
    x[3] = np.nan
    bad = ds.NumpySlicesDataset((x, np.zeros(6, np.int32)), ["x", "y"], shuffle=False).batch(2)
    with pytest.warns(UserWarning, match=r"the loss is nan at step 2 \(epoch 1\) on rank 0"), \
            pytest.raises(ValueError, match="in epoch 1, step 2 the loss is nan on rank 0; training can't go on"):
        model().train(1, bad, [last, LossMonitor(0)])
    assert last.step == 2


def test_time_monitor_in_fit(capsys):
    model().fit(2, data(), data(), callbacks=TimeMonitor(data_time=True))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["Eval", "Train"] * 2
    for line in lines:
        total, step, wait = (float(x) for x in line.replace(",", " ").replace(")", " ").split() if x.replace(".", "").isdigit())
        assert abs(step * 6 - total) < 0.01 and 0 <= wait <= step


def test_time_monitor_counts_the_steps_that_were_made(capsys):
    model().train(3, data(), [TimeMonitor(), LambdaCallback(on_train_step_end=lambda run: run.request_stop())])
    total, step = (float(x) for x in capsys.readouterr().out.replace(",", "").split() if x.replace(".", "").isdigit())
    assert total == step


def test_history():
    history, losses = History(), []
    m = model()
    m.fit(4, data(), data(), 2, callbacks=[history, LambdaCallback(
        on_train_epoch_end=lambda run: losses.append(float(run.original_args().net_outputs)))])
    assert history.epoch == {"epoch": [1, 2, 3, 4]}
    assert history.history["net_output"] == losses and len(set(losses)) == 4
    assert len(history.history["accuracy"]) == 2 and history.history["accuracy"][-1] == m.eval(data())["accuracy"]
    m.train(5, data(), history, initial_epoch=4)
    assert history.epoch == {"epoch": [5]} and len(history.history["net_output"]) == 5


def test_lambdas():
    seen = []
    moments = {f"on_{kind}_{m}": (lambda run, name=f"on_{kind}_{m}": seen.append(name)) for kind in ("train", "eval")
               for m in MOMENTS}
    model().fit(1, data(), data(), callbacks=LambdaCallback(**moments))
    assert set(seen) == set(moments)
    with pytest.raises(TypeError, match="on_train_end is a int"):
        LambdaCallback(on_train_end=3)


def test_what_is_not_there_names_what_is():
    with pytest.raises(NotImplementedError, match="Use History"):
        SummaryCollector("dir")


# ---- plateaus ---------------------------------------------------------------------------------------------------

def stopped_after(values, **kwargs):
    history = History()
    stop = EarlyStopping("v", **kwargs)
    fit(values, stop, history)
    epochs = len(history.epoch["epoch"])
    assert stop.stopped_epoch == epochs or (stop.stopped_epoch == 0 and epochs == len(values))
    return epochs


@pytest.mark.parametrize(("values", "kwargs", "epochs"), [
    ([1, 2, 3, 2, 5], {"mode": "max"}, 4),                                       # patience 0: the first that isn't better
    ([1, 2, 3, 2, 5], {"mode": "max", "patience": 1}, 4),
    ([1, 2, 3, 2, 5, 4, 4, 9], {"mode": "max", "patience": 2}, 7),
    ([1, 2, 3, 4], {}, 4),                                                       # auto: an unknown name is better larger
    ([4, 3, 2, 1], {"mode": "min"}, 4),
    ([4, 3, 2.9, 2.8], {"mode": "min", "min_delta": 0.5}, 3),
    ([4, 3, 2.9, 2.8], {"mode": "min", "min_delta": -0.5}, 3),                   # its size counts
    ([0, 0, 0, 0], {"mode": "max", "patience": 3}, 4),                           # 0 is a value like any other
    ([1, 2, 3, 4, 5], {"mode": "max", "patience": 2, "baseline": 10}, 2),        # better, but not good enough
    ([1, 11, 12, 13, 13, 13], {"mode": "max", "patience": 2, "baseline": 10}, 6),
    ([float("nan")] * 4, {"mode": "max", "patience": 2}, 2),
])
def test_early_stopping(values, kwargs, epochs):
    assert stopped_after(values, **kwargs) == epochs


def test_early_stopping_knows_what_is_better():
    for name in ("loss", "eval_loss", "mae", "perplexity"):
        assert EarlyStopping(name).sign == -1 and EarlyStopping(name, mode="max").sign == 1
    assert EarlyStopping("accuracy").sign == 1 and ReduceLROnPlateau().sign == -1


@MODES
def test_early_stopping_restores_the_best_state(mode, capsys):
    ms.set_context(mode=mode)
    states = []
    keep = LambdaCallback(on_train_epoch_end=lambda run: states.append(
        [p.asnumpy() for p in run.original_args().train_network.get_parameters()]))
    m = fit([1, 5, 4, 3, 2], keep, EarlyStopping("v", patience=2, mode="max", restore_best_weights=True, verbose=True))
    assert len(states) == 4
    for p, best, last in zip(m.train_network.get_parameters(), states[1], states[3], strict=True):
        np.testing.assert_array_equal(p.asnumpy(), best)
        assert p.name == "learning_rate" or not np.array_equal(best, last)          # moments and the step count as well
    assert capsys.readouterr().out == ("Restoring model weights from the end of the best epoch.\n"
                                       "Epoch 00004: early stopping\n")


def test_the_training_loss_can_be_watched():
    history = History()
    model().train(50, data(shuffle=False), [EarlyStopping("loss", min_delta=0.01), history])
    falls = -np.diff(history.history["net_output"])
    assert 2 <= len(falls) < 49 and (falls[:-1] > 0.01).all() and falls[-1] <= 0.01


def test_what_is_not_there_to_watch():
    with pytest.warns(UserWarning, match="EarlyStopping watches 'eval_loss', which isn't there after epoch 1; there are: loss. "
                                         ".*Model.fit with a valid_dataset"):
        model().train(1, data(), EarlyStopping())
    with pytest.warns(UserWarning, match="watches 'acc', .* there are: loss, v, eval_loss"):
        fit([1], EarlyStopping("acc"))
    history = History()
    model().fit(4, data(), data(), valid_frequency=[2, 4], callbacks=[EarlyStopping(patience=9), history])     # no warning
    with pytest.raises(ValueError, match=r"'v' is an array of shape \(2,\); only a single number"):
        fit([np.zeros(2)], EarlyStopping("v"))


@MODES
def test_the_rate_falls_on_a_plateau(mode, capsys):
    ms.set_context(mode=mode)
    rates = []
    note = LambdaCallback(on_train_epoch_end=lambda run: rates.append(round(float(run.original_args().optimizer.get_lr()), 6)))
    reduce = ReduceLROnPlateau("v", 0.5, 2, True, "max", cooldown=2, min_lr=0.02)
    fit([1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2], reduce, note)
    assert rates == [0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.02, 0.02, 0.02, 0.02]
    assert "Epoch 00003: ReduceLROnPlateau reducing learning rate to 0.05.\n" in capsys.readouterr().out


@MODES
def test_the_reduced_rate_is_used(mode):
    """In GRAPH_MODE, too, where the step was compiled with the old one."""
    ms.set_context(mode=mode)
    weights = []
    note = LambdaCallback(on_train_epoch_end=lambda run: weights.append(
        run.original_args().network.trainable_params()[0].asnumpy()))
    fit([1, 1, 1], ReduceLROnPlateau("v", 1e-30, 1, mode="max"), note)
    first, second, third = weights
    assert not np.array_equal(first, second) and np.array_equal(second, third)


@MODES
def test_learning_rate_scheduler(mode):
    ms.set_context(mode=mode)
    seen, rates = [], []
    def schedule(rate, step):
        seen.append((rate, step))
        return rate * 0.5 if step % 4 == 0 else rate
    note = LambdaCallback(on_train_step_begin=lambda run: rates.append(float(run.original_args().optimizer.learning_rate)))
    model().train(2, data(), [note, LearningRateScheduler(schedule)])
    assert [step for _, step in seen] == list(range(1, 13)) and seen[0][0] == 0.1
    np.testing.assert_allclose(rates, [0.1] * 4 + [0.05] * 4 + [0.025] * 4, rtol=1e-6)


@pytest.mark.parametrize("rate", [[0.1, 0.2], None])
@pytest.mark.parametrize("callback", [ReduceLROnPlateau("v"), LearningRateScheduler(lambda rate, step: rate)])
def test_schedules_and_groups_have_no_single_rate(rate, callback):
    net = nn.Dense(4, 3, dtype=ms.float64)
    params = net.trainable_params()
    groups = [{"params": params[:1], "lr": 0.2}, {"params": params[1:]}]
    optimizer = nn.SGD(params, rate) if rate else nn.SGD(groups, 0.1)
    with pytest.raises(ValueError, match="is a schedule or differs between groups"):
        Model(net, nn.CrossEntropyLoss(), optimizer, metrics={"accuracy"}).fit(1, data(), data(), callbacks=callback)


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: EarlyStopping(3), TypeError, "monitor 3 must be a string"),
    (lambda: EarlyStopping(mode="best"), ValueError, "mode 'best' must be"),
    (lambda: EarlyStopping(patience=-1), ValueError, "patience -1 must be"),
    (lambda: EarlyStopping(min_delta="a"), TypeError, "min_delta 'a' must be a number"),
    (lambda: EarlyStopping(baseline="a"), TypeError, "baseline 'a' must be a number"),
    (lambda: ReduceLROnPlateau(factor=1.0), ValueError, "factor 1.0 must be a number between 0 and 1"),
    (lambda: ReduceLROnPlateau(cooldown=1.5), ValueError, "cooldown 1.5"),
    (lambda: LearningRateScheduler(0.1), TypeError, "0.1 is no function"),
    (lambda: model().train(1, data(), LearningRateScheduler(lambda rate, step: None)), TypeError,
     "LearningRateScheduler: the function returned None for rate .* and step 1; it must return a number"),
    (lambda: OnRequestExit(directory=f"{os.devnull}/x"), OSError, "the folder .*null/x can't be made .*: check the path"),
    (lambda: ms.train.ModelCheckpoint(directory=os.devnull), OSError, "the folder .*null can't be made .*: check the path"),
    (lambda: LossMonitor(-1), ValueError, "per_print_times -1"),
    (lambda: TimeMonitor(0), ValueError, "data_size 0"),
    (lambda: TimeMonitor(data_time=1), TypeError, "data_time 1"),
    (lambda: OnRequestExit(save_ckpt=1), ValueError, "save_ckpt 1 must be a bool"),
    (lambda: OnRequestExit(file_name=1), ValueError, "file_name 1 must be a str"),
    (lambda: OnRequestExit(sig=signal.SIGKILL), ValueError, "must be a signal that a program can handle"),
    (lambda: OnRequestExit(config_file=1), ValueError, "config_file 1 must be a path"),
])
def test_bad_callbacks(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ---- stopping together --------------------------------------------------------------------------------------------

class StopAt(Callback):
    """One rank asks to stop after a step, or after an epoch."""

    def __init__(self, rank, step):
        self.rank, self.step = rank, step

    def on_train_step_end(self, run_context):
        if ms.get_rank() == self.rank and run_context.original_args().cur_step_num == self.step:
            run_context.request_stop()


class StopAtEpoch(Callback):
    def __init__(self, rank, epoch):
        self.rank, self.epoch = rank, epoch

    def on_train_epoch_end(self, run_context):
        if ms.get_rank() == self.rank and run_context.original_args().cur_epoch_num == self.epoch:
            run_context.request_stop()


class Quiet(Callback):
    """Asks in a way that can't be seen in its methods."""

    def on_train_step_end(self, run_context):
        getattr(run_context, "request" + "_stop")()


class QuietButSaid(Quiet):
    may_stop = True


class NeverMind(StopAt):
    may_stop = False


class LastStep(Callback):
    def on_train_step_end(self, run_context):
        self.step = run_context.original_args().cur_step_num


def train_with(make, epochs=4):
    """Ranks train with the callbacks make(rank): (last step, weights, number of flags exchanged)."""
    def program():
        ms.init()
        ms.set_seed(1)
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        m, last = model(), LastStep()
        m.train(epochs, data(24, 2), [*make(ms.get_rank()), last])
        ms.communication.management.communicator().barrier().wait()         # ranks are in the same step
        flags = sum(e.detail == "stop" for e in ms.communication.get_record().collectives())
        return last.step, [p.asnumpy() for p in m.train_network.get_parameters()], flags
    return program


@pytest.mark.parametrize("n", [2, 3, 5])
def test_one_rank_asks_and_all_stop_after_the_same_step(n):
    steps = {2: 6, 3: 4, 5: 3}[n]
    for rank, at in ((0, 3), (n - 1, 5), (1, 1)):
        ranks = run_ranks(train_with(lambda me: [StopAt(rank, at)]), n)
        assert [r[0] for r in ranks] == [at] * n
        assert all((a == b).all() for r in ranks for a, b in zip(r[1], ranks[0][1], strict=True))
    ranks = run_ranks(train_with(lambda me: [StopAt(1, 5)] if me == 1 else []), n)      # only one rank has the callback
    assert [r[0] for r in ranks] == [5] * n
    ranks = run_ranks(train_with(lambda me: [StopAtEpoch(n - 1, 2)]), n)
    assert [r[0] for r in ranks] == [2 * steps] * n


def test_nothing_is_exchanged_where_nobody_asks():
    assert [r[2] for r in run_ranks(train_with(lambda me: [LossMonitor(0), History()]), 2)] == [0, 0]
    assert [r[2] for r in run_ranks(train_with(lambda me: [EarlyStopping("loss", patience=9)]), 2)] == [4, 4]      # one an epoch
    assert [r[2] for r in run_ranks(train_with(lambda me: [StopAt(0, 99)]), 2)] == [28, 28]
    assert [r[2] for r in run_ranks(train_with(lambda me: [NeverMind(0, 99)]), 2)] == [0, 0]


def test_a_stop_that_nobody_expected_is_an_error_and_no_hang():
    with pytest.raises(RuntimeError, match=r"request_stop\(\) on rank \d of 3: Model didn't know .* may_stop = True"):
        run_ranks(train_with(lambda me: [Quiet()] if me == 1 else []), 3)
    assert [r[0] for r in run_ranks(train_with(lambda me: [QuietButSaid()] if me == 1 else []), 3)] == [1, 1, 1]
    model().train(2, data(), Quiet())           # one rank alone may
    with pytest.raises(RuntimeError, match="may ask to stop in a step"):
        run_ranks(train_with(lambda me: [NeverMind(0, 1)]), 2)


def test_when_a_callback_may_stop():
    def helper(run):
        def inner():
            run.request_stop()
        inner()
    class Calls(StopAt):
        def on_train_step_end(self, run_context):
            super().on_train_step_end(run_context)
    assert when_it_may_stop(Calls(0, 0)) == AT_STEPS and when_it_may_stop(StopAtEpoch(0, 0)) == AT_EPOCHS
    assert when_it_may_stop(LambdaCallback(on_train_step_end=helper)) == AT_STEPS
    assert when_it_may_stop(LambdaCallback(on_train_epoch_end=helper)) == AT_EPOCHS
    assert when_it_may_stop(EarlyStopping()) == AT_EPOCHS and when_it_may_stop(OnRequestExit(False)) == AT_STEPS
    for quiet in (History(), TimeMonitor(), LossMonitor(), ReduceLROnPlateau(), Quiet(), Callback(),
                  LearningRateScheduler(lambda rate, step: rate)):
        assert when_it_may_stop(quiet) == NEVER


def test_early_stopping_on_ranks_judges_the_mean():
    """Each rank's own loss would stop them after different epochs."""
    def program():
        ms.init()
        ms.set_seed(2)
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        m, history, seen = model(0.5), History(), []
        watch = EarlyStopping("loss", min_delta=1e-3, patience=2, restore_best_weights=True)
        watch.on_train_epoch_end = (lambda f: lambda run: (seen.append(watch.value(run.original_args())), f(run)))(
            watch.on_train_epoch_end)
        m.train(40, data(24, 4), [history, watch])
        weights = [p.asnumpy() for p in m.train_network.get_parameters()]
        return seen, history.history["net_output"], watch.stopped_epoch, weights
    ranks = run_ranks(program, 3)
    epochs = {r[2] for r in ranks}
    assert len(epochs) == 1 and 1 < epochs.pop() < 40
    for seen, _, _, weights in ranks:
        np.testing.assert_allclose(seen, np.mean([r[1] for r in ranks], 0), rtol=1e-12)
        assert all((a == b).all() for a, b in zip(weights, ranks[0][3], strict=True))


def test_an_evaluation_stops_on_all_ranks():
    class Stop(Callback):
        def on_eval_step_end(self, run_context):
            self.steps = run_context.original_args().cur_step_num
            if self.steps == 2 and ms.get_rank() == 1:
                run_context.request_stop()
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        stop = Stop()
        return model().eval(data(24, 2), stop), stop.steps
    ranks = run_ranks(program, 3)
    assert [steps for _, steps in ranks] == [2, 2, 2] and ranks[0][0] == ranks[1][0] == ranks[2][0]


def test_a_rank_that_fails_takes_the_others_along():
    class Fail(Callback):
        def on_train_step_end(self, run_context):
            if ms.get_rank() == 1:
                raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        run_ranks(train_with(lambda me: [Fail()]), 3)
    assert issubclass(CollectiveError, RuntimeError)


# ---- a request from outside ------------------------------------------------------------------------------------------

@pytest.fixture
def files(monkeypatch):
    """Stand-ins for saving and loading: what was saved where, and what was loaded."""
    saved, loaded = {}, []
    module = ModuleType("minispore.train.serialization")
    def save_checkpoint(save_obj, ckpt_file_name, **kwargs):
        name = os.path.basename(ckpt_file_name)
        assert name not in saved                        # by one rank alone
        saved[name] = [p.asnumpy() for p in save_obj.get_parameters()]
        with open(ckpt_file_name, "w"):
            pass
    def load_checkpoint(ckpt_file_name, net=None):
        loaded.append(os.path.basename(ckpt_file_name))
        for p, value in zip(net.get_parameters(), saved[loaded[-1]], strict=True):
            p.set_data(value)
    module.save_checkpoint, module.load_checkpoint = save_checkpoint, load_checkpoint
    monkeypatch.setitem(sys.modules, "minispore.train.serialization", module)
    return saved, loaded


def send_at(step, sig):
    def send(run):
        if run.original_args().cur_step_num == step:
            os.kill(os.getpid(), sig)
    return send


def test_a_signal_ends_training_and_saves(files, tmp_path, capsys):
    saved, loaded = files
    before = signal.getsignal(signal.SIGUSR1)
    callback, last = OnRequestExit(directory=str(tmp_path), file_name="lenet", sig=signal.SIGUSR1), LastStep()
    m = model()
    m.train(5, data(), [LambdaCallback(on_train_step_begin=send_at(9, signal.SIGUSR1)), callback, last])
    assert last.step == 9 and signal.getsignal(signal.SIGUSR1) is before and not loaded
    for p, value in zip(m.train_network.get_parameters(), saved["lenet_train.ckpt"], strict=True):
        np.testing.assert_array_equal(p.asnumpy(), value)
    assert capsys.readouterr().out.startswith("OnRequestExit: training ends on request after step 9; to go on: initial_epoch=1, "
                                              "initial_step=3; saved in")
    other, seen = model(), []
    note = LambdaCallback(on_train_epoch_begin=lambda run: seen.append(
        [p.asnumpy() for p in other.train_network.get_parameters()]))
    other.train(2, data(), [callback, note], initial_epoch=1, initial_step=3)
    assert loaded == ["lenet_train.ckpt"]
    assert all((a == b).all() for a, b in zip(seen[0], saved["lenet_train.ckpt"], strict=True))


def test_without_a_request_nothing_is_saved_and_the_handler_is_back(files, tmp_path):
    saved, _ = files
    def mine(number, frame): ...
    old = signal.signal(signal.SIGUSR1, mine)
    try:
        model().train(1, data(), OnRequestExit(directory=str(tmp_path), sig=signal.SIGUSR1))
        assert signal.getsignal(signal.SIGUSR1) is mine and not saved
        with pytest.raises(ZeroDivisionError):
            model().train(1, data(), [OnRequestExit(False, sig=signal.SIGUSR1),
                                      LambdaCallback(on_train_step_end=lambda run: 1 / 0)])
        assert signal.getsignal(signal.SIGUSR1) is mine
        stop = LambdaCallback(on_train_step_end=lambda run: run.request_stop())
        model().train(1, data(), [OnRequestExit(directory=str(tmp_path), sig=signal.SIGUSR1), stop])
        assert not saved                    # another callback has stopped
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_a_signal_during_fits_evaluation(files, tmp_path):
    saved, _ = files
    evaluated, last = [], LastStep()
    def note(run):
        evaluated.append(1)
        if len(evaluated) == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
    exits = OnRequestExit(directory=str(tmp_path), sig=signal.SIGUSR1)
    model().fit(3, data(), data(), callbacks=[LambdaCallback(on_eval_step_begin=note), exits, last])
    assert len(evaluated) == 2 and last.step == 6 and list(saved) == ["Net_train.ckpt"]


def test_a_signal_ends_an_evaluation(files, tmp_path):
    saved, loaded = files
    steps = []
    note = LambdaCallback(on_eval_step_begin=lambda run: (steps.append(1), os.kill(os.getpid(), signal.SIGUSR1)))
    callback = OnRequestExit(directory=str(tmp_path), sig=signal.SIGUSR1)
    model().eval(data(), [note, callback])
    assert len(steps) == 1 and list(saved) == ["Net_eval.ckpt"]
    model().eval(data(), callback)
    assert loaded == ["Net_eval.ckpt"]


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("parallel", ["data_parallel", "hybrid_parallel"])
@pytest.mark.filterwarnings("ignore:OnRequestExit. rank . is a thread")
def test_a_request_to_one_rank_stops_all(files, tmp_path, n, parallel):
    """Ranks that are threads: the last one finds the request in its file."""
    saved, _ = files
    asks = tmp_path / "ask.json"
    asks.write_text("{")                    # being written
    def ask(run):
        if ms.get_rank() == n - 1 and run.original_args().cur_step_num == 4:
            asks.write_text(json.dumps({"GracefulExit": 1}))
    def program():
        ms.init()
        ms.set_seed(1)
        ms.set_auto_parallel_context(parallel_mode=parallel, gradients_mean=True)
        last = LastStep()
        file = str(asks) if ms.get_rank() == n - 1 else None
        exits = OnRequestExit(directory=str(tmp_path), config_file=file)
        model().train(4, data(24, 2), [LambdaCallback(on_train_step_begin=ask), exits, last])
        return last.step
    assert run_ranks(program, n) == [4] * n
    own = parallel == "hybrid_parallel"
    assert set(saved) == ({f"Net_train_rank{r}.ckpt" for r in range(n)} if own else {"Net_train.ckpt"})


def test_a_training_ended_by_a_signal_goes_on_bitwise(tmp_path, capsys):
    """With the real files: the state of the optimizer is in them."""
    def trained(epochs, *callbacks, **begin):
        ms.set_seed(3)
        m = model()
        m.train(epochs, data(), list(callbacks), **begin)
        return [p.asnumpy() for p in m.train_network.get_parameters()]
    whole = trained(3)
    exits = OnRequestExit(directory=str(tmp_path), sig=signal.SIGUSR1)
    part = trained(3, LambdaCallback(on_train_step_begin=send_at(10, signal.SIGUSR1)), exits)
    assert "initial_epoch=1, initial_step=4" in capsys.readouterr().out
    rest = trained(3, exits, initial_epoch=1, initial_step=4)
    assert not all((a == b).all() for a, b in zip(part, whole, strict=True))
    assert all((a == b).all() for a, b in zip(rest, whole, strict=True))


def test_threads_are_told_that_signals_dont_reach_them():
    with pytest.warns(UserWarning, match='rank 0 is a thread, which signals don\'t reach.*"GracefulExit": 1'):
        run_ranks(lambda: model().train(1, data(), OnRequestExit(False)), 1)
    assert threading.current_thread() is threading.main_thread()


def test_checkpoints_are_found_beside_the_callbacks():
    from minispore.train import checkpoint
    from minispore.train.callback import CheckpointConfig, ModelCheckpoint
    assert (CheckpointConfig, ModelCheckpoint) == (checkpoint.CheckpointConfig, checkpoint.ModelCheckpoint)
    with pytest.raises(AttributeError, match="has no 'Nothing'"):
        _ = ms.train.callback.Nothing


def test_arguments_are_a_dict():
    a = Arguments(x=1)
    a.y = 2
    assert a == {"x": 1, "y": 2} and a["y"] == a.y and "y" in a


@pytest.mark.parametrize("callback", [lambda: EarlyStopping("loss"), lambda: ReduceLROnPlateau("loss"),
                                      lambda: OnRequestExit(False)])
def test_callbacks_that_communicate_on_some_ranks_only_are_refused(callback):
    def program():
        ms.communication.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        model().train(2, data(), [callback()] if ms.get_rank() == 1 else [])
    with pytest.raises(RuntimeError, match=r"rank \d has the callbacks \[.*give each of them to every rank"):
        run_ranks(program, 3)
