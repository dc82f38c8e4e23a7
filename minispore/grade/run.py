"""Grade one submission: start child.py, watch it, end it, and go on with a new one where a test has ended it.

Every test must have its result. When one doesn't come back in time, or takes the process down, that test has failed, and a
fresh process goes on with the others; so who loses one test keeps the points of the rest. What fails while the file is
loaded fails for all tests.
"""
import ast
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from minispore.grade.exercise import Exercise, Test
from minispore.grade.limits import CLOSED, GRACE, MB, START, Limits, below, end_all, family, folder_bytes
from minispore.grade.report import Grade, Result
from minispore.launch import processes

MARK = "MINISPORE_GRADED"
SHUT = "closed the files of the process it runs in"
STARTED = "started a process, past all that should keep it from that; it is graded in one, and that is ended"
LOOK_EVERY = 0.1                # seconds between two looks at memory, folder and processes
MOST_LINE = 1 << 16             # bytes of a line that child.py may write
SHOWN = 1500                    # bytes of what a failed test has printed that are kept
PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "LANG",
             "MINISPORE_CACHE", "XDG_CACHE_HOME", "HOME", "USERPROFILE", "NUMBA_DISABLE_JIT")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
                            "NUMBA_NUM_THREADS"), "1")


class Cancelled(Exception):
    """Whoever asked for a grade has gone."""


@dataclass
class End:
    """How a process of a submission ended: at which test ("" while it loaded), and why, if it hasn't done all."""
    test: str | None = None
    why: str = ""
    broken: str = ""


def grade(exercise: Exercise, text: str, who: str = "", limits: Limits | None = None, private: Sequence[str] = (),
          cancelled: Callable[[], bool] = lambda: False) -> Grade:
    """The grade of a submission, the text of a file; who: whose it is. It never raises for what a submission does.

    private: folders it may not read, beside the exercises. cancelled: asked now and then, ends it with Cancelled. The caller's
    process should start no other processes meanwhile: what is left below it then counts as the submission's, and is ended.
    """
    limits = limits or Limits()
    limits = limits.with_test(exercise.seconds()) if exercise.seconds() > limits.test else limits
    tests, results, begun = exercise.listed(), {}, time.monotonic()
    left, end = limits.total, End()
    processes.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="minispore-", ignore_cleanup_errors=True) as folder:
        while todo := [test for test in tests if test.name not in results]:
            if left <= 0:
                end = End("", f"no time was left: what came before took all of the {limits.total:g} s")
            else:
                turn = Turn(exercise, text, replace(limits, total=left), [t.name for t in todo], private, cancelled, folder)
                end, found, spent = turn.run()
                results |= found
                left -= spent
            if end.broken:
                raise RuntimeError(f"{exercise.name}: {end.broken}")
            if end.why == STARTED:
                results = {test.name: _failed(test, STARTED) for test in tests}
            elif end.test == "":                        # what happens while a file is loaded happens to all tests
                results |= {test.name: _failed(test, end.why) for test in todo if test.name not in results}
            elif end.test:
                test = next(t for t in todo if t.name == end.test)
                results.setdefault(test.name, _failed(test, end.why))
    return Grade(exercise.name, exercise.title, who, [results[test.name] for test in tests], time.monotonic() - begun)


def _failed(test: Test, message: str) -> Result:
    return Result(test.name, test.about, 0, test.worth, message, test.hint)


class Turn:
    """One process, for the tests that are still to do."""

    def __init__(self, exercise, text, limits, todo, private, cancelled, folder):
        self.exercise, self.limits, self.todo, self.cancelled = exercise, limits, todo, cancelled
        self.tests = {test.name: test for test in exercise.listed()}
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.work, self.word, self.inbox = self.folder / "work", secrets.token_hex(16), queue.Queue()
        self.work.mkdir()
        file = f"{exercise.name}.py"
        (self.work / file).write_text(text, "utf-8")
        secret = [os.path.realpath(path) for path in (exercise.folder.parent, *private)]
        self.job = dict(word=self.word, who=exercise.label, tests=str(exercise.tests), text=text, file=file, todo=todo,
                        work=str(self.work), limits=asdict(limits), private=secret)
        self.now, self.since, self.spent, self.results, self.broken = None, None, 0.0, {}, ""

    def run(self) -> tuple[End, dict[str, Result], float]:
        """How it ended, the results that came, and the seconds the submission took."""
        output = self.folder / "output"
        self.spared, self.value = set(family(os.getpid())), secrets.token_hex(8)
        with open(output, "ab") as stream:
            child = subprocess.Popen([sys.executable, "-P", "-m", "minispore.grade.child"], stdin=subprocess.PIPE, stderr=stream,
                                     stdout=subprocess.PIPE, cwd=self.folder, env=self._environment(), start_new_session=True)
        reader = threading.Thread(target=self._read, args=(child.stdout,), daemon=True)
        try:
            reader.start()
            with suppress(BrokenPipeError):
                child.stdin.write(json.dumps(self.job).encode())
            with suppress(BrokenPipeError):
                child.stdin.close()
            why = self._watch(child, output)
        finally:
            end_all(child.pid, (MARK, self.value), self.spared)
            child.wait()
            reader.join(5)
            child.stdout.close()
        if self.since is not None:
            self.spent += time.monotonic() - self.since
        printed = output.read_bytes() if output.stat().st_size < 4 * self.limits.output * MB else b""
        for name, (begin, end) in self.printed.items():
            text = printed[begin:end]
            cut = b"... " if len(text) > SHOWN else b""
            self.results[name] = replace(self.results[name], printed=(cut + text[-SHOWN:]).decode(errors="replace"))
        why = self._ended(child.returncode, printed) if why == "ended" else why
        return End(self.now, why, self.broken), self.results, self.spent

    def _environment(self) -> dict[str, str]:
        here = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return {**here, **ONE_THREAD, MARK: self.value, "MINISPORE_QUIET": "1", "MINISPORE_TIMEOUT": "2", "PYTHONHASHSEED": "0",
                "MALLOC_ARENA_MAX": "2", "PYTHONUTF8": "1", "PYTHONFAULTHANDLER": "", "NO_COLOR": "1"}

    def _read(self, pipe) -> None:
        """Lines with the secret word, into the inbox; others came from the submission."""
        with suppress(OSError, ValueError):
            while line := pipe.readline(MOST_LINE):
                word, _, rest = line.partition(b" ")
                if word == self.word.encode():
                    self.inbox.put(ast.literal_eval(rest.decode()))
        self.inbox.put(None)

    def _watch(self, child, output: Path) -> str:
        """Follow the process until its work is done ("") or it must be ended; why."""
        self.printed, looked = {}, 0.0
        deadline = time.monotonic() + START
        while True:
            with suppress(queue.Empty):
                message = self.inbox.get(timeout=0.05)
                if message is None:
                    return self._gone(child)
                if message["event"] == "broken":
                    self.broken = message["message"]
                    return ""
                if message["event"] == "end":
                    return STARTED if below(os.getpid(), self.spared).keys() - {child.pid} else ""
                deadline = self._note(message)
                continue
            now = time.monotonic()
            if self.cancelled():
                raise Cancelled
            if now > deadline:
                if self.since is None:
                    self.broken = f"the exercise itself doesn't load within {START:g} s"
                    return ""
                return (f"didn't end within {self.limits.test:.3g} s, and let nothing else in its process go on")
            if now - looked > LOOK_EVERY:
                looked = now
                if why := self._too_much(child.pid, output):
                    return why

    def _note(self, message) -> float:
        """What the process says: it begins with a test, or has its result. Until when the next word must come."""
        now, name = time.monotonic(), message["test"]
        if self.since is not None:
            self.spent += now - self.since
        self.since = now
        if message["event"] == "begin":
            self.now = name
        elif name == "" and message["ok"]:
            self.now = None
        elif name == "":
            self.results = {n: _failed(self.tests[n], message["message"]) for n in self.todo}
        else:
            test = self.tests[name]
            self.results[name] = Result(test.name, test.about, test.worth if message["ok"] else 0, test.worth, message["message"],
                                        test.hint, message["seconds"])
            self.printed[name] = message["printed"]
            self.now = None
        return now + min(self.limits.test, max(0.1, self.limits.total - self.spent)) + GRACE

    def _too_much(self, pid: int, output: Path) -> str:
        most, limits = self.limits.memory * MB * 1.5 + 512 * MB, self.limits
        here = below(os.getpid(), self.spared) if self.since is not None else {}
        if sum(here.values()) > most:
            return f"needed more memory than the {limits.memory} MB a submission may take"
        if here.keys() - {pid}:
            return STARTED
        if output.stat().st_size > limits.output * MB * 1.5:
            return f"printed more than the {limits.output} MB a submission may"
        if folder_bytes(str(self.work)) > limits.disk * MB:
            return f"wrote more than the {limits.disk} MB of files a submission may"
        return ""

    def _gone(self, child) -> str:
        """It has closed its pipe, so it has ended, or is about to; or else the submission did that."""
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            return SHUT
        return "ended"

    def _ended(self, code: int, printed: bytes) -> str:
        """A process that has ended by itself, in words."""
        line = _crashed_at(printed, f"{self.exercise.name}.py") if code < 0 else ""
        if code == CLOSED:
            return SHUT
        if code == -getattr(signal, "SIGXCPU", 0):
            return f"took more processor time than the {self.limits.total + 2:.3g} s a submission has"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            return f"crashed the process: {name}{' (a recursion too deep, most likely)' if name == 'SIGSEGV' else ''}{line}"
        return f"ended the process, with exit code {code}: os._exit()? A function returns what it has"


def _crashed_at(printed: bytes, file: str) -> str:
    """Where Python's fault handler saw a crash."""
    for line in printed[-20000:].decode(errors="replace").splitlines():
        if f'File "{file}", line ' in line:
            return f"\n  {line.strip()}"
    return ""
