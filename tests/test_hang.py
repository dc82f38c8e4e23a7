"""What is said about a job that hangs."""
import os
import subprocess
import sys

import pytest

from minispore import cli
from minispore.communication.hang import report
from minispore.communication.record import Record, load_folder
from minispore.communication.ring import ALL, OP_IDS


@pytest.fixture
def ranks(tmp_path):
    return [Record(r, 3, tmp_path / f"record_{r}.ring") for r in range(3)]


def call(record, number, op="AllReduce", peer=ALL, count=3, detail="sum", end=False):
    slot = record.begin(OP_IDS[op], record.group("world", range(3)), number, 10, count, peer, 4 * count, 0, record.intern(detail))
    if end:
        record.end(slot)


def test_a_rank_is_missing(ranks, tmp_path, capsys):
    for r in ranks:
        call(r, 1, end=True)
    call(ranks[0], 2)
    call(ranks[1], 2)
    ranks[2].finish(False)
    assert cli.main(["hang", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "ranks 0, 1 wait in AllReduce(sum) number 2 of world, 3 × float32" in out
    assert "missing there: rank 2 has ended." in out and "different" not in out


def test_another_operation(ranks, tmp_path):
    call(ranks[0], 1)
    call(ranks[1], 1, count=4)
    call(ranks[2], 1, "Broadcast", detail="root 0")
    out = report(load_folder(tmp_path))
    assert "missing" not in out and out.count("in different operations there") == 3
    assert "rank 2 in Broadcast(root 0) number 1" in out


def test_messages_that_have_no_partner(ranks, tmp_path):
    call(ranks[0], 0, "Receive", 1, detail="tag 0")
    call(ranks[1], 0, "Send", 0, count=4, detail="tag 0", end=True)
    out = report(load_folder(tmp_path))
    assert "rank 0 waits in Receive(tag 0) with rank 1 of world, 3 × float32: rank 1 began no such Send" in out
    assert "rank 1 made Send(tag 0) with rank 0 of world, 4 × float32: rank 0 began no such Receive" in out
    assert "must agree" in out


def test_no_folder(tmp_path, capsys):
    assert cli.main(["hang", str(tmp_path)]) == 1 and "holds no record" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no MPI, no SIGKILL there")
def test_a_killed_job(tmp_path, capsys):
    (tmp_path / "program.py").write_text(
        "import os, signal, time\nimport numpy as np\nfrom minispore.communication import communicator, init\ninit()\n"
        "c = communicator()\nc.all_reduce(np.ones(5)).wait()\nif c.rank == 2:\n    time.sleep(40)\n"
        "h = c.all_reduce(np.ones(5), name='grads')\n"
        "if c.rank == 1:\n    time.sleep(1)\n    os.kill(os.getpid(), signal.SIGKILL)\nh.wait()\n")
    done = subprocess.run([sys.executable, "-m", "minispore.launch.msrun", "--worker_num=3", "--log_dir=logs", "program.py"],
                          cwd=tmp_path, env=os.environ | {"MINISPORE_TIMEOUT": "30"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 137, done.stderr
    assert cli.main(["hang", str(tmp_path / "logs")]) == 0
    out = capsys.readouterr().out
    assert "ranks 0, 1 wait in AllReduce(grads) number 2" in out and "at program.py:13" in out, out
    assert "missing there: rank 2" in out and "rank 1 is gone without having said so" in out
