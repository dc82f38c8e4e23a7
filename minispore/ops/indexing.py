"""Ops that pick by index: Gather, its transpose, OneHot, and Python's x[...]."""
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from minispore.common import dtype as mstype
from minispore.common.tensor import Tensor
from minispore.ops import functional as F
from minispore.ops.primitive import Primitive, Spec, namespace, normal_axis
from minispore.ops.rule import letters
from minispore.ops.shape import StridedSlice


def _demand_indices(op, x):
    if not mstype.is_integer(x.dtype):
        raise TypeError(f"{op.name}: indices of shape {x.shape} are {x.dtype}; they must be integers. "
                        "Use .astype(ms.int32)")


@dataclass(frozen=True)
class Gather(Primitive):
    """out[..., i..., ...] = x[..., indices[i...], ...] along an axis; out of range is an error.

    On a slice of the axis (`slice_of`: first index and size of the whole axis) indices that lie elsewhere give zeros, so
    that the slices' results sum up.
    """
    axis: int = 0
    slice_of: tuple[int, int] | None = None
    arity, call_attributes, linear = 2, ("axis",), ((0,),)

    def rule(self, x, indices):
        axis, names = normal_axis(self.axis, len(x), self), letters(len(x))
        picked = [f"i{k}" for k in range(len(indices))]
        return (f"{' '.join(names)}, {' '.join(picked)} -> "
                f"{' '.join(names[:axis] + picked + names[axis + 1:])}")

    def infer(self, x, indices):
        _demand_indices(self, indices)
        axis = normal_axis(self.axis, len(x.shape), self)
        return Spec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]), x.dtype)

    def forward(self, x, indices):
        xp = namespace(x)
        axis, n = self.axis % x.ndim, x.shape[self.axis]
        start, whole = self.slice_of or (0, n)
        at = xp.where(indices < 0, indices + whole, indices)
        there = (at >= 0) & (at < whole)
        if not bool(xp.all(there)):
            bad = int(indices[~there][0]) if hasattr(indices, "tolist") else "?"
            shape = (*x.shape[:axis], whole, *x.shape[axis + 1:])
            raise IndexError(f"Gather: index {bad} is outside axis {axis} of size {whole} (shape {shape}); use {-whole} … "
                             f"{whole - 1}")
        at = at - start
        inside = (at >= 0) & (at < n)
        flat = xp.reshape(xp.where(inside, at, xp.zeros_like(at)), (-1,))
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])
        if not n:
            return xp.zeros(shape, dtype=x.dtype)
        out = xp.reshape(xp.take(x, flat, axis=axis), shape)
        if self.slice_of is None:
            return out
        mask = xp.reshape(inside, (*indices.shape, *(1,) * (x.ndim - axis - 1)))
        return xp.where(mask, out, xp.zeros_like(out))

    def gradient(self, x, indices, out, dout):
        return (lambda: ScatterAdd(self.axis % x.ndim, x.shape[self.axis])(indices, dout)), None

    def local(self, rule, pieces):
        return replace(self, slice_of=_slice_of(rule.ins[0][self.axis], rule, pieces))


@dataclass(frozen=True)
class ScatterAdd(Primitive):
    """Gather's transpose: zeros of size `rows` along the axis, with each slice of d added at its index."""
    axis: int = 0
    rows: int = 0
    slice_of: tuple[int, int] | None = None
    arity, linear = 2, ((1,),)

    def rule(self, indices, d):
        names = letters(len(d) - len(indices) + 1)
        picked = [f"i{k}" for k in range(len(indices))]
        return (f"{' '.join(picked)}, {' '.join(names[:self.axis] + picked + names[self.axis + 1:])} -> "
                f"{' '.join(names)}")

    def infer(self, indices, d):
        return Spec((*d.shape[:self.axis], self.rows, *d.shape[self.axis + len(indices.shape):]), d.dtype)

    def forward(self, indices, d):
        # A product with a one-hot matrix: the array API has no scatter.
        xp = namespace(d)
        start, whole = self.slice_of or (0, self.rows)
        wanted = xp.arange(self.rows, dtype=indices.dtype) + start
        flat = xp.reshape(indices, (-1,))
        flat = xp.where(flat < 0, flat + whole, flat)
        hit = xp.astype(wanted[:, None] == flat[None, :], d.dtype)
        before, after = d.shape[:self.axis], d.shape[self.axis + indices.ndim:]
        rows = xp.reshape(d, (prod(before), prod(indices.shape), prod(after)))
        return xp.reshape(xp.matmul(hit[None, :, :], rows), (*before, self.rows, *after))

    def cpu(self, out, indices, d):
        out[...] = 0
        start, whole = self.slice_of or (0, self.rows)
        at = indices.reshape(-1).astype(np.int64)
        at = np.where(at < 0, at + whole, at) - start
        inside = (at >= 0) & (at < self.rows)
        before, after = d.shape[:self.axis], d.shape[self.axis + indices.ndim:]
        rows = d.reshape(prod(before), at.size, prod(after))
        flat = out.reshape(prod(before), self.rows, prod(after))
        np.add.at(flat, (slice(None), at[inside]), rows[:, inside])

    def gradient(self, indices, d, out, dout):
        return None, (lambda: Gather(self.axis)(dout, indices))

    def local(self, rule, pieces):
        dim = rule.outs[0][self.axis]
        return replace(self, slice_of=_slice_of(dim, rule, pieces),
                       rows=self.rows // prod(pieces[f].count for f in dim if f in pieces))


@dataclass(frozen=True)
class OneHot(Primitive):
    """1 where the class equals the index, else 0; an index outside 0 … depth-1 gives a row of zeros.

    Args: axis, where the class dim goes; depth, number of classes; on, off, the two values; dtype of the result.
    """
    axis: int = -1
    depth: int = 0
    on: float = 1.0
    off: float = 0.0
    dtype: np.dtype = mstype.float32
    start: int = 0
    call_attributes = ("depth", "on", "off")

    def __post_init__(self):
        for name in ("on", "off"):
            value = getattr(self, name)
            if isinstance(value, Tensor):
                object.__setattr__(self, "dtype", value.dtype)
                object.__setattr__(self, name, value.item())

    def rule(self, shape):
        names = letters(len(shape))
        axis = normal_axis(self.axis, len(shape) + 1, self)
        return f"{' '.join(names)} -> {' '.join([*names[:axis], 'z', *names[axis:]])}"

    def infer(self, indices):
        _demand_indices(self, indices)
        if not isinstance(self.depth, (int, np.integer)) or self.depth < 0:
            raise ValueError(f"OneHot: depth {self.depth!r} must be a whole number ≥ 0, the number of classes")
        axis = normal_axis(self.axis, len(indices.shape) + 1, self)
        return Spec((*indices.shape[:axis], self.depth, *indices.shape[axis:]), self.dtype)

    def forward(self, indices):
        xp = namespace(indices)
        axis = normal_axis(self.axis, indices.ndim + 1, self)
        classes = xp.reshape(xp.arange(self.start, self.start + self.depth),
                             (self.depth, *(1,) * (indices.ndim - axis)))
        dtype = getattr(xp, self.dtype.name)
        hit = xp.expand_dims(xp.astype(indices, xp.int64), axis=axis) == classes
        return xp.where(hit, xp.asarray(self.on, dtype=dtype), xp.asarray(self.off, dtype=dtype))

    def gradient(self, indices, out, dout):
        return (None,)

    def local(self, rule, pieces):
        dim = rule.outs[0][self.axis]
        return replace(self, start=(_slice_of(dim, rule, pieces) or (self.start,))[0],
                       depth=self.depth // prod(pieces[f].count for f in dim if f in pieces))


def _slice_of(dim, rule, pieces):
    """(index at which the slice begins, size of the whole dim), or None where the dim isn't split."""
    if not dim or dim[0] not in pieces:
        return None
    whole = rule.sizes[dim[0]]
    return pieces[dim[0]].index * (whole // pieces[dim[0]].count), whole


# ---- x[...] -------------------------------------------------------------------------------------

def getitem(x: Tensor, index) -> Tensor:
    """Python's indexing: integers, slices, None, `...`, and integer tensors (or lists) that stand side by side.

    >>> from minispore import Tensor
    >>> getitem(Tensor([[1, 2], [3, 4]]), (slice(None), 1)).tolist()
    [2, 4]
    """
    items = index if isinstance(index, tuple) else (index,)
    used = sum(i is not None and i is not Ellipsis for i in items)
    if sum(i is Ellipsis for i in items) > 1 or used > x.ndim:
        raise IndexError(f"index {index!r} does not fit a tensor of shape {x.shape}: at most one '...' and "
                         f"{x.ndim} indices")
    if not any(i is Ellipsis for i in items):
        items = (*items, Ellipsis)
    at = next(k for k, i in enumerate(items) if i is Ellipsis)
    items = items[:at] + (slice(None),) * (x.ndim - used) + items[at + 1:]

    begin, end, strides, shape, arrays, dim = [], [], [], [], [], 0
    for i in items:
        if i is None:
            shape.append(1)
            continue
        n = x.shape[dim]
        if isinstance(i, slice):
            r = range(n)[i]
            bounds, keep = (r.start, r.stop if r.stop >= 0 else None, r.step), len(r)
        elif isinstance(i, (int, np.integer)) and not isinstance(i, (bool, np.bool_)):
            if not -n <= i < n:
                raise IndexError(f"index {i} is outside dim {dim} of size {n} (shape {x.shape}); use {-n} … {n - 1}")
            bounds, keep = (int(i) % n, int(i) % n + 1, 1), None
        else:
            arrays.append((len(shape), _index_tensor(i, x)))
            bounds, keep = (0, None, 1), n
        for target, b in zip((begin, end, strides), bounds, strict=True):
            target.append(b)
        if keep is not None:
            shape.append(keep)
        dim += 1
    if any(b != (0, None, 1) and range(n)[slice(*b)] != range(n)
           for b, n in zip(zip(begin, end, strides, strict=True), x.shape, strict=True)):
        x = StridedSlice(tuple(begin), tuple(end), tuple(strides))(x)
    x = F.reshape(x, tuple(shape))
    return _take(x, arrays) if arrays else x


def _index_tensor(i, x):
    t = i if isinstance(i, Tensor) else Tensor(np.asarray(i)) if isinstance(i, (list, np.ndarray)) else None
    if t is None or not mstype.is_integer(t.dtype):
        what = f"a {t.dtype} tensor" if t is not None else f"a {type(i).__name__}"
        raise IndexError(f"{what} can't index a tensor of shape {x.shape}; use integers, slices, None, '...' or "
                         "integer tensors (for a mask: ops.select)")
    return t


def _take(x, arrays):
    """Gather by several index tensors on neighbouring dims: one Gather on the dims made one."""
    axis, count = arrays[0][0], len(arrays)
    if [a for a, _ in arrays] != list(range(axis, axis + count)):
        raise IndexError(f"index tensors on dims {[a for a, _ in arrays]} of shape {x.shape} don't stand side by "
                         "side; transpose the tensor first")
    sizes, index = x.shape[axis:axis + count], arrays[0][1]
    if count > 1:
        total = prod(sizes)
        index = 0
        for n, (_, t) in zip(sizes, arrays, strict=True):
            outside = F.logical_or(t < -n, t >= n)
            index = F.select(outside, total * total + total, index * n + F.select(t < 0, t + n, t))
    return Gather(axis)(F.reshape(x, (*x.shape[:axis], prod(sizes), *x.shape[axis + count:])), index)
