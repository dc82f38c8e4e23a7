"""%%msrun's other half: a text on real processes, its Result, and that nothing outlives it."""
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from minispore.lab.in_processes import MARK, JobError, msrun
from minispore.launch import processes

SUM = """
import numpy as np, threading
from minispore.communication import communicator, get_rank, init
init()
total = communicator().all_reduce(np.arange(4.0) * get_rank()).wait()
lock, _secret = threading.Lock(), 1
print("hello from", get_rank())
"""


def left_over():
    """Processes of any such job."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if marked(pid)]


def marked(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f"{MARK}=".encode() in f.read() and pid != os.getpid()
    except OSError:
        return False


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


def test_ctrl_c_ends_all_processes():
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
