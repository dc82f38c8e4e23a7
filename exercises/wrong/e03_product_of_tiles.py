"""Rejected by test_loops_of_your_own: the tiles are multiplied by np.dot."""
import numba
import numpy as np


@numba.njit
def matmul(a, b, out, tile):
    m, k = a.shape
    n = b.shape[1]
    out[:, :] = 0.0
    for i0 in range(0, m, tile):
        for j0 in range(0, n, tile):
            for l0 in range(0, k, tile):
                out[i0:i0 + tile, j0:j0 + tile] += np.dot(a[i0:i0 + tile, l0:l0 + tile], b[l0:l0 + tile, j0:j0 + tile])
