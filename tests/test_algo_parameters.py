"""set_algo_parameters: what auto parallel's search may choose among."""
from itertools import pairwise

import pytest
from search_graphs import training, zeros

import minispore as ms
from minispore import nn
from minispore.common.state import ALGORITHM_DEFAULTS
from minispore.lab import run_ranks
from minispore.parallel import compile, get_algo_parameters, reset_algo_parameters, set_algo_parameters
from minispore.parallel.layout import local_shape


@pytest.fixture(autouse=True)
def reset():
    yield
    reset_algo_parameters()


def plan_of(batch, *widths, mode="ilp", **settings):
    cells = [nn.Dense(a, b) for a, b in pairwise(widths)]
    set_algo_parameters(**settings)
    return compile(training(nn.SequentialCell(*cells)), zeros(batch, widths[0]), zeros(batch, widths[-1]), device_num=4,
                   parallel_mode="auto_parallel", search_mode=mode, cluster="a100").plan


def test_they_are_a_ranks_own():
    def program():
        before = get_algo_parameters("tensor_slice_align_size")
        set_algo_parameters(tensor_slice_align_size=8 + ms.get_rank())
        return before, get_algo_parameters("tensor_slice_align_size")
    assert run_ranks(program, 2) == [(16, 8), (16, 9)]
    assert {key: get_algo_parameters(key) for key in ALGORITHM_DEFAULTS} == ALGORITHM_DEFAULTS


@pytest.mark.parametrize("settings, error, says", [
    ({"full": True}, ValueError, "there is no parameter 'full'"),
    ({"fully_use_devices": 1}, TypeError, "is a int; it must be a bool"),
    ({"algo_approxi_epsilon": 0.0}, ValueError, "above 0 and at most 1"),
    ({"algo_approxi_epsilon": 1.5}, ValueError, "above 0 and at most 1"),
    ({"algo_approxi_epsilon": "a"}, TypeError, "is a str; it must be a float"),
    ({"tensor_slice_align_size": 0}, ValueError, "must be in 1 … 1024"),
    ({"tensor_slice_align_size": True}, TypeError, "is a bool; it must be a int"),
    ({"fully_use_devices": True, "tensor_slice_align_size": 2000}, ValueError, "must be in 1 … 1024")])
def test_a_wrong_one_is_told_and_changes_nothing(settings, error, says):
    with pytest.raises(error, match=says):
        set_algo_parameters(**settings)
    assert get_algo_parameters("fully_use_devices") is False
    with pytest.raises(ValueError, match="get_algo_parameters: there is no parameter"):
        get_algo_parameters("full")


@pytest.mark.parametrize("mode", ["recursive_programming", "dynamic_programming", "ilp"])
def test_ops_that_can_use_all_devices_do(mode):
    """A small network is repeated on all devices, unless they must be used."""
    def idle(plan):
        mesh = plan.task.mesh
        return [node for node, axes in plan.plan.assignment.items()
                if node.op.name == "MatMul" and mesh.count(a for used in axes.values() for a in used) < mesh.n]
    assert idle(plan_of(8, 8, 8, 8, mode=mode))
    found = plan_of(8, 8, 8, 8, mode=mode, fully_use_devices=True)
    assert not idle(found) or found.plan is found.data_parallel


def test_pieces_are_aligned():
    """A layer of 4 · 40 units is split by units, unless pieces must be of a multiple of 64."""
    def widths(plan):
        mesh, seen = plan.task.mesh, set()
        for node, wants in plan.plan.want.items():
            for v, lay in zip(node.ins, wants, strict=True):
                if lay.dims and lay.dims[-1]:
                    seen.add(local_shape(mesh, v.shape, lay)[-1])
        return seen
    assert any(w % 64 for w in widths(plan_of(8, 4096, 160, 4096)))
    aligned = plan_of(8, 4096, 160, 4096, tensor_slice_align_enable=True, tensor_slice_align_size=64)
    assert not any(w % 64 for w in widths(aligned))


def test_ilp_may_stop_near_the_best():
    best = plan_of(64, 256, 1024, 256)
    near = plan_of(64, 256, 1024, 256, enable_algo_approxi=True, algo_approxi_epsilon=0.3)
    assert best.gap < 1e-6 and near.gap <= 0.3 * 1.01
    assert best.seconds * (1 - 1e-9) <= near.seconds <= best.seconds * 1.3
