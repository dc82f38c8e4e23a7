"""A worker: the process of one rank, started by mpiexec for msrun."""
import argparse
import faulthandler
import os
import signal
import sys
import warnings

from minispore.communication.backends.mpi import launched
from minispore.communication.management import RECORD_FOLDER
from minispore.launch import alias, environment, processes, script
from minispore.launch.line import VARIABLE, Line


class Joining:
    """On sys.meta_path: tells msrun when this rank is about to wait for the others in MPI's start-up."""

    def __init__(self, line: Line):
        self.line = line

    def find_spec(self, name, path=None, target=None):
        if name == "mpi4py.MPI":
            self.line.say("joining")
        return None


def guard(line: Line) -> None:
    """Go on in a child process. This one waits for its end and tells msrun how it was; mpiexec isn't reliable there."""
    with warnings.catch_warnings(action="ignore"):      # of BLAS's threads, which stand still
        pid = os.fork()
    if pid == 0:
        processes.die_with_parent()
        return
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    line.say("over", code)
    os._exit(code if code >= 0 else 128 - code)


def redirect(path: str) -> None:
    """Everything this process writes, C libraries and crashes too, goes to the log. Nobody types into a rank."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for fd in (1, 2):
        os.dup2(log, fd)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)        # ignored if msrun was started in the background


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser("worker", allow_abbrev=False)
    p.add_argument("--log")
    p.add_argument("--parent", type=int)
    p.add_argument("--as-mindspore", action="store_true")
    p.add_argument("program", nargs=argparse.REMAINDER)
    o = p.parse_args(argv)
    rank, size = launched()
    processes.die_with(o.parent)
    line = Line(os.environ.pop(VARIABLE))
    if processes.LINUX:
        guard(line)
    line.hello(rank)
    redirect(f"{o.log}_{rank}.log")
    os.environ.update(environment.for_rank(rank, size))
    os.environ[RECORD_FOLDER] = os.path.dirname(os.path.abspath(o.log))
    sys.meta_path.insert(0, Joining(line))
    path, *args = o.program[1:] if o.program[0] == "--" else o.program
    alias.install(o.as_mindspore)
    return script.run(path, args, size, line)


if __name__ == "__main__":
    sys.exit(main())
