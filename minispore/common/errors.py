"""The errors of minispore's own; bad arguments raise Python's ValueError, TypeError and RuntimeError.

Every message tells three things: what was asked, what was found (op, rank, shape, value), what to do.
"""
import sys
import warnings
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
    level, frame = 2, sys._getframe(1)          # level 1 would be this line
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
