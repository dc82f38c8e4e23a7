"""Primitive: an op that says everything about itself in one place.

A primitive is a frozen record of attributes; two with equal attributes are the same op, so graphs can compare
them. What a subclass says:

    rule       the sharding equation for these input shapes (ops/rule.py); None: not for logical programs
    infer      shapes and dtypes in, shapes and dtypes out; errors that teach
    forward    the values, written against the array API standard: numpy, CuPy and torch run it alike
    cpu        the same into a buffer that is already there; overridden where the CPU has something faster
    post       for collectives: begin like `cpu`, and return the handles to wait for, one after the other
    gradient   written with ops, so it traces, and differentiates again
    flops      for the cost model; bytes follow from the shapes
    linear     which inputs may be partial sums together, e.g. Add ((0, 1),), Mul ((0,), (1,))
    local      the op that runs on slices, where it isn't the op itself (Reshape's target, OneHot's offset)
    windows    what a slice of an input must have beyond its own piece (a convolution's neighbouring rows)
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce, wraps
from math import prod
from numbers import Number
from typing import Any, ClassVar, NamedTuple

import numpy as np

from minispore.common import dtype as mstype
from minispore.common.recorder import recorder
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.ops import functional as F
from minispore.ops.rule import Rule, bind
from minispore.ops.strategy import Strategy, strategy_of


class Spec(NamedTuple):
    """What is known of a value before it exists."""
    shape: tuple[int, ...]
    dtype: np.dtype


class Piece(NamedTuple):
    """Where a slice lies: piece number `index` of `count` equal ones."""
    index: int
    count: int


class Shardable:
    """What can be told how to lie over the ranks: primitives, and composites of them."""
    strategy: ClassVar[Strategy | None] = None  # what `shard` asked for; set on the instance

    @property
    def name(self) -> str:
        return type(self).__name__

    def shard(self, in_strategy=None, out_strategy=None):
        """Say how the op's inputs (and outputs) are split where the program is a logical one (semi-auto parallel).

        Args:
            in_strategy: one tuple of split counts an input, e.g. ((2, 1), (1, 4)), or a `Layout`'s tensor layouts; None
                for an input that nothing is asked of.
            out_strategy: the same for the outputs, where they shall not be what follows from the inputs.

        Returns: this op, changed (MindSpore: `Primitive.shard`).
        """
        object.__setattr__(self, "strategy", strategy_of(self.name, in_strategy, out_strategy))
        return self


@dataclass(frozen=True)
class Primitive(Shardable):
    """Base of all ops (MindSpore: `mindspore.ops.Primitive`). See the module's docstring."""

    arity: ClassVar[int | None] = 1             # tensors in; None: any number, also as one tuple
    call_attributes: ClassVar[tuple] = ()       # attributes that MindSpore passes after the tensors of a call
    linear: ClassVar[tuple] = ()
    reduction: ClassVar[str] = "sum"            # the kind of partial result a split contracted factor leaves
    effect: ClassVar[bool] = False              # it is run even if nobody uses its output, and in program order
    gradient_waits: ClassVar[bool] = False      # its gradient is run even if none arrives: another rank waits for it
    view: ClassVar[bool] = False                # forward only looks at its input's memory in another way
    overwrites: ClassVar[bool] = False          # cpu may write into the memory of an input of the output's shape and dtype
    fresh: ClassVar[bool] = False               # its values differ from run to run (random numbers)
    widens: ClassVar[bool] = True               # 16-bit floats are computed in float32 and rounded once
    post: ClassVar[Callable | None] = None      # post(out, *xs): of a collective that other work may overlap with

    # ---- what a subclass says -------------------------------------------------------------------

    def rule(self, *shapes) -> str | Rule | None:
        return "... -> ..."

    def infer(self, *xs) -> Spec | list[Spec]:
        return Spec(xs[0].shape, xs[0].dtype)

    def forward(self, *xs):
        raise NotImplementedError(f"{self.name} defines no forward(*arrays)")

    def cpu(self, out, *xs) -> None:
        result = self.forward(*xs)
        for o, r in zip(out, result, strict=True) if isinstance(out, list) else ((out, result),):
            np.copyto(o, r)

    def gradient(self, *xs_out_dout) -> Sequence[Any]:
        """One gradient an input: a tensor, None, or a function that makes it, called only if it is wanted."""
        raise NotImplementedError(f"{self.name} has no gradient; put ops.stop_gradient around it, or give the Cell "
                                  "that uses it a bprop(*inputs, out, dout)")

    def flops(self, *xs) -> int:
        return sum(prod(s.shape) for s in specs(self.infer(*xs)))

    def local(self, rule: Rule, pieces: dict[str, Piece]) -> "Primitive":
        return self

    def windows(self, rule: Rule, pieces: dict[str, Piece]) -> dict[tuple[int, int], tuple[int, int]]:
        """{(input, dim): (first index, how many)} where `local` works on other indices than the piece's own; zeros outside.
        How many must be the same for all pieces."""
        return {}

    # ---- calling it -------------------------------------------------------------------------------

    def __call__(self, *args):
        op, tensors = self.take(*args)
        listener = recorder()
        return op.run(tensors) if listener is None else listener.apply(op, tensors)

    def take(self, *args) -> tuple["Primitive", list[Tensor]]:
        """Tell the tensors of a call from the attributes that come after them."""
        if self.arity is None:
            args = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
            return self, [as_tensor(a, self, i) for i, a in enumerate(args)]
        extra = args[self.arity:]
        if len(args) < self.arity or len(extra) > len(self.call_attributes):
            names = ["tensor"] * self.arity + list(self.call_attributes)
            raise TypeError(f"{self.name}: got {len(args)} arguments, it takes ({', '.join(names)})")
        op = replace(self, **dict(zip(self.call_attributes, extra, strict=False))) if extra else self
        if self.strategy is not None:
            object.__setattr__(op, "strategy", self.strategy)
        return op, [as_tensor(a, self, i) for i, a in enumerate(args[:self.arity])]

    def run(self, tensors: list[Tensor]):
        """Compute now: a Tensor, or a tuple of them."""
        for t in tensors:
            if t._layout is not None:           # pieces of a logical tensor: a program of one op, that knows
                return t._layout.run(self, tensors, {})
        outs = self.compute(self.infer(*tensors), [t._data() for t in tensors])
        return tuple(map(Tensor.from_numpy, outs)) if isinstance(outs, list) else Tensor.from_numpy(outs)

    def compute(self, spec, arrays):
        """Arrays of the inferred specs, filled."""
        if isinstance(spec, list):
            out = [np.empty(s.shape, s.dtype) for s in spec]
        else:
            out = np.empty(spec.shape, spec.dtype)
        with np.errstate(all="ignore"):         # NaN and inf are values; Model.train is who complains
            self.runner((*arrays, *(out if isinstance(out, list) else (out,))))(out, *arrays)
        return out

    def runner(self, values):
        """`cpu` for values (arrays or specs) of these dtypes."""
        if self.widens:
            for v in values:                    # a loop: this is done for every op of PYNATIVE_MODE
                if v.dtype.itemsize == 2 and v.dtype in mstype.NARROW:
                    return partial(_widened, self.cpu)
        return self.cpu

    def poster(self, values):
        """`post` for values of these dtypes."""
        return self.post if self.runner(values) == self.cpu else partial(_post_widened, self.post)

    def bound_rule(self, ins: Sequence, outs: Sequence) -> Rule | None:
        """The rule for these input and output shapes."""
        rule = self.rule(*ins)
        return bind(rule, ins, outs) if isinstance(rule, str) else rule


def _widened(cpu, out, *xs) -> None:
    """cpu with 16-bit floats as float32: neither BLAS nor Numba knows them, and sums would end at 65504."""
    wide = _wide(out)
    cpu(wide, *map(_wide, xs))
    _round(out, wide)


def _post_widened(post, out, *xs) -> list:
    """The same for `post`: rounded when the last handle has been waited for."""
    wide = _wide(out)
    handles = post(wide, *map(_wide, xs))
    handles[-1].then(lambda _: _round(out, wide))
    return handles


def _wide(x):
    """An array, or a list of them, 16-bit floats as float32."""
    if isinstance(x, list):
        return list(map(_wide, x))
    return x.astype(np.float32) if x.dtype in mstype.NARROW else x


def _round(out, wide) -> None:
    for o, w in zip(out, wide, strict=True) if isinstance(out, list) else ((out, wide),):
        if o is not w:
            np.copyto(o, w, casting="unsafe")


def rounded_once(fn):
    """What `widens` is to a primitive, for a function made of several ops: 16-bit floats are float32 in between.

    A float16's square is infinite from 256 on, so that a variance taken step by step would be too.
    """
    @wraps(fn)
    def call(*args, **kwargs):
        leaves, skeleton = flatten((args, kwargs), is_tensor)
        dtypes = [t.dtype for t in leaves if mstype.is_float(t.dtype)]
        if not any(d in mstype.NARROW for d in dtypes):
            return fn(*args, **kwargs)
        args, kwargs = unflatten(skeleton, [wide(t) for t in leaves])
        outs, skeleton = flatten(fn(*args, **kwargs), is_tensor)
        return unflatten(skeleton, [F.cast(t, reduce(mstype.promote, dtypes)) for t in outs])
    return call


def wide(x: Tensor) -> Tensor:
    """The tensor, as float32 if it is a 16-bit float."""
    return F.cast(x, mstype.float32) if x.dtype in mstype.NARROW else x


@dataclass(frozen=True)
class Pin(Primitive):
    """Its tensors as they are, for a strategy to hold on to: what `shard` on a Composite puts before and behind it.

    label: the composite's name, for messages. terms: the dims of the tensors, as on one side of a rule.
    """
    label: str
    terms: str
    arity, widens = None, False

    @property
    def name(self) -> str:
        return self.label

    def rule(self, *shapes):
        return f"{self.terms} -> {self.terms}"

    def infer(self, *xs):
        return [Spec(x.shape, x.dtype) for x in xs]

    def forward(self, *xs):
        return xs

    def gradient(self, *xs_outs_douts):
        return xs_outs_douts[-1]

    def flops(self, *xs):
        return 0


@dataclass(frozen=True)
class Composite(Shardable):
    """An op made of other ops: it has MindSpore's name and attributes, but its gradient and cost are its parts'.

    Its layouts are its parts' too. `shard` pins its inputs and outputs; the left side of a rule says which strategies are legal.
    """
    assigned: ClassVar[tuple] = ()              # inputs that are Parameters it gives new values: they can't be pinned

    def __init_subclass__(cls):
        if "__call__" in vars(cls):
            cls.__call__ = _pinning(cls.__call__)

    def rule(self, *shapes) -> str:
        """Which dims of the inputs belong together, and which (upper-case) must be whole: a rule without its right side."""
        return ", ".join(["..."] * len(shapes))


def _pinning(call):
    """A composite's call, with its tensors pinned where it has a strategy and a graph is recorded."""
    @wraps(call)
    def pinned(self, *args, **kwargs):
        if recorder() is None:
            placed = next((a._layout for a in args if isinstance(a, Tensor) and a._layout is not None), None)
            return call(self, *args, **kwargs) if placed is None else placed.run(self, args, kwargs)
        if self.strategy is None:
            return call(self, *args, **kwargs)
        ins, outs = self.strategy.ins, self.strategy.outs
        if ins is not None:
            xs, skeleton = flatten((args, kwargs), is_tensor)
            terms = self.rule(*(x.shape for x in xs))
            pins = Pin(self.name, terms).shard(ins)(*xs)
            pins = [x if i in self.assigned else pin for i, (x, pin) in enumerate(zip(xs, pins, strict=True))]
            args, kwargs = unflatten(skeleton, pins)
        result = call(self, *args, **kwargs)
        if outs is not None:
            ys, skeleton = flatten(result, is_tensor)
            if len(ys) != len(outs):
                raise ValueError(f"{self.name}.shard: out_strategy {outs} has {len(outs)} entries for {len(ys)} outputs; give "
                                 "one tuple an output")
            result = unflatten(skeleton, [Pin(f"{self.name}, output {i}", "...").shard((out,))(y)[0]
                                          for i, (y, out) in enumerate(zip(ys, outs, strict=True))])
        return result
    return pinned


def specs(spec) -> list[Spec]:
    """infer's answer as a list."""
    return spec if isinstance(spec, list) else [spec]


def as_tensor(x, op: Primitive, index: int, like: np.dtype | None = None) -> Tensor:
    """A tensor from what the user passed; numbers take the dtype of their partner."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, (bool, np.bool_)):
        return Tensor.from_numpy(np.array(x))
    if isinstance(x, Number) and not isinstance(x, complex):
        natural = mstype.int64 if isinstance(x, (int, np.integer)) else mstype.float32
        if like is not None:
            natural = mstype.beside(like, natural)
        try:
            return Tensor.from_numpy(np.array(x, natural))
        except OverflowError:
            raise OverflowError(f"{op.name}: the number {x} doesn't fit into {natural}, the other tensor's dtype; convert the "
                                "tensor with .astype(ms.int64)") from None
    if isinstance(x, (np.ndarray, list, tuple)):
        return Tensor(x)
    raise TypeError(f"{op.name}: input {index} is a {type(x).__name__}; ops take tensors, numbers and numpy arrays")


def namespace(x):
    """The array library of an array: numpy, CuPy, array_api_strict, or torch through array_api_compat."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    from array_api_compat import array_namespace
    return array_namespace(x)


def normal_axis(axis: int, ndim: int, op: Primitive) -> int:
    """An axis counted from the left; IndexError-like message where there is none."""
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise TypeError(f"{op.name}: axis {axis!r} must be a whole number")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{op.name}: axis {axis} is outside the tensor's {ndim} dims; use {-ndim} … {ndim - 1}")
    return int(axis) % ndim


def demand_float(op: Primitive, **tensors) -> None:
    """All of one floating dtype, else a TypeError that names the odd one."""
    first = next(iter(tensors.values())).dtype
    for name, t in tensors.items():
        if not mstype.is_float(t.dtype):
            raise TypeError(f"{op.name}: {name} of shape {t.shape} is {t.dtype}; it takes float tensors. "
                            "Convert it with .astype(ms.float32) or, in a dataset, with Rescale or TypeCast")
        if t.dtype != first:
            raise TypeError(f"{op.name}: {name} is {t.dtype}, another input is {first}; use one dtype, "
                            "e.g. x.astype(w.dtype)")


def checked_gradients(who: str, grads, inputs: Sequence) -> Sequence:
    """What a `gradient` or bprop returned, if it has one for each input: a Tensor of its shape, None, or a function that makes
    it. TypeError or ValueError that says what it is instead."""
    if not isinstance(grads, tuple | list):
        raise TypeError(f"{who} returned {_kind(grads)}; return a tuple with one gradient an input")
    if len(grads) != len(inputs):
        raise ValueError(f"{who} returned {len(grads)} gradients for {len(inputs)} inputs; return a tuple with one gradient an "
                         "input")
    for i, (grad, x) in enumerate(zip(grads, inputs, strict=True)):
        if isinstance(grad, Tensor):
            if grad.shape != tuple(x.shape):
                raise ValueError(f"{who}: the gradient to input {i} has shape {grad.shape}, the input has {tuple(x.shape)}; they "
                                 "must agree")
        elif grad is not None and not callable(grad):
            raise TypeError(f"{who}: the gradient to input {i} is {_kind(grad)}; compute it with ops, so that it is a Tensor")
    return grads


def _kind(x) -> str:
    return "None" if x is None else f"a {type(x).__module__.partition('.')[0]}.{type(x).__name__}"
