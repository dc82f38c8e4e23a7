"""The command `minispore grade`: for a learner's own folder, one file, or a class."""
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from minispore.grade import exercise, report
from minispore.grade.limits import Limits
from minispore.grade.report import Grade
from minispore.grade.run import Cancelled
from minispore.grade.submission import Submission, grade_apart, grade_here, of_class, until_told
from minispore.launch import processes
from minispore.launch.environment import cores

WRITERS = {"csv": report.as_csv, "json": report.as_json, "junit": report.as_junit}


class Asked(ValueError):
    """What was asked for can't be done; the message says why."""


def main(o) -> int:
    """Exit code: 0 if all points were reached, or a class was graded; 1 if not; 2 if nothing could be graded; 130 if stopped."""
    if not processes.end_with_parent_named(signal.SIGTERM):
        return 130
    try:
        limits = limits_of(o)
        if o.hint is not None:
            print(hint_of(o.what, o.hint))
            return 0
        work = submissions(o.what, o.folder, o.who, tuple(o.private))
        for kind in WRITERS:
            writable(kind, getattr(o, kind))
        quiet = "-" in (o.csv, o.json, o.junit)
        with until_told() as told:
            graded = class_of(work, limits, quiet, told) if o.folder else alone(work, limits, quiet, told)
        for kind, write in WRITERS.items():
            if path := getattr(o, kind):
                put(path, write(graded))
    except BrokenPipeError:
        raise                                   # nobody reads the standard output any more: cli.py ends quietly
    except (Asked, ValueError, FileNotFoundError) as e:
        print(f"minispore grade: {e}", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"minispore grade: {e.filename} can't be written or read ({e.strerror})", file=sys.stderr)
        return 2
    if len(graded) < len(work):
        print(f"minispore grade: stopped; {len(graded)} of {len(work)} are graded", file=sys.stderr)
        return 130
    if o.folder and not quiet:
        print(summary(graded))
    return 0 if o.folder else int(not all(g.passed for g in graded))


def limits_of(o) -> Limits:
    limits = Limits()
    if o.timeout <= 0 or o.memory < 64:
        raise Asked(f"--timeout={o.timeout:g} --memory={o.memory}: give seconds above 0, and 64 MB or more")
    return replace(limits if o.timeout == limits.test else limits.with_test(o.timeout), memory=o.memory)


def hint_of(what: Sequence[str], number: int) -> str:
    """A hint of the one exercise that is named."""
    if len(what) != 1:
        raise Asked("--hint: name one exercise, as in: minispore grade e05 --hint 1")
    return hint_text(exercise.find(what[0]), number)


def hint_text(task, number: int) -> str:
    """The text of a hint; ValueError that says how many there are."""
    hints = task.hints()
    if not isinstance(number, int) or not 1 <= number <= len(hints):
        raise ValueError(f"{task.name} has hints 1 to {len(hints)}, from gentle to nearly there; there is no hint {number!r}")
    return hints[number - 1]


def submissions(what: Sequence[str], folder: str | None, who: str, private: tuple[str, ...]) -> list[Submission]:
    """What to grade, from names of exercises and files on the command line."""
    files = [Path(word) for word in what if word.endswith(".py")]
    if missing := [path for path in files if not path.exists() and folder is None]:
        raise Asked(f"{missing[0]}: there is no such file")
    names = [exercise.find(word) for word in what if not word.endswith(".py")]
    if folder is not None:
        if files:
            raise Asked(f"--folder {folder} names the submissions; leave {files[0]} out")
        if not Path(folder).is_dir():
            raise Asked(f"--folder {folder}: there is no such folder")
        return of_class(Path(folder), names or list(exercise.exercises().values()))
    if files:
        if len(names) > 1 or (names and len(files) > 1):
            raise Asked("give files e05.py, e06.py …, or one exercise and one file: minispore grade e05 answer.py")
        return [Submission(names[0] if names else exercise.find(path.stem), path, who, private) for path in files]
    own = exercise.learner_folder()
    mine = exercise.learner_files(own)
    known = exercise.exercises()
    chosen = names or [known[name] for name in mine if name in known]
    return [Submission(task, mine.get(task.name), who, private) for task in chosen]


def alone(work: Iterable[Submission], limits: Limits, quiet: bool, told: Callable[[], bool]) -> list[Grade]:
    """One after the other, in this process's children; those that are done when it is told to stop."""
    graded = []
    with suppress(Cancelled):
        for one in work:
            graded.append(grade_here(one, limits, told))
            if not quiet:
                print(graded[-1], flush=True)
    return graded


def class_of(work: Sequence[Submission], limits: Limits, quiet: bool, told: Callable[[], bool] = lambda: False) -> list[Grade]:
    """As many at a time as there are cores, a line for each as it is done; those that are done when it is told to stop."""
    def one(submission):
        try:
            result = None if told() else grade_apart(submission, limits, told)
        except Cancelled:
            return None
        if result and not quiet:
            print(f"{report.one_line(result.who)} {result.exercise}: {result.points:g} of {result.worth:g}", flush=True)
        return result
    with ThreadPoolExecutor(cores()) as pool:
        return [result for result in pool.map(one, work) if result]


def summary(graded: Sequence[Grade]) -> str:
    """A line for each exercise."""
    lines = []
    for name in sorted({g.exercise for g in graded}):
        points = [g.points for g in graded if g.exercise == name]
        full = sum(g.passed for g in graded if g.exercise == name)
        lines.append(f"{name}: {len(points)} submissions, {full} with all points, {sum(points) / len(points):.1f} on average")
    return "\n".join(lines)


def writable(kind: str, path: str | None) -> None:
    """Asked if a report can't be written there: said before a class is graded, and not after it."""
    if not path or path == "-":
        return
    if Path(path).is_dir():
        raise Asked(f"--{kind} {path}: that is a folder; name a file in it")
    if not Path(path).parent.is_dir():
        raise Asked(f"--{kind} {path}: there is no folder {Path(path).parent}")
    try:
        open(path, "a").close()
    except OSError as e:
        raise Asked(f"--{kind} {path} can't be written ({e.strerror})") from e


def put(path: str, text: str) -> None:
    """Into a file, or with "-" to the standard output."""
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")
