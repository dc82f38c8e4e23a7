"""The hot loops of the CPU, written in Python and compiled by Numba when first called.

They are destination-passing (the caller owns all memory), release the GIL and stay on one thread: parallelism
is the ranks' affair. `jit` says how a loop becomes a kernel.
"""
from minispore.device.kernels.conv import conv2d, conv2d_filter, conv2d_input
from minispore.device.kernels.pool import max_pool, max_pool_gather, max_pool_grad
from minispore.device.kernels.reduce import COMPILED, OPS, accumulate
from minispore.device.kernels.special import erf, gelu

__all__ = ["COMPILED", "OPS", "accumulate", "conv2d", "conv2d_filter", "conv2d_input", "erf", "gelu", "max_pool",
           "max_pool_gather", "max_pool_grad"]
