"""Comparisons, logic and choices by a condition. Their outputs, or the ways between them, are bools: no gradient there."""
from typing import ClassVar

import numpy as np

from minispore.common import dtype as mstype
from minispore.ops import functional as F
from minispore.ops.elementwise import Add, Binary
from minispore.ops.primitive import Primitive, Spec, as_tensor, namespace


class Compare(Binary):
    """A bool for each pair; no gradient."""
    result = mstype.bool_

    def gradient(self, x, y, out, dout):
        return None, None


class Equal(Compare):
    function = "equal"


class NotEqual(Compare):
    function = "not_equal"


class Less(Compare):
    function = "less"


class LessEqual(Compare):
    function = "less_equal"


class Greater(Compare):
    function = "greater"


class GreaterEqual(Compare):
    function = "greater_equal"


class LogicalAnd(Compare):
    function, operand = "logical_and", mstype.bool_


class LogicalOr(Compare):
    function, operand = "logical_or", mstype.bool_


class LogicalXor(Compare):
    function, operand = "logical_xor", mstype.bool_


class Test(Primitive):
    """A bool for each value; no gradient. `function` is its name in the array API and in numpy."""
    function: ClassVar[str] = ""

    def infer(self, x):
        return Spec(x.shape, mstype.bool_)

    def forward(self, x):
        return getattr(namespace(x), self.function)(x)

    def cpu(self, out, x):
        getattr(np, self.function)(x, out=out)

    def gradient(self, x, out, dout):
        return (None,)


class LogicalNot(Test):
    function = "logical_not"

    def take(self, *args):
        op, (x,) = super().take(*args)
        return op, [F.cast(x, mstype.bool_)]


class IsNan(Test):
    function = "isnan"


class IsInf(Test):
    function = "isinf"


class IsFinite(Test):
    function = "isfinite"


class Select(Primitive):
    """x where the condition holds, else y; shapes broadcast (MindSpore: `ops.Select`, `ops.where`)."""
    arity = 3
    linear = ((1, 2),)

    def rule(self, *shapes):
        return "..., ..., ... -> ..."

    def take(self, *args):
        if len(args) != 3:
            raise TypeError(f"Select: got {len(args)} arguments, it takes (condition, x, y)")
        _, (x, y) = Add().take(*args[1:])
        return self, [F.cast(as_tensor(args[0], self, 0), mstype.bool_), x, y]

    def infer(self, c, x, y):
        try:
            return Spec(np.broadcast_shapes(c.shape, x.shape, y.shape), x.dtype)
        except ValueError:
            raise ValueError(f"Select: shapes {c.shape}, {x.shape} and {y.shape} don't broadcast; from the right, "
                             "dims must be equal or 1") from None

    def forward(self, c, x, y):
        return namespace(x).where(c, x, y)

    def gradient(self, c, x, y, out, dout):
        zero = F.zeros_like(dout)
        return (None, lambda: F.unbroadcast(F.select(c, dout, zero), x.shape),
                lambda: F.unbroadcast(F.select(c, zero, dout), y.shape))
