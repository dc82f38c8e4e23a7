"""Reductions over some axes: sum, mean, max, min, prod, any, all, and where the extreme value stands."""
from dataclasses import dataclass, replace
from math import inf, prod
from typing import ClassVar

import numpy as np

from minispore.common import dtype as mstype
from minispore.ops import functional as F
from minispore.ops.primitive import Composite, Primitive, Spec, namespace, normal_axis
from minispore.ops.rule import letters, whole_dims


@dataclass(frozen=True)
class Reduce(Primitive):
    """axis: an int, a tuple of ints, or () for all; keep_dims: leave reduced dims with size 1."""
    keep_dims: bool = False
    axis: int | tuple | None = ()
    call_attributes, function = ("axis",), ""
    floating: ClassVar[bool] = False            # integers are converted first

    def __post_init__(self):
        if isinstance(self.axis, list):
            object.__setattr__(self, "axis", tuple(self.axis))

    def take(self, *args):
        op, (x,) = super().take(*args)
        return op, [F.cast(x, mstype.float32) if self.floating and not mstype.is_float(x.dtype) else x]

    def axes(self, ndim: int) -> tuple[int, ...]:
        if self.axis is None or self.axis == ():
            return tuple(range(ndim))
        axes = (self.axis,) if isinstance(self.axis, (int, np.integer)) else self.axis
        normal = tuple(sorted(normal_axis(a, ndim, self) for a in axes))
        if len(set(normal)) < len(normal):
            raise ValueError(f"{self.name}: axis {self.axis} names a dim twice; name each once")
        return normal

    def rule(self, shape):
        axes, names = self.axes(len(shape)), letters(len(shape))
        kept = [n if i not in axes else "1" for i, n in enumerate(names) if self.keep_dims or i not in axes]
        return f"{' '.join(names)} -> {' '.join(kept)}"

    def infer(self, x):
        axes = self.axes(x.ndim if hasattr(x, "ndim") else len(x.shape))
        if self.keep_dims:
            shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        else:
            shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        return Spec(shape, self.result(x.dtype))

    def result(self, dtype):
        return dtype

    def forward(self, x):
        return getattr(namespace(x), self.function)(x, axis=self.axes(x.ndim), keepdims=self.keep_dims)

    def spread(self, y, x):
        """y, one value a reduced slice, repeated to x's shape."""
        axes = self.axes(x.ndim)
        return F.broadcast_to(F.reshape(y, tuple(1 if i in axes else n for i, n in enumerate(x.shape))), x.shape)

    def flops(self, x):
        return prod(x.shape)


class ReduceSum(Reduce):
    """Σ over the axes; bools are counted."""
    linear = ((0,),)

    def result(self, dtype):
        return mstype.int64 if dtype == mstype.bool_ else dtype

    def forward(self, x):
        xp = namespace(x)
        return xp.sum(x, axis=self.axes(x.ndim), keepdims=self.keep_dims,
                      dtype=getattr(xp, self.result(np.dtype(str(x.dtype).split(".")[-1])).name))

    def cpu(self, out, x):
        np.sum(x, axis=self.axes(x.ndim), keepdims=self.keep_dims, out=out)

    def gradient(self, x, out, dout):
        return (self.spread(dout, x),)


@dataclass(frozen=True)
class ReduceMean(Reduce):
    """Σ over the axes / their number. `count` is that number where x is a slice of something larger."""
    count: int = 0
    linear, floating = ((0,),), True

    def divisor(self, x) -> int:
        return self.count or prod(x.shape[a] for a in self.axes(len(x.shape)))

    def forward(self, x):
        return namespace(x).sum(x, axis=self.axes(x.ndim), keepdims=self.keep_dims) / self.divisor(x)

    def cpu(self, out, x):
        np.sum(x, axis=self.axes(x.ndim), keepdims=self.keep_dims, out=out)
        np.divide(out, self.divisor(x), out=out)

    def gradient(self, x, out, dout):
        n = self.divisor(x)
        return (self.spread(dout * (1 / n if n else inf), x),)          # the mean of nothing is NaN

    def local(self, rule, pieces):
        dims = rule.ins[0]
        return replace(self, count=prod(rule.sizes[f] for a in self.axes(len(dims)) for f in dims[a]))


class Selecting(Reduce):
    """ReduceMax, ReduceMin: the gradient goes to the winners, shared equally where several are equal."""

    def infer(self, x):
        spec = super().infer(x)
        if not all(x.shape[a] for a in self.axes(len(x.shape))):
            axis = "all" if self.axis == () else self.axis
            raise ValueError(f"{self.name}: axis {axis} of shape {x.shape} is empty; there is no extreme value")
        return spec

    def gradient(self, x, out, dout):
        won = F.cast(F.equal(x, self.spread(out, x)), dout.dtype)
        ties = ReduceSum(keep_dims=self.keep_dims, axis=self.axis)(won)
        return (self.spread(dout / ties, x) * won,)


class ReduceMax(Selecting):
    function, reduction = "max", "max"


class ReduceMin(Selecting):
    function, reduction = "min", "min"


class ReduceProd(Reduce):
    """Π over the axes; the gradient is right with any number of zeros."""
    function, reduction = "prod", "prod"

    def forward(self, x):
        xp = namespace(x)
        return xp.prod(x, axis=self.axes(x.ndim), keepdims=self.keep_dims, dtype=x.dtype)

    def gradient(self, x, out, dout):
        axes = self.axes(x.ndim)
        front = tuple(i for i in range(x.ndim) if i not in axes) + axes        # reduced axes last, as one
        moved = F.transpose(x, front)
        flat = F.reshape(moved, (*moved.shape[:x.ndim - len(axes)], -1))
        others = F.reshape(product_of_others(flat), moved.shape)
        back = tuple(front.index(i) for i in range(x.ndim))
        return (self.spread(dout, x) * F.transpose(others, back),)


def product_of_others(x):
    """For each element the product of all others along the last axis.

    By a binary tree of products, up and down again: no division, so zeros do no harm, and nothing but Mul,
    so it differentiates again.
    """
    n = x.shape[-1]
    if n <= 1:
        return F.ones_like(x)
    if n % 2:
        padded = F.concat((x, F.ones_like(x[..., :1])), -1)
        return product_of_others(padded)[..., :n]
    pairs = F.reshape(x, (*x.shape[:-1], n // 2, 2))
    left, right = pairs[..., 0], pairs[..., 1]
    rest = product_of_others(left * right)
    both = F.concat((F.expand_dims(rest * right, -1), F.expand_dims(rest * left, -1)), -1)
    return F.reshape(both, x.shape)


class Logical(Reduce):
    """ReduceAny, ReduceAll: of bools; numbers are taken for "not zero". No gradient."""

    def take(self, *args):
        op, (x,) = super().take(*args)
        return op, [F.cast(x, mstype.bool_)]

    def gradient(self, x, out, dout):
        return (None,)


class ReduceAny(Logical):
    function, reduction = "any", "max"


class ReduceAll(Logical):
    function, reduction = "all", "min"


@dataclass(frozen=True)
class Argmax(Primitive):
    """Index (int32 by default) of the largest value along an axis, the first of equals (MindSpore: `ops.Argmax`)."""
    axis: int = -1
    output_type: np.dtype = mstype.int32
    function: ClassVar[str] = "argmax"

    def __post_init__(self):
        object.__setattr__(self, "output_type", mstype.to_dtype(self.output_type))

    def rule(self, shape):
        names, axis = letters(len(shape)), normal_axis(self.axis, len(shape), self)
        rest = [n for i, n in enumerate(names) if i != axis]
        names[axis] = "X"
        return f"{' '.join(names)} -> {' '.join(rest)}"

    def infer(self, x):
        axis = normal_axis(self.axis, len(x.shape), self)
        if not x.shape[axis]:
            raise ValueError(f"{self.name}: axis {self.axis} of shape {x.shape} is empty; there is no extreme value")
        return Spec(tuple(n for i, n in enumerate(x.shape) if i != axis), self.output_type)

    def forward(self, x):
        xp = namespace(x)
        return xp.astype(getattr(xp, self.function)(x, axis=self.axis), getattr(xp, self.output_type.name))

    def gradient(self, x, out, dout):
        return (None,)


class Argmin(Argmax):
    """Index (int32 by default) of the smallest value along an axis, the first of equals (MindSpore: `ops.Argmin`)."""
    function = "argmin"


@dataclass(frozen=True)
class ArgMaxWithValue(Composite):
    """(index, value) of the largest along an axis; the gradient goes to the first (MindSpore: `ops.ArgMaxWithValue`)."""
    axis: int = 0
    keep_dims: bool = False
    place: ClassVar[type] = Argmax

    def rule(self, x):
        return " ".join(whole_dims(len(x), [normal_axis(self.axis, len(x), self)]))

    def __call__(self, x):
        index = F.expand_dims(self.place(self.axis)(x), self.axis)
        value = F.gather_elements(x, self.axis, index)
        return (index, value) if self.keep_dims else (F.squeeze(index, self.axis), F.squeeze(value, self.axis))


class ArgMinWithValue(ArgMaxWithValue):
    """(index, value) of the smallest along an axis; the gradient goes to the first (MindSpore: `ops.ArgMinWithValue`)."""
    place = Argmin
