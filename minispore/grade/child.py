"""The process that a submission is graded in. run.py starts it and watches it.

The job comes as JSON on its standard input; what it finds goes, a line after a secret word each, to what was its standard
output. The submission and its tests run in a second thread, so that this one can say where they are when time is up; and
of what this one knows, nothing is in a place that they can name.
"""
import io
import json
import linecache
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from minispore.grade import guard, messages, tamper
from minispore.grade.limits import CLOSED, Limits, end_with, restrict

LEFT_BEHIND = 0.3       # seconds for threads of a test to end after it


def main() -> None:
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    job = json.loads(sys.stdin.buffer.read())
    _redirect()
    end_with(os.getppid())
    word, limits = job["word"], Limits(**job["limits"])

    def say(event, shown=repr, leave=os._exit, **more):        # not by names that a submission could replace
        try:
            out.write(f"{word} {shown({'event': event, **more})}\n".encode())
        except OSError:
            leave(CLOSED)

    try:
        space = load_tests(job["tests"])
        taken = tamper.take_away(space.get("TAKEN_AWAY", []), job["who"])
    except Exception as e:
        say("broken", message=f"the exercise itself doesn't load: {type(e).__name__}: {e}")
        raise
    text, file = job["text"], job["file"]
    linecache.cache[file] = len(text), None, text.splitlines(True), file        # so that errors show its lines
    os.chdir(job["work"])
    name = file.removesuffix(".py")
    answer = sys.modules[name] = ModuleType(name)
    answer.__file__ = os.path.join(job["work"], file)
    replaced = tamper.snapshot(space)
    cache = _own_cache(os.path.join(job["work"], ".cache"))
    guard.seal(guard.Rules(job["who"], file, (os.path.realpath(job["work"]),), (*guard.libraries(), cache),
                           (*job["private"], *_with_compiled(taken))))
    restrict(limits)
    begun = time.monotonic()

    def watched(name, fn):
        """Run fn in a thread and tell of it; whether this process can go on."""
        say("begin", test=name)
        before, at = messages.threads(), _written()
        box, start = {"message": "its thread ended without a result"}, time.monotonic()
        thread = threading.Thread(target=attempt, args=(fn, box, file, limits), name="answer", daemon=True)
        thread.start()
        time_left = max(0.1, min(limits.test, limits.total - (start - begun)))
        thread.join(time_left)
        took, ok, message, going = time.monotonic() - start, "message" not in box, box.get("message", ""), True
        if thread.is_alive():
            ok, going = False, False
            message = f"didn't end within {time_left:.3g} s" + _at("; then it was at", file, messages.threads() - before)
        elif what := replaced():
            ok, going = False, False
            message = f"your file replaced {what}, which the tests, or the library below them, use; leave it as it is"
        elif ok and (left := _still_running(before)):
            ok, going = False, False
            message = ("left a thread running; end what you start, and join() it, before you return"
                       + _at("; it was at", file, left))
        say("result", test=name, ok=ok, message=message, seconds=took, printed=[at, _written()], going=going)
        return going and (ok or name != "")

    def import_it():
        exec(compile(text, file, "exec", dont_inherit=True), vars(answer))

    if watched("", import_it):
        for name in job["todo"]:
            if not watched(name, lambda test=space[name]: test(answer)):
                break
    say("end")
    _leave()


def attempt(fn, box, file, limits) -> None:
    """Call fn. Only if nothing came out of it, `box` then has no message; an error may even resist being told."""
    try:
        fn()
        sys.stdout.flush()
    except BaseException as e:
        box["message"] = "raised an error of which nothing can be told"
        box["message"] = messages.of_error(e, file, limits)
        with suppress(BaseException):
            sys.stdout.flush()
    else:
        del box["message"]


def load_tests(path: str) -> dict:
    """The namespace of a test file, in order of definition. It is no module that anybody can import."""
    space = {"__name__": Path(path).stem, "__file__": path}
    exec(compile(Path(path).read_text("utf-8"), path, "exec", dont_inherit=True), space)
    return space


def _redirect() -> None:
    """No input; all output, of C libraries too, into the file that is stderr already."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False))          # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=False)
    import faulthandler
    faulthandler.enable(2)


def _own_cache(folder: str) -> str:
    """From now on compiled kernels are kept in the submission's folder. What the library has compiled is there as links, to the
    folder that is returned."""
    from minispore.device.kernels.jit import cache_dir
    library = cache_dir()
    for there in library.glob("kernels_*/*.nb?"):
        link = Path(folder, there.parent.name, there.name)
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):                     # Windows may not allow links: then it compiles again
            link.symlink_to(there)
    os.environ["MINISPORE_CACHE"] = folder
    os.environ["TMPDIR"] = os.path.dirname(folder)
    sys.dont_write_bytecode = True
    return os.path.realpath(library)


def _with_compiled(sources: list[str]) -> list[str]:
    """Source files and their compiled forms."""
    from importlib.util import cache_from_source
    return [os.path.realpath(f) for s in sources for f in (s, cache_from_source(s))]


def _written() -> int:
    """Bytes of output so far."""
    try:
        return os.fstat(1).st_size
    except OSError:
        return 0


def _still_running(before: set[int]) -> set[int]:
    """Threads that are there since, after a while in which they may end."""
    until = time.monotonic() + LEFT_BEHIND
    while (left := messages.threads() - before) and time.monotonic() < until:
        time.sleep(0.005)
    return left


def _at(words: str, file: str, threads: set[int]) -> str:
    where = messages.where_now(file, threads)
    return f"{words}\n{where}" if where else ""


def _leave() -> None:
    """End at once: no atexit, no __del__, no thread is waited for."""
    os._exit(0)


if __name__ == "__main__":
    main()
