"""Rejected by test_two_matrices: dout.T @ x is the gradient to w, but transposed."""
from minispore import ops


def matmul_gradient(op, x, w, out, dout):
    a = x.T if op.transpose_a else x
    b = w.T if op.transpose_b else w
    to_a = ops.matmul(dout, b.T)
    to_b = ops.matmul(dout.reshape(-1, dout.shape[-1]).T, a.reshape(-1, a.shape[-1]))
    return (to_a.T if op.transpose_a else to_a), (to_b.T if op.transpose_b else to_b)
