"""Rejected by test_few_loads_from_memory: only the loop over k is in tiles, the others run through all of b and out."""
import numba


@numba.njit
def matmul(a, b, out, tile):
    m, k = a.shape
    n = b.shape[1]
    out[:, :] = 0.0
    for l0 in range(0, k, tile):
        for i in range(m):
            for l in range(l0, min(l0 + tile, k)):
                for j in range(n):
                    out[i, j] += a[i, l] * b[l, j]
