"""Rejected by test_dims_in_front: the gradient to w keeps the dims in front instead of summing over them."""
from minispore import ops


def matmul_gradient(op, x, w, out, dout):
    a = x.T if op.transpose_a else x
    b = w.T if op.transpose_b else w
    to_a, to_b = ops.matmul(dout, b.T), ops.matmul(a.swapaxes(-1, -2), dout)
    return (to_a.T if op.transpose_a else to_a), (to_b.T if op.transpose_b else to_b)
