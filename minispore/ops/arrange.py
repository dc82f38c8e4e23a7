"""Ops that put tensors together and take them apart, made of Reshape, Concat, BroadcastTo and StridedSlice."""
from dataclasses import dataclass

import numpy as np

from minispore.common.tensor import Tensor
from minispore.ops import functional as F
from minispore.ops.primitive import Composite, normal_axis
from minispore.ops.rule import whole_dims


class ExpandDims(Composite):
    """A new dim of size 1: `ExpandDims()(x, axis)`."""

    def __call__(self, x, axis):
        return F.expand_dims(x, axis)


@dataclass(frozen=True)
class Squeeze(Composite):
    """Without the dims of size 1, or without those named."""
    axis: int | tuple | None = ()

    def __call__(self, x):
        return F.squeeze(x, None if self.axis == () else self.axis)


@dataclass(frozen=True)
class Stack(Composite):
    """Tensors of one shape side by side along a new dim `axis`."""
    axis: int = 0

    def __call__(self, tensors):
        tensors = tuple(tensors)
        for i, t in enumerate(tensors):
            if t.shape != tensors[0].shape:
                raise ValueError(f"Stack: input {i} has shape {t.shape}, input 0 has {tensors[0].shape}; all must agree")
        if not tensors:
            raise ValueError("Stack: no tensors given; pass a tuple of at least one")
        axis = normal_axis(self.axis, tensors[0].ndim + 1, self)
        return F.concat([F.expand_dims(t, axis) for t in tensors], axis)


@dataclass(frozen=True)
class Unstack(Composite):
    """A tuple of the slices along an axis, without that dim."""
    axis: int = 0
    num: int | None = None

    def rule(self, x):
        return " ".join(whole_dims(len(x), [normal_axis(self.axis, len(x), self)]))

    def __call__(self, x):
        axis = normal_axis(self.axis, x.ndim, self)
        if self.num is not None and self.num != x.shape[axis]:
            raise ValueError(f"Unstack: num={self.num}, but dim {axis} of shape {x.shape} has size {x.shape[axis]}")
        return tuple(F.squeeze(F.narrow(x, axis, i, 1), axis) for i in range(x.shape[axis]))


@dataclass(frozen=True)
class Split(Composite):
    """`output_num` equal parts along an axis, as a tuple."""
    axis: int = 0
    output_num: int = 1

    def rule(self, x):
        return " ".join(whole_dims(len(x), [normal_axis(self.axis, len(x), self)]))

    def __call__(self, x):
        axis = normal_axis(self.axis, x.ndim, self)
        if self.output_num < 1 or x.shape[axis] % self.output_num:
            raise ValueError(f"Split: dim {axis} of shape {x.shape} can't be cut into output_num={self.output_num} equal parts")
        return F.split(x, max(x.shape[axis] // self.output_num, 1), axis)


class Tile(Composite):
    """The tensor repeated `multiples` times in each dim: `Tile()(x, multiples)`; missing leading dims are made."""

    def __call__(self, x, multiples):
        multiples = (multiples,) if isinstance(multiples, int) else tuple(multiples)
        if any(not isinstance(m, (int, np.integer)) or m < 0 for m in multiples) or len(multiples) < x.ndim:
            raise ValueError(f"Tile: multiples {multiples} must be whole numbers ≥ 0, at least one for each of the {x.ndim} "
                             f"dims of shape {x.shape}")
        shape = (1,) * (len(multiples) - x.ndim) + x.shape
        apart = [d for n in shape for d in (1, n)]              # (2, 3) -> (1, 2, 1, 3) -> (m, 2, k, 3) -> (2m, 3k)
        wide = [d for m, n in zip(multiples, shape, strict=True) for d in (m, n)]
        return F.reshape(F.broadcast_to(F.reshape(x, apart), wide), tuple(m * n for m, n in zip(multiples, shape, strict=True)))


@dataclass(frozen=True)
class ReverseV2(Composite):
    """In the opposite order along some axes."""
    axis: int | tuple = 0

    def __call__(self, x):
        axes = (self.axis,) if isinstance(self.axis, int) else self.axis
        turned = {normal_axis(a, x.ndim, self) for a in axes}
        return x[tuple(slice(None, None, -1) if i in turned else slice(None) for i in range(x.ndim))]


class Slice(Composite):
    """`Slice()(x, begin, size)`: size[i] entries of dim i from begin[i] on; size -1: to the end."""

    def __call__(self, x, begin, size):
        if not len(begin) == len(size) == x.ndim:
            raise ValueError(f"Slice: begin {tuple(begin)} and size {tuple(size)} need one number for each of the {x.ndim} dims "
                             f"of shape {x.shape}")
        for d, (b, n, whole) in enumerate(zip(begin, size, x.shape, strict=True)):
            if b < 0 or n < -1 or b + max(n, 0) > whole:
                raise ValueError(f"Slice: begin {b} and size {n} leave dim {d} of shape {x.shape}; they must stay inside")
        return x[tuple(slice(b, None if n == -1 else b + n) for b, n in zip(begin, size, strict=True))]


@dataclass(frozen=True)
class Triu(Composite):
    """The upper triangle of each matrix (last two dims) from a diagonal on, zeros below."""
    diagonal: int = 0

    def __call__(self, x):
        return F.select(Tensor(~_below(x, self.diagonal - 1, self.name)), x, F.zeros_like(x))


@dataclass(frozen=True)
class Tril(Composite):
    """The lower triangle of each matrix (last two dims) up to a diagonal, zeros above."""
    diagonal: int = 0

    def __call__(self, x):
        return F.select(Tensor(_below(x, self.diagonal, self.name)), x, F.zeros_like(x))


def _below(x, diagonal, name):
    if x.ndim < 2:
        raise ValueError(f"{name}: a tensor of shape {x.shape} has no matrices; it needs at least two dims")
    return np.tri(*x.shape[-2:], diagonal, dtype=bool)


class MaskedFill(Composite):
    """`value` where the mask is True, else x; shapes broadcast."""

    def __call__(self, x, mask, value):
        value = value if isinstance(value, Tensor) else Tensor(value, x.dtype)
        return F.select(mask, F.cast(value, x.dtype), x)


class ZerosLike(Composite):
    """Zeros of the tensor's shape and dtype."""

    def __call__(self, x):
        return F.zeros_like(x)


class OnesLike(Composite):
    """Ones of the tensor's shape and dtype."""

    def __call__(self, x):
        return F.ones_like(x)


class Range(Composite):
    """`Range()(start, limit, delta)`: start, start + delta, … below limit, of the arguments' dtype."""

    def __call__(self, start, limit, delta):
        return F.range_(start, limit, delta)
