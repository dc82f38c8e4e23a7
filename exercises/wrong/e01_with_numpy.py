"""Rejected by test_the_gradients_gradient: numpy's numbers depend on nothing, so the second gradient misses them."""
from minispore import Tensor


def matmul_gradient(op, x, w, out, dout):
    x, w, dout = x.asnumpy(), w.asnumpy(), dout.asnumpy()
    a = x.T if op.transpose_a else x
    b = w.T if op.transpose_b else w
    to_a = dout @ b.T
    to_b = a.reshape(-1, a.shape[-1]).T @ dout.reshape(-1, dout.shape[-1])
    return Tensor(to_a.T if op.transpose_a else to_a), Tensor(to_b.T if op.transpose_b else to_b)
