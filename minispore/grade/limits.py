"""Limits of a submission: set by the process itself before it loads one, watched from outside, and how all its processes end.

On Linux all of it holds. macOS has no limit of addresses that works and no subreaper: memory is watched from outside, and a
process that left its parent and session isn't found. Windows has neither limits nor sessions: there time, output and folder are
watched from outside and the process itself is ended; what it started (which guard.py refuses) isn't.
"""
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace

from minispore.launch import processes

MB = 1 << 20
START = 120.0           # seconds to load the exercise itself, which may compile kernels; no submission runs yet
CLOSED = 97             # exit code of child.py: the submission has closed what results go to
GRACE = 1.0             # seconds for a process to say by itself that a test took too long, and where it was


@dataclass(frozen=True)
class Limits:
    """test: seconds a test may take, loading the file too; total: seconds for all of them; memory: MB beyond what numpy and
    minispore take; output: MB that may be printed, or written into one file; disk: MB of files.

    >>> Limits().with_test(8).total
    20.0
    """
    test: float = 4.0
    total: float = 10.0
    memory: int = 1024
    output: int = 16
    disk: int = 256

    def with_test(self, seconds: float) -> "Limits":
        """The same with other seconds a test, and in proportion for all tests."""
        return replace(self, test=seconds, total=seconds * 2.5)


def restrict(limits: Limits) -> None:
    """Set the limits on this process, from what it uses now. POSIX only; elsewhere nothing."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    wanted = {"RLIMIT_CPU": int(used.ru_utime + used.ru_stime + limits.total + 2), "RLIMIT_FSIZE": limits.output * MB,
              "RLIMIT_CORE": 0}
    if addresses := _addresses():
        wanted["RLIMIT_AS"] = addresses + limits.memory * MB
    for name, value in wanted.items():
        kind = getattr(resource, name)
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def _addresses() -> int:
    """Bytes of address space this process has; 0 where nobody tells, and a limit would mean nothing."""
    with suppress(OSError), open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    return 0


def end_with(parent: int) -> None:
    """End this process when its parent does."""
    if os.name == "posix":
        processes.die_with(parent)


# ---- from outside ------------------------------------------------------------------------------------

def family(pid: int) -> dict[int, int]:
    """The processes below one, however deep, and the bytes of memory each has; itself not among them."""
    parents = defaultdict(list)
    for child, parent, resident in _table():
        parents[parent].append((child, resident))
    found, open_ = {}, [pid]
    while open_:
        for child, resident in parents.pop(open_.pop(), ()):
            found[child] = resident
            open_.append(child)
    return found


def below(pid: int, spared: set[int]) -> dict[int, int]:
    """The family of a process without these, and without theirs."""
    found = family(pid)
    for other in spared & found.keys():
        for one in (other, *family(other)):
            found.pop(one, None)
    return found


def _table():
    """(process, its parent, resident bytes) of all there are."""
    if processes.LINUX:
        page = os.sysconf("SC_PAGESIZE")
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{entry}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
                yield int(entry), int(fields[1]), int(fields[21]) * page
    elif os.name == "posix":
        lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True).stdout
        for line in lines.splitlines():
            pid, parent, kilobytes = map(int, line.split())
            yield pid, parent, kilobytes << 10


def folder_bytes(folder: str) -> int:
    """What all files below a folder take."""
    total, open_ = 0, [folder]
    while open_:
        with suppress(OSError), os.scandir(open_.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        open_.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def end_all(pid: int, mark: tuple[str, str], spared: set[int], patience: float = 5.0) -> None:
    """End a submission's process, its group and all that came of it, and take leave of them.

    mark: a variable of its environment, which its processes share; spared: children that this process had before.
    """
    with suppress(OSError):
        if os.name == "posix":
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)
    until, me = time.monotonic() + patience, os.getpid()
    while time.monotonic() < until:
        here = set(below(me, spared))
        left = [p for p in {*here, *processes.marked(mark)} if p != me and not _ended(p)]
        for p in left:
            with suppress(OSError):
                os.kill(p, signal.SIGKILL)
        for p in here - {pid} if os.name == "posix" else ():
            with suppress(ChildProcessError):
                os.waitpid(p, os.WNOHANG)
        if not left and not here - {pid}:
            return
        time.sleep(0.005)


def _ended(pid: int) -> bool:
    """Whether a process only waits for its parent's leave. (It can't be killed any more.)"""
    if sys.platform != "linux":
        return False
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as f:
        return f.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    return True
