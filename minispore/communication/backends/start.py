"""The start of MPI, watched: it waits without end for a rank that never calls init().

While it waits no Python code runs in the process, so a child watches. It looks round among the processes of the same launcher:
which ranks are there, and which of them have loaded MPI. Under msrun there is no child, for msrun itself watches.
"""
import os
import select
import signal
import sys
import time
import warnings
from contextlib import contextmanager, suppress

RANK_VARIABLES = (b"PMI_RANK", b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"SLURM_PROCID")


@contextmanager
def watched(size: int):
    """After MINISPORE_TIMEOUT seconds inside, the first rank that waits says for whom, and this process ends."""
    if sys.platform != "linux" or size == 1 or os.environ.get("MS_ROLE") == "MS_WORKER" or "mpi4py.MPI" in sys.modules:
        yield
        return
    parent, launcher = os.getpid(), os.getppid()
    read, write = os.pipe()
    with warnings.catch_warnings(action="ignore"):      # of BLAS's threads, which stand still
        pid = os.fork()
    if pid == 0:
        try:
            os.close(write)                             # `read` ends when the parent is through, or is no more
            watch(read, parent, launcher, size, float(os.environ.get("MINISPORE_TIMEOUT", 60)))
        finally:
            os._exit(0)
    os.close(read)
    try:
        yield
    finally:
        os.close(write)
        os.waitpid(pid, 0)


def watch(read: int, parent: int, launcher: int, size: int, patience: float) -> None:
    if select.select([read], [], [], patience)[0]:
        return
    there = ranks_of(launcher)
    waiting = sorted(rank for rank, pid in there.items() if has_mpi(pid))
    mine = next((rank for rank, pid in there.items() if pid == parent), None)
    if mine is not None and waiting and mine != waiting[0]:
        if select.select([read], [], [], 1.0)[0]:       # the first one speaks
            return
    else:
        late = sorted(set(there) - set(waiting))
        lost = [r for r in range(size) if r not in there]
        text = [f"rank {'?' if mine is None else mine} of {size} waits in init() since {patience:g} s (MINISPORE_TIMEOUT); every "
                "rank must call init(), best in the first lines of the script:",
                *(f"  rank {r}: waits in init()" for r in waiting),
                *(f"  rank {r}: has not called init() yet" for r in late),
                *(f"  rank {r}: has ended, or is on another node" for r in lost)]
        os.write(2, ("\n".join(text) + "\n").encode())
        time.sleep(0.1)                                 # for the launcher to pass it on
    for path in shared_files(parent):
        with suppress(OSError):
            os.unlink(path)
    with suppress(ProcessLookupError):
        os.kill(parent, signal.SIGKILL)


def shared_files(process: int | str = "self") -> set[str]:
    """Linux: the files in memory by which a process's MPI meets the others; nobody removes them if it is killed."""
    try:
        with open(f"/proc/{process}/maps") as maps:
            paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if "/dev/shm/mpich_shm_" in line}
    except OSError:
        return set()
    return {path for path in paths if not path.endswith("(deleted)")}


def ranks_of(launcher: int) -> dict[int, int]:
    """rank → process, of those that the launcher (on this node) has started and that live."""
    found = {}
    with suppress(OSError), open(f"/proc/{launcher}/task/{launcher}/children") as f:
        for pid in map(int, f.read().split()):
            variables = environment(pid)
            rank = next((variables[name] for name in RANK_VARIABLES if name in variables), None)
            if rank is not None:
                found[int(rank)] = pid
    return found


def environment(pid: int) -> dict[bytes, bytes]:
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:
        return dict(entry.split(b"=", 1) for entry in f.read().split(b"\0") if b"=" in entry)
    return {}


def has_mpi(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/maps") as f:
        return "libmpi" in f.read()
    return False
