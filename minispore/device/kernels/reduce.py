"""dst = dst op src, the arithmetic of a reduction between ranks.

Elementwise, so the result depends on nothing but the order in which the ranks' pieces come. Where Numba knows the dtype,
a compiled loop that releases the GIL; bools (sum and max are "or", prod and min "and") and 16-bit floats go through numpy.
"""
import numpy as np

from minispore.device.kernels.jit import kernel

COMPILED = frozenset(map(np.dtype, ("float32", "float64", "int32", "int64")))


@kernel
def add(dst, src):
    """dst[i] += src[i]"""
    for i in range(dst.shape[0]):
        dst[i] += src[i]


@kernel
def multiply(dst, src):
    """dst[i] *= src[i]"""
    for i in range(dst.shape[0]):
        dst[i] *= src[i]


@kernel
def larger(dst, src):
    """dst[i] = max(dst[i], src[i]); a NaN on either side stays."""
    for i in range(dst.shape[0]):
        if src[i] > dst[i] or src[i] != src[i]:
            dst[i] = src[i]


@kernel
def smaller(dst, src):
    """dst[i] = min(dst[i], src[i]); a NaN on either side stays."""
    for i in range(dst.shape[0]):
        if src[i] < dst[i] or src[i] != src[i]:
            dst[i] = src[i]


OPS = {"sum": (add, np.add), "prod": (multiply, np.multiply), "max": (larger, np.maximum), "min": (smaller, np.minimum)}


def accumulate(op: str):
    """The function (dst, src) that does dst[i] = dst[i] op src[i] in place on flat arrays; op: sum, prod, max or min.

    >>> dst = np.array([1.0, 5.0]); accumulate("max")(dst, np.array([2.0, 3.0])); dst
    array([2., 5.])
    """
    if op not in OPS:
        raise ValueError(f"a reduction is one of {', '.join(OPS)}, not {op!r}")
    compiled, ufunc = OPS[op]

    def into(dst, src):
        if dst.dtype in COMPILED:
            compiled(dst, src)
        else:
            ufunc(dst, src, out=dst)
    return into
