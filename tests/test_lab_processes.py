"""%%msrun's other half: a text on real processes, its Result, and that nothing outlives it."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

from minispore.lab.in_processes import FOLDERS, MARK, JobError, msrun
from minispore.launch import processes

SUM = """
import numpy as np, threading
from minispore.communication import communicator, get_rank, init
init()
total = communicator().all_reduce(np.arange(4.0) * get_rank()).wait()
lock, _secret = threading.Lock(), 1
print("hello from", get_rank())
"""


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    monkeypatch.setenv("MINISPORE_TEST", str(os.getpid()))


def left_over():
    """Processes of any such job of these tests."""
    ours = f"MINISPORE_TEST={os.getpid()}\0".encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if marked(pid, ours) and pid != os.getpid()]


def marked(pid, *also):
    """Whether a process belongs to a job of %%msrun, and has this too in its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            text = f.read()
    except OSError:
        return False
    return all(part in text for part in (f"{MARK}=".encode(), *also))


def test_variables_output_and_messages_come_back(capsys):
    job = msrun(SUM, 3, env={"MINISPORE_SHARED_MEMORY": "0"})
    assert all(np.array_equal(total, [0, 3, 6, 9]) for total in job.total)
    assert len(job.messages()) == 12 and {m.algorithm for m in job.records[0].collectives()} == {"ring"}
    assert job.output == [f"hello from {r}\n" for r in range(3)] and job.exit_code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("$ MINISPORE_SHARED_MEMORY=0 msrun --worker_num=3") and "[rank 2] hello from 2" in shown
    with pytest.raises(AttributeError, match=r"rank 1 .*'lock': it can't be pickled"):
        _ = job[1].lock
    assert not hasattr(job[0], "_secret") and "not kept: lock" in repr(job) and not left_over()


def test_a_rank_that_fails_is_named_and_variables_stay():
    script = SUM + "if get_rank() == 1:\n    raise ValueError('not this one')\n" + "communicator().barrier().wait()\n"
    job = msrun(script, 2, may_fail=True)
    assert isinstance(job.error, JobError) and "rank 1" in str(job.error) and job.failed == 1 and job.exit_code == 1
    assert "ValueError: not this one" in job.output[1] and "cell.py\", line 9" in job.output[1]
    assert np.array_equal(job[1].total, [0, 1, 2, 3]) and job.records[1].collectives()
    with pytest.raises(JobError, match="rank 1"):
        msrun(script, 2)
    assert not left_over()


def test_time_is_up():
    job = msrun("import time\ntime.sleep(60)", 2, timeout=1, may_fail=True)
    assert job.exit_code == 124 and "hasn't ended within 1 s" in str(job.error) and not left_over()


def test_a_deadlock_says_who_waits_for_whom():
    script = ("import numpy as np\nfrom minispore.communication import communicator, init\ninit()\ncomm = communicator()\n"
              "comm.receive((3,), 'float64', source=(comm.rank + 1) % 3).wait()\n")
    job = msrun(script, 3, timeout=3, may_fail=True)
    first, *waits = str(job.error).split("\n")
    assert first == "the job hasn't ended within 3 s (--timeout): ended all ranks" and job.failed is None
    assert [line.partition(" of ")[0] for line in waits] == [f"rank {r} waits in Receive(tag 0) with rank {(r + 1) % 3}"
                                                             for r in range(3)]
    assert all("cell.py:5" in line and "began no such Send" in line for line in waits)


def test_variables_of_ranks_that_never_call_init():
    job = msrun("import os\nme = os.environ['PMI_RANK'], os.getpid()", 3)
    assert [rank for rank, _ in job.me] == ["0", "1", "2"] and len(dict(job.me)) == len({pid for _, pid in job.me}) == 3


def test_folders_of_a_killed_notebook_go_with_the_next_job(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    stale, mine, other = (tmp_path / name for name in (f"{FOLDERS}{gone.pid}-x", f"{FOLDERS}{os.getpid()}-x", "minispore-x"))
    for folder in (stale, mine, other):
        folder.mkdir()
        (folder / "worker_0.log").write_text("text")
    msrun("x = 1", 1)
    assert not stale.exists() and (mine / "worker_0.log").exists() and other.exists()


@pytest.fixture
def ctrl_c():
    """Ctrl-C means KeyboardInterrupt, also where a shell has started these tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_all_processes(ctrl_c):
    timer = threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        msrun("import time\ntime.sleep(60)", 2)
    assert time.monotonic() - begun < 30 and not left_over()


@pytest.mark.skipif(not processes.LINUX, reason="only Linux tells a process of its parent's end at once")
def test_a_killed_notebook_leaves_no_process():
    code = "from minispore.lab.in_processes import msrun\nmsrun('import time; print(\"begun\", flush=True); time.sleep(60)', 2)"
    notebook = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    while "begun" not in notebook.stdout.readline():
        pass
    notebook.kill()
    notebook.wait()
    notebook.stdout.close()
    until = time.monotonic() + 20
    while left_over() and time.monotonic() < until:
        time.sleep(0.05)
    assert not left_over()


@pytest.mark.parametrize("n", [0, 65, 1.5])
def test_numbers_of_processes_that_cannot_be(n):
    with pytest.raises(ValueError, match="whole number of processes from 1 to 64"):
        msrun("pass", n)
