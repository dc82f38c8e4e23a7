"""Ops along an axis that must stay whole: running sums, sorting, picking by place."""
from dataclasses import dataclass
from math import prod

import numpy as np

from minispore.common import dtype as mstype
from minispore.ops import functional as F
from minispore.ops.primitive import Composite, Primitive, Spec, namespace, normal_axis
from minispore.ops.rule import letters


def along(shape, axis, op, *marks) -> list[str]:
    """Terms of a rule in which the axis of each tensor is a whole factor of its own."""
    names, axis = letters(len(shape)), normal_axis(axis, len(shape), op)
    return [" ".join([*names[:axis], mark, *names[axis + 1:]]) for mark in marks]


@dataclass(frozen=True)
class CumSum(Primitive):
    """Running sums along an axis (MindSpore: `ops.CumSum()(x, axis)`).

    exclusive: without the element itself. reverse: from the end.
    """
    exclusive: bool = False
    reverse: bool = False
    axis: int = 0
    call_attributes, linear = ("axis",), ((0,),)

    def take(self, *args):
        op, (x,) = super().take(*args)
        return op, [F.cast(x, mstype.int64) if x.dtype == mstype.bool_ else x]      # bools are counted, as in ReduceSum

    def rule(self, shape):
        term, = along(shape, self.axis, self, "X")
        return f"{term} -> {term}"

    def forward(self, x):
        xp, axis = namespace(x), normal_axis(self.axis, x.ndim, self)
        x = xp.flip(x, axis=axis) if self.reverse else x
        out = xp.cumulative_sum(x, axis=axis, dtype=x.dtype, include_initial=self.exclusive)
        if self.exclusive:
            out = out[(*(slice(None),) * axis, slice(0, x.shape[axis]), ...)]
        return xp.flip(out, axis=axis) if self.reverse else out

    def gradient(self, x, out, dout):
        return (CumSum(self.exclusive, not self.reverse)(dout, self.axis),)


@dataclass(frozen=True)
class ArgSort(Primitive):
    """Indices (int32) that sort along an axis; equal values keep their order. No gradient."""
    axis: int = -1
    descending: bool = False

    def rule(self, shape):
        terms = along(shape, self.axis, self, "X", "X")
        return " -> ".join(terms)

    def infer(self, x):
        normal_axis(self.axis, len(x.shape), self)
        return Spec(x.shape, mstype.int32)

    def forward(self, x):
        xp = namespace(x)
        return xp.astype(xp.argsort(x, axis=self.axis, descending=self.descending), xp.int32)

    def cpu(self, out, x):
        if not self.descending:
            return np.copyto(out, np.argsort(x, self.axis, kind="stable"), casting="unsafe")
        backwards = np.flip(np.argsort(np.flip(x, self.axis), self.axis, kind="stable"), self.axis)
        np.subtract(x.shape[self.axis] - 1, backwards, out=out, casting="unsafe")

    def gradient(self, x, out, dout):
        return (None,)


@dataclass(frozen=True)
class GatherD(Primitive):
    """out[…, j, …] = x[…, index[…, j, …], …] along an axis; all other dims agree (MindSpore: `ops.GatherD()(x, dim, index)`)."""
    dim: int = 0
    arity, linear, call_attributes = 2, ((0,),), ("dim",)

    def take(self, *args):
        if len(args) == 3:                      # MindSpore has the dim between the tensors
            args = args[0], args[2], int(args[1])
        return super().take(*args)

    def rule(self, x, index):
        source, target = along(x, self.dim, self, "X", "Y")
        return f"{source}, {target} -> {target}"

    def infer(self, x, index):
        axis = normal_axis(self.dim, len(x.shape), self)
        if not mstype.is_integer(index.dtype):
            raise TypeError(f"{self.name}: the index of shape {index.shape} is {index.dtype}; it must be integers")
        if _but(x.shape, axis) != _but(index.shape, axis) or len(x.shape) != len(index.shape):
            raise ValueError(f"{self.name}: x {x.shape} and index {index.shape} must agree in all dims but {axis}")
        return Spec(index.shape, x.dtype)

    def forward(self, x, index):
        xp, n = namespace(x), x.shape[self.dim]
        outside = (index < -n) | (index >= n)
        if bool(xp.any(outside)):
            raise IndexError(f"GatherD: an index is outside dim {self.dim} of size {n} (shape {tuple(x.shape)}); use "
                             f"{-n} … {n - 1}")
        index = xp.where(index < 0, index + n, index)
        return xp.take_along_axis(x, xp.astype(index, xp.int64), axis=self.dim)

    def gradient(self, x, index, out, dout):
        return (lambda: GatherDGrad(self.dim, x.shape[self.dim])(index, dout)), None


@dataclass(frozen=True)
class GatherDGrad(Primitive):
    """GatherD's transpose: zeros of size `rows` along the axis, with each value of d added at its index."""
    dim: int = 0
    rows: int = 0
    arity, linear = 2, ((1,),)

    def rule(self, index, d):
        source, target = along(index, self.dim, self, "Y", "X")
        return f"{source}, {source} -> {target}"

    def infer(self, index, d):
        axis = normal_axis(self.dim, len(d.shape), self)
        return Spec((*d.shape[:axis], self.rows, *d.shape[axis + 1:]), d.dtype)

    def forward(self, index, d):
        # By a one-hot mask: the array API has no scatter.
        xp, axis = namespace(d), self.dim % d.ndim
        index = xp.expand_dims(xp.where(index < 0, index + self.rows, index), axis=axis)
        wanted = xp.reshape(xp.arange(self.rows, dtype=index.dtype), (self.rows, *(1,) * (d.ndim - axis)))
        return xp.sum(xp.where(index == wanted, xp.expand_dims(d, axis=axis), xp.zeros((), dtype=d.dtype)), axis=axis + 1)

    def cpu(self, out, index, d):
        out[...] = 0
        axis = self.dim % d.ndim
        at = list(np.indices(d.shape, sparse=True))
        at[axis] = index
        np.add.at(out, tuple(at), d)

    def gradient(self, index, d, out, dout):
        return None, (lambda: GatherD(self.dim)(dout, index))

    def flops(self, index, d):
        return prod(d.shape)


@dataclass(frozen=True)
class Sort(Composite):
    """(values, their indices before) in order along an axis (MindSpore: `ops.Sort`)."""
    axis: int = -1
    descending: bool = False

    def rule(self, x):
        return along(x, self.axis, self, "X")[0]

    def __call__(self, x):
        index = ArgSort(self.axis, self.descending)(x)
        return GatherD(self.axis)(x, index), index


@dataclass(frozen=True)
class TopK(Composite):
    """(values, indices) of the k largest along the last axis, in descending order (MindSpore: `ops.TopK()(x, k)`)."""
    sorted: bool = True

    def rule(self, x):
        return "... X"

    def __call__(self, x, k):
        return F.topk(x, k)


def _but(shape, axis):
    return (*shape[:axis], *shape[axis + 1:])
