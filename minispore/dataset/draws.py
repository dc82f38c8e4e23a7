"""Random numbers for transforms: what is drawn for a row depends on the row, not on who works on it.

The numbers come from common.random's counters. The key says which op draws (seed, branch, stage, op, call),
the counter is the row's place in the data's common order. So any number of shards, workers and rows in a
block, and a run that resumes in the middle, see the same augmented rows.
"""
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from minispore.common.random import next_key, words

_RUN = 4096     # words are drawn in runs of that many places where the places lie far apart


@dataclass
class Draws:
    """The rows an op is working on now, and how often it has drawn for them."""

    key: tuple
    places: np.ndarray
    calls: int = 0


_now: ContextVar[Draws | None] = ContextVar("minispore_draws", default=None)


@contextmanager
def drawing(key: tuple, places: np.ndarray) -> Iterator[None]:
    """Within, `uniform` draws for the rows at these places (an integer array; objects if batches differ)."""
    token = _now.set(Draws(key, places))
    try:
        yield
    finally:
        _now.reset(token)


def uniform(rows: int, each: int = 1) -> np.ndarray:
    """`each` numbers in [0, 1) for each of `rows` rows: (rows, each) float64.

    In a pipeline they belong to the rows the op works on; rows of several images (videos) get the same for
    all images. A transform that is called by itself draws from the rank's own stream, as initializers do.

    >>> with drawing(("demo",), np.arange(5)):
    ...     whole = uniform(5, 2)
    >>> with drawing(("demo",), np.array([3, 1])):
    ...     bool((uniform(2, 2) == whole[[3, 1]]).all())
    True
    """
    now = _now.get()
    if now is None:
        return _at(next_key("transform"), np.arange(rows), each)
    now.calls += 1
    places = np.concatenate([np.ravel(p) for p in now.places]) if now.places.dtype == object else now.places.ravel()
    numbers = _at((*now.key, now.calls), places, each)
    if rows == len(numbers):
        return numbers
    if rows % len(numbers):
        return np.resize(numbers, (rows, each))
    return np.repeat(numbers, rows // len(numbers), axis=0)


def _at(key: tuple, places: np.ndarray, each: int) -> np.ndarray:
    """(len(places), each): the numbers of each place in the stream named by `key`."""
    low, span = int(places.min()), int(np.ptp(places)) + 1
    if span <= 8 * len(places) + _RUN:
        drawn = words(key, low * each, span * each).reshape(span, each)[places - low]
    else:
        drawn, runs = np.empty((len(places), each), np.uint64), places // _RUN
        for run in np.unique(runs):
            here = runs == run
            drawn[here] = words(key, int(run) * _RUN * each, _RUN * each).reshape(_RUN, each)[places[here] % _RUN]
    return (drawn >> np.uint64(11)) * 2.0 ** -53
