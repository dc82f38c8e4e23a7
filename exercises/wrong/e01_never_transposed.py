"""Rejected by test_transposed_inputs: takes w as (k, n) whatever op.transpose_b says."""
from minispore import ops


def matmul_gradient(op, x, w, out, dout):
    to_w = ops.matmul(x.reshape(-1, x.shape[-1]).T, dout.reshape(-1, dout.shape[-1]))
    return ops.matmul(dout, w.T), to_w
