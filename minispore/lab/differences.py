"""Finite differences: a gradient by trying out, to check a gradient by a formula against it (chapter 01)."""
from collections.abc import Callable

import numpy as np


def finite_differences(f: Callable, *arrays: np.ndarray, h: float = 1e-6) -> list[np.ndarray]:
    """∂f/∂a for each array a: every element is moved by +h and by -h, and f's change divided by 2h.

    f takes the arrays and returns one number. arrays: float64; with float32 the difference would be rounding and little else.
    The error is about h² plus 1e-16·f/h. f is called twice for each element, so this is for small arrays.

    >>> finite_differences(lambda x: (x ** 3).sum(), np.array([1.0, 2.0]))[0].round(6)
    array([ 3., 12.])
    """
    slopes = []
    for place, a in enumerate(arrays):
        if a.dtype != np.float64:
            raise TypeError(f"finite_differences: array {place} is {a.dtype}; give float64 arrays, e.g. a.astype(np.float64): in "
                            f"{a.dtype}, a step of {h:g} is lost in rounding")
        slope = np.empty_like(a)
        for at in np.ndindex(a.shape):
            up, down = ([x.copy() for x in arrays] for _ in range(2))
            up[place][at] += h
            down[place][at] -= h
            slope[at] = (float(f(*up)) - float(f(*down))) / (2 * h)
        slopes.append(slope)
    return slopes
