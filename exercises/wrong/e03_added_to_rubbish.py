"""Rejected by test_any_sizes: adds to what is in out before, without setting it to 0."""
import numba


@numba.njit
def matmul(a, b, out, tile):
    m, k = a.shape
    n = b.shape[1]
    for i0 in range(0, m, tile):
        for j0 in range(0, n, tile):
            for l0 in range(0, k, tile):
                for i in range(i0, min(i0 + tile, m)):
                    for l in range(l0, min(l0 + tile, k)):
                        for j in range(j0, min(j0 + tile, n)):
                            out[i, j] += a[i, l] * b[l, j]
