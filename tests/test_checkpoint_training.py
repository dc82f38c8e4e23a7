"""Training state and ModelCheckpoint: a resumed run ends bitwise as the undisturbed one; which files there are when."""
import os
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from checkpoint_runs import STEPS, Run, Undisturbed

import minispore as ms
from minispore import Tensor, nn
from minispore.communication import get_rank, init, selection
from minispore.lab.ranks import run_ranks
from minispore.train import (
    Callback,
    CheckpointConfig,
    Model,
    ModelCheckpoint,
    RunContext,
    TrainingState,
    checkpoint,
    latest_checkpoint,
    load_checkpoint,
    load_training_state,
    save_checkpoint,
    save_training_state,
    serialization,
    wait_for_async_save,
)
from minispore.train.training_state import write_state

# ---- the state of a training -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "scaled"])
@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
@pytest.mark.parametrize("after", [STEPS + 2, 2 * STEPS])
def test_resumed_is_bitwise_undisturbed(tmp_path, mode, optimizer, format, after):
    undisturbed, file = Undisturbed(optimizer), tmp_path / f"run.{format}"
    undisturbed.context.run(ms.set_context, mode=mode)
    ms.set_context(mode=mode)
    first = Run(optimizer)
    for _ in first.train(after):
        pass
    save_training_state(file, first.cell, epoch=first.epoch, step=first.step, append_dict={"lr": 0.1}, format=format)
    for _ in first.train(1):                    # what is done after the save doesn't matter
        pass
    resumed = Run(optimizer, seed=77)
    assert resumed.state()["fc1.weight"] != first.state()["fc1.weight"]
    resumed.resume(file)
    assert (resumed.epoch, resumed.step) == divmod(after, STEPS)
    assert resumed.state() == undisturbed[resumed.epoch, resumed.step]
    for place in resumed.train(STEPS + 3):
        assert resumed.state() == undisturbed[place], place


def test_the_order_of_the_data_goes_on(tmp_path):
    """Without the random state the resumed run would shuffle otherwise."""
    ms.dataset.config.set_seed(3)
    run = Run()
    save_training_state(tmp_path / "x", run.cell)
    order = [c["y"].tolist() for c, _ in run.data.batches(4)]
    ms.dataset.config.set_seed(4)
    assert [c["y"].tolist() for c, _ in run.data.batches(4)] != order
    load_training_state(tmp_path / "x", run.cell)
    assert [c["y"].tolist() for c, _ in run.data.batches(4)] == order


def test_network_and_optimizer_apart(tmp_path):
    run = Run()
    save_training_state(tmp_path / "x", run.net, run.optimizer, epoch=2)
    assert load_training_state(tmp_path / "x", run.cell).epoch == 2
    assert load_training_state(tmp_path / "x", run.net, run.optimizer).epoch == 2


def test_a_random_state_of_the_future_changes_nothing(tmp_path):
    write_state(tmp_path / "x", (Run().cell,), TrainingState(0, 0, {"seed": 1, "colour": 2}))
    other = Run(seed=3)
    before = other.state()
    with pytest.raises(ValueError, match="made by a newer minispore"):
        load_training_state(tmp_path / "x", other.cell)
    assert other.state() == before


def test_buffers_are_state(tmp_path):
    class Counting(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc = nn.Dense(1, 1)
            self.fc.register_buffer("seen", Tensor([0.0]))
            self.register_buffer("scratch", Tensor([0.0]), persistent=False)

    one, other = Counting(), Counting()
    one.fc.seen, one.scratch = Tensor([7.0]), Tensor([7.0])
    save_training_state(tmp_path / "x", one)
    load_training_state(tmp_path / "x", other)
    assert (other.fc.seen.item(), other.scratch.item()) == (7, 0)


@pytest.mark.parametrize("change, error, said", [
    ("other optimizer", RuntimeError, "parameters of the network aren't in .*x.ckpt, so nothing was loaded: beta1_power"),
    ("no optimizer", RuntimeError, "parameters of .*x.ckpt aren't in the network, so nothing was loaded: accum.fc1.bias"),
    ("other shape", RuntimeError, r"x\.ckpt doesn't fit .* fc2\.bias has shape \(7,\) in the network"),
    ("other dtype", RuntimeError, r"fc2\.bias is float64 in the network, fc2\.bias is float32 in the file"),
    ("no state", ValueError, "has parameters only, no training state"),
    ("cut off", ValueError, r"x\.ckpt is damaged: .*cut off"),
])
def test_what_does_not_fit_changes_nothing(tmp_path, change, error, said):
    run, file = Run(), tmp_path / "x.ckpt"
    save_training_state(file, run.cell, epoch=1, step=1)
    other = {"other optimizer": Run("adam", 9), "other shape": Run(seed=9, classes=7),
             "other dtype": Run(seed=9, dtype=ms.float64)}.get(change) or Run(seed=9)
    cell = other.net if change == "no optimizer" else other.cell
    if change == "no state":
        save_checkpoint(run.cell, file)
    elif change == "cut off":
        file.write_bytes(file.read_bytes()[:-1])
    before = {p.name: p.asnumpy().tobytes() for p in cell.get_parameters()}, ms.common.random.get_state()
    with pytest.raises(error, match=said):
        load_training_state(file, cell)
    assert before == ({p.name: p.asnumpy().tobytes() for p in cell.get_parameters()}, ms.common.random.get_state())


def test_wrong_arguments(tmp_path):
    net = nn.Dense(2, 2)
    with pytest.raises(ValueError, match="epoch=-1"):
        save_training_state(tmp_path / "x", net, epoch=-1)
    with pytest.raises(TypeError, match="must be Cells"):
        save_training_state(tmp_path / "x", None)
    twin = nn.Dense(3, 2)
    with pytest.raises(ValueError, match=r"two parameters are named 'weight' \(shapes \(2, 2\) and \(2, 3\)\)"):
        save_training_state(tmp_path / "x", net, twin)
    with pytest.raises(ValueError, match="'colour'.* are unknown"):
        ms.common.random.set_state({"colour": 1})
    assert not os.listdir(tmp_path)


# ---- ModelCheckpoint ---------------------------------------------------------------------------------


def trained(saver, steps, run=None, begin=True):
    """A run after `steps` more steps with a ModelCheckpoint told of them, as Model does."""
    run = run or Run()
    if begin:
        saver.on_train_begin(RunContext(run.args()))
    for _ in run.train(steps):
        saver.on_train_step_end(RunContext(run.args()))
    return run


def files(folder):
    return sorted(f for f in os.listdir(folder) if not f.startswith("."))


def test_names_and_steps(tmp_path):
    saver = ModelCheckpoint("net", tmp_path / "new" / "folder", CheckpointConfig(save_checkpoint_steps=4, keep_checkpoint_max=9))
    assert saver.latest_ckpt_file_name == ""
    run = trained(saver, 2 * STEPS + 1)
    assert files(tmp_path / "new" / "folder") == ["net-1_4.ckpt", "net-2_2.ckpt", "net-2_6.ckpt"]
    saver.on_train_end(RunContext(run.args()))
    assert files(tmp_path / "new" / "folder")[-1] == "net-3_1.ckpt"
    assert saver.latest_ckpt_file_name == str(tmp_path / "new" / "folder" / "net-3_1.ckpt")
    state = load_training_state(saver.latest_ckpt_file_name, Run(seed=8).cell)
    assert (state.epoch, state.step, state.within_step) == (2, 1, False)
    at_end_of_epoch = load_training_state(tmp_path / "new" / "folder" / "net-2_6.ckpt", Run(seed=8).cell)
    assert (at_end_of_epoch.epoch, at_end_of_epoch.step) == (2, 0)


def test_a_resumed_run_saves_at_the_same_steps(tmp_path):
    config = CheckpointConfig(save_checkpoint_steps=4, keep_checkpoint_max=9)
    trained(ModelCheckpoint("a", tmp_path, config), 13)
    first = Run()
    for _ in first.train(6):
        pass
    trained(ModelCheckpoint("b", tmp_path, config), 7, first)
    assert files(tmp_path) == ["a-1_4.ckpt", "a-2_2.ckpt", "a-2_6.ckpt", "b-2_2.ckpt", "b-2_6.ckpt"]


def test_the_end_saves_once(tmp_path):
    saver = ModelCheckpoint(directory=tmp_path, config=CheckpointConfig(save_checkpoint_steps=3))
    run = trained(saver, 3)
    when = (tmp_path / "CKP-1_3.ckpt").stat().st_mtime_ns
    saver.on_train_end(RunContext(run.args()))
    assert files(tmp_path) == ["CKP-1_3.ckpt"] and (tmp_path / "CKP-1_3.ckpt").stat().st_mtime_ns == when


def test_another_runs_prefix_gets_a_number(tmp_path):
    for number in range(3):
        saver = ModelCheckpoint("net", tmp_path)
        trained(saver, 1 + number)
        assert saver.latest_ckpt_file_name.endswith(f"net{f'_{number}' if number else ''}-1_{1 + number}.ckpt")
    trained(ModelCheckpoint("ne", tmp_path), 1)
    trained(ModelCheckpoint("net_work", tmp_path), 1)
    assert {"ne-1_1.ckpt", "net_work-1_1.ckpt"} < set(files(tmp_path))
    assert latest_checkpoint(tmp_path, "net").endswith("net_2-1_3.ckpt")


def test_keep_the_newest_of_this_run(tmp_path):
    trained(ModelCheckpoint("net", tmp_path, CheckpointConfig(keep_checkpoint_max=9)), 2)
    saver = ModelCheckpoint("net", tmp_path, CheckpointConfig(keep_checkpoint_max=2, async_save=True, format="safetensors"))
    run = trained(saver, 5)
    os.remove(saver._files[0][1])               # somebody else took one away
    trained(saver, 1, run, begin=False)
    wait_for_async_save()
    assert files(tmp_path) == ["net-1_1.ckpt", "net-1_2.ckpt", "net_1-1_5.safetensors", "net_1-1_6.safetensors"]


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(checkpoint, "monotonic", lambda: now.seconds)
    return now


def test_seconds_and_minutes(tmp_path, clock):
    config = CheckpointConfig(save_checkpoint_steps=0, save_checkpoint_seconds=10, keep_checkpoint_max=0,
                              keep_checkpoint_per_n_minutes=1)
    saver, run = ModelCheckpoint(directory=tmp_path, config=config), Run()
    saver.on_train_begin(RunContext(run.args()))
    for _ in run.train(4 * STEPS):              # a step is 6 seconds, so every second one saves
        clock.seconds += 6
        saver.on_train_step_end(RunContext(run.args()))
    # saves after 12, 24, … 144 seconds: of the minutes 0, 1 and 2 the last ones: 48, 108 and 144
    assert files(tmp_path) == ["CKP-2_2.ckpt", "CKP-3_6.ckpt", "CKP-4_6.ckpt"]


def test_nothing_to_keep_keeps_one(tmp_path):
    trained(ModelCheckpoint(directory=tmp_path, config=CheckpointConfig(keep_checkpoint_max=0)), 3)
    assert files(tmp_path) == ["CKP-1_3.ckpt"]


def test_append_info_and_saved_network(tmp_path):
    run = Run()
    config = CheckpointConfig(saved_network=run.net, append_info=["epoch_num", "step_num", "lr", {"who": "me", "epoch_num": 10}])
    saver = ModelCheckpoint(directory=tmp_path, config=config)
    trained(saver, STEPS + 1, run)
    back = load_checkpoint(saver.latest_ckpt_file_name)
    assert [n for n in back if "." not in n] == ["epoch_num", "step_num", "lr", "who"]
    assert (back["epoch_num"].item(), back["step_num"].item(), back["who"]) == (12, STEPS + 1, "me")
    assert back["lr"].item() == run.optimizer.get_lr().item()
    assert config.append_dict["epoch_num"] == 10            # it doesn't add up
    with pytest.raises(ValueError, match="parameters only"):
        load_training_state(saver.latest_ckpt_file_name, run.net)


def test_exception_save(tmp_path):
    def interrupted(save, within):
        config = CheckpointConfig(save_checkpoint_steps=9, exception_save=save, async_save=save)
        saver, run = ModelCheckpoint(directory=tmp_path / f"{save}{within}", config=config), Run()
        with pytest.raises(ZeroDivisionError), saver:
            trained(saver, 4, run)
            run.arguments.cur_step_num += within           # Model counts a step when it begins
            raise ZeroDivisionError
        return run

    interrupted(False, 0), interrupted(True, 0)
    run = interrupted(True, 1)
    assert files(tmp_path / "False0") == [] and files(tmp_path / "True0") == ["CKP-1_4_breakpoint.ckpt"]
    state = load_training_state(tmp_path / "True0" / "CKP-1_4_breakpoint.ckpt", run.cell)
    assert (state.step, state.within_step) == (4, False)
    with pytest.warns(UserWarning, match="an exception within a step"):
        state = load_training_state(tmp_path / "True1" / "CKP-1_5_breakpoint.ckpt", run.cell)
    assert (state.step, state.within_step) == (4, True)
    assert latest_checkpoint(tmp_path / "True1") is None


def test_an_exception_in_exception_save_is_a_note(tmp_path, monkeypatch):
    saver = ModelCheckpoint(directory=tmp_path, config=CheckpointConfig(save_checkpoint_steps=9, exception_save=True))
    with pytest.raises(ZeroDivisionError) as e, saver:
        trained(saver, 4)
        monkeypatch.setattr(os, "fsync", lambda handle: os.fstat(10 ** 6))
        raise ZeroDivisionError
    assert "couldn't save, either" in e.value.__notes__[0]


def test_functions_for_prefix_and_directory(tmp_path):
    saver = ModelCheckpoint(lambda args: f"at{args.cur_step_num}", lambda args: tmp_path / f"epoch{args.cur_epoch_num}")
    trained(saver, STEPS + 1)
    assert files(tmp_path / "epoch2") == [f"at{STEPS + 1}.ckpt"]
    with pytest.raises(ValueError, match="must return a str without '/'"):
        trained(ModelCheckpoint(lambda args: "a/b", tmp_path), 1)


def test_wrong_configurations(tmp_path):
    for error, said, options in (
            (ValueError, "save_checkpoint_steps=-1", {"save_checkpoint_steps": -1}),
            (ValueError, "must be more than 0", {"save_checkpoint_steps": 0, "keep_checkpoint_max": 0}),
            (TypeError, "saved_network is a int", {"saved_network": 3}),
            (TypeError, "append_info is a str", {"append_info": "lr"}),
            (ValueError, "append_info has 'loss'", {"append_info": ["loss"]}),
            (TypeError, "append_dict", {"append_info": [{"a": None}]}),
            (ValueError, "doesn't encrypt", {"enc_key": b"0"}), (ValueError, "format 'h5'", {"format": "h5"}),
            (TypeError, "isn't there", {"colour": 1})):
        with pytest.raises(error, match=said):
            CheckpointConfig(**options)
    for said, args in (("prefix 'a/b'", ("a/b", tmp_path)), ("directory 3", ("a", 3))):
        with pytest.raises(ValueError, match=said):
            ModelCheckpoint(*args)
    with pytest.raises(TypeError, match="config is a dict"):
        ModelCheckpoint("a", tmp_path, {})


# ---- several ranks -----------------------------------------------------------------------------------


class Parallel:
    """A rank of a data parallel training with a ModelCheckpoint."""

    def __init__(self, directory, mode="data_parallel"):
        init()
        ms.set_auto_parallel_context(parallel_mode=mode, gradients_mean=True)
        self.saver = ModelCheckpoint(directory=directory(), config=CheckpointConfig(save_checkpoint_steps=2))
        self.run = trained(self.saver, 4)
        self.saver.on_train_end(RunContext(self.run.args()))


@pytest.fixture
def written(monkeypatch):
    """(rank, file name) of every file that is written."""
    out, write = [], serialization.write_whole
    monkeypatch.setattr(serialization, "write_whole", lambda path, chunks: (out.append((get_rank(), os.path.basename(path))),
                                                                           write(path, chunks)))
    return out


def test_one_rank_writes_one_directory(tmp_path, written):
    latest = run_ranks(lambda: Parallel(lambda: tmp_path).saver.latest_ckpt_file_name, 4)
    assert written == [(0, "CKP-1_2.ckpt"), (0, "CKP-1_4.ckpt")]
    assert latest == [str(tmp_path / "CKP-1_4.ckpt")] * 4
    assert sorted(os.listdir(tmp_path)) == ["CKP-1_2.ckpt", "CKP-1_4.ckpt"]     # the claim is gone
    run_ranks(lambda: Parallel(lambda: tmp_path), 4)                            # another run
    assert files(tmp_path) == ["CKP-1_2.ckpt", "CKP-1_4.ckpt", "CKP_1-1_2.ckpt", "CKP_1-1_4.ckpt"]


def test_each_rank_writes_its_own_directory(tmp_path, written):
    run_ranks(lambda: Parallel(lambda: tmp_path / f"rank_{get_rank()}"), 3)
    assert sorted(written) == [(r, f"CKP-1_{s}.ckpt") for r in range(3) for s in (2, 4)]
    states = {r: {n: p.asnumpy().tobytes() for n, p in load_checkpoint(tmp_path / f"rank_{r}" / "CKP-1_4.ckpt").items()}
              for r in range(3)}
    assert states[0] == states[1] == states[2]


def test_ranks_with_other_parameters_need_other_names(tmp_path):
    with pytest.raises(RuntimeError, match=r"is to save in .* under the prefix of rank \d of process .*; give each rank"):
        run_ranks(lambda: Parallel(lambda: tmp_path, "hybrid_parallel"), 2)


def test_only_one_rank_may_have_the_callback(tmp_path):
    def program():
        init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        saver = ModelCheckpoint(directory=tmp_path) if get_rank() == 1 else Callback()
        trained(saver, 2)

    run_ranks(program, 3)
    assert files(tmp_path) == ["CKP-1_1.ckpt", "CKP-1_2.ckpt"]


def test_data_parallel_resumes_bitwise(tmp_path):
    def undisturbed():
        return Parallel(lambda: tmp_path / "a")

    def state(parallel, steps):
        for _ in parallel.run.train(steps):
            pass
        return parallel.run.state()

    def resumed():
        parallel = Parallel(lambda: tmp_path / "b")
        parallel.run.resume(tmp_path / "a" / "CKP-1_2.ckpt")
        return state(parallel, 7)

    wanted = run_ranks(lambda: state(undisturbed(), 5), 2)
    assert run_ranks(resumed, 2) == wanted


# ---- Model -------------------------------------------------------------------------------------------


class States(Callback):
    def __init__(self, run):
        self.run, self.seen = run, {}

    def on_train_step_end(self, run_context):
        args = run_context.original_args()
        self.seen[args.cur_step_num] = {p.name: p.asnumpy().tobytes() for p in args.train_network.get_parameters()}


def model_of(run):
    return Model(run.net, nn.CrossEntropyLoss(), run.optimizer)


def test_model_saves_what_resumes(tmp_path):
    run = Run()
    states, saver = States(run), ModelCheckpoint(directory=tmp_path, config=CheckpointConfig(save_checkpoint_steps=4))
    model_of(run).train(2, run.data, [states, saver])
    assert files(tmp_path) == ["CKP-1_4.ckpt", "CKP-2_2.ckpt", "CKP-2_6.ckpt"]
    other = Run(seed=8)
    state = load_training_state(tmp_path / "CKP-2_2.ckpt", model_of(other).train_network)
    assert (state.epoch, state.step) == (1, 2)
    assert {p.name: p.asnumpy().tobytes() for p in model_of(other).train_network.get_parameters()} == states.seen[STEPS + 2]


@pytest.mark.parametrize("at", [f"1_{STEPS}", "2_2", "1_4"])
def test_model_resumes_bitwise(tmp_path, at):
    run = Run("adam")
    states, saver = States(run), ModelCheckpoint(directory=tmp_path, config=CheckpointConfig(keep_checkpoint_max=99))
    model_of(run).train(3, run.data, [states, saver])
    other = Run("adam", seed=8)
    again, model = States(other), model_of(other)
    state = load_training_state(tmp_path / f"CKP-{at}.ckpt", model.train_network)
    model.train(3, other.data, [again], initial_epoch=state.epoch, initial_step=state.step)
    assert again.seen and again.seen == {n: s for n, s in states.seen.items() if n in again.seen}
    assert max(again.seen) == 3 * STEPS and min(again.seen) == state.epoch * STEPS + state.step + 1


def test_a_checkpoint_names_the_algorithms_its_sums_were_made_by(tmp_path):
    run = Run()
    with selection.algorithm("tree"):
        save_training_state(tmp_path / "x", run.cell)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load_training_state(tmp_path / "x", run.cell)
    with pytest.warns(UserWarning, match="chose their collective algorithms otherwise .*MINISPORE_ALGORITHM"):
        load_training_state(tmp_path / "x", run.cell)


def test_tensors_are_saved_as_they_are(tmp_path):
    """Views and other byte orders are brought in order first."""
    base = np.arange(12, dtype=">f4").reshape(3, 4)
    save_checkpoint({"t": Tensor.from_numpy(base.T)}, tmp_path / "x")
    assert load_checkpoint(tmp_path / "x")["t"].tolist() == base.T.tolist()
