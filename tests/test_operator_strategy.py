"""Operator strategy files: how the ops were split, saved and loaded."""
import json
import os
from pathlib import Path

import numpy as np
import pytest
from search_graphs import training, zeros

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.lab import run_ranks
from minispore.parallel import compile, set_op_strategy_config
from minispore.parallel.auto_parallel import AutoParallel

MODES = ["sharding_propagation", "recursive_programming", "dynamic_programming", "ilp"]


def mlp(hidden=4096):
    return training(nn.SequentialCell(nn.Dense(64, hidden), nn.ReLU(), nn.Dense(hidden, 4096), nn.ReLU(), nn.Dense(4096, 8)))


def program(step, mode="ilp", devices=4, **settings):
    kind = {"parallel_mode": "auto_parallel", "search_mode": mode} if mode else {"parallel_mode": "semi_auto_parallel"}
    return compile(step, zeros(8, 64), zeros(8, 8), device_num=devices, cluster="a100", **kind, **settings)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    file = str(tmp_path_factory.mktemp("ops") / "ops.json")
    return file, program(mlp(), op_strategy_save_file=file)


@pytest.mark.parametrize("mode", [*MODES, None])
def test_a_file_gives_the_same_plan(saved, mode):
    file, first = saved
    assert any(any(axes.values()) for axes in first.cut.plan.assignment.values())
    again = program(mlp(), mode, op_strategy_load_file=file)
    splits = [[list(p.cut.plan.assignment[n].items()) for n in p.logical.nodes] for p in (first, again)]
    assert [[(f, a) for f, a in s if a] for s in splits[0]] == [[(f, a) for f, a in s if a] for s in splits[1]]
    assert again.collectives == first.collectives and again.memory == first.memory
    assert {k: str(p) for k, p in again.parameters.items()} == {k: str(p) for k, p in first.parameters.items()}
    if mode:
        assert again.plan.seconds == pytest.approx(first.plan.seconds, rel=1e-9)


def test_a_file_is_to_be_read(saved):
    content = json.loads(Path(saved[0]).read_text(encoding="utf-8"))
    assert content["device_num"] == 4
    forward = [op for name, op in content["ops"].items() if "/MatMul/" in name][:2]
    assert [op["strategy"] for op in forward] == [[[1, 1], [4, 1]], [[1, 4], [1, 4]]]
    assert content["parameters"]["0.weight"] == ["ab", ""]


def test_a_changed_network_takes_what_fits_and_is_told_of_the_rest(saved):
    with pytest.warns(UserWarning, match=r"doesn't know \d+ of the program's \d+ ops with these shapes, such as TrainOne"):
        again = program(mlp(hidden=2048), op_strategy_load_file=saved[0])
    layers = [n for n in again.logical.nodes if n.op.name == "MatMul"]
    assert again.plan.strategy(layers[2]) == ((1, 1), (1, 1))           # the last layer is as it was


def test_the_scripts_strategy_wins(saved):
    step = mlp()
    step.network._backbone[0].matmul.shard(((1, 4), (1, 4)))
    again = program(step, op_strategy_load_file=saved[0])
    assert again.plan.strategy(next(n for n in again.logical.nodes if n.op.name == "MatMul")) == ((1, 4), (1, 4))


def test_wrong_files_are_told(saved, tmp_path):
    with pytest.raises(ValueError, match="is for 4 devices, this program is for 2"):
        program(mlp(), devices=2, op_strategy_load_file=saved[0])
    with pytest.raises(FileNotFoundError, match="isn't there; set_op_strategy_config"):
        program(mlp(), op_strategy_load_file=str(tmp_path / "none.json"))
    bad = tmp_path / "bad.json"
    for text in ("", "[]", '{"device_num": 4}', '{"device_num": 4, "ops": {"a": 3}, "parameters": {}}'):
        bad.write_text(text)
        with pytest.raises(ValueError, match="is no operator strategy file"):
            program(mlp(), op_strategy_load_file=str(bad))
    content = json.loads(Path(saved[0]).read_text(encoding="utf-8"))
    for axes in ({"zz": "a"}, {"m": "aa"}, {"m": "z"}):
        first = next(iter(content["ops"]))
        content["ops"][first]["axes"] = axes
        bad.write_text(json.dumps(content))
        with pytest.raises(ValueError, match="can't be split by"):
            program(mlp(), op_strategy_load_file=str(bad))


def test_the_names_mindspore_has_for_it(tmp_path):
    for call in (lambda: set_op_strategy_config("WRITE", "a.json"), lambda: set_op_strategy_config("SAVE", "a.txt"),
                 lambda: AutoParallel(nn.ReLU()).save_operator_strategy_file("a.ckpt")):
        with pytest.raises(ValueError, match=r"must (be|end)"):
            call()
    with pytest.raises(TypeError, match="is a int"):
        AutoParallel(nn.ReLU()).load_operator_strategy_file(3)
    file = tmp_path / "ops.json"
    x = np.random.default_rng(0).normal(size=(8, 16))

    def run(load):
        ms.init()
        ms.set_seed(1)
        net = nn.SequentialCell(nn.Dense(16, 64, dtype=ms.float64), nn.ReLU(), nn.Dense(64, 4, dtype=ms.float64))
        net = AutoParallel(net, parallel_mode="semi_auto" if load else "ilp")
        net = net.load_operator_strategy_file(file) if load else net.save_operator_strategy_file(file)
        return ops.sum(net.dataset_strategy("full_batch")(Tensor(x))).asnumpy()
    one = run_ranks(lambda: run(False), 1)[0]
    os.remove(file)
    for load in (False, True):
        for value in run_ranks(lambda load=load: run(load), 2):
            np.testing.assert_allclose(value, one, rtol=1e-10)
        assert file.exists()
