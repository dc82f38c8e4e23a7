"""The hot loops of the CPU, written in Python and compiled by Numba when first called.

They are destination-passing (the caller owns all memory), release the GIL and stay on one thread: parallelism
is the ranks' affair. `jit` says how a loop becomes a kernel.
"""
