"""E1 · The gradient of a matrix product.

Write the gradient of `ops.MatMul`. The library's own is taken out, and yours takes its place: whatever multiplies matrices,
`nn.Dense` too, is then differentiated by your function.

    matmul_gradient(op, x, w, out, dout) -> (gradient to x, gradient to w)

op    the MatMul. op.transpose_a and op.transpose_b say whether x and w are used transposed (both are False in plain `x @ w`)
x     a Tensor (m, k), or (…, m, k) with more dims in front; (k, m) if op.transpose_a
w     a Tensor (k, n); (n, k) if op.transpose_b, as nn.Dense keeps its weight
out   the product, (…, m, n)
dout  what an increase of each element of `out` does to the loss: the same shape as `out`

Each gradient has the shape of its input. Write it with ops, `ops.matmul(a, b)` or `a @ b`, `a.T` (reverses the dims),
`a.reshape(rows, columns)` (one of them may be -1), so that it can be differentiated once more.

Example: x = [[1, 2]], w = [[3], [4]], dout = [[10]] gives [[30, 40]] and [[10], [20]].

Graded: two matrices (3 points), transposed inputs (2), dims in front (2), the gradient's gradient (2), a network trained with
it (1). All of them against finite differences or the serial result.
"""
from minispore import ops


def matmul_gradient(op, x, w, out, dout):
    raise NotImplementedError("E1: write matmul_gradient(op, x, w, out, dout), see above")
