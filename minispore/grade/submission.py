"""Submissions: read with care, and graded apart, each by a process of its own, from a notebook or for a class."""
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from minispore.grade.exercise import Exercise
from minispore.grade.limits import GRACE, START, Limits
from minispore.grade.report import Grade, Result, from_dict
from minispore.grade.run import grade

MOST_BYTES = 1 << 20        # of a submission


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
        raise Unreadable(f"{path.name} is empty; `minispore learn --reset` gives the beginning back")
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


def grade_apart(work: Submission, limits: Limits | None = None) -> Grade:
    """The same by the command `minispore grade` in a process of its own, which is ended if this one is interrupted."""
    if work.file is None:
        return grade_here(work)
    limits = limits or Limits()
    command = [sys.executable, "-P", "-m", "minispore.cli", "grade", work.exercise.name, str(work.file), "--json", "-", "--who",
               work.who, "--timeout", f"{limits.test:g}", "--memory", str(limits.memory),
               *(part for folder in work.private for part in ("--private", folder))]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               encoding="utf-8", errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=START + 10 * limits.total + 10 * GRACE)
    except BaseException:
        end(process)
        raise
    try:
        return from_dict(json.loads(out)[0])
    except (ValueError, LookupError, TypeError):
        return nothing(work.exercise, work.who, f"the grader ended with exit code {process.returncode}: {err.strip()[-500:]}")


def end(process: subprocess.Popen) -> None:
    """Let it end its submission's processes, and itself."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=8)
    process.kill()
    process.communicate()


def until_told() -> threading.Event:
    """An event that SIGTERM sets, so that a process which grades ends what it has begun."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    return told


# ---- a class -----------------------------------------------------------------------------------------

def of_class(folder: Path, chosen: Sequence[Exercise]) -> list[Submission]:
    """All submissions below a folder: STUDENT/e05.py, STUDENT/exercises/e05.py, STUDENT_e05.py, and where one exercise is chosen
    STUDENT.py. Who has a folder but no file for an exercise has handed in nothing. ValueError if there is none at all.
    """
    secret, found = (os.path.realpath(folder),), []
    for place in sorted(folder.iterdir()):
        for exercise in chosen:
            name = f"{exercise.name}.py"
            if place.is_dir() and not place.name.startswith((".", "__")):
                files = [path for path in (place / name, place / "exercises" / name) if path.is_file() or path.is_symlink()]
                found.append(Submission(exercise, files[0] if files else None, place.name, secret))
            elif place.name.endswith(f"_{name}"):
                found.append(Submission(exercise, place, place.name.removesuffix(f"_{name}"), secret))
            elif place.suffix == ".py" and len(chosen) == 1:
                found.append(Submission(exercise, place, place.stem, secret))
    if not any(work.file for work in found):
        names = ", ".join(e.name for e in chosen)
        raise ValueError(f"{folder} holds no submission for {names}; they are found as STUDENT/e05.py, "
                         "STUDENT/exercises/e05.py or STUDENT_e05.py")
    return found
