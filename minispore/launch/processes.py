"""No process is left behind, and none outlives the one that started it."""
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

LINUX = sys.platform == "linux"
PARENT = "MINISPORE_PARENT"     # in the environment of a command: the process without which it is to end
_libc = ctypes.CDLL(None) if LINUX else None
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Linux: the kernel sends this process a signal when its parent dies. May be called between fork and exec."""
    if _libc:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number))


def die_with(pid: int, number: int = signal.SIGKILL) -> None:
    """End this process when its parent dies or, where only Linux knows that, when process `pid` does."""
    die_with_parent(number)
    if not LINUX:
        def watch():
            while exists(pid):
                time.sleep(0.5)
            kill(os.getpid(), number)
        threading.Thread(target=watch, daemon=True).start()


def end_with_parent_named(number: int) -> bool:
    """If MINISPORE_PARENT names a process, get the signal when it dies: a notebook's jobs and grades end with it. Whether it is
    still there."""
    parent = os.environ.pop(PARENT, None)
    if parent:
        die_with(int(parent), number)
    return not parent or os.getppid() == int(parent)


def exists(pid: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def adopt_orphans() -> None:
    """Linux: processes below this one whose parent dies become its children."""
    if _libc:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int) -> list[int]:
    """Linux: the processes that process `pid` has started and that still live."""
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as f:
        return list(map(int, f.read().split()))
    return []


def marked(mark: tuple[str, str]) -> Iterator[int]:
    """Linux: processes that were started with this variable and value in their environment."""
    line = "=".join(mark).encode()
    for entry in filter(str.isdigit, os.listdir("/proc") if LINUX else ()):
        with suppress(OSError), open(f"/proc/{entry}/environ", "rb") as f:
            if line in f.read().split(b"\0"):
                yield int(entry)


def kill_marked(mark: tuple[str, str], patience: float = 2.0) -> None:
    """Kill all processes with this mark, and those they start meanwhile."""
    until = time.monotonic() + patience
    while (pids := list(marked(mark))) and time.monotonic() < until:
        for pid in pids:
            kill(pid)
        time.sleep(0.01)


def bury() -> None:
    """Take leave of all children that have ended, adopted ones too."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def remove(paths: set[str]) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
