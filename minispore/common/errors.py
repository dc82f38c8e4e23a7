"""The errors of minispore's own; bad arguments raise Python's ValueError, TypeError and RuntimeError.

Every message tells three things: what was asked, what was found (op, rank, shape, value), what to do.
"""
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])


class CollectiveError(RuntimeError):
    """A communication that can't complete: a peer failed, ended or waits elsewhere, or time ran out.

    The message says which rank waits where and which ranks are missing.
    """


class TraceError(RuntimeError):
    """Python asked for a value that does not exist while a graph is traced (GRAPH_MODE)."""


def warn(message: str) -> None:
    """A UserWarning at the line of the user's script from which minispore was called."""
    warnings.warn(message, stacklevel=_users_frame()[0])


def script_line() -> str:
    """"file:line" of the user's script from which minispore was called; "" if there is none (the demo is minispore's own)."""
    _, frame = _users_frame()
    if frame is None or frame.f_code.co_filename.startswith("<frozen"):
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _users_frame():
    """(its level above the caller's caller, for warnings; the innermost frame outside the package)."""
    level, frame = 2, sys._getframe(2)          # level 1 would be the function that asks
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    return level, frame


def missing(module: str, known: dict, later: dict[str, str] | None = None) -> Callable[[str], object]:
    """A module's __getattr__: a name that isn't there is an AttributeError that says which are near.

    later: names that are imported when first asked for, each with the module that has it (or is it).

    >>> missing("minispore.nn", {"Dense": 1, "ReLU": 2})("Dence")
    Traceback (most recent call last):
    AttributeError: minispore.nn has no 'Dence'; did you mean Dense?
    """
    later = later or {}

    def __getattr__(name):
        if name in later:
            there = import_module(later[name])
            known[name] = there if later[name].endswith(f".{name}") else getattr(there, name)
            return known[name]
        text = f"{module} has no {name!r}"
        if name.startswith("_"):                # Python asks for such names by itself, and often
            raise AttributeError(text)
        from difflib import get_close_matches  # wanted only now
        public = [n for n in {**known, **later} if not n.startswith("_")]
        close = get_close_matches(name.lower(), {n.lower() for n in public}, 3, 0.7)
        near = [n for c in close for n in public if n.lower() == c]
        raise AttributeError(f"{text}; did you mean {' or '.join(near)}?" if near else
                             f"{text}. It may be a part of MindSpore that isn't there yet; dir({module}) lists what is")
    return __getattr__
