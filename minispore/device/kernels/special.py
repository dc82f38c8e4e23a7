"""Functions that numpy lacks, value by value on flat arrays."""
from math import erf as erf_of

from .jit import kernel


@kernel
def erf(x, out):
    """out[i] = erf(x[i])"""
    for i in range(x.shape[0]):
        out[i] = erf_of(x[i])


@kernel
def gelu(x, out):
    """out[i] = x[i] · Φ(x[i]) = ½ · x[i] · (1 + erf(x[i] / √2))"""
    for i in range(x.shape[0]):
        out[i] = 0.5 * x[i] * (1 + erf_of(x[i] * 0.7071067811865476))
