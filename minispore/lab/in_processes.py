"""A text as a script on real processes, from a notebook: with the very msrun of the shell, which is started as a process.

    this process ── msrun ── mpiexec ── … ranks

msrun's output is shown as it comes. What a rank leaves is read afterwards from the job's folder: its log, its record, and its
variables (launch/values.py). Nothing of the job outlives this process, nor Ctrl-C; MPI is never imported here.
"""
import codecs
import os
import re
import secrets
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

from minispore.communication.record import Record, load_folder
from minispore.lab.result import Rank, Result
from minispore.launch import processes, values
from minispore.launch.options import MOST

TIMEOUT = 60.0
FOLDERS = "minispore-job-"  # a job's folder is minispore-job-PROCESS-…, of the process that has the Result
MARK = "MINISPORE_CELL"     # in the environment of all processes of such a job
LAST_WORDS = 4.0            # seconds for msrun to end the ranks when it is told to
SLACK = 30.0                # seconds by which msrun may overrun its own --timeout, on a machine that is busy
PLACES = re.compile(r"; (its output|what they wrote) is in .*")         # of logs in the job's folder


class JobError(RuntimeError):
    """A job of processes that failed. Its traceback is in the output already, so IPython shows only the message."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def msrun(text: str, n: int, timeout: float = TIMEOUT, may_fail: bool = False, env: dict[str, str] | None = None) -> Result:
    """Run a text as a script on n (1 … 64) processes, for at most `timeout` seconds, and show its output as it comes.

    env: variables of their environment, as {"MINISPORE_ALGORITHM": "tree"}. JobError if the script fails, unless may_fail: then
    it is the Result's `error`. The Result has the script's variables that can be pickled, but those beginning with "_".

    >>> job = msrun("from minispore.communication import get_rank, init; init(); square = get_rank() ** 2", 2)
    $ msrun --worker_num=2 --timeout=60 --log_dir=LOGDIR cell.py
    >>> job.square
    [0, 1]
    """
    result = attempt_script(text, n, timeout, env or {})
    if result.error and not (may_fail and isinstance(result.error, Exception)):
        raise result.error
    return result


def attempt_script(text: str, n: int, timeout: float, env: dict[str, str]) -> Result:
    """The same; an error, also Ctrl-C, is in the Result."""
    if not isinstance(n, int) or not 1 <= n <= MOST:
        raise ValueError(f"msrun: n={n!r} must be a whole number of processes from 1 to {MOST}")
    remove_stale()
    folder = tempfile.mkdtemp(prefix=f"{FOLDERS}{os.getpid()}-")
    Path(folder, "cell.py").write_text(text, encoding="utf-8")
    options = [f"--worker_num={n}", f"--timeout={timeout:g}"]
    print("$", *(f"{name}={shlex.quote(value)}" for name, value in env.items()), "msrun", *options, "--log_dir=LOGDIR cell.py")
    mark = MARK, secrets.token_hex(8)
    command = [sys.executable, "-m", "minispore.launch.msrun", *options, f"--log_dir={folder}", f"{folder}/cell.py"]
    code, said, error = run(command, environment(env, folder) | dict([mark]), mark, timeout + SLACK)
    result = gather(folder, n, code, said, error)
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)         # it goes when the Result does
    return result


def remove_stale() -> None:
    """Remove the folders of processes that were killed before they could do it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*-*"):
        owner = folder.name.removeprefix(FOLDERS).partition("-")[0]
        if owner.isdecimal() and not processes.exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def environment(env: dict[str, str], folder: str) -> dict[str, str]:
    """Ours, and what the job is to know."""
    ours = {name: x for name, x in os.environ.items() if name != "MPLBACKEND"}      # a notebook's, which draws into the notebook
    here = os.pathsep.join(filter(None, (os.getcwd(), ours.get("PYTHONPATH"))))     # modules beside the notebook are found
    return ours | {"PYTHONPATH": here, values.VARIABLE: folder, processes.PARENT: str(os.getpid())} | env


def run(command: list[str], env: dict[str, str], mark: tuple[str, str], most: float) -> tuple[int, str, BaseException | None]:
    """Run it and show its output. Exit code, what it wrote to stderr, and what stopped us, such as Ctrl-C; it has ended then."""
    stopped = process = None
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said,
                                       start_new_session=True)      # Ctrl-C comes to us alone
            until = time.monotonic() + most
            show(process.stdout.fileno(), until)
            process.wait(max(0.1, until - time.monotonic()))
        except BaseException as e:
            stopped = e
        finally:
            end(process, mark)
        said.seek(0)
        return process.returncode if process else 1, said.read().decode(errors="replace"), stopped


def show(fd: int, until: float) -> None:
    """Print what comes through a pipe, until it is closed or time is up."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            if selector.select(left):
                if not (data := os.read(fd, 1 << 16)):
                    return
                sys.stdout.write(decoder.decode(data))
                sys.stdout.flush()


def end(process: subprocess.Popen | None, mark: tuple[str, str]) -> None:
    """Nothing of the job is left: msrun is told as by Ctrl-C, then all that has the mark is ended by force."""
    if process is None:
        return
    with suppress(ProcessLookupError):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(LAST_WORDS)
    process.kill()
    processes.kill_marked(mark)
    process.wait()
    process.stdout.close()


def gather(folder: str, n: int, code: int, said: str, stopped: BaseException | None) -> Result:
    """The Result, from what the ranks have left in the folder."""
    saved = [values.load(folder, r) for r in range(n)]
    logs = [Path(folder, f"worker_{r}.log") for r in range(n)]
    output = [log.read_text("utf-8", "replace") if log.exists() else "" for log in logs]
    words = re.split(r"^msrun: ", said, flags=re.M)
    verdict = PLACES.sub("", words[-1]).strip() if len(words) > 1 else said.strip() or f"msrun ended with exit code {code}"
    error = stopped or (JobError(verdict) if code else None)
    first = re.search(r"\brank (\d+)", verdict.partition("\n")[0]) if code and not stopped else None

    def records() -> list[Record]:
        try:
            found = {record.rank: record for record in load_folder(folder)}
        except FileNotFoundError:               # it ended before any rank had begun
            found = {}
        return [found.get(r) or Record(r, n, capacity=1) for r in range(n)]

    ranks = [Rank(r, names, absent) for r, (names, absent, _) in enumerate(saved)]
    return Result("process", [None] * n, ranks, output, error, records, int(first[1]) if first else None, code, Path(folder))
