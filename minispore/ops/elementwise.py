"""Arithmetic: one value out for each value in, with broadcasting. The bases Unary and Binary are here."""
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minispore.common import dtype as mstype
from minispore.ops import functional as F
from minispore.ops.primitive import Primitive, Spec, as_tensor, namespace


def demand_numbers(op: Primitive, *tensors) -> None:
    """TypeError if all are bools, of which there is no such thing as a sign or a difference."""
    if all(t.dtype == mstype.bool_ for t in tensors):
        raise TypeError(f"{op.name}: a bool tensor of shape {tensors[0].shape}, it takes numbers; use ops.logical_not, "
                        "logical_and, logical_or or logical_xor, or convert it with .astype(ms.int32)")


class Unary(Primitive):
    """y = f(x); `function` is f's name in the array API and in numpy, where it has one there."""
    function: ClassVar[str] = ""
    floating: ClassVar[bool] = True             # f of an integer is a float
    overwrites = True

    def take(self, *args):
        op, (x,) = super().take(*args)
        if not self.floating:
            demand_numbers(self, x)
        return op, [F.cast(x, mstype.float32) if self.floating and not mstype.is_float(x.dtype) else x]

    def forward(self, x):
        return getattr(namespace(x), self.function)(x)

    def cpu(self, out, x):
        if self.function:
            getattr(np, self.function)(x, out=out)
        else:
            super().cpu(out, x)


class Neg(Unary):
    function, floating, linear = "negative", False, ((0,),)

    def gradient(self, x, out, dout):
        return (-dout,)


class Abs(Unary):
    function, floating = "abs", False

    def gradient(self, x, out, dout):
        return (dout * F.sign(x),)


class Step(Unary):
    """Base of functions that are constant between their jumps: their gradient is zero."""
    floating = False

    def gradient(self, x, out, dout):
        return (None,)


class Sign(Step):
    """-1, 0 or 1."""
    function = "sign"


class Square(Unary):
    function, floating = "square", False

    def gradient(self, x, out, dout):
        return (dout * 2 * x,)


class Binary(Primitive):
    """z = f(x, y) with numpy's broadcasting; dtypes meet as `common.dtype.promote` says."""
    arity, function, overwrites = 2, "", True
    result: ClassVar[np.dtype | None] = None    # the output's dtype where it isn't the inputs'
    operand: ClassVar[np.dtype | None] = None   # what inputs are converted to
    floating: ClassVar[bool] = False
    bools: ClassVar[bool] = True                # False: of two bools it is an error

    def rule(self, *shapes):
        return "..., ... -> ..."

    def take(self, *args):
        if len(args) != 2:
            raise TypeError(f"{self.name}: got {len(args)} arguments, it takes (tensor, tensor)")
        likes = [getattr(a, "dtype", None) for a in args]
        x, y = (as_tensor(a, self, i, likes[1 - i]) for i, a in enumerate(args))
        common = self.operand or mstype.promote(x.dtype, y.dtype)
        if self.floating and not mstype.is_float(common):
            common = mstype.float32
        if not self.bools:
            demand_numbers(self, x, y)
        return self, [F.cast(x, common), F.cast(y, common)]

    def infer(self, x, y):
        try:
            shape = x.shape if x.shape == y.shape else np.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            raise ValueError(f"{self.name}: shapes {x.shape} and {y.shape} don't broadcast; from the right, each "
                             "pair of dims must be equal or one of them 1. Reshape one of them") from None
        return Spec(shape, self.result or x.dtype)

    def forward(self, x, y):
        return getattr(namespace(x), self.function)(x, y)

    def cpu(self, out, x, y):
        getattr(np, self.function)(x, y, out=out)

    def gradient(self, x, y, out, dout):
        dx, dy = self.partials(x, y, out, dout)
        return (lambda: F.unbroadcast(dx(), x.shape)), (lambda: F.unbroadcast(dy(), y.shape))

    def partials(self, x, y, out, d):
        """Functions that make the gradients to x and y, in the output's shape."""
        raise NotImplementedError(f"{self.name} has no gradient; use ops.stop_gradient around it")


class Add(Binary):
    function, linear = "add", ((0, 1),)

    def partials(self, x, y, out, d):
        return lambda: d, lambda: d


class Sub(Binary):
    function, linear, bools = "subtract", ((0, 1),), False

    def partials(self, x, y, out, d):
        return lambda: d, lambda: -d


class Mul(Binary):
    function, linear = "multiply", ((0,), (1,))

    def partials(self, x, y, out, d):
        return lambda: d * y, lambda: d * x


class Div(Binary):
    """x / y; integers become float32."""
    function, linear, floating = "divide", ((0,),), True

    def partials(self, x, y, out, d):
        return lambda: d / y, lambda: -(d * out / y)


class Pow(Binary):
    """x ** y. At x = 0 the gradient to y is 0, and where y = 0 that to x, so that x ** 2 differentiates without end.
    Whole numbers take no negative exponents."""
    function, bools = "pow", False

    def cpu(self, out, x, y):
        if mstype.is_integer(x.dtype) and (y < 0).any():
            raise ValueError(f"Pow: {x.dtype} to the power of {y.min()} is no whole number; use .astype(ms.float32)")
        super().cpu(out, x, y)

    def partials(self, x, y, out, d):
        def to_y():
            safe = F.select(x > 0, x, F.ones_like(x))
            return F.select(F.equal(x, 0), F.zeros_like(out), d * out * F.log(safe))
        def to_x():
            return d * y * F.pow(x, F.select(F.equal(y, 0), F.ones_like(y), y - 1))
        return to_x, to_y


class Extreme(Binary):
    """Maximum, Minimum: the gradient goes to the winner, to both by halves where they are equal (as MindSpore)."""

    def partials(self, x, y, out, d):
        def share(a, b):
            won = F.cast(F.equal(out, a), d.dtype)
            return d * won * (1 - 0.5 * F.cast(F.equal(a, b), d.dtype))
        return lambda: share(x, y), lambda: share(y, x)


class Maximum(Extreme):
    function = "maximum"


class Minimum(Extreme):
    function = "minimum"


class FloorDiv(Binary):
    """x / y rounded down, as Python's //; its gradient is zero."""
    function, bools = "floor_divide", False

    def gradient(self, x, y, out, dout):
        return None, None


class FloorMod(Binary):
    """x - y · floor(x / y), as Python's %: the sign is y's."""
    function, bools = "remainder", False

    def partials(self, x, y, out, d):
        return lambda: d, lambda: -(d * F.floor_div(x, y))


@dataclass(frozen=True)
class Cast(Primitive):
    """The same values in another dtype."""
    dtype: np.dtype = mstype.float32
    call_attributes, linear, widens = ("dtype",), ((0,),), False

    def __post_init__(self):
        object.__setattr__(self, "dtype", mstype.to_dtype(self.dtype))

    def infer(self, x):
        return Spec(x.shape, self.dtype)

    def forward(self, x):
        return namespace(x).astype(x, getattr(namespace(x), self.dtype.name))

    def cpu(self, out, x):
        np.copyto(out, x, casting="unsafe")

    def gradient(self, x, out, dout):
        return (F.cast(dout, x.dtype) if mstype.is_float(x.dtype) else None,)
