"""Submissions: read with care, and graded apart, each by a process of its own, from a notebook or for a class."""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from minispore.grade.exercise import Exercise
from minispore.grade.limits import GRACE, START, Limits
from minispore.grade.report import Grade, Result, from_dict
from minispore.grade.run import Cancelled, grade
from minispore.launch import processes

MOST_BYTES = 1 << 20        # of a submission
LOOK_EVERY = 0.2            # seconds between two looks whether grading is to end


class Unreadable(ValueError):
    """A submission that isn't a text file; the message says what it is."""


@dataclass(frozen=True)
class Submission:
    """exercise; file (None: nothing was handed in); who: whose it is; private: folders it may not read."""
    exercise: Exercise
    file: Path | None
    who: str = ""
    private: tuple[str, ...] = ()


def read(path: Path) -> str:
    """The text of a file. Unreadable if it is a link, too long, or no text."""
    try:
        if path.is_symlink():
            raise Unreadable(f"{path.name} is a link to {os.readlink(path)}; hand in the file itself")
        if not path.is_file():
            raise Unreadable(f"{path.name} is not there, or is no file")
        with open(path, "rb") as f:
            data = f.read(MOST_BYTES + 1)
    except OSError as e:
        raise Unreadable(f"{path.name} can't be read ({e.strerror})") from e
    if len(data) > MOST_BYTES:
        raise Unreadable(f"{path.name} has more than {MOST_BYTES:,} bytes; an answer is a short file")
    if not data.strip():
        raise Unreadable(f"{path.name} is empty; `minispore learn --reset`, with the exercise's name, gives the beginning back")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise Unreadable(f"{path.name} is no text in UTF-8 (byte {e.start} is {data[e.start]:#04x}); save it as UTF-8") from e
    if "\0" in text:
        raise Unreadable(f"{path.name} is no text: it has zero bytes, as programs and pictures do")
    return text


def nothing(exercise: Exercise, who: str, why: str) -> Grade:
    """A grade without a point, and why."""
    return Grade(exercise.name, exercise.title, who,
                 [Result(t.name, t.about, 0, t.worth, why, t.hint) for t in exercise.listed()])


def grade_here(work: Submission, limits: Limits | None = None, cancelled=lambda: False) -> Grade:
    """Grade one submission; this process should be doing nothing else (see run.grade)."""
    try:
        text = read(work.file) if work.file else None
    except Unreadable as e:
        return nothing(work.exercise, work.who, str(e))
    if text is None:
        return nothing(work.exercise, work.who, f"there is no {work.exercise.name}.py; nothing was handed in")
    return grade(work.exercise, text, work.who, limits, work.private, cancelled)


def grade_apart(work: Submission, limits: Limits | None = None, cancelled=lambda: False) -> Grade:
    """The same by the command `minispore grade` in a process of its own, which is ended if this one is interrupted, or ends."""
    if work.file is None or not work.file.exists():
        return grade_here(work)                 # which runs nothing then
    limits = limits or Limits()
    command = [sys.executable, "-P", "-m", "minispore.cli", "grade", work.exercise.name, str(work.file), "--json", "-", "--who",
               work.who, "--timeout", f"{limits.test:g}", "--memory", str(limits.memory),
               *(part for folder in work.private for part in ("--private", folder))]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               encoding="utf-8", errors="replace", start_new_session=True,
                               env=os.environ | {processes.PARENT: str(os.getpid())})
    try:
        out, err = answer_of(process, START + 10 * limits.total + 10 * GRACE, cancelled)
    except BaseException:
        end(process)
        raise
    try:
        return from_dict(json.loads(out)[0])
    except (ValueError, LookupError, TypeError):
        return nothing(work.exercise, work.who, f"the grader ended with exit code {process.returncode}: {err.strip()[-500:]}")


def answer_of(process: subprocess.Popen, most: float, cancelled: Callable[[], bool]) -> tuple[str, str]:
    """What it writes until its end, to both outputs. Cancelled if that is asked for meanwhile."""
    until = time.monotonic() + most
    while True:
        try:
            return process.communicate(timeout=LOOK_EVERY)
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                raise
            if cancelled():
                raise Cancelled from None


def end(process: subprocess.Popen) -> None:
    """Let it end its submission's processes, and itself."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=8)
    process.kill()
    process.communicate()


@contextmanager
def until_told() -> Iterator[Callable[[], bool]]:
    """A function that says whether SIGTERM or Ctrl-C has come, so that a process which grades ends what it has begun."""
    told = threading.Event()
    before = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---- a class -----------------------------------------------------------------------------------------

def of_class(folder: Path, chosen: Sequence[Exercise]) -> list[Submission]:
    """All submissions below a folder: STUDENT/e05.py, STUDENT/exercises/e05.py, STUDENT_e05.py, and where one exercise is chosen
    STUDENT.py; E05.PY and e5.py are the same name. Who has a folder but no file for an exercise has handed in nothing.

    ValueError if there is none at all, or somebody has handed in an exercise twice.
    """
    secret, found = (os.path.realpath(folder),), {}
    for place in sorted(folder.iterdir()):
        if place.name.startswith((".", "__")):
            continue
        for exercise in chosen:
            who, file = handed_in(place, exercise, len(chosen) == 1)
            if who is None:
                continue
            before = found.get((who, exercise.name))
            if before and before.file and file:
                raise ValueError(f"{who} has handed in {exercise.name} twice, as {before.file.relative_to(folder)} and "
                                 f"{file.relative_to(folder)}; remove one of them")
            if not before or file:
                found[who, exercise.name] = Submission(exercise, file, who, secret)
    if not any(work.file for work in found.values()):
        names = ", ".join(e.name for e in chosen)
        raise ValueError(f"{folder} holds no submission for {names}; they are found as STUDENT/e05.py, "
                         "STUDENT/exercises/e05.py or STUDENT_e05.py")
    return list(found.values())


def handed_in(place: Path, exercise: Exercise, alone: bool) -> tuple[str | None, Path | None]:
    """Whose a folder or file of a class is (None: it is no submission of this exercise), and the file with the answer."""
    name = re.compile(rf"(?:(.+)_)?e0*{int(exercise.name[1:])}\.py", re.I)
    if place.is_dir():
        files = [path for below in (place, place / "exercises") if below.is_dir() for path in sorted(below.iterdir())
                 if (path.is_file() or path.is_symlink()) and name.fullmatch(path.name) and not name.fullmatch(path.name)[1]]
        return place.name, files[0] if files else None
    if match := name.fullmatch(place.name):
        return match[1], place                  # e05.py itself is nobody's
    some_exercise = re.fullmatch(r"(?:.+_)?e\d+", place.stem, re.I)
    return (place.stem, place) if alone and place.suffix.lower() == ".py" and not some_exercise else (None, None)
