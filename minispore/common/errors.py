"""The errors of minispore's own; bad arguments raise Python's ValueError, TypeError and RuntimeError.

Every message tells three things: what was asked, what was found (op, rank, shape, value), what to do.
"""


class CollectiveError(RuntimeError):
    """A communication that can't complete: a peer failed, ended or waits elsewhere, or time ran out.

    The message says which rank waits where and which ranks are missing.
    """


class TraceError(RuntimeError):
    """Python asked for a value that does not exist while a graph is traced (GRAPH_MODE)."""
