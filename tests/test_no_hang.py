"""Programs whose ranks don't fit together end in time, say who waits where, and leave nothing behind."""
import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
from faulty_scripts import CASES, Faulty

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.common.errors import CollectiveError
from minispore.communication import communicator, get_group_size, get_rank, init
from minispore.lab import run_ranks
from minispore.launch import processes

TIMEOUT = 2.0
START = """
import os, sys, time
import numpy as np
import minispore as ms
from minispore import Tensor, nn, ops
"""
JOIN = """
ms.init()
rank, size, comm = ms.get_rank(), ms.get_group_size(), ms.communication.communicator()
begun = time.monotonic()
def hook(*error):
    print(f"took {time.monotonic() - begun:.2f} s")
    sys.__excepthook__(*error)
sys.excepthook = hook
"""
pytestmark = pytest.mark.timeout(90)
mpi = pytest.mark.skipif(sys.platform == "win32", reason="no MPI there")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def cases(where):
    return [pytest.param(c, id=c.name, marks=[] if c.fast else [pytest.mark.slow]) for c in CASES if where in c.on]


def check(case: Faulty, message: str):
    for words in case.says:
        assert any(w in message for w in ((words,) if isinstance(words, str) else words)), f"{words!r} is not in\n{message}"
    if case.line:
        assert re.search(rf"waits in .*, {case.name}\.py:\d+, after \d+ communications", message), message


def test_there_are_enough():
    names = [c.name for c in CASES]
    assert len(names) == len(set(names)) >= 40 and 3 * sum(c.fast for c in CASES) >= len(names) - 2


@pytest.mark.parametrize("case", cases("threads"))
def test_on_threads(case, monkeypatch):
    monkeypatch.setenv("MINISPORE_TIMEOUT", str(TIMEOUT))
    code = compile(case.code, f"{case.name}.py", "exec")
    raised, took = {}, {}

    def program():
        init()
        begun, rank = time.monotonic(), get_rank()
        try:
            exec(code, {"np": np, "ms": ms, "nn": nn, "ops": ops, "Tensor": Tensor, "time": time, "os": os, "sys": sys,
                        "rank": rank, "size": get_group_size(), "comm": communicator(), "__name__": "__main__"})
        except BaseException as e:
            raised[rank] = e
            raise
        finally:
            took[rank] = time.monotonic() - begun

    begun = time.monotonic()
    with pytest.raises(Exception) as e:
        run_ranks(program, case.ranks)
    assert time.monotonic() - begun < 2 * TIMEOUT + 3
    check(case, "".join(traceback.format_exception_only(e.value)))
    for rank, error in raised.items():
        if isinstance(error, CollectiveError):      # each rank's own error has the whole table
            assert all(f"rank {r}: " in str(error) for r in range(case.ranks)), (rank, error)
    assert all(took[rank] < 2 * TIMEOUT + 1 for rank, e in raised.items() if isinstance(e, CollectiveError))


def msrun(folder: Path, case: Faulty, **env):
    """Exit code, what appeared, and whether no process of the job is left."""
    script, mark = folder / f"{case.name}.py", ("MINISPORE_TEST", f"{os.getpid()}.{time.monotonic_ns()}")
    script.write_text(START + (JOIN if case.init else "") + case.code)
    done = subprocess.run([sys.executable, "-m", "minispore.launch.msrun", f"--worker_num={case.ranks}", f"--log_dir={folder}",
                           str(script)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "MINISPORE_TIMEOUT": str(TIMEOUT), **env, mark[0]: mark[1]})
    return done.returncode, done.stdout + done.stderr, not list(processes.marked(mark))


def on_mpi(folder, case, **env):
    begun = time.monotonic()
    code, text, nothing_left = msrun(folder, case, **env)
    assert code != 0 and nothing_left, text
    check(case, text)
    assert text.count("Traceback (most recent call last)") <= 1, text
    for seconds in re.findall(r"took (\S+) s", text):
        assert float(seconds) < 2 * TIMEOUT, text
    assert time.monotonic() - begun < 2 * TIMEOUT + 20, text        # starting up takes its time on a busy machine


@mpi
@pytest.mark.parametrize("case", cases("mpi"))
def test_on_mpi(case, tmp_path):
    on_mpi(tmp_path, case)


@mpi
@pytest.mark.slow
@pytest.mark.parametrize("case", cases("mpi"))
def test_on_mpi_with_messages_only(case, tmp_path):
    on_mpi(tmp_path, case, MINISPORE_ALGORITHM="ring")
