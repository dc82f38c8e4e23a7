"""What the tests of an exercise say of themselves: points, and the hint to open when one fails."""
from collections.abc import Callable

import numpy as np


def points(worth: int, hint: int = 1) -> Callable:
    """Mark a test of an exercise, a function of the submission's module: points it is worth, number of the hint that helps.

    >>> @points(3, hint=2)
    ... def test_sum(answer):
    ...     assert answer.total([1, 2]) == 3, "the total of [1, 2] should be 3"
    >>> test_sum.points, test_sum.hint
    (3, 2)
    """
    def mark(test):
        test.points, test.hint = worth, hint
        return test
    return mark


def plain(x, dtype=None) -> np.ndarray:
    """A plain array of what a submission returned, in an array of its own. TypeError for what isn't made of numbers: an object
    could say of itself that it equals anything.

    >>> plain([1, 2], "float64")
    array([1., 2.])
    """
    if hasattr(x, "asnumpy"):
        x = x.asnumpy()
    if isinstance(x, np.ndarray) and type(x) is not np.ndarray:
        raise TypeError(f"expected an array or numbers, not a {type(x).__name__}, which is a kind of array of its own; return "
                        "a numpy.ndarray")
    out = np.array(x, dtype)
    if out.dtype.kind not in "biufc":
        raise TypeError(f"expected an array or numbers, got {type(x).__name__}: {str(x)[:60]!r}")
    return out
