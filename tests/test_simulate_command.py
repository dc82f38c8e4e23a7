"""`minispore simulate`: scripts as rank 0 of cards that aren't there, and those others."""
import json
import os
import subprocess
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from signal import SIGINT, SIGKILL

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minispore.communication import imagined
from minispore.parallel.cost import CLUSTERS
from minispore.parallel.simulator.timeline import duration

A100 = CLUSTERS["a100"]
ACCEPT = Path(__file__).parents[2] / "shared/accept"


# ---- imagined ranks ----------------------------------------------------------------------------------

def test_imagined_ranks_have_what_this_one_has():
    comm, x = imagined.world(4), np.arange(8, dtype=np.float32)
    assert (comm.all_reduce(x).wait() == 4 * x).all() and (comm.all_reduce_now(x, "max") == x).all()
    assert (comm.all_reduce(x, "avg").wait() == x).all() and (comm.all_reduce(x[:2], "prod").wait() == [0, 1]).all()
    assert (comm.reduce_scatter(x).wait() == [0, 4]).all() and (comm.all_gather(x[:2]).wait() == [0, 1] * 4).all()
    assert (comm.broadcast(x, 3).wait() == x).all() and (comm.all_to_all(x).wait() == [0, 1] * 4).all()
    assert (comm.gather(x[:1], 0).wait() == 0).all() and comm.gather(x, 1).wait() is None
    assert (comm.scatter(x, 2).wait() == [0, 1]).all() and comm.barrier().wait() is None
    assert comm.send(x, 1).wait() is None and (comm.receive((2,), np.dtype("f4"), 1).wait() == 0).all()
    half = comm.split((0, 2), "half")
    assert (half.size, half.rank) == (2, 0) and (half.all_reduce(x).then(lambda y: y + 1).wait() == 2 * x + 1).all()


@given(st.integers(1, 6), st.data())
def test_as_any_rank_one_gets_ones_own_part(n, data):
    rank = data.draw(st.integers(0, n - 1))
    comm, x = imagined.world(n, rank), np.arange(2.0 * n)
    assert (comm.rank, comm.size) == (rank, n) and (comm.broadcast(x, n - 1 - rank).wait() == x).all()
    assert (comm.reduce_scatter(x).wait() == n * x[2 * rank:2 * rank + 2]).all()
    assert (comm.scatter(x, 0).wait() == x[2 * rank:2 * rank + 2]).all()
    assert (comm.all_to_all(x).wait() == np.tile(x[2 * rank:2 * rank + 2], n)).all()


# ---- minispore simulate ------------------------------------------------------------------------------

def command(folder, script, *options, code=0):
    """What `minispore simulate` prints of a script's text (or of a file there)."""
    if "\n" in script:
        (folder / "script.py").write_text(script)
        script = "script.py"
    done = subprocess.run([sys.executable, "-m", "minispore.cli", "simulate", script, *options], cwd=folder, text=True,
                          capture_output=True, timeout=60, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


HEAD = """
import sys
import numpy as np
import minispore as ms
import minispore.dataset as ds
from minispore import Model, Tensor, nn, ops
from minispore.communication import create_group, get_group_size, get_rank, init
init()
x, y = np.ones((640, 16), np.float32), np.zeros(640, np.int32)
net = nn.SequentialCell(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 4))
"""
MODEL = """
ms.set_auto_parallel_context(parallel_mode=MODE, **SETTINGS)
data = ds.NumpySlicesDataset((x, y), num_shards=get_group_size(), shard_id=get_rank()).batch(10)
model = Model(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.01), metrics={"accuracy"})
model.train(EPOCHS, data, verbose=1)
print("accuracy", model.eval(data)["accuracy"], get_rank(), get_group_size())
"""


def script(mode, settings="{}", epochs=1, model=MODEL):
    return HEAD + model.replace("MODE", repr(mode)).replace("SETTINGS", settings).replace("EPOCHS", str(epochs))


def test_a_data_parallel_script_is_ended_after_a_few_steps(tmp_path):
    said = command(tmp_path, script("data_parallel", "{'parameter_broadcast': True}", 10 ** 6), "--cards", "64", "--cluster",
                   "ascend910b", "--trace", "t.json", "--svg", "t.svg", "--json", "f.json", "--node-size", "4")
    assert "64 ranks of ascend910b (4 a node)" in said and "run 5 times, then the script was ended" in said
    assert "640 a step" in said and "AllReduce" in said
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["batch"] == 640 and f"step            {duration(figures['seconds'])}" in said
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] and "<svg" in (tmp_path / "t.svg").read_text()


@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_logical_scripts_go_through(tmp_path, mode):
    said = command(tmp_path, script(mode, "{'enable_parallel_optimizer': True}"), "--cards", "8", "--cluster", "a100")
    assert "a logical program, cut" in said and "80 a step" in said and ("AllReduce" in said or mode == "auto_parallel")


def test_the_curve_has_a_row_for_each_number_of_cards(tmp_path):
    said = command(tmp_path, script("data_parallel"), "--cards", "12", "--cluster", "a100", "--curve")
    rows = [line.split() for line in said.splitlines() if len(line.split()) == 6 and line.split()[0].isdecimal()]
    assert [row[0] for row in rows] == ["1", "2", "4", "8", "12"] and rows[0][-1] == "1.000"
    assert 0 < float(rows[-1][-1]) < 1


def test_groups_of_a_hybrid_script_are_imagined(tmp_path):
    said = command(tmp_path, HEAD + """
ms.set_auto_parallel_context(parallel_mode="hybrid_parallel")
create_group("pair", [0, 8])
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Adam(net.trainable_params()))
@ms.jit
def run(x):
    return ops.AllGather("pair")(ops.AllReduce(group="pair")(x)), ops.Broadcast(0)((x,)), ops.AlltoAll(16)(x)
assert run(Tensor(x[:16]))[0].shape == (32, 16)
""", "--cards", "16", "--cluster", "a100")
    assert "AllReduce" in said and "AllGather" in said and "AlltoAll" in said and "between nodes   0 bytes" not in said


def test_a_step_of_several_programs_is_simulated_as_a_whole(tmp_path):
    said = command(tmp_path, HEAD + """
ms.set_auto_parallel_context(parallel_mode="data_parallel")
ms.set_context(mode=ms.PYNATIVE_MODE)
assert ms.get_context("mode") == ms.GRAPH_MODE
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
reducer = nn.DistributedGradReducer(optimizer.parameters)
both = ms.value_and_grad(lambda x, y: nn.CrossEntropyLoss()(net(x), y), None, optimizer.parameters)
while True:
    loss, grads = both(Tensor(x[:10]), Tensor(y[:10]))
    optimizer(reducer(grads))
""", "--cards", "4")
    assert "3 programs one behind the other" in said and "40 a step" in said and "AllReduce" in said


def test_a_script_that_joins_nobody_is_told(tmp_path):
    said = command(tmp_path, HEAD.replace("init()\n", "\n") + "net(Tensor(x))\n", "--cards", "2")
    assert "each rank works for itself. init() and set_auto_parallel_context" in said


def test_arguments_errors_and_exits_are_the_scripts(tmp_path):
    text = HEAD + "net(Tensor(x))\nprint(sys.argv[1:])\nif '--fail' in sys.argv:\n    1 / 0\nsys.exit(int(sys.argv[1]))\n"
    (tmp_path / "script.py").write_text(text)
    said = command(tmp_path, "script.py", "0")
    assert "['0']" in said and "the script" not in said
    said = command(tmp_path, "--", "script.py", "7", "--fail")
    assert "ZeroDivisionError" in said and "script.py" in said and "what it ran before is simulated" in said
    assert "no program was compiled before the script failed" in command(tmp_path, "1 / 0\n", code=1)
    assert "before the script ended with exit code 3, so" in command(tmp_path, "import sys\nsys.exit(3)\n", code=1)
    assert "a training step is an nn.TrainOneStepCell" in command(tmp_path, "print(1)\n", code=1)


@pytest.mark.parametrize(("options", "says"), [
    (["none.py"], "there is no script 'none.py'"), (["script.py", "--cards", "0"], "from 1 to 4096"),
    (["script.py", "--cluster", "z9"], "cluster 'z9' is unknown; there are cpu, a100"),
    (["script.py", "--node-size", "0"], "node_size=0 must be a whole number"), (["."], ". is a folder; give the script in it"),
    (["script.py", "--cards", "many"], "'many' is no whole number; give one, such as 8"),
    (["script.py", "--card", "4"], "unrecognized arguments: --card 4. If they are the script's, put -- before it"),
    (["script.py", "--json", "none/f.json"], "none/f.json can't be written: there is no folder"),
    (["script.py", "--cluster", "none.json"], "cluster file none.json: can't be read (No such file or directory). Make one with"),
])
def test_wrong_options_are_told(tmp_path, options, says):
    (tmp_path / "script.py").write_text("\n")
    assert says in command(tmp_path, *options, code=2)


@pytest.mark.skipif(not ACCEPT.is_dir(), reason="only in the whole workspace")
@pytest.mark.parametrize("name", ["seed_1_data_parallel.py", "seed_1_semi_auto.py", "seed_2_cluster_corrected.py"])
def test_the_documents_scripts_are_simulated_as_they_are(tmp_path, name):
    from minispore.dataset.download import write_digits
    for folder in ("mnist", "MNIST"):
        write_digits(tmp_path / folder)
    (tmp_path / name).write_text((ACCEPT / name).read_text(encoding="utf-8"), encoding="utf-8")
    said = command(tmp_path, name, "--cards", "64", "--cluster", "ascend910b")
    assert "64 ranks of ascend910b (8 a node)" in said and "AllReduce" in said and "UserWarning" not in said


@pytest.mark.parametrize(("signal", "code"), [(SIGINT, 130), (SIGKILL, -SIGKILL)])
def test_interrupted_or_killed_it_leaves_nothing(tmp_path, signal, code):
    (tmp_path / "script.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    rest = tmp_path / "temporary"
    rest.mkdir()
    with subprocess.Popen([sys.executable, "-m", "minispore.cli", "simulate", "script.py"], cwd=tmp_path, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": str(rest)}) as process:
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal)
        said = process.stdout.read()
        assert process.wait(30) == code and said == ("minispore: interrupted\n" if signal == SIGINT else "")
    assert not list(rest.iterdir()) and {p.name for p in tmp_path.iterdir()} == {"script.py", "temporary"}


def test_any_encoding_and_infinite_figures_are_written(tmp_path):
    replace(A100, device=replace(A100.device, memory=inf)).save(tmp_path / "endless.json")
    (tmp_path / "script.py").write_text("print('训练')\n" + script("data_parallel"), encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "minispore.cli", "simulate", "script.py", "--json", "f.json", "--cluster",
                           "endless.json"], cwd=tmp_path, capture_output=True, timeout=60,
                          env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and b"\\u8bad" in done.stdout and b"0.0% of a card's" in done.stdout
    assert json.loads((tmp_path / "f.json").read_text(), parse_constant=pytest.fail)["memory_card"] is None


def test_a_file_that_cannot_be_written_is_told_after_the_figures(tmp_path):
    said = command(tmp_path, script("data_parallel"), "--trace", ".", code=1)
    assert "samples" in said and "minispore simulate: . can't be written: Is a directory; give another file" in said
