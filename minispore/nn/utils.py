"""Tools around cells (MindSpore: `mindspore.nn.utils`)."""
from collections.abc import Iterator
from contextlib import contextmanager

from minispore.common.state import current


@contextmanager
def no_init_parameters() -> Iterator[None]:
    """Put off drawing initial values: a Parameter made in this scope gets them when they are first wanted.

    A rank that needs a piece of a parameter only then draws only that piece, equal to the same piece of the whole. It
    concerns values made by `initializer`, as layers do; a tensor that is there already is kept.

    >>> from minispore import nn
    >>> with no_init_parameters():
    ...     layer = nn.Dense(4, 2)
    >>> layer.weight.shape
    (2, 4)
    """
    state = current()
    before, state.lazy = state.lazy, True
    try:
        yield
    finally:
        state.lazy = before
