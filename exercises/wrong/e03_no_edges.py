"""Rejected by test_any_sizes: leaves out the rows and columns that don't fill a tile."""
import numba


@numba.njit
def matmul(a, b, out, tile):
    m, k = a.shape
    n = b.shape[1]
    out[:, :] = 0.0
    for i0 in range(0, m // tile * tile, tile):
        for j0 in range(0, n // tile * tile, tile):
            for l0 in range(0, k // tile * tile, tile):
                for i in range(i0, i0 + tile):
                    for l in range(l0, l0 + tile):
                        for j in range(j0, j0 + tile):
                            out[i, j] += a[i, l] * b[l, j]
