"""What `minispore simulate` takes for a script's training step, in this process; what of the script outlives it."""
import os
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_simulate_command import A100, HEAD, script

import minispore as ms
from minispore import Tensor, ops
from minispore.graph.ir import Graph
from minispore.launch import simulate as launch


def simulated(folder, text, cards=4, cluster=A100):
    """A step of a script's text, simulated in this process."""
    (folder / "script.py").write_text(text)
    step, error = launch.simulated(str(folder / "script.py"), [], cards, cluster)
    assert error is None
    return step


BESIDE = "from minispore.communication import get_group_size\nROWS = 64 // get_group_size()\n"
CHANGES = """
import os, sys
sys.path.append("venv")
import beside, installed, parts.one
from minispore.parallel.cost import cluster_of
assert cluster_of().name == "a100"
os.mkdir(f"{beside.ROWS}")
os.chdir(f"{beside.ROWS}")
os.environ["MINE"] = "1"
sys.argv.append("mine")
"""


def test_the_state_is_left_as_it_was(tmp_path, monkeypatch):
    from minispore.common.state import current
    monkeypatch.chdir(tmp_path)
    before = current(), dict(os.environ), list(sys.argv), list(sys.path), os.getcwd()
    for name, text in {"parts/one.py": "", "venv/installed.py": "", "beside.py": BESIDE, "script.py": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    text = CHANGES + script("data_parallel").replace("batch(10)", "batch(beside.ROWS)")
    monkeypatch.chdir(tmp_path)
    before = current(), dict(os.environ), list(sys.argv), list(sys.path), os.getcwd()
    assert [simulated(tmp_path, text, n).batch for n in (1, 4)] == [64, 64]          # what stands beside it is read each time
    assert (current(), dict(os.environ), list(sys.argv), list(sys.path), os.getcwd()) == before and ms.get_group_size() == 1
    assert not {"beside", "parts", "parts.one"} & set(sys.modules) and sys.modules.pop("installed")
    assert {p.name for p in tmp_path.iterdir()} >= {"64", "16"}
    assert float(ops.sum(Tensor([1.0, 2.0]))) == 3


def test_a_curve_says_what_did_not_go_and_what_is_shared_out(tmp_path):
    """Efficiency is by samples: of the same batch on twice as many cards half, if a step takes as long."""
    text = HEAD + """
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
product, weight = ops.MatMul().shard(((1, 1), (1, 2))), ms.Parameter(np.ones((16, 32), np.float32), "weight")
ms.jit(lambda x: product(x, weight))(Tensor(x))
"""
    step = simulated(tmp_path, text, 8)
    _, *rows, first, last = launch.scaled(str(tmp_path / "script.py"), [], 8, A100, step).splitlines()
    assert [row.split()[0] for row in rows] == ["2", "4", "8"] and rows[0].split()[-1] == "1.000"
    two, eight = (line.timeline.seconds for line in (simulated(tmp_path, text, 2), step))
    assert float(rows[-1].split()[-1]) == pytest.approx(two / eight / 4, abs=1e-3)
    assert first.startswith("1 card: ValueError: MatMul") and "needs 2 devices" in first
    assert last == "the batch is 640 on any number of cards, so that more cards have less to do each"


@given(st.lists(st.integers(0, 2), max_size=4), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(2, 4),
       st.lists(st.integers(0, 2), max_size=3))
def test_a_step_is_what_comes_round_again(before, other, turns, between):
    """before, between: of programs 0 to 2, that train nothing but may be long; a turn: some of these, and the optimizer's, 3."""
    kinds = [launch.Simulation(Graph()) for _ in range(4)]
    kinds[3].graph.assigned = {"a parameter": None}
    cycle = [k for k in other if k != 3] + [3]
    ran = before + cycle + between + cycle * turns
    step = list(map(kinds.index, launch.step_of([kinds[k] for k in ran], lambda p: -kinds.index(p))))
    assert Counter(step) == Counter(cycle)
    assert step == next(turn for i in range(len(ran)) if Counter(turn := ran[i:i + len(cycle)]) == Counter(cycle))    # the first


def test_data_may_have_the_shapes_of_some_weights(tmp_path):
    assert simulated(tmp_path, script("data_parallel").replace("batch(10)", "batch(32)")).batch == 4 * 32


def test_a_long_evaluation_before_is_no_step(tmp_path):
    evaluation = "rows = ds.NumpySlicesDataset((np.tile(x, (50, 1)), np.tile(y, 50))).batch(8000)\n" \
        "Model(net, nn.CrossEntropyLoss(), metrics={'accuracy'}).eval(rows)\n"
    step, alone = (simulated(tmp_path, HEAD + text + script("data_parallel")[len(HEAD):]) for text in (evaluation, ""))
    assert step.batch == alone.batch == 40 and step.timeline.seconds == alone.timeline.seconds


@pytest.mark.parametrize(("loop", "made"), [("while True:\n    net(Tensor(x))\n", launch.MANY),
                                            ("for _ in range(10 ** 6):\n    try:\n        step(Tensor(x[:, :4]), Tensor(y))\n"
                                             "    except Exception:\n        pass\n", launch.STEPS)])
def test_whatever_goes_on_for_ever_is_ended(tmp_path, loop, made):
    step = simulated(tmp_path, HEAD + "net = nn.Dense(16, 4)\n" + "step = nn.TrainOneStepCell(nn.WithLossCell(nn.Dense(4, 4), "
                     "nn.CrossEntropyLoss()), nn.SGD(net.trainable_params()))\n" + loop)
    assert step.ended and step.made == made


def test_bare_excepts_end_with_their_loops(tmp_path):
    step = simulated(tmp_path, HEAD + "step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), "
                     "nn.SGD(net.trainable_params()))\nended = 0\nfor _ in range(30):\n    try:\n"
                     "        step(Tensor(x), Tensor(y))\n    except:\n        ended += 1\nassert ended == 30 - 4\n")
    assert step.ended and step.made == 30
