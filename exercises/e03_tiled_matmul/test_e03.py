"""E3: what a matrix product in tiles must do."""
import dis

import numpy as np

from minispore.grade import plain, points
from minispore.lab.touches import as_python, loads, touches

TAKEN_AWAY = []
PRODUCTS = {"dot", "vdot", "matmul", "inner", "outer", "tensordot", "einsum", "linalg", "objmode"}


def compare(kernel, m, k, n, tile):
    draw = np.random.default_rng(m + k + n)
    a, b, out = draw.integers(-9, 9, (m, k)) * 1.0, draw.integers(-9, 9, (k, n)) * 1.0, np.full((m, n), np.nan)
    before = a.copy(), b.copy()
    kernel(a, b, out, tile)
    case, expected, got = f"a ({m}, {k}), b ({k}, {n}), tile {tile}", before[0] @ before[1], plain(out, np.float64)
    wrong = got != expected
    if wrong.any():
        i, j = map(int, np.argwhere(wrong)[0])
        raise AssertionError(f"{case}: out[{i}, {j}] should be {expected[i, j]:g}, it is {got[i, j]:g} ({wrong.sum()} of "
                             f"{wrong.size} values differ; out was full of NaN before)")
    assert np.array_equal(a, before[0]) and np.array_equal(b, before[1]), f"{case}: a or b has been changed"


@points(4, hint=1)
def test_any_sizes(answer):
    for m, k, n, tile in ((1, 1, 1, 1), (1, 2, 1, 1), (2, 2, 2, 2), (4, 4, 4, 2), (3, 5, 2, 2), (7, 4, 9, 3), (5, 6, 7, 100),
                          (33, 17, 50, 8), (1, 20, 1, 7)):
        compare(answer.matmul, m, k, n, tile)


def is_product(step, function):
    """Whether an instruction takes one of numpy's products, as a name of it or from it; yours may have such names."""
    if step.argval not in PRODUCTS:
        return False
    of_numpy = str(getattr(function.__globals__.get(step.argval), "__module__", "")).startswith("numpy")
    return step.opname in ("LOAD_ATTR", "LOAD_METHOD") or (step.opname == "LOAD_GLOBAL" and of_numpy)


@points(2, hint=2)
def test_loops_of_your_own(answer):
    kind = type(answer.matmul).__name__
    assert hasattr(answer.matmul, "py_func"), f"matmul should be compiled by Numba, it is a {kind}; put @numba.njit above it"
    for name, function in functions(answer.matmul):
        for step in dis.get_instructions(function):
            product = "@" if step.argrepr in ("@", "@=") else step.argval if is_product(step, function) else None
            assert product is None, f"{name} uses {product}, which multiplies matrices for you; write the loops"
    compare(answer.matmul, 3, 4, 5, 2)
    assert answer.matmul.nopython_signatures, "Numba has compiled no version of matmul; put @numba.njit above it"


def functions(kernel):
    """The Python functions of a kernel and of the kernels it calls, by name."""
    found = {}
    as_python(kernel, found)
    return [(function.__name__, function) for function in found]


@points(4, hint=3)
def test_few_loads_from_memory(answer):
    for n, tile in (12, 3), (24, 6):
        a, b, out = np.ones((n, n)), np.ones((n, n)), np.zeros((n, n))
        cache, tiles = 4 * tile * tile, n // tile
        count, needed = loads(touches(answer.matmul, a, b, out, tile), cache), (2 * tiles + 1) * n * n
        case = f"{n} by {n}, tile {tile}, a cache of {cache} numbers"
        assert (out == n).all(), f"{case}: the product of matrices of ones should be {n} everywhere, out[0, 0] is {out[0, 0]:g}"
        assert count <= 1.5 * needed, (f"{case}: {count:,} loads; with a tile each of a, b and out in the cache there should be "
                                       f"about {needed:,}, at most {needed * 3 // 2:,}")
