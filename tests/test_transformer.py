"""A Transformer in data × tensor × sequence × optimizer parallel equals one rank, with no more collectives than it needs."""
import json

import numpy as np
import pytest
from test_mpi import msrun
from transformer import Split, batches, losses, training_step

import minispore as ms
from minispore.communication import init
from minispore.lab import run_ranks
from minispore.parallel import compile as compile_for

SHARED = dict(enable_parallel_optimizer=True, parallel_optimizer_config={"parallel_optimizer_threshold": 0})
LEVEL3 = dict(enable_parallel_optimizer=True,
              parallel_optimizer_config={"parallel_optimizer_threshold": 0, "optimizer_level": "level3"})

PROGRAM = """
import json
import minispore as ms
from transformer import Split, losses
ms.init()
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", enable_parallel_optimizer=True,
                             parallel_optimizer_config={"parallel_optimizer_threshold": 0})
print(json.dumps(losses(50, Split(2, 2, 1))))
"""


def parallel_losses(split, steps, dtype):
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", **SHARED)
    return losses(steps, split, dtype)


def on_one_rank(steps, dtype):
    ms.set_context(mode=ms.GRAPH_MODE)
    return losses(steps, None, dtype)


@pytest.mark.parametrize(("dtype", "steps", "close"), [(ms.float64, 50, 1e-9), (ms.float32, 10, 1e-5)],
                         ids=["float64", "float32"])
def test_training_on_8_thread_ranks_equals_one_rank(dtype, steps, close):
    one = on_one_rank(steps, dtype)
    assert one[-1] < one[0] - 0.5
    for mine in run_ranks(parallel_losses, 8, Split(2, 2, 2), steps, dtype):
        np.testing.assert_allclose(mine, one, rtol=0, atol=close)


def test_training_on_4_mpi_ranks_equals_one_rank(tmp_path):
    ranks = [json.loads(line.split("] ", 1)[1]) for line in msrun(tmp_path, 4, PROGRAM).splitlines() if "] [" in line]
    assert len(ranks) == 4
    for mine in ranks:
        np.testing.assert_allclose(mine, on_one_rank(50, ms.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("split", "devices", "settings"), [
    (Split(2, 2, 2), 8, SHARED), (Split(2, 4, 1), 8, SHARED), (Split(1, 1, 4), 4, {}), (Split(4, 1, 1), 4, {}),
    (None, 4, SHARED), (Split(2, 2, 1), 4, LEVEL3),
], ids=["all", "megatron+zero", "sequence", "data", "no strategies", "level3"])
def test_one_step_in_lock_step(split, devices, settings):
    step, batch = training_step(split), batches(1)[0]
    program = compile_for(step, *batch, device_num=devices, **settings)
    loss, *news = program.lockstep(*batch).run()
    ms.set_context(mode=ms.GRAPH_MODE)
    assert float(loss) == pytest.approx(float(step(*batch)), abs=1e-12)
    assert set(step.network.trainable_params()) < set(program.logical.assigned)
    for p, new in zip(program.logical.assigned, news, strict=True):
        np.testing.assert_allclose(new, p.asnumpy(), rtol=1e-10, atol=1e-10, err_msg=p.name)


def test_megatron_has_one_all_reduce_a_block_half_each_way():
    program = compile_for(training_step(Split(1, 2, 1)), *batches(1)[0], device_num=2)
    assert program.cut.collectives() == {"all_reduce": 2 * 2 * 2}      # layers · halves · (forward, backward)
    assert program.cut.moves() and not [m for m in program.cut.moves() if m.op == "slice"]


def test_data_parallel_reduces_each_parameter_once():
    step = training_step(Split(4, 1, 1))
    program = compile_for(step, *batches(1)[0], device_num=4)
    assert program.cut.collectives() == {"all_reduce": len(step.network.trainable_params()) + 1}       # and the loss


def test_zero_1_scatters_and_gathers_each_parameter_once():
    step = training_step(Split(4, 1, 1))
    program = compile_for(step, *batches(1)[0], device_num=4, **SHARED)
    n = len(step.network.trainable_params())
    assert program.cut.collectives() == {"reduce_scatter": n, "all_gather": n, "all_reduce": 1}
    whole = compile_for(step, *batches(1)[0], device_num=4)
    def state_bytes(p):
        return sum(v.dtype.itemsize * int(np.prod(v.shape)) for q, v in p.graph.parameters.items() if hasattr(q, "state_of"))
    assert state_bytes(whole) == 4 * state_bytes(program)


def test_level3_keeps_a_quarter_of_the_parameters_and_gathers_them_for_each_use():
    step = training_step(Split(4, 1, 1))
    program = compile_for(step, *batches(1)[0], device_num=4, **LEVEL3)
    names = {p.name for p in step.network.trainable_params()}
    assert {name for name in program.parameters if name in names} == names
    assert all(np.prod(p.local_shape) * 4 == np.prod(p.shape) for p in program.parameters.values())
    n = len(names)
    assert program.cut.collectives()["reduce_scatter"] == n
    # Weights of products are used forward and backward, gammas too; betas forward only; the table thrice.
    assert n < program.cut.collectives()["all_gather"] <= 2 * n + 1


def test_level3_parameters_are_gathered_in_later_programs_too():
    """When they lie in pieces already, that isn't taken for the way in which ops want them."""
    def program():
        init()
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", **LEVEL3)
        step = training_step(Split(4, 1, 1))
        first = compile_for(step, *batches(1)[0], device_num=4, **LEVEL3).cut.collectives()
        step(*batches(1)[0])
        assert step.network.blocks[0].wq.shape == (4, 16)
        return first, compile_for(step, *batches(1)[0], device_num=4, **LEVEL3).cut.collectives()
    for first, second in run_ranks(program, 4):
        assert first == second
