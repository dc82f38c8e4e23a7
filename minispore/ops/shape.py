"""Ops that move values without computing: Reshape, Transpose, BroadcastTo, Concat, slices, constants."""
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from minispore.common import dtype as mstype
from minispore.ops import functional as F
from minispore.ops.primitive import Primitive, Spec, namespace, normal_axis
from minispore.ops.rule import letters, reshape_rule


class Movement(Primitive):
    """Base: no arithmetic, and linear in all inputs together."""
    linear, widens = ((0,),), False

    def flops(self, *xs):
        return 0


def _tuples(op, *names):
    for name in names:
        value = getattr(op, name)
        if isinstance(value, (int, np.integer)):
            value = (value,)
        object.__setattr__(op, name, tuple(int(v) if isinstance(v, np.integer) else v for v in value))


def local_shape(term, shape, pieces):
    """The shape of a slice when the factors in `pieces` are split."""
    return tuple(n // prod(pieces[f].count for f in dim if f in pieces) for dim, n in zip(term, shape, strict=True))


@dataclass(frozen=True)
class Reshape(Movement):
    """The same values in row-major order under another shape; one -1 is worked out."""
    shape: tuple = ()
    call_attributes, view = ("shape",), True

    def __post_init__(self):
        _tuples(self, "shape")

    def rule(self, shape):
        return reshape_rule(shape, self.target(shape))

    def target(self, old) -> tuple[int, ...]:
        if any(not isinstance(n, int) or n < -1 for n in self.shape) or self.shape.count(-1) > 1:
            raise ValueError(f"Reshape: shape {self.shape} must be whole numbers ≥ 0 with at most one -1")
        known = prod(n for n in self.shape if n != -1)
        new = tuple((prod(old) // known if known else 0) if n == -1 else n for n in self.shape)
        if prod(new) != prod(old):
            raise ValueError(f"Reshape: {old} has {prod(old)} values, {self.shape} "
                             f"{'can not hold them evenly' if -1 in self.shape else f'has {prod(new)}'}; "
                             "the number of values must stay the same")
        return new

    def infer(self, x):
        return Spec(self.target(x.shape), x.dtype)

    def forward(self, x):
        return namespace(x).reshape(x, self.target(x.shape))

    def gradient(self, x, out, dout):
        return (F.reshape(dout, x.shape),)

    def local(self, rule, pieces):
        return replace(self, shape=tuple(prod(rule.sizes[f] // (pieces[f].count if f in pieces else 1) for f in dim)
                                         for dim in rule.outs[0]))


@dataclass(frozen=True)
class Transpose(Movement):
    """out's dim i is x's dim perm[i]."""
    perm: tuple = ()
    call_attributes = ("perm",)

    def __post_init__(self):
        _tuples(self, "perm")

    def axes(self, ndim):
        perm = tuple(normal_axis(a, ndim, self) for a in self.perm)
        if sorted(perm) != list(range(ndim)):
            raise ValueError(f"Transpose: {self.perm} must name each of the tensor's {ndim} dims once")
        return perm

    def rule(self, shape):
        names = letters(len(shape))
        return f"{' '.join(names)} -> {' '.join(names[a] for a in self.axes(len(shape)))}"

    def infer(self, x):
        return Spec(tuple(x.shape[a] for a in self.axes(len(x.shape))), x.dtype)

    def forward(self, x):
        return namespace(x).permute_dims(x, self.axes(x.ndim))

    def gradient(self, x, out, dout):
        perm = self.axes(x.ndim)
        return (F.transpose(dout, tuple(perm.index(i) for i in range(x.ndim))),)


@dataclass(frozen=True)
class BroadcastTo(Movement):
    """Repeat along dims of size 1 and along new leading dims; -1 keeps a dim."""
    shape: tuple = ()
    call_attributes = ("shape",)

    def __post_init__(self):
        _tuples(self, "shape")

    def target(self, old):
        lead = len(self.shape) - len(old)
        new = tuple(old[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(self.shape))
        if lead < 0 or any(o not in (1, n) for o, n in zip(old, new[lead:], strict=False)):
            raise ValueError(f"BroadcastTo: {old} does not broadcast to {self.shape}; from the right, a dim must be "
                             "equal or 1")
        return new

    def rule(self, shape):
        names = letters(len(self.shape))
        lead = len(names) - len(shape)
        source = [n if size == new else "1" for n, size, new in zip(names[lead:], shape, self.target(shape)[lead:],
                                                                    strict=True)]
        return f"{' '.join(source)} -> {' '.join(names)}"

    def infer(self, x):
        return Spec(self.target(x.shape), x.dtype)

    def forward(self, x):
        return namespace(x).broadcast_to(x, self.target(x.shape))

    def gradient(self, x, out, dout):
        return (F.unbroadcast(dout, x.shape),)

    def local(self, rule, pieces):
        return replace(self, shape=local_shape(rule.outs[0], self.shape, pieces))


@dataclass(frozen=True)
class Concat(Movement):
    """Tensors one behind the other along an axis (MindSpore: `ops.Concat(axis)((a, b))`)."""
    axis: int = 0
    arity = None

    @property
    def linear(self):               # all inputs together, however many
        return (tuple(range(64)),)

    def take(self, *args):
        op, tensors = super().take(*args)
        if not tensors:
            raise ValueError("Concat: no tensors given; pass a tuple of at least one")
        common = tensors[0].dtype
        for t in tensors[1:]:
            common = mstype.promote(common, t.dtype)
        return op, [F.cast(t, common) for t in tensors]

    def rule(self, *shapes):
        axis = normal_axis(self.axis, len(shapes[0]), self)
        names = letters(len(shapes[0]))
        def term(i):
            return " ".join(f"X{i}" if k == axis else n for k, n in enumerate(names))
        return f"{', '.join(map(term, range(len(shapes))))} -> {term('')}"

    def infer(self, *xs):
        first = xs[0].shape
        axis = normal_axis(self.axis, len(first), self)
        for i, x in enumerate(xs):
            if len(x.shape) != len(first) or any(a != b for k, (a, b) in enumerate(zip(x.shape, first, strict=True))
                                                 if k != axis):
                raise ValueError(f"Concat: input {i} has shape {x.shape}, input 0 has {first}; "
                                 f"all dims but axis {axis} must agree")
        return Spec((*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1:]), xs[0].dtype)

    def forward(self, *xs):
        return namespace(xs[0]).concat(xs, axis=self.axis)

    def cpu(self, out, *xs):
        np.concatenate(xs, axis=self.axis, out=out)

    def gradient(self, *xs_out_dout):
        *xs, _out, dout = xs_out_dout
        axis, at, parts = self.axis % dout.ndim, 0, []
        for x in xs:
            parts.append(F.narrow(dout, axis, at, x.shape[axis]))
            at += x.shape[axis]
        return parts


@dataclass(frozen=True)
class StridedSlice(Movement):
    """x[begin:end:stride] in every dim; bounds as Python's slices (negative ones count from the end)."""
    begin: tuple = ()
    end: tuple = ()
    strides: tuple = ()
    call_attributes = ("begin", "end", "strides")

    def __post_init__(self):
        _tuples(self, "begin", "end", "strides")
        if not len(self.begin) == len(self.end) == len(self.strides):
            raise ValueError(f"StridedSlice: begin {self.begin}, end {self.end} and strides {self.strides} must be "
                             "equally long")
        if 0 in self.strides:
            raise ValueError(f"StridedSlice: strides {self.strides} has a 0; a stride is a positive or negative step")

    def ranges(self, shape) -> list[range]:
        """The indices taken of each dim."""
        if len(self.begin) > len(shape):
            raise ValueError(f"StridedSlice: {len(self.begin)} slices for a tensor of shape {shape}; "
                             "at most one a dim")
        cut = [range(n)[slice(b, e, s)] for n, b, e, s in
               zip(shape, self.begin, self.end, self.strides, strict=False)]
        return cut + [range(n) for n in shape[len(cut):]]

    def rule(self, shape):
        names = letters(len(shape))
        kept = [r == range(n) for r, n in zip(self.ranges(shape), shape, strict=True)]
        def term(mark):
            return " ".join(n if k else f"{mark}{i}" for i, (n, k) in enumerate(zip(names, kept, strict=True)))
        return f"{term('X')} -> {term('Y')}"

    def infer(self, x):
        return Spec(tuple(map(len, self.ranges(x.shape))), x.dtype)

    def forward(self, x):
        return x[slices(self.ranges(x.shape))]

    def gradient(self, x, out, dout):
        return (StridedSliceGrad(self.begin, self.end, self.strides, x.shape)(dout),)

    def local(self, rule, pieces):      # a dim that is split is taken whole, so its slice is whole too
        split = [any(f in pieces for f in dim) for dim in rule.ins[0]]
        def put(values, whole):
            return tuple(whole if s else v for v, s in zip(values, split, strict=False))
        return replace(self, begin=put(self.begin, 0), end=put(self.end, None), strides=put(self.strides, 1))


@dataclass(frozen=True)
class StridedSliceGrad(StridedSlice):
    """The transpose of StridedSlice: the values at their places in zeros of the given shape."""
    shape: tuple = ()

    def rule(self, shape):
        left, right = super().rule(self.shape).split("->")
        return f"{right} -> {left}"

    def infer(self, d):
        return Spec(self.shape, d.dtype)

    def forward(self, d):
        xp = namespace(d)
        out = xp.zeros(self.shape, dtype=d.dtype)
        out[slices(self.ranges(self.shape))] = d
        return out

    def cpu(self, out, d):
        out[...] = 0
        out[slices(self.ranges(self.shape))] = d

    def gradient(self, d, out, dout):
        return (StridedSlice(self.begin, self.end, self.strides)(dout),)

    def local(self, rule, pieces):
        flipped = replace(rule, ins=rule.outs, outs=rule.ins)
        return replace(super().local(flipped, pieces), shape=local_shape(rule.outs[0], self.shape, pieces))


def slices(ranges) -> tuple[slice, ...]:
    """Python slices that take exactly these ranges (a stop below zero is written None)."""
    return tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in ranges)


@dataclass(frozen=True)
class Fill(Movement):
    """A tensor of one value, made without inputs (MindSpore: `ops.full`)."""
    shape: tuple = ()
    value: float = 0.0
    dtype: np.dtype = mstype.float32
    arity, linear = 0, ()

    def rule(self):
        return f"-> {' '.join(letters(len(self.shape)))}"

    def infer(self):
        return Spec(self.shape, self.dtype)

    def forward(self):
        return np.full(self.shape, self.value, self.dtype)

    def gradient(self, out, dout):
        return ()

    def local(self, rule, pieces):
        return replace(self, shape=local_shape(rule.outs[0], self.shape, pieces))
