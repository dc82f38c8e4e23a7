"""What went wrong in a submission, as a text for its writer: what the test says, or where in the file an error came up.

This runs beside the submission, within its limits: its errors may have a __str__ of their own.
"""
import errno
import linecache
import sys
from types import FrameType

MOST = 2000             # characters of a message
LEVELS = 3              # frames of the submission that are shown


def of_error(error: BaseException, file: str, limits) -> str:
    """The message of what came out of a submission, or of a test of it. file: the submission, as its code names it."""
    kind, text = type(error).__name__, _text(error)
    lines = _lines(error, file)
    where = ("\n" + "\n".join(lines)) if lines else ""
    if isinstance(error, AssertionError) and not lines:
        return text or "the test found it wrong"
    if isinstance(error, NotImplementedError) and text:         # a stub's; on which rank it was tells nothing
        return text.split("\n")[0]
    if isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit):
        return f"raised {kind}, as sys.exit() does; a function returns what it has, it doesn't end the program{where}"
    if isinstance(error, MemoryError):
        return f"needed more memory than the {limits.memory} MB a submission may take{where}"
    if isinstance(error, RecursionError):
        return f"calls itself without end ({kind}){where}"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return f"printed, or wrote into one file, more than the {limits.output} MB a submission may{where}"
    return f"{kind}: {text}{where}" if text else f"{kind}{where}"


def _text(error: BaseException) -> str:
    try:
        notes = [str(note) for note in getattr(error, "__notes__", ())][:3]
        text = "\n".join([str(error), *notes])
    except BaseException as e:
        return f"(its text can't be had: {type(e).__name__})"
    return text.strip() if len(text) <= MOST else text[:MOST].strip() + " …"


def _lines(error: BaseException, file: str) -> list[str]:
    """Where in the submission an error came up, the innermost place last."""
    places, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            places.append(trace.tb_lineno)
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        places.append(error.lineno)
    return [at_line(file, line) for line in places[-LEVELS:]]


def at_line(file: str, line: int) -> str:
    """"line 12: the_code" of a submission."""
    code = linecache.getline(file, line).strip()[:120]
    return f"  line {line}: {code}" if code else f"  line {line}"


def where_now(file: str, threads: set[int]) -> str:
    """Where the submission is while it runs on: a line in one of these threads; "" if it is in none."""
    frames, found = sys._current_frames(), []
    for ident in sorted(threads):
        frame, depth = frames.get(ident), 0
        while frame is not None and frame.f_code.co_filename != file:
            frame, depth = frame.f_back, depth + 1
        if frame is not None:
            found.append((depth, _place(file, frame)))
    return min(found, default=(0, ""))[1]


def _place(file: str, frame: FrameType) -> str:
    return at_line(file, frame.f_lineno)


def threads() -> set[int]:
    """The threads there are now, those too that were started below the module threading."""
    return set(sys._current_frames())
