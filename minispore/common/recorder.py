"""Who listens while ops are called: nobody, a graph being traced, or a tape kept for a gradient.

`ops` stands below `graph` in the house, so a primitive can't name a graph; it asks here for the recorder of
its thread and hands itself over. A recorder is anything with `apply(op, tensors)` and `assign(param, tensor)`.
"""
from contextlib import contextmanager
from contextvars import ContextVar

_recorder = ContextVar("minispore_recorder", default=None)

recorder = _recorder.get        # () -> the active recorder, or None


@contextmanager
def recording(listener):
    """Send every op called in this scope to `listener` (None: nobody listens)."""
    token = _recorder.set(listener)
    try:
        yield listener
    finally:
        _recorder.reset(token)
