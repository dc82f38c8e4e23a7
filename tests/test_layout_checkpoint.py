"""Checkpoints of parameters that lie in pieces: into any other layout and number of ranks, bitwise; every damage is told."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_runs import STRATEGIES, Net, laid_out, on_ranks, same, train, training, whole

import minispore as ms
from minispore import Parameter, Tensor, nn
from minispore.common.initializer import Pending
from minispore.communication import get_rank
from minispore.nn.utils import no_init_parameters
from minispore.parallel.assemble import all_of, assemble, pieces, ranks_for
from minispore.parallel.layout import TensorLayout
from minispore.parallel.mesh import Mesh
from minispore.parallel.placement import Placement
from minispore.parallel.program import lay_out
from minispore.parallel.strategy_file import Stored, bounds, build_searched_strategy, describe, described, write_strategy
from minispore.train import (
    CheckpointConfig,
    Model,
    ModelCheckpoint,
    ckpt_format,
    load_training_state,
    save_checkpoint,
    save_training_state,
)
from minispore.train.serialization import save_entries

FORMATS = ("ckpt", "safetensors")


def fails(error, message):
    """The error, with a message that contains this."""
    return pytest.raises(error, match=re.escape(message))


# ---- a checkpoint of 8 ranks, saved once ---------------------------------------------------------------


def save_slices(rank, cell, folder, format="safetensors", **note):
    os.makedirs(f"{folder}/rank_{rank}", exist_ok=True)
    save_training_state(f"{folder}/rank_{rank}/net", cell, format=format, integrated_save=False, **note)


def files_of(folder, n, format="safetensors"):
    return [f"{folder}/rank_{rank}/net.{format}" for rank in range(n)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(folder, whole values at the save, and two steps later, their losses); strategy files s8.json, s4.json, … are there."""
    folder = str(tmp_path_factory.mktemp("saved"))

    def first(rank):
        cell = laid_out(8)
        train(cell, range(2))
        for format in FORMATS:
            save_slices(rank, cell, f"{folder}/{format}", format, epoch=2, step=3)
        save_checkpoint(cell, f"{folder}/rank_{rank}_whole", format="safetensors")
        return whole(cell), train(cell, (2, 3)), whole(cell)
    file = {"save_file": f"{folder}/s8.json", "only_trainable_params": False}
    values, losses, later = on_ranks(8, first, strategy_ckpt_config=file)[0]
    for n in (4, 3, 1):
        on_ranks(n, lambda rank, n=n: train(laid_out(n), [0]),
                 strategy_ckpt_config={**file, "save_file": f"{folder}/s{n}.json"})
    return folder, values, losses, later


# ---- round trips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_8_4_3_1_8_ranks_bitwise(saved, tmp_path, format):
    folder, values, losses, later = saved
    source, files = f"{folder}/{format}", 8

    def load_and_save(rank, n):
        cell = training(n)                                  # one that has not run: whole
        ms.load_distributed_checkpoint(cell, files_of(source, files, format))
        fresh = same(whole(cell), values)
        cell = laid_out(n)                                  # and one that lies in pieces
        ms.load_distributed_checkpoint(cell, files_of(source, files, format), strict_load=True)
        save_slices(rank, cell, tmp_path / str(n), format)
        return fresh and same(whole(cell), values)
    for n in (4, 3, 1, 8):
        assert all(on_ranks(n, load_and_save, n)), n
        source, files = tmp_path / str(n), n

    def go_on(rank):
        cell = laid_out(8)
        ms.load_distributed_checkpoint(cell, files_of(source, 8, format))
        return train(cell, (2, 3)), same(whole(cell), later)
    assert on_ranks(8, go_on) == [(losses, True)] * 8


@pytest.mark.parametrize("format", FORMATS)
def test_transform_through_all_layouts(saved, tmp_path, format):
    folder, values, losses, later = saved
    source, strategy = f"{folder}/{format}", f"{folder}/s8.json"
    for i, n in enumerate((4, 3, 1, 8)):
        ms.transform_checkpoints(source, tmp_path / str(n), "net-", strategy, f"{folder}/s{n}.json", output_format=FORMATS[i % 2])
        source, strategy = tmp_path / str(n), f"{folder}/s{n}.json"

        def loads(rank, n=n, format=FORMATS[i % 2]):
            file = f"{tmp_path}/{n}/rank_{rank}/net-{rank}.{format}"
            cell = laid_out(n)
            state = load_training_state(file, cell)
            return same(whole(cell), values) and (state.epoch, state.step) == (2, 3)
        assert all(on_ranks(n, loads)), n

    def go_on(rank):
        cell = training(8)                                  # takes its layout from the file
        load_training_state(f"{tmp_path}/8/rank_{rank}/net-{rank}.safetensors", cell)
        return train(cell, (2, 3)), same(whole(cell), later)
    assert on_ranks(8, go_on) == [(losses, True)] * 8


def test_the_listed_ranks_are_enough_and_needed(saved, tmp_path):
    folder, *_ = saved
    s8, s4 = f"{folder}/s8.json", f"{folder}/s4.json"
    for rank in range(4):
        ranks = ms.rank_list_for_transform(rank, s8, s4)
        files = {r: files_of(f"{folder}/safetensors", 8)[r] for r in ranks}
        ms.transform_checkpoint_by_rank(rank, files, tmp_path / f"{rank}.safetensors", s8, s4)
        with fails(ValueError, "is incomplete: no slice covers ["):
            ms.transform_checkpoint_by_rank(rank, {r: files[r] for r in ranks[1:]}, tmp_path / "less.ckpt", s8, s4)
        assert not (tmp_path / "less.ckpt").exists()
    assert ms.rank_list_for_transform(0, None, s4) == [0]
    assert set(ms.rank_list_for_transform(0, s8)) <= set(range(8))
    assert ms.load_checkpoint(tmp_path / "3.safetensors")["w1"].layout == build_searched_strategy(s4)["w1"].placement


def test_predict_strategy_loads_pieces_only(saved):
    folder, values, *_ = saved

    def program(rank):
        with no_init_parameters():
            cell = training(4)
        ms.load_distributed_checkpoint(cell, files_of(f"{folder}/ckpt", 8, "ckpt"), f"{folder}/s4.json", f"{folder}/s8.json")
        w1 = next(p for p in cell.get_parameters() if p.name == "w1")
        return w1.shape, same(whole(cell), values), train(cell, [2])
    results = on_ranks(4, program)
    assert {r[:2] for r in results} == {((6, 48), True)} and len({r[2][0] for r in results}) == 1


def test_unified_safetensors(saved, tmp_path):
    folder, values, *_ = saved
    one, parts = tmp_path / "one", tmp_path / "parts"
    ms.unified_safetensors(f"{folder}/safetensors", f"{folder}/s8.json", one)
    assert sorted(os.listdir(one)) == ["param_name_map.json", "part0.safetensors"]
    back = ms.load_checkpoint(one / "part0.safetensors")
    assert same({n: p.asnumpy() for n, p in back.items()}, values)
    for i in (1, 2, 3):
        ms.unified_safetensors(f"{folder}/safetensors", None, parts, file_suffix="net", split_dst_file=(i, 3),
                               choice_func=lambda name: name != "moment2.w2" and name.replace("w1", "W"))
    table = json.loads((parts / "param_name_map.json").read_text())
    assert "moment2.w2" not in table and "W" in table and set(table.values()) == {f"part{i}.safetensors" for i in range(3)}

    def load(rank):
        a, b = laid_out(3), laid_out(3)
        ms.load_distributed_checkpoint(a, unified_safetensors_dir=one)
        names = {name: name.replace("W", "w1") for name in table if "W" in name}
        got = ms.load_distributed_checkpoint(b, unified_safetensors_dir=parts, name_map=names, return_param_dict=True)
        return same(whole(a), values), sorted(got) == sorted(values.keys() - {"moment2.w2"}), \
            same({n: v for n, v in whole(b).items() if n in got}, {n: values[n] for n in got})
    with pytest.warns(UserWarning, match="1 of the network's parameters aren't in .*part0.* and keep their values: moment2.w2"):
        assert all(map(all, on_ranks(3, load)))


def test_files_for_a_strategy(saved, tmp_path):
    folder, values, *_ = saved
    files = files_of(f"{folder}/safetensors", 8)
    ms.load_distributed_checkpoint(None, files, f"{folder}/s3.json", dst_safetensors_dir=tmp_path, output_format="ckpt")
    assert all(on_ranks(3, lambda rank: loads_equal(3, f"{tmp_path}/rank_{rank}/net{rank}.ckpt", values)))
    ms.load_distributed_checkpoint(None, files, f"{folder}/s4.json", dst_safetensors_dir=tmp_path / "one", rank_id=2)
    assert os.listdir(tmp_path / "one") == ["rank_2"]
    with fails(ValueError, "load_distributed_checkpoint: dst_safetensors_dir needs a predict_strategy, which says how the files"):
        ms.load_distributed_checkpoint(None, files, dst_safetensors_dir=tmp_path)


def loads_equal(n, file, values):
    cell = laid_out(n)
    ms.load_checkpoint(file, cell)
    return same(whole(cell), values)


# ---- plain save and load -------------------------------------------------------------------------------


def test_integrated_save_is_whole_and_goes_into_any_layout(saved):
    folder, values, *_ = saved
    for rank in (0, 7):
        assert same({n: p.asnumpy() for n, p in ms.load_checkpoint(f"{folder}/rank_{rank}_whole").items()}, values)
    for n in (4, 3):
        assert all(on_ranks(n, lambda rank, n=n: loads_equal(n, f"{folder}/rank_0_whole", values)))


def test_slices_into_the_layout_they_had(saved, tmp_path):
    folder, values, losses, later = saved

    def program(rank, file):
        cell = laid_out(8)
        ms.load_checkpoint(file, cell)
        out = same(whole(cell), values)
        fresh = training(8)
        ms.load_checkpoint(file, fresh)
        return out, same(whole(fresh), values), train(fresh, (2, 3)), same(whole(fresh), later)
    for format in FORMATS:
        got = on_ranks(8, lambda rank, format=format: program(rank, f"{folder}/{format}/rank_{rank}/net.{format}"))
        assert got == [(True, True, losses, True)] * 8


def test_a_new_network_takes_its_layout_from_the_file(saved, monkeypatch):
    """Also where its strategies want another: the program brings the pieces where it needs them."""
    folder, values, losses, _ = saved
    monkeypatch.setitem(STRATEGIES, 8, (((8, 1), (1, 1)), ((1, 8), (8, 1))))

    def program(rank):
        cell = training(8)
        ms.load_checkpoint(f"{folder}/ckpt/rank_{rank}/net.ckpt", cell)
        return str(cell.trainable_params()[0].layout), same(whole(cell), values), train(cell, (2, 3))
    layout, equal, got = on_ranks(8, program)[0]
    assert (layout, equal) == ("(24, 48) as (b, c) on 8 ranks", True) and np.allclose(got, losses, rtol=1e-5)


def test_the_context_names_the_strategy_to_load(saved):
    folder, values, *_ = saved
    ms.set_auto_parallel_context(strategy_ckpt_config={"load_file": f"{folder}/s4.json"})
    with fails(ValueError, "8 checkpoint files, but the training strategy has 4 ranks"):
        ms.load_distributed_checkpoint(training(1), files_of(f"{folder}/ckpt", 8, "ckpt"))
    ms.set_auto_parallel_context(strategy_ckpt_config=None, strategy_ckpt_load_file=f"{folder}/s8.json")
    cell = training(1)
    ms.load_distributed_checkpoint(cell, files_of(f"{folder}/ckpt", 8, "ckpt"))
    assert same(whole(cell), values)


def test_a_slice_of_another_rank_or_layout_is_refused(saved, tmp_path):
    folder, *_ = saved
    hint = "Load all ranks' files with load_distributed_checkpoint, which goes from any layout into any other"

    def other_rank(rank):
        cell = laid_out(8)
        before = whole(cell)
        try:
            ms.load_checkpoint(f"{folder}/ckpt/rank_{rank ^ 1}/net.ckpt", cell)
        except RuntimeError as e:
            return str(e), same(whole(cell), before)
    message, kept = on_ranks(8, other_rank)[2]
    assert "rank_3/net.ckpt doesn't fit the network, so nothing was loaded: w1 on rank 2 is another slice than w1 in the file, " \
        "which rank 3 saved" in message and hint in message and kept

    def other_layout(rank):
        cell = laid_out(4)
        before = whole(cell)
        with fails(RuntimeError, "w1 is (24, 48) as (ab, -) on 4 ranks in the network, w1 is a slice of (24, 48) as (b, c) on 8 "
                                 "ranks in the file"):
            ms.load_checkpoint(f"{folder}/ckpt/rank_0/net.ckpt", cell)
        return same(whole(cell), before)
    assert all(on_ranks(4, other_layout))
    with fails(RuntimeError, "w1 is whole, (24, 48), in the network, w1 is a slice of (24, 48) as (b, c) on 8 ranks in the file"):
        ms.load_checkpoint(f"{folder}/ckpt/rank_0/net.ckpt", Net(1))
    with fails(RuntimeError, "weight has shape (3, 3) in the network, weight is a slice of one of (24, 48) in the file"):
        ms.load_checkpoint(f"{folder}/ckpt/rank_0/net.ckpt", nn.Dense(3, 3, has_bias=False),
                           choice_func=lambda name: "weight" if name == "w1" else False)


def test_a_whole_tensor_of_the_size_of_a_slice_is_refused(tmp_path):
    file = str(tmp_path / "small.ckpt")
    save_checkpoint([Parameter(np.ones((6, 48), np.float32), "w1")], file)
    plain_ckpt(tmp_path / "plain.ckpt", {"w1": np.ones((6, 48), np.float32)})

    def program(rank):
        cell = laid_out(4)
        with fails(RuntimeError, "w1 has shape (24, 48) ((6, 48) on each rank) in the network, w1 has (6, 48) in the file"):
            ms.load_param_into_net(cell, ms.load_checkpoint(file))
        ms.load_checkpoint(tmp_path / "plain.ckpt", cell)              # MindSpore's files don't say that they are slices
        return whole(cell)["w1"].tolist()
    with pytest.warns(UserWarning, match="keep their values"):
        assert on_ranks(4, program)[0] == np.ones((24, 48)).tolist()


def plain_ckpt(file, arrays):
    """A .ckpt as MindSpore writes it: without minispore's note."""
    with open(file, "wb") as f:
        f.writelines(list(ckpt_format._pieces(list(arrays.items()), {}))[1:])


def test_async_save_of_slices(tmp_path):
    def program(rank):
        cell = laid_out(4)
        save_checkpoint(cell, tmp_path / f"{rank}", integrated_save=False, async_save=True)
        values = whole(cell)
        train(cell, [1])
        ms.load_checkpoint(tmp_path / f"{rank}", cell)
        return same(whole(cell), values)
    assert all(on_ranks(4, program))


# ---- ModelCheckpoint -----------------------------------------------------------------------------------


def fit(rank, directory, config):
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(72, 24)).astype(np.float32) for name in "xy"}
    data = ms.dataset.NumpySlicesDataset(rows, shuffle=False).batch(24)
    net = Net(4)
    model = Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 0.01))
    saver = ModelCheckpoint("m", directory.format(rank=rank), config)
    model.train(2, data, callbacks=[saver], dataset_sink_mode=False)
    return saver.latest_ckpt_file_name, whole(model.train_network)


def test_model_checkpoint_whole_in_one_directory(tmp_path):
    results = on_ranks(4, fit, f"{tmp_path}", CheckpointConfig(2))
    assert sorted(os.listdir(tmp_path)) == ["m-1_2.ckpt", "m-2_1.ckpt", "m-2_3.ckpt"]
    assert {r[0] for r in results} == {f"{tmp_path}/m-2_3.ckpt"}
    assert on_ranks(3, lambda rank: loads_equal(3, f"{tmp_path}/m-2_3.ckpt", results[0][1])) == [True] * 3


def test_model_checkpoint_of_slices(tmp_path):
    config = CheckpointConfig(2, integrated_save=False, format="safetensors")
    _, values = on_ranks(4, fit, f"{tmp_path}/src/rank_{{rank}}", config)[0]
    ms.transform_checkpoints(tmp_path / "src", tmp_path / "dst", "m")
    assert os.listdir(tmp_path / "dst") == ["rank_0"]
    assert loads_equal(1, tmp_path / "dst/rank_0/m0.ckpt", values)
    with fails(RuntimeError, "give each rank, and each run, a directory of its own"):
        on_ranks(4, fit, f"{tmp_path}/shared", config)


def test_ranks_save_the_same_steps_by_the_clock(tmp_path, monkeypatch):
    from minispore.train import checkpoint
    monkeypatch.setattr(checkpoint, "monotonic", lambda: 0.0 if get_rank() else next(ticks))
    ticks = iter(range(0, 10 ** 6, 7))
    fit_all = on_ranks(4, fit, f"{tmp_path}", CheckpointConfig(0, save_checkpoint_seconds=10, keep_checkpoint_max=9))
    assert len({r[0] for r in fit_all}) == 1 and len(os.listdir(tmp_path)) >= 2


# ---- missing, damaged, of another shape ----------------------------------------------------------------


@pytest.fixture
def copy(saved, tmp_path):
    """A copy of the saved files, to be damaged: (folder with ckpt/ and safetensors/, s8.json, s4.json)."""
    folder, *_ = saved
    for format in FORMATS:
        shutil.copytree(f"{folder}/{format}", tmp_path / format)
    return tmp_path, f"{folder}/s8.json", f"{folder}/s4.json"


def cut_off(file, n):
    data = file.read_bytes()
    file.write_bytes(data[:n])


def nothing_loaded(cell, load, error, message):
    before = whole(cell)
    with fails(error, message):
        load(cell)
    return same(whole(cell), before)


@pytest.mark.parametrize("format", FORMATS)
def test_truncated_at_any_place(copy, format):
    folder, s8, _ = copy
    victim = folder / format / "rank_5" / f"net.{format}"
    size = victim.stat().st_size
    load = lambda cell: ms.load_distributed_checkpoint(cell, files_of(folder / format, 8, format), None, s8)
    for share, name in ((0.9, "in parameter '"), (0.5, "in parameter '"), (0.05, None), (0.0, None)):
        cut_off(victim, int(size * share))
        with pytest.raises(ValueError) as e:
            load(training(1))
        assert str(victim) in str(e.value) and (name or "") in str(e.value), share

    def program(rank):
        return nothing_loaded(laid_out(4), load, ValueError, f"{victim} is empty; whatever wrote it was cut off")
    assert all(on_ranks(4, program))


@pytest.mark.parametrize("format", FORMATS)
def test_one_changed_bit_names_file_and_parameter(copy, format):
    folder, s8, _ = copy
    victim = folder / format / "rank_1" / f"net.{format}"
    data = bytearray(victim.read_bytes())
    value = ms.load_checkpoint(victim)["w2"].asnumpy().tobytes()
    data[data.index(value) + 11] ^= 4
    victim.write_bytes(data)
    for load in (lambda: ms.load_checkpoint(victim),
                 lambda: ms.load_distributed_checkpoint(training(1), files_of(folder / format, 8, format)),
                 lambda: ms.transform_checkpoints(folder / format, folder / "out", "x", s8)):
        with fails(ValueError, f"{victim} is damaged: its bytes have changed since they were written (checksum), in parameter "
                               "'w2'. Use another copy"):
            load()


def test_a_missing_rank(copy):
    folder, s8, s4 = copy
    files = files_of(folder / "ckpt", 8, "ckpt")
    os.remove(files[6])
    with fails(FileNotFoundError, f"{files[6]} isn't there"):
        ms.load_distributed_checkpoint(training(1), files)
    with fails(ValueError, "load_distributed_checkpoint: 6 checkpoint files, but the training strategy has 8 ranks; give the "
                           "file of each rank, in order of rank"):
        ms.load_distributed_checkpoint(training(1), files[:6], None, s8)
    place = folder / "ckpt" / "rank_6"
    with fails(FileNotFoundError, f"transform_checkpoints: {place} has no file of rank 6 (.ckpt, .safetensors); put it there"):
        ms.transform_checkpoints(folder / "ckpt", folder / "out", "net", s8, s4)
    for rank in (2, 6):                             # they have the same slice of w2
        shutil.rmtree(folder / "ckpt" / f"rank_{rank}")
    with fails(ValueError, "transform_checkpoints: parameter 'w2' ((48, 24) as (bc, -) on 8 ranks) is incomplete: no slice "
                           "covers [24:36, 0:24], which rank 2 or 6 saved, whose file isn't there"):
        ms.transform_checkpoints(folder / "ckpt", folder / "out", "net", s8, s4)
    assert not list((folder / "out").rglob("*.ckpt"))


def test_a_rank_whose_slices_others_have_may_be_missing(saved, tmp_path):
    folder, *_ = saved
    files = {r: f for r, f in enumerate(files_of(f"{folder}/ckpt", 8, "ckpt")) if r < 4}
    weights = {n: s for n, s in build_searched_strategy(f"{folder}/s8.json").items() if "moment1" not in n}
    write_strategy(tmp_path / "w.json", weights)
    with fails(ValueError, "parameter 'moment1.w1'"):
        ms.transform_checkpoint_by_rank(0, files, tmp_path / "a.ckpt", tmp_path / "w.json")
    wanted = {name: stored for name, stored in weights.items() if name in ("w1", "w2")}
    assert ranks_for([(s, all_of(s)) for s in wanted.values()]) == [0, 1, 2, 3]


def test_files_of_another_order_moment_or_network(copy):
    folder, *_ = copy
    files = files_of(folder / "ckpt", 8, "ckpt")
    with fails(ValueError, f"{files[1]} is given as rank 0's, but has rank 1's slices; give the files in order of their ranks"):
        ms.load_distributed_checkpoint(training(1), [files[1], files[0], *files[2:]])
    with fails(RuntimeError, "weight has shape (3, 48) in the network, w1 has (24, 48) in the file"):
        ms.load_distributed_checkpoint(nn.Dense(48, 3, has_bias=False), files, name_map={"w1": "weight"})
    other = str(folder / "later.ckpt")

    def later(rank):
        cell = laid_out(8)
        save_training_state(other if rank == 5 else f"{folder}/none{rank}.ckpt", cell, epoch=9, integrated_save=False)
    on_ranks(8, later)
    shutil.copy(other, files[5])
    with fails(ValueError, f"{files[5]} was saved at epoch 9, step 0, {files[0]} at epoch 2, step 3; give files of one moment"):
        ms.load_distributed_checkpoint(training(1), files)


def test_strategy_and_files_must_agree(copy):
    folder, s8, s4 = copy
    files = files_of(folder / "ckpt", 8, "ckpt")
    strategy = build_searched_strategy(s8)
    strategy["w1"] = Stored(Placement(Mesh(8), (24, 48), TensorLayout(((0,), (1,)))))
    with fails(ValueError, f"{files[0]} has parameter 'w1' as (24, 48) as (b, c) on 8 ranks, it should be (24, 48) as (a, b) "
                           "on 8 ranks; use the strategy file saved with these files"):
        ms.load_distributed_checkpoint(training(1), files, None, strategy)
    save_checkpoint({"w1": Tensor(np.zeros((12, 24), np.float32))}, folder / "whole.ckpt")
    with fails(ValueError, f"{folder}/whole.ckpt has parameter 'w1' as a whole tensor, it should be (24, 48) as (b, c) on 8"):
        right = {"w1": build_searched_strategy(s8)["w1"]}
        ms.transform_checkpoint_by_rank(0, {0: str(folder / "whole.ckpt")}, folder / "x.ckpt", right)
    with fails(ValueError, "no source file has parameter 'w3', of which the destination's strategy gives rank 0 a slice"):
        write_strategy(folder / "w3.json", {"w3": strategy["w1"]})
        ms.transform_checkpoint_by_rank(0, dict(enumerate(files)), folder / "x.ckpt", s8, folder / "w3.json")
    with fails(ValueError, "parameter 'w1' has shape (24, 48) in the source, (48, 48) in the destination's strategy"):
        write_strategy(folder / "w1.json", {"w1": Stored(Placement(Mesh(2), (48, 48), TensorLayout(((0,), ()))))})
        ms.rank_list_for_transform(0, s8, folder / "w1.json")
    with fails(ValueError, "rank_list_for_transform: rank_id=4, the destination's strategy has ranks 0 … 3"):
        ms.rank_list_for_transform(4, s8, s4)


def test_files_of_mindspores_need_the_strategy(tmp_path):
    """They say nothing of themselves: shapes are checked, and whole ones must be equal on all ranks."""
    w = np.arange(32, dtype=np.float32).reshape(8, 4)
    stored = Stored(Placement(Mesh(2), (8, 4), TensorLayout(((0,), ()))))
    for rank in range(2):
        plain_ckpt(tmp_path / f"{rank}.ckpt", {"w": w[4 * rank:4 * rank + 4], "m": w[:3], "odd": w[rank:rank + 1]})
    files = [str(tmp_path / f"{rank}.ckpt") for rank in range(2)]
    write_strategy(tmp_path / "s.json", {"w": stored})
    with fails(ValueError, f"parameter 'odd' isn't in the strategy, so it should be whole, but it differs between {files[0]} and "
                           f"{files[1]}; save the strategy file with strategy_ckpt_config={{'save_file': …, "
                           "'only_trainable_params': False}"):
        ms.transform_checkpoint_by_rank(0, dict(enumerate(files)), tmp_path / "out.ckpt", tmp_path / "s.json")
    for rank in range(2):
        plain_ckpt(files[rank], {"w": w[4 * rank:4 * rank + 4], "m": w[:3]})
    ms.transform_checkpoint_by_rank(0, dict(enumerate(files)), tmp_path / "out.ckpt", tmp_path / "s.json")
    back = ms.load_checkpoint(tmp_path / "out.ckpt")
    assert same({n: p.asnumpy() for n, p in back.items()}, {"w": w, "m": w[:3]})
    plain_ckpt(files[1], {"w": w[:5], "m": w[:3]})
    with fails(ValueError, f"{files[1]} has shape (5, 4) for parameter 'w', it should be a slice of shape (4, 4) ((8, 4) as (a, "
                           "-) on 2 ranks)"):
        ms.transform_checkpoint_by_rank(0, dict(enumerate(files)), tmp_path / "out.ckpt", tmp_path / "s.json")
    plain_ckpt(files[1], {"m": w[:3], "w": w[:4].astype(np.float64)})
    with fails(ValueError, f"parameter 'w' is float32 in {files[0]} and float64 in {files[1]}; use files saved together"):
        ms.transform_checkpoint_by_rank(0, dict(enumerate(files)), tmp_path / "out.ckpt", tmp_path / "s.json")
    plain_ckpt(files[1], {"m": w[:3]})
    with fails(ValueError, f"{files[1]} has no parameter 'w', of which rank 1 has a slice of shape (4, 4)"):
        ms.transform_checkpoint_by_rank(0, dict(enumerate(files)), tmp_path / "out.ckpt", tmp_path / "s.json")
    plain_ckpt(files[0], {"m": w[:3]})              # the strategy has it, so it isn't just left as it is
    net = nn.Dense(4, 8, has_bias=False)
    net.weight.name = "w"
    with fails(ValueError, f"{files[0]} has no parameter 'w', of which rank 0 has a slice of shape (4, 4)"):
        ms.load_distributed_checkpoint(net, files, None, tmp_path / "s.json")


def test_notes_that_lie(tmp_path):
    item = {"dev_matrix": [2], "tensor_map": [0], "tensor_shape": [8]}
    for n, (slices, message) in enumerate([
            ({"rank": 0, "parameters": {"w": item}}, "its note says a slice of shape (4,) ((8,) as (a) on 2 ranks), there is "
                                                     "(3,), in parameter 'w'"),
            ({"rank": 0, "parameters": {"v": item}}, "there is None, in parameter 'v'"),
            ({"rank": 0, "parameters": {"w": {}}}, "minispore's note on its slices can't be read"),
            ({"parameters": {}}, "minispore's note on its slices can't be read")]):
        for format in FORMATS:
            file = save_entries([("w", np.zeros(3))], tmp_path / str(n), {"slices": slices}, format)
            for load in (ms.load_checkpoint, lambda file: ms.load_distributed_checkpoint(nn.Dense(1, 1), [file])):
                with pytest.raises(ValueError, match=re.escape(message)) as e:
                    load(file)
                assert file in str(e.value)


def test_arguments_are_checked(saved, tmp_path):
    folder, *_ = saved
    files, net = files_of(f"{folder}/ckpt", 8, "ckpt"), nn.Dense(1, 1)
    with fails(TypeError, "load_distributed_checkpoint: checkpoint_filenames None must be a list of all ranks' files"):
        ms.load_distributed_checkpoint(net)
    with fails(TypeError, "load_distributed_checkpoint: network is a NoneType; it must be a Cell"):
        ms.load_distributed_checkpoint(None, files)
    with fails(ValueError, "load_distributed_checkpoint: output_format 'h5' is unknown"):
        ms.load_distributed_checkpoint(net, files, output_format="h5")
    with fails(ValueError, "load_distributed_checkpoint: dec_key was given, but minispore doesn't encrypt"):
        ms.load_distributed_checkpoint(net, files, dec_key=b"1")
    with fails(FileNotFoundError, f"{tmp_path}/param_name_map.json isn't there; unified_safetensors writes it, with the files"):
        ms.load_distributed_checkpoint(net, unified_safetensors_dir=tmp_path)
    (tmp_path / "param_name_map.json").write_text("[]")
    with fails(ValueError, "param_name_map.json isn't what unified_safetensors writes; make the folder anew"):
        ms.load_distributed_checkpoint(net, unified_safetensors_dir=tmp_path)
    with fails(RuntimeError, "predict_strategy wants w1 as (24, 48) as (ab, -) on 4 ranks, but this job isn't one of 4 ranks in "
                             "semi_auto_parallel or auto_parallel mode"):
        ms.load_distributed_checkpoint(training(1), files, f"{folder}/s4.json")
    with fails(TypeError, "transform_checkpoint_by_rank: checkpoint_files_map [] must be a dict {rank: file}"):
        ms.transform_checkpoint_by_rank(0, [], "x")
    with fails(ValueError, "transform_checkpoints: output_format 'h5' is unknown"):
        ms.transform_checkpoints(folder, tmp_path, "x", output_format="h5")
    with fails(FileNotFoundError, f"transform_checkpoints: {tmp_path} has no folders rank_0, rank_1, …"):
        ms.transform_checkpoints(tmp_path, tmp_path / "out", "x")
    with fails(ValueError, "unified_safetensors: split_dst_file=(4, 3) must be (i, n) with i from 1 to n, or ()"):
        ms.unified_safetensors(f"{folder}/safetensors", None, tmp_path, split_dst_file=(4, 3))

    with fails(ValueError, f"transform_checkpoints: {folder} is both source and destination; give another folder"):
        ms.transform_checkpoints(folder, f"{folder}/.", "x")
    with fails(ValueError, "unified_safetensors: choice_func gives two parameters one name"):
        ms.unified_safetensors(f"{folder}/safetensors", None, tmp_path, choice_func=lambda name: "same")

    def has_run(rank):
        with fails(RuntimeError, "predict_strategy wants moment1.w1 as (24, 48) as (-, ba) on 4 ranks, but the network has run "
                                 "and it lies as (24, 48) as (b, a) on 4 ranks; leave predict_strategy out"):
            cell = training(4)
            for p in cell.get_parameters():
                if p.name == "moment1.w1":
                    lay_out(p, Mesh(4), TensorLayout(((1,), (0,))))
            train(cell, [0])
            ms.load_distributed_checkpoint(cell, files, f"{folder}/s4.json")
    on_ranks(4, has_run)


# ---- strategy files ------------------------------------------------------------------------------------


def test_strategy_file_of_a_training(saved, tmp_path):
    folder, *_ = saved
    content = json.loads(pathlib.Path(folder, "s8.json").read_text())
    assert content["current_stage"] == 0 and content["parallel_layout_item"]["w1"] == {
        "dev_matrix": [2, 2, 2], "tensor_map": [1, 0], "tensor_shape": [24, 48], "slice_shape": [12, 24], "field": 0,
        "opt_weight_shard_step": 0, "opt_weight_shard_size": 0, "stages": [0]}
    assert content["parallel_layout_item"]["moment1.w1"]["tensor_map"] == [[0, 2], 1]
    assert content["parallel_layout_item"]["b"]["tensor_map"] == [-1]
    file = str(tmp_path / "trainable.ckpt")                 # whatever it is called, the content is the same
    on_ranks(4, lambda rank: train(training(4), [0]), strategy_ckpt_save_file=file)
    assert sorted(build_searched_strategy(file)) == ["b", "w1", "w2"]
    assert build_searched_strategy(file)["w1"].placement.local_shape == (6, 48)


PRIMES = [1, 2, 3, 4, 6, 8, 12]


@st.composite
def placements(draw, shape=None, n=None):
    """A random layout, of a given shape if the shape allows it."""
    mesh = Mesh(draw(st.sampled_from(PRIMES)) if n is None else n)
    ndim = draw(st.integers(0, 3)) if shape is None else len(shape)
    dims = [[] for _ in range(ndim)]
    for a in draw(st.permutations(list(mesh.axes))):
        dim = draw(st.integers(-1, ndim - 1))
        if dim >= 0 and (shape is None or shape[dim] % mesh.count((*dims[dim], a)) == 0):
            dims[dim].append(a)
    layout = TensorLayout(tuple(map(tuple, dims)))
    if shape is None:
        shape = tuple(draw(st.integers(0, 2)) * mesh.count(axes) for axes in layout.dims)
    return Placement(mesh, shape, layout)


@given(placement=placements(), stages=st.sampled_from([(0,), (1,), (0, 2)]))
@settings(max_examples=300)
def test_any_layout_goes_through_a_strategy_file(tmp_path_factory, placement, stages):
    file = tmp_path_factory.mktemp("strategy") / "s.json"
    write_strategy(file, {"w": Stored(placement, stages)})
    assert build_searched_strategy(file) == {"w": Stored(placement, stages)}


@given(data=st.data())
@settings(max_examples=300)
def test_assembling_any_layout_from_any_other(data):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 6, 12, 24]), max_size=3)))
    src, dst = Stored(data.draw(placements(shape))), data.draw(placements(shape))
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    slices = {rank: whole[src.placement.region(rank)] for rank in src.ranks}
    for rank in range(dst.mesh.n):
        want = bounds(dst.region(rank))
        ranks = ranks_for([(src, want)])
        read = lambda r: slices[r]
        assert np.array_equal(assemble(src, want, ranks, read), whole[dst.region(rank)])
        for left_out in ranks:
            have = [r for r in src.ranks if src.region(r) != src.region(left_out)]
            with pytest.raises(ValueError, match="no slice covers"):
                assemble(src, want, have, read)


@given(data=st.data(), format=st.sampled_from(FORMATS))
@settings(max_examples=60)
def test_transforming_any_layout_into_any_other(tmp_path_factory, data, format):
    folder = tmp_path_factory.mktemp("transform")
    shapes = {"a": (12,), "b": (24, 6), "c": (), "d": (2, 12, 1), "none": (0, 12)}
    n, m = (data.draw(st.sampled_from(PRIMES)) for _ in range(2))
    src, dst = ({name: Stored(data.draw(placements(shape, k))) for name, shape in shapes.items()} for k in (n, m))
    rng = np.random.default_rng(0)
    whole = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for rank in range(n):
        os.makedirs(folder / f"src/rank_{rank}")
        save_pieces(folder / f"src/rank_{rank}/x-{rank}", whole, src, rank, format)
    write_strategy(folder / "src.json", src)
    write_strategy(folder / "dst.json", dst)
    ms.transform_checkpoints(folder / "src", folder / "dst", "y", data.draw(st.sampled_from([None, folder / "src.json"])),
                             folder / "dst.json", output_format=format)
    assert len(os.listdir(folder / "dst")) == m
    for rank in range(m):
        back = ms.load_checkpoint(folder / f"dst/rank_{rank}/y{rank}.{format}")
        assert back.pop("note") == "text"
        assert same({name: p.asnumpy() for name, p in back.items()},
                    {name: np.array(cut(whole[name], stored.region(rank)), order="C") for name, stored in dst.items()})
        split = {name: stored.placement for name, stored in dst.items() if not stored.placement.layout.whole}
        assert {name: p.layout for name, p in back.items() if p.layout} == split


def cut(array, region):
    return array[tuple(slice(*ends) for ends in region)]


def save_pieces(file, whole, strategy, rank, format):
    """What rank `rank` saves with integrated_save=False, without there being such a rank."""
    entries = [(name, np.array(cut(whole[name], stored.region(rank)), order="C")) for name, stored in strategy.items()]
    slices = {name: describe(s.placement) for name, s in strategy.items() if not s.placement.layout.whole}
    save_entries([*entries, ("note", "text")], file, {"slices": {"rank": rank, "parameters": slices}} if slices else {}, format)


@pytest.mark.parametrize("item, message", [
    ({}, "must have dev_matrix, tensor_map and tensor_shape"),
    ({"dev_matrix": [3, 2], "tensor_map": [0], "tensor_shape": [8]}, "device matrix [3, 2]: its dims must be made of the prime "
                                                                      "factors (2, 3) of 6 devices, in this order"),
    ({"dev_matrix": [2], "tensor_map": [0, 0], "tensor_shape": [8, 8]}, "tensor map [0, 0]: its numbers must be -1, or each a "
                                                                         "different dim of the device matrix [2]"),
    ({"dev_matrix": [2], "tensor_map": [1], "tensor_shape": [8]}, "tensor map [1]"),
    ({"dev_matrix": [2], "tensor_map": [0], "tensor_shape": [8, 8]}, "tensor map [0] has 1 entries for shape (8, 8)"),
    ({"dev_matrix": [2], "tensor_map": [0], "tensor_shape": [7]}, "device matrix [2] and tensor map [0] don't divide shape (7,)"),
    ({"dev_matrix": [2], "tensor_map": [0], "tensor_shape": [8], "slice_shape": [3]},
     "slice shape [3] where device matrix [2] and tensor map [0] make (4,) of shape (8,)"),
    ({"dev_matrix": [2], "tensor_map": [-1], "tensor_shape": [8], "opt_weight_shard_size": 2},
     "it was saved with optimizer parallel (opt_weight_shard_size 2), which MindSpore describes outside of the tensor map"),
])
def test_strategy_files_that_are_wrong(tmp_path, item, message):
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"parallel_layout_item": {"w": item}}))
    with fails(ValueError, f"strategy file {file}, parameter 'w': "):
        build_searched_strategy(file)
    with fails(ValueError, message):
        described(item)


def test_files_that_are_no_strategy(tmp_path):
    file = tmp_path / "s.json"
    with fails(FileNotFoundError, f"strategy file {file} isn't there; training writes one where set_auto_parallel_context("):
        build_searched_strategy(file)
    for content in (b"", b"\x0a\x01", b"[]", b'{"a": 1}', b'{"parallel_layout_item": 3}'):
        file.write_bytes(content)
        with fails(ValueError, f"{file} is no strategy file in JSON; MindSpore writes such if its name ends in .json"):
            build_searched_strategy(file)
    with fails(TypeError, "strategy_filename is a int; it must be a strategy file's name"):
        build_searched_strategy(3)
    with fails(ValueError, "set_auto_parallel_context: strategy_ckpt_config has no 'file'; its keys are"):
        ms.set_auto_parallel_context(strategy_ckpt_config={"file": "x"})


def test_merging_the_stages_of_a_pipeline(tmp_path):
    a, b = (Stored(Placement(Mesh(2), (8,), TensorLayout(((0,),))), (stage,)) for stage in (0, 1))
    os.makedirs(tmp_path / "stages")
    write_strategy(tmp_path / "stages/0.json", {"front": a, "step": a})
    write_strategy(tmp_path / "stages/1.json", {"back": b, "step": b}, stage=1)
    ms.merge_pipeline_strategys(tmp_path / "stages", tmp_path / "all.json")
    merged = build_searched_strategy(tmp_path / "all.json")
    assert {name: stored.ranks for name, stored in merged.items()} == {"front": [0, 1], "back": [2, 3], "step": [0, 1, 2, 3]}
    assert ms.rank_list_for_transform(0, tmp_path / "all.json") == [0, 1, 2, 3]
    w = np.arange(8.0)
    for rank in range(4):
        os.makedirs(tmp_path / f"src/rank_{rank}")
        mine = {name: stored for name, stored in merged.items() if rank in stored.ranks}
        save_pieces(tmp_path / f"src/rank_{rank}/x", dict.fromkeys(mine, w), mine, rank, "ckpt")
    ms.transform_checkpoints(tmp_path / "src", tmp_path / "one", "x", tmp_path / "all.json")
    ms.transform_checkpoints(tmp_path / "one", tmp_path / "two", "x", None, tmp_path / "all.json")
    assert sorted(ms.load_checkpoint(tmp_path / "one/rank_0/x0.ckpt")) == ["back", "front", "note", "step"]
    assert sorted(ms.load_checkpoint(tmp_path / "two/rank_3/x3.ckpt")) == ["back", "note", "step"]
    write_strategy(tmp_path / "stages/2.json", {"step": Stored(Placement(Mesh(2), (8,), TensorLayout(((),))), (2,))})
    with fails(ValueError, "merge_pipeline_strategys: step lies as (8,) as (a) on 2 ranks in 0.json and as (8,) as (-) on 2 "
                           "ranks in 2.json, so these files aren't of one training"):
        ms.merge_pipeline_strategys(tmp_path / "stages", tmp_path / "all.json")
    with fails(FileNotFoundError, f"merge_pipeline_strategys: {tmp_path}/none has no strategy file (.json, .ckpt)"):
        ms.merge_pipeline_strategys(tmp_path / "none", tmp_path / "all.json")


# ---- merging one parameter -----------------------------------------------------------------------------


def test_merge_sliced_parameter(saved):
    folder, values, *_ = saved
    slices = {name: [ms.load_checkpoint(f)[name] for f in files_of(f"{folder}/ckpt", 8, "ckpt")] for name in ("w1", "moment1.w2")}
    strategy = build_searched_strategy(f"{folder}/s8.json")
    for name, parts in slices.items():
        for how in (None, strategy, {name: parts[0].layout}, {name: parts[0].layout.arrangement()}):
            merged = ms.merge_sliced_parameter(parts, how)
            assert isinstance(merged, Parameter) and merged.name == name and same({0: merged.asnumpy()}, {0: values[name]})
    parts = slices["w1"]
    with fails(ValueError, "merge_sliced_parameter: 7 slices of w1, it lies as (24, 48) as (b, c) on 8 ranks; give one of each "):
        ms.merge_sliced_parameter(parts[:7])
    with fails(ValueError, "merge_sliced_parameter: strategy has no parameter 'w1'; it has x"):
        ms.merge_sliced_parameter(parts, {"x": strategy["w1"]})
    with fails(ValueError, "merge_sliced_parameter: rank 1's is w of float32 (1, 3), it must be w of float32 (1, 2) ((2, 2) "
                           "as (a, -) on 2 ranks) like the others"):
        ms.merge_sliced_parameter([Parameter(np.ones((1, n), np.float32), "w") for n in (2, 3)])
    with fails(TypeError, "merge_sliced_parameter: sliced_parameters must be a list of Parameters, one of each rank, not [1]"):
        ms.merge_sliced_parameter([1])
    with fails(TypeError, "merge_sliced_parameter: strategy is a list; it must be a dict {name: layout} or None"):
        ms.merge_sliced_parameter(parts, [])
    with fails(ValueError, "merge_sliced_parameter: w1: strategy 3 can't be used ("):
        ms.merge_sliced_parameter(parts, {"w1": 3})


def test_importing_minispore_imports_none_of_this():
    code = ("import sys, minispore; print([m for m in sys.modules if m.startswith(('minispore.parallel', 'minispore.train'))]);"
            "print(minispore.transform_checkpoints.__module__, minispore.parallel.merge_sliced_parameter.__name__)")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out == ["[]", "minispore.train.transform merge_sliced_parameter"]


def test_few_ranks_are_chosen():
    rows, columns = (Stored(Placement(Mesh(4), (8,), TensorLayout(((axis,),)))) for axis in (0, 1))
    assert pieces(rows, ((5, 6),)) == {((4, 8),): [2, 3]} and pieces(columns, ((0, 1),)) == {((0, 4),): [0, 2]}
    assert ranks_for([(rows, ((5, 6),)), (columns, ((0, 1),))]) == [2]


def test_the_last_file_of_a_folder(tmp_path):
    os.makedirs(tmp_path / "src/rank_0")
    for name, value in (("net-9_1", 9), ("net-10_1", 10), ("net-10_1_breakpoint", 0), ("a-11_1", 11)):
        save_checkpoint({"w": Tensor(value)}, tmp_path / "src/rank_0" / name)
    ms.transform_checkpoints(tmp_path / "src", tmp_path / "dst", "x")
    assert ms.load_checkpoint(tmp_path / "dst/rank_0/x0.ckpt")["w"].tolist() == 10


def test_what_is_loaded_is_never_drawn(tmp_path, monkeypatch):
    save_checkpoint(nn.Dense(4, 2), tmp_path / "x")
    with no_init_parameters():
        net = nn.Dense(4, 2)
    monkeypatch.setattr(Pending, "make", None)
    ms.load_checkpoint(tmp_path / "x", net)
    assert net.weight.asnumpy().tobytes() == ms.load_checkpoint(tmp_path / "x")["weight"].asnumpy().tobytes()


def test_pieces_are_those_that_overlap():
    stored = Stored(Placement(Mesh(4), (8, 8), TensorLayout(((1,), (0,)))))
    assert pieces(stored, ((0, 4), (4, 8))) == {((0, 4), (4, 8)): [2]}
