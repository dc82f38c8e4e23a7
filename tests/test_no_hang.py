"""Programs whose ranks don't fit together end in time, say who waits where, and leave nothing behind."""
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from faulty_scripts import CASES, Faulty

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.common.errors import CollectiveError
from minispore.communication import communicator, get_group_size, get_rank, init
from minispore.lab import run_ranks
from minispore.launch import environment, processes

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
warm = comm.split(comm.ranks, "warm")           # kernels are loaded before the time-out, a very short one here, counts
short, comm.endpoint.timeout = comm.endpoint.timeout, 60
warm.barrier().wait(), warm.all_reduce(np.ones(1)).wait()
comm.endpoint.timeout = short
comm.endpoint.board.clear(), comm.endpoint.record.clear()
def hook(*error):
    open_ = [e.begin for e in ms.communication.get_record().collectives() if not e.end]
    if open_:
        print(f"waited {time.perf_counter() - min(open_):.2f} s")
    sys.__excepthook__(*error)
sys.excepthook = hook
"""
pytestmark = pytest.mark.timeout(90)
mpi = pytest.mark.skipif(sys.platform == "win32", reason="no MPI there")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def cases(where):
    return [pytest.param(c, id=c.name, marks=[] if c.fast else [pytest.mark.slow]) for c in CASES if where in c.on]


def quick(where):
    """Thread ranks know at once, except where one is late."""
    return [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if late(c) else []) for c in CASES if where in c.on]


def late(case):
    return case.name.startswith("missing_rank")


def check(case: Faulty, message: str):
    for words in case.says:
        assert any(w in message for w in ((words,) if isinstance(words, str) else words)), f"{words!r} is not in\n{message}"
    if case.line:
        assert re.search(rf"waits in .*, {case.name}\.py:\d+, after \d+ communications", message), message


def test_there_are_enough():
    names = [c.name for c in CASES]
    in_make_test = sum(c.fast or ("threads" in c.on and not late(c)) for c in CASES)
    assert len(names) == len(set(names)) >= 40 and 3 * in_make_test >= len(names)


@pytest.mark.parametrize("case", quick("threads"))
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
    assert len({line.split("]")[0] for line in text.splitlines() if "] Traceback (most recent call last)" in line}) <= 1, text
    for seconds in re.findall(r"waited (\S+) s\n", text):
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


# ---- the next job, init(), Ctrl-C --------------------------------------------------------------------

@mpi
@linux
@pytest.mark.slow
def test_the_next_job_starts_at_once(tmp_path):
    """On the same port, though the one before was killed in the middle; and nothing is left in memory."""
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    killed = next(c for c in CASES if c.name == "kill_9")
    assert msrun(tmp_path, killed)[0] == 128 + signal.SIGKILL
    code, text, nothing_left = msrun(tmp_path, Faulty("well", 2, "print(comm.all_reduce(np.ones(1)).wait())\n", ()))
    assert code == 0 and text.count("[2.]") == 2 and nothing_left, text
    if os.path.isdir("/dev/shm"):
        assert not {f for f in set(os.listdir("/dev/shm")) - before if f.startswith(("mpich", "minispore"))}


def test_the_next_thread_ranks_start_at_once(monkeypatch):
    monkeypatch.setenv("MINISPORE_TIMEOUT", "0.2")
    def late():
        init()
        if get_rank() == 1:
            time.sleep(1)
        communicator().barrier().wait()
    for _ in range(2):
        with pytest.raises(CollectiveError, match="rank 1: computes"):
            run_ranks(late, 2)
        def well():
            init()
            return int(communicator().all_reduce(np.ones(1)).wait()[0])
        assert run_ranks(well, 3) == [3, 3, 3]


@mpi
@linux
@pytest.mark.slow
@pytest.mark.parametrize("how", ["sys.exit(0)", "time.sleep(30)"])
def test_mpiexec_with_a_rank_that_never_calls_init(tmp_path, how):
    before = set(os.listdir("/dev/shm"))
    script = tmp_path / "absent.py"
    script.write_text(START + f"if os.environ['RANK_ID'] == '1':\n    {how}\nms.init()\n")
    begun = time.monotonic()
    done = subprocess.run([environment.mpiexec(), "-n", "3", sys.executable, "-m", "minispore.cli", "run", str(script)],
                          capture_output=True, text=True, timeout=60, env={**os.environ, "MINISPORE_TIMEOUT": str(TIMEOUT)})
    assert done.returncode != 0 and time.monotonic() - begun < 2 * TIMEOUT + 20
    said = "rank 1: has ended" if "exit" in how else "rank 1: has not called init() yet"
    assert not {f for f in set(os.listdir("/dev/shm")) - before if f.startswith("mpich")}
    assert done.stderr.count("waits in init() since 2 s (MINISPORE_TIMEOUT)") == 1 and said in done.stderr


CTRL_C = """
from minispore.communication import communicator, get_rank, init
import time, numpy as np
def program():
    init()
    comm = communicator()
    comm.barrier().wait()
    if comm.rank == 0:
        print("up", flush=True)
        comm.all_reduce(np.ones(3)).wait()      # here
    while True:
        comm.rank + 1
"""


def interrupted(command, folder):       # (a shell has what it starts with "&" ignore Ctrl-C; here it never does)
    """Exit code and output of a program that has got a Ctrl-C after it said "up", and the seconds until it ended."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    for line in process.stdout:
        if line.endswith("up\n"):
            break
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    text = process.communicate(timeout=30)[0]
    return process.returncode, text, time.monotonic() - begun


@linux
def test_ctrl_c_ends_all_thread_ranks(tmp_path):
    (tmp_path / "loop.py").write_text(CTRL_C + "from minispore.lab import run_ranks\nrun_ranks(program, 3)\n")
    code, text, took = interrupted([sys.executable, "loop.py"], tmp_path)
    assert code == -signal.SIGINT and took < 5
    assert text.count("Traceback") == text.count("\nKeyboardInterrupt") == 1 and "# here" in text, text


@linux
def test_after_ctrl_c_no_thread_rank_goes_on(request):
    """In a notebook the process lives on."""
    import threading
    before = signal.signal(signal.SIGINT, signal.default_int_handler)      # a shell ignores it in what it starts with "&"
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    def program():
        init()
        communicator().all_reduce(np.ones(3)).wait()        # the kernel is loaded: that is not to be interrupted
        if get_rank() == 0:
            time.sleep(0.2)
            signal.raise_signal(signal.SIGINT)
        while True:
            with suppress(Exception):
                communicator().all_reduce(np.ones(3)).wait()
    with pytest.raises(KeyboardInterrupt):
        run_ranks(program, 4)
    until = time.monotonic() + 10                   # on a busy machine a thread may take a while to its end
    while (left := [t for t in threading.enumerate() if t.name.startswith("rank-")]) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left


@mpi
@linux
def test_ctrl_c_ends_all_ranks_of_msrun_and_one_says_where_it_was(tmp_path):
    (tmp_path / "loop.py").write_text(CTRL_C + "program()\n")
    code, text, took = interrupted([sys.executable, "-m", "minispore.launch.msrun", "--worker_num=3", "loop.py"], tmp_path)
    assert code == 130 and took < 10, text
    assert text.count("Traceback") == text.count("KeyboardInterrupt") == 1 and "[rank 0]     comm.all_reduce" in text, text
    assert text.endswith("msrun: SIGINT: ended all ranks\n")
