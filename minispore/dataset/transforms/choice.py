"""Ops made of other ops. Those that choose at random do so for each row, by the row's place."""
from collections.abc import Callable

import numpy as np

from minispore.dataset.draws import uniform
from minispore.dataset.transforms.base import Transform


class Ops:
    """An op made of the ops `transforms`, called with a row's arrays.

    TypeError or ValueError if `transforms` is no list of ops or an empty one.
    """

    def __init__(self, transforms):
        self.transforms = ops_of(type(self).__name__, transforms)

    def __call__(self, *row):
        raise NotImplementedError


class Compose(Ops):
    """The ops one after the other, as one (MindSpore: `mindspore.dataset.transforms.Compose`).

    `map` takes them out of it, so that it costs nothing.

    >>> Compose([np.square, lambda x: x + 1])(3)
    np.int64(10)
    """

    def __call__(self, *row):
        return _apply(self.transforms, row)


class RandomApply(Ops):
    """All the ops with probability `prob`, else none (MindSpore: `mindspore.dataset.transforms.RandomApply`)."""

    def __init__(self, transforms, prob: float = 0.5):
        super().__init__(transforms)
        self.prob = probability("RandomApply", prob)

    def __call__(self, *row):
        return _apply(self.transforms if uniform(1)[0, 0] < self.prob else (), row)


class RandomChoice(Ops):
    """One of the ops, each equally likely (MindSpore: `mindspore.dataset.transforms.RandomChoice`)."""

    def __call__(self, *row):
        return _apply((self.transforms[int(uniform(1)[0, 0] * len(self.transforms))],), row)


class RandomOrder(Ops):
    """All the ops, in random order (MindSpore: `mindspore.dataset.transforms.RandomOrder`)."""

    def __call__(self, *row):
        order = np.argsort(uniform(1, len(self.transforms))[0])
        return _apply([self.transforms[i] for i in order], row)


def _apply(ops, row: tuple):
    """The ops one after the other on one row: an array, or a tuple of several."""
    for op in ops:
        result = op(*row)
        row = result if isinstance(result, tuple) else (result,)
    return row if len(row) > 1 else row[0]


def ops_of(who: str, ops) -> tuple[Callable, ...]:
    """A list of ops, checked, as a tuple."""
    if not isinstance(ops, (list, tuple)):
        raise TypeError(f"{who}: transforms must be a list of ops, got {ops!r}")
    if not ops:
        raise ValueError(f"{who}: transforms is an empty list; give at least one op")
    for op in ops:
        if isinstance(op, type) and issubclass(op, (Transform, Ops)):
            raise TypeError(f"{who}: operations must be objects, got the class {op.__name__}; write {op.__name__}(...)")
        if not callable(op):
            raise TypeError(f"{who}: operations must be callable with a row, got {op!r}; give a transform or a function")
    return tuple(ops)


def probability(who: str, prob) -> float:
    if isinstance(prob, bool) or not isinstance(prob, (int, float)):
        raise TypeError(f"{who}: prob must be a number, got {prob!r}")
    if not 0 <= prob <= 1:
        raise ValueError(f"{who}: prob must lie in [0, 1], got {prob}")
    return float(prob)
