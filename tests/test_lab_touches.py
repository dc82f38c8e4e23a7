"""What kernels touch, counted through a cache."""
import numba
import numpy as np
import pytest

from minispore.lab.touches import loads, touches


@numba.njit
def add_row(row, target):
    for j in range(len(row)):
        target[j] += row[j]


@numba.njit
def add_all(x, out):
    for i in range(x.shape[0]):
        add_row(x[i], out)


def test_kernels_that_kernels_call_are_followed():
    out = np.zeros(2)
    assert touches(add_all, np.array([[1.0, 2], [3, 4]]), out) == [4, 0, 4, 5, 1, 5, 4, 2, 4, 5, 3, 5]
    assert out.tolist() == [4, 6]


def test_arithmetic_with_slices_touches_all_of_them():
    def kernel(x, out):
        out[:2] = 2 * x[1:]
        out += x
    x, out = np.arange(3.0), np.zeros(3)
    walk = touches(kernel, x, out)
    assert out.tolist() == [2, 5, 2] and walk[:4] == [1, 2, 3, 4] and set(walk[4:]) == set(range(6))


def test_what_a_watched_array_cannot_do_is_said():
    with pytest.raises(AttributeError, match=r"asks an array for \.T; while it is watched it can index"):
        touches(lambda x: x.T, np.ones((2, 2)))
    with pytest.raises(TypeError, match="is no function written in Python"):
        touches(np.dot, np.ones(2), np.ones(2))


def test_lines_are_loaded_once_while_they_stay():
    walk = list(range(16)) * 2
    assert [loads(walk, cache, line) for cache, line in ((16, 1), (8, 1), (16, 4), (8, 4))] == [16, 32, 4, 8]
    with pytest.raises(ValueError, match="must hold one line or more"):
        loads(walk, 3, 4)
