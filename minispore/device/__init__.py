"""Where tensors live and compute: the CPU (numpy and Numba kernels), GPUs (CuPy), Ascend (torch_npu)."""
