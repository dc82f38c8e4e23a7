"""set_context, set_auto_parallel_context and set_seed: defaults, refusals, what is read back."""
import numpy as np
import pytest

import minispore as ms
from minispore.common import random
from minispore.lab import run_ranks


@pytest.mark.parametrize(("settings", "error", "message"), [
    ({"device_num": 0}, ValueError, "must be in 1 … 4096"), ({"device_num": 5000}, ValueError, "1 … 4096"),
    ({"device_num": "4"}, TypeError, "must be a whole number"), ({"global_rank": 4096}, ValueError, "0 … 4095"),
    ({"parallel_mode": "dp"}, ValueError, "stand_alone, data_parallel"), ({"search_mode": "luck"}, ValueError, "must be one of"),
    ({"gradients_mean": 1}, TypeError, "must be True or False"), ({"surprise": 1}, ValueError, "unknown key 'surprise'"),
    ({"parallel_mode": "data_parallel", "full_batch": True}, RuntimeError, "each rank reads its own shard"),
    ({"parallel_mode": "semi_auto_parallel", "parameter_broadcast": True}, ValueError, "parameter_broadcast=True"),
    ({"dataset_strategy": "both"}, ValueError, "data_parallel, full_batch"), ({"dataset_strategy": 3}, TypeError, "a tuple"),
    ({"comm_fusion": 3}, TypeError, "must be a dict"), ({"comm_fusion": {"allreduce": {"mode": "auto"}}}, KeyError,
                                                                    "lacks 'config'"),
    ({"comm_fusion": {"allreduce": 1}}, TypeError, "with 'mode' and 'config'"),
    ({"all_reduce_fusion_config": [1, 1]}, ValueError, "names an index twice"),
    ({"all_reduce_fusion_config": [1.5]}, TypeError, "list of whole numbers"),
    ({"parallel_optimizer_config": {"parallel_optimizer_threshold": -1}}, ValueError, "must be ≥ 0"),
    ({"pipeline_stages": 0}, ValueError, "1 … 4096"),
    ({"dataset_strategy": ()}, ValueError, "is empty; give an entry for each column"),
    ({"dataset_strategy": (4, 1)}, TypeError, "entry 0 of dataset_strategy.* is 4.*mind the outer tuple"),
    ({"dataset_strategy": ((4, 1), [4])}, TypeError, "entry 1 of dataset_strategy"),
    ({"dataset_strategy": ((4.0, 1),)}, TypeError, "holds 4.0; split counts are whole numbers"),
    ({"dataset_strategy": ((4, 0),)}, ValueError, "holds 0; a split count is at least 1"),
    ({"dataset_strategy": "data_parallel", "full_batch": True}, ValueError, "and dataset_strategy='data_parallel' contradict"),
    ({"dataset_strategy": "full_batch", "full_batch": False}, ValueError, "contradict each other"),
    ({"dataset_strategy": "full_batch", "parallel_mode": "data_parallel"}, RuntimeError, "each rank reads its own shard"),
    ({"strategy_ckpt_config": "file"}, TypeError, "must be a dict with keys among"),
    ({"strategy_ckpt_config": {"file": "a"}}, ValueError, "no 'file'; its keys are load_file, only_trainable"),
    ({"strategy_ckpt_config": {"save_file": 3}}, TypeError, "'save_file'.*=3 is a int; give a file's name"),
    ({"strategy_ckpt_config": {"only_trainable_params": 1}}, TypeError, "only_trainable_params.* must be True or False"),
    ({"strategy_ckpt_load_file": None}, TypeError, "strategy_ckpt_load_file=None is a NoneType"),
    ({"parallel_optimizer_config": 64}, TypeError, "must be a dict"),
    ({"parallel_optimizer_config": {"size": 1}}, ValueError, "no 'size'"),
    ({"parallel_optimizer_config": {"parallel_optimizer_threshold": "1"}}, TypeError, "must be a whole number"),
    ({"parallel_optimizer_config": {"optimizer_weight_shard_size": 0}}, ValueError, "1 … 4096"),
    ({"parallel_optimizer_config": {"optimizer_level": "level4"}}, ValueError, "level1, level2, level3"),
    ({"parallel_optimizer_config": {"gradient_accumulation_shard": 1}}, TypeError, "must be True or False"),
    ({"pipeline_config": {"pipeline_scheduler": "2f2b"}}, ValueError, "1f1b, gpipe"),
    ({"pipeline_config": {"pipeline_interleave": 2}}, TypeError, "must be True or False"),
    ({"loss_repeated_mean": 1}, TypeError, "must be True or False"), ({"global_rank": -1}, ValueError, "0 … 4095"),
    ({"comm_fusion": {"allreduce": {"mode": "all", "config": None}}}, ValueError, "auto, size, index"),
    ({"parallel_mode": "auto_parallel", "parameter_broadcast": True}, ValueError, "parameter_broadcast=True"),
])
def test_refused_settings_change_nothing(settings, error, message):
    before = dict(ms.common.state.current().parallel)
    with pytest.raises(error, match=message):
        ms.set_auto_parallel_context(gradient_fp32_sync=False, **settings)
    assert ms.common.state.current().parallel == before


def test_parallel_settings_are_read_back():
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    assert ms.get_auto_parallel_context("parallel_mode") == "data_parallel" and ms.get_auto_parallel_context("gradients_mean")
    ms.reset_auto_parallel_context()
    assert ms.get_auto_parallel_context("parallel_mode") == "stand_alone"
    with pytest.raises(ValueError, match="unknown key 'speed'"):
        ms.get_auto_parallel_context("speed")


def test_defaults():
    assert {key: ms.get_auto_parallel_context(key) for key in (
        "device_num", "global_rank", "rank_id", "parallel_mode", "search_mode", "gradients_mean", "gradient_fp32_sync",
        "loss_repeated_mean", "parameter_broadcast", "full_batch", "dataset_strategy", "enable_parallel_optimizer",
        "parallel_optimizer_config", "pipeline_stages", "all_reduce_fusion_config", "strategy_ckpt_config")} == {
        "device_num": 1, "global_rank": 0, "rank_id": 0, "parallel_mode": "stand_alone", "search_mode": "recursive_programming",
        "gradients_mean": False, "gradient_fp32_sync": True, "loss_repeated_mean": True, "parameter_broadcast": False,
        "full_batch": False, "dataset_strategy": "data_parallel", "enable_parallel_optimizer": False,
        "parallel_optimizer_config": {"gradient_accumulation_shard": False, "parallel_optimizer_threshold": 64,
                                      "optimizer_weight_shard_size": -1},
        "pipeline_stages": 1, "all_reduce_fusion_config": [],
        "strategy_ckpt_config": {"load_file": "", "save_file": "", "only_trainable_params": True}}


def test_full_batch_and_dataset_strategy_are_one_setting():
    def both():
        return ms.get_auto_parallel_context("full_batch"), ms.get_auto_parallel_context("dataset_strategy")
    ms.set_auto_parallel_context(full_batch=True)
    assert both() == (True, "full_batch")
    ms.set_auto_parallel_context(dataset_strategy=((2, 1), (2,)))
    assert both() == (False, ((2, 1), (2,)))
    ms.set_auto_parallel_context(full_batch=False)                  # nothing is to be undone
    assert both() == (False, ((2, 1), (2,)))
    ms.set_auto_parallel_context(dataset_strategy="full_batch")
    ms.set_auto_parallel_context(full_batch=False, parallel_mode="data_parallel")
    assert both() == (False, "data_parallel")
    from minispore.parallel import Layout
    layout = Layout((2, 2), ("dp", "mp"))
    ms.set_auto_parallel_context(dataset_strategy=(layout("dp", "mp"), layout("dp")))
    assert both() == (False, (layout("dp", "mp"), layout("dp")))


def test_what_a_config_leaves_out_is_as_at_the_start():
    ms.set_auto_parallel_context(strategy_ckpt_config={"save_file": "s.json"}, parallel_optimizer_config={
        "parallel_optimizer_threshold": 0, "optimizer_level": "level3"})
    assert ms.get_auto_parallel_context("strategy_ckpt_config") == {
        "load_file": "", "save_file": "s.json", "only_trainable_params": True}
    assert ms.get_auto_parallel_context("parallel_optimizer_config")["optimizer_weight_shard_size"] == -1
    ms.set_auto_parallel_context(strategy_ckpt_config=None)
    assert ms.get_auto_parallel_context("strategy_ckpt_config")["save_file"] == ""


def test_rank_and_size_after_init():
    def program():
        before = ms.get_rank(), ms.get_group_size()
        ms.init()
        ms.init()
        return before, ms.get_auto_parallel_context("rank_id"), ms.get_auto_parallel_context("global_rank"), \
            ms.get_auto_parallel_context("device_num")
    assert run_ranks(program, 3) == [((r, 3), r, r, 3) for r in range(3)]


def test_context():
    assert ms.get_context("mode") == ms.PYNATIVE_MODE and ms.get_context("device_target") == "CPU"
    ms.set_context(mode=ms.GRAPH_MODE, save_graphs=True)
    assert ms.get_context("mode") == ms.GRAPH_MODE and ms.get_context("save_graphs")
    for settings, message in (({"mode": 7}, "GRAPH_MODE"), ({"speed": 1}, "unknown key 'speed'"),
                              ({"device_target": "TPU"}, "CPU, GPU, Ascend")):
        with pytest.raises(ValueError, match=message):
            ms.set_context(**settings)


def test_an_absent_device_is_said_once_on_rank_0(monkeypatch):
    with pytest.warns(UserWarning, match="there is no Ascend device here, this job runs on the CPU") as seen:
        ms.set_context(device_target="Ascend")
        ms.set_context(device_target="Ascend")
    assert len(seen) == 1
    monkeypatch.setenv("MINISPORE_STRICT_DEVICE", "1")
    with pytest.raises(RuntimeError, match="MINISPORE_STRICT_DEVICE is set"):
        ms.set_device("GPU")


def test_mindspores_other_paths():
    from minispore.common import set_seed
    from minispore.ops import operations as P
    assert set_seed is ms.set_seed and P.MatMul is ms.ops.MatMul and P.ReLU()(ms.Tensor([-1.0])).tolist() == [0]
    assert ms.Tensor([1]).to(ms.float32).dtype == ms.float32


def test_seed():
    assert ms.get_seed() is None
    ms.set_seed(3)
    a = ms.initializer("normal", (4,)).tolist(), ms.initializer("normal", (4,)).tolist(), np.random.rand()
    ms.set_seed(3)
    assert a == (ms.initializer("normal", (4,)).tolist(), ms.initializer("normal", (4,)).tolist(), np.random.rand())
    assert a[0] != a[1] and ms.get_seed() == 3
    for bad, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error):
            ms.set_seed(bad)


@pytest.mark.parametrize("draw", [random.uniform, random.normal, random.truncated_normal])
def test_a_slice_of_random_numbers_is_the_slice(draw):
    whole = draw(("k",), (5, 4, 6))
    for region in ((slice(0, 5), slice(0, 4), slice(0, 6)), (slice(1, 3), slice(0, 4), slice(0, 6)),
                   (slice(0, 5), slice(2, 4), slice(1, 2)), (slice(4, 5), slice(3, 4), slice(5, 6)),
                   (slice(2, 2), slice(0, 4), slice(0, 6))):
        np.testing.assert_array_equal(draw(("k",), (5, 4, 6), region=region), whole[region])


def test_random_numbers_are_what_they_are_called():
    u, n = random.uniform(("u",), (200_000,), -2, 4), random.normal(("n",), (200_000,), 1, 3)
    assert u.min() >= -2 and u.max() < 4 and abs(u.mean() - 1) < 0.01 and abs(u.std() - 6 / 12 ** 0.5) < 0.01
    assert abs(n.mean() - 1) < 0.03 and abs(n.std() - 3) < 0.03
    t = random.truncated_normal(("t",), (1000,), 0, 1, -1, 0.5)
    assert t.min() >= -1 and t.max() <= 0.5
    assert sorted(random.permutation(("p",), 1000)) == list(range(1000))
