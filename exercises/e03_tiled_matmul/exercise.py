"""E3 · A matrix product in tiles.

Write a kernel, compiled by Numba, that multiplies two matrices tile by tile, so that a small cache is enough.

    matmul(a, b, out, tile)

a     float64 (m, k)        b     float64 (k, n)
out   float64 (m, n), whose values are to be overwritten with a @ b; there may be anything in it before
tile  how many rows and columns a tile has; m, k and n need not be multiples of it, and it may be larger than they are

Cut all three loops (over m, k and n) into steps of `tile`. For each tile of `a` and tile of `b`, add their product to the tile of
`out` before you go on to the next. Write the loops out: no np.dot, no @.

Example: a = [[1, 2]], b = [[3], [4]] puts [[11]] into out, with any tile.

Graded: any sizes, odd ones too (4 points); loops of your own, compiled by Numba (2); few loads from memory (4): with a cache that
holds 4 * tile * tile numbers, at most half again as many as three tiles at a time need.
"""
import numba


@numba.njit
def matmul(a, b, out, tile):
    raise NotImplementedError("E3: write matmul(a, b, out, tile), see above")
