"""Matrix products and biases."""
from dataclasses import dataclass
from math import prod

import numpy as np

from minispore.ops import functional as F
from minispore.ops.primitive import Primitive, Spec, demand_float, namespace
from minispore.ops.rule import letters


@dataclass(frozen=True)
class MatMul(Primitive):
    """x (…, m, k) times a matrix w (k, n) is (…, m, n) (MindSpore: `ops.MatMul`, there for two dims only).

    transpose_b: w is given as (n, k). transpose_a: x is given as (k, m), then x has two dims.
    """
    transpose_a: bool = False
    transpose_b: bool = False
    arity, linear = 2, ((0,), (1,))

    def rule(self, x, w):
        left = "k m" if self.transpose_a else "... k"
        return f"{left}, {'n k' if self.transpose_b else 'k n'} -> {'m' if self.transpose_a else '...'} n"

    def infer(self, x, w):
        demand_float(self, x=x, w=w)
        a, b = x.shape, w.shape
        if len(b) != 2 or not a or (self.transpose_a and len(a) != 2):
            raise ValueError(f"MatMul: x has shape {a}, w {b}; w must have two dims and x at least one"
                             f"{', exactly two with transpose_a' if self.transpose_a else ''}. "
                             "For batches of matrices there is ops.BatchMatMul, or ops.matmul")
        (k, m), (kw, n) = (a if self.transpose_a else (a[-1], a[:-1])), (b[::-1] if self.transpose_b else b)
        if k != kw:
            raise ValueError(f"MatMul: x {a}{' transposed' if self.transpose_a else ''} has {k} columns but w {b}"
                             f"{' transposed' if self.transpose_b else ''} has {kw} rows; they must be equal. "
                             "Check the layer's sizes, or transpose_a / transpose_b")
        return Spec((m, n) if self.transpose_a else (*m, n), x.dtype)

    def forward(self, x, w):
        return namespace(x).matmul(x.T if self.transpose_a else x, w.T if self.transpose_b else w)

    def cpu(self, out, x, w):
        w = w.T if self.transpose_b else w
        if self.transpose_a:
            np.matmul(x.T, w, out=out)
        else:                               # one large product beats a loop over the leading dims
            rows = prod(x.shape[:-1])
            np.matmul(x.reshape(rows, x.shape[-1]), w, out=out.reshape(rows, out.shape[-1]))

    def gradient(self, x, w, out, dout):
        ta, tb = self.transpose_a, self.transpose_b
        def to_x():
            return MatMul(tb, True)(w, dout) if ta else MatMul(False, not tb)(dout, w)
        def to_w():
            if x.ndim != 2:
                return Contract()(dout, x) if tb else Contract()(x, dout)
            return MatMul(True, ta)(dout, x) if tb else MatMul(not ta, False)(x, dout)
        return to_x, to_w

    def flops(self, x, w):
        return 2 * prod(self.infer(x, w).shape) * x.shape[0 if self.transpose_a else -1]


@dataclass(frozen=True)
class BatchMatMul(Primitive):
    """Matrices a (…, m, k) times b (…, k, n), one by one: (…, m, n); leading dims broadcast (MindSpore: `ops.BatchMatMul`).

    transpose_a: a is given as (…, k, m). transpose_b: b is given as (…, n, k).
    """
    transpose_a: bool = False
    transpose_b: bool = False
    arity, linear = 2, ((0,), (1,))

    def rule(self, a, b):
        return f"... {'k m' if self.transpose_a else 'm k'}, ... {'n k' if self.transpose_b else 'k n'} -> ... m n"

    def infer(self, a, b):
        demand_float(self, a=a, b=b)
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise ValueError(f"BatchMatMul: a has shape {a.shape}, b {b.shape}; both need at least two dims")
        m, k = a.shape[-2:][::-1] if self.transpose_a else a.shape[-2:]
        kb, n = b.shape[-2:][::-1] if self.transpose_b else b.shape[-2:]
        if k != kb:
            raise ValueError(f"BatchMatMul: a {a.shape}{' transposed' if self.transpose_a else ''} has {k} columns but b "
                             f"{b.shape}{' transposed' if self.transpose_b else ''} has {kb} rows; they must be equal")
        try:
            lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise ValueError(f"BatchMatMul: the leading dims of a {a.shape} and b {b.shape} don't broadcast; they must be "
                             "equal or 1") from None
        return Spec((*lead, m, n), a.dtype)

    def _operands(self, a, b):
        xp = namespace(a)
        return (xp.matrix_transpose(a) if self.transpose_a else a), (xp.matrix_transpose(b) if self.transpose_b else b)

    def forward(self, a, b):
        return namespace(a).matmul(*self._operands(a, b))

    def cpu(self, out, a, b):
        np.matmul(*self._operands(a, b), out=out)

    def gradient(self, a, b, out, dout):
        ta, tb = self.transpose_a, self.transpose_b
        def to_a():
            return F.unbroadcast(BatchMatMul(tb, True)(b, dout) if ta else BatchMatMul(False, not tb)(dout, b), a.shape)
        def to_b():
            return F.unbroadcast(BatchMatMul(True, ta)(dout, a) if tb else BatchMatMul(not ta, False)(a, dout), b.shape)
        return to_a, to_b

    def flops(self, a, b):
        return 2 * prod(self.infer(a, b).shape) * a.shape[-2 if self.transpose_a else -1]


class Contract(Primitive):
    """a (…, k) and b (…, n) multiplied and summed over all leading dims: (k, n). The gradient of a weight."""
    arity, linear = 2, ((0,), (1,))

    def rule(self, a, b):
        lead = " ".join(f"b{i}" for i in range(len(a) - 1))
        return f"{lead} k, {lead} n -> k n"

    def infer(self, a, b):
        demand_float(self, a=a, b=b)
        if a.shape[:-1] != b.shape[:-1]:
            raise ValueError(f"Contract: a {a.shape} and b {b.shape} must agree in all dims but the last")
        return Spec((a.shape[-1], b.shape[-1]), a.dtype)

    def forward(self, a, b):
        xp, rows = namespace(a), prod(a.shape[:-1])
        return xp.matmul(xp.reshape(a, (rows, a.shape[-1])).T, xp.reshape(b, (rows, b.shape[-1])))

    def gradient(self, a, b, out, dout):
        return (lambda: MatMul(False, True)(b, dout)), (lambda: MatMul()(a, dout))

    def flops(self, a, b):
        return 2 * prod(a.shape) * b.shape[-1]


class BiasAdd(Primitive):
    """x (n, c, …) + bias (c) on dim 1 (MindSpore: `ops.BiasAdd`)."""
    arity, linear = 2, ((0, 1),)

    def rule(self, x, bias):
        term = " ".join(["n", "c", *letters(len(x) + 2)[4:]])
        return f"{term}, c -> {term}"

    def infer(self, x, bias):
        demand_float(self, x=x, bias=bias)
        if len(x.shape) < 2 or bias.shape != x.shape[1:2]:
            raise ValueError(f"BiasAdd: x {x.shape} needs a bias of shape {x.shape[1:2]} (one value for each of "
                             f"dim 1), got {bias.shape}")
        return Spec(x.shape, x.dtype)

    def _aligned(self, x, bias):
        return namespace(x).reshape(bias, (-1, *(1,) * (x.ndim - 2)))

    def forward(self, x, bias):
        return x + self._aligned(x, bias)

    def cpu(self, out, x, bias):
        np.add(x, self._aligned(x, bias), out=out)

    def gradient(self, x, bias, out, dout):
        return dout, (lambda: F.sum(dout, (0, *range(2, x.ndim))))
