"""Elementary functions: powers, exponentials, circles, roundings, erf."""
from functools import cache
from math import erfc, exp, log, pi, sqrt

import numpy as np

from minispore.common import dtype as mstype
from minispore.device import kernels
from minispore.ops import functional as F
from minispore.ops.elementwise import Step, Unary
from minispore.ops.primitive import namespace


class Exp(Unary):
    function = "exp"

    def gradient(self, x, out, dout):
        return (dout * out,)


class Expm1(Unary):
    """exp(x) - 1, exact also for small x."""
    function = "expm1"

    def gradient(self, x, out, dout):
        return (dout * (out + 1),)


class Log(Unary):
    function = "log"

    def gradient(self, x, out, dout):
        return (dout / x,)


class ClampedLog(Unary):
    """max(log x, -100) with the gradient 1 / max(x, 1e-12): both are finite at 0, where a saturated sigmoid arrives."""

    def forward(self, x):
        xp = namespace(x)
        return xp.maximum(xp.log(x), xp.full_like(x, -100))

    def gradient(self, x, out, dout):
        return (dout / F.maximum(x, 2.0 ** -15 if x.dtype == mstype.float16 else 1e-12),)   # whose 1 / 1e-12 is inf


class Log1p(Unary):
    """log(1 + x), exact also for small x."""
    function = "log1p"

    def gradient(self, x, out, dout):
        return (dout / (1 + x),)


class Log2(Unary):
    function = "log2"

    def gradient(self, x, out, dout):
        return (dout / (x * log(2)),)


class Sqrt(Unary):
    function = "sqrt"

    def gradient(self, x, out, dout):
        return (dout * 0.5 / out,)


class Rsqrt(Unary):
    """1 / √x."""

    def forward(self, x):
        return 1 / namespace(x).sqrt(x)

    def cpu(self, out, x):
        np.sqrt(x, out=out)
        np.divide(1, out, out=out)

    def gradient(self, x, out, dout):
        return (dout * -0.5 * out / x,)


class Reciprocal(Unary):
    """1 / x."""

    def forward(self, x):
        return 1 / x

    def cpu(self, out, x):
        np.divide(1, x, out=out)

    def gradient(self, x, out, dout):
        return (-dout * out * out,)


class Sin(Unary):
    function = "sin"

    def gradient(self, x, out, dout):
        return (dout * F.cos(x),)


class Cos(Unary):
    function = "cos"

    def gradient(self, x, out, dout):
        return (-dout * F.sin(x),)


class Tan(Unary):
    function = "tan"

    def gradient(self, x, out, dout):
        return (dout * (1 + out * out),)


class Asin(Unary):
    function = "asin"

    def gradient(self, x, out, dout):
        return (dout * F.rsqrt(1 - x * x),)


class ACos(Unary):
    function = "acos"

    def gradient(self, x, out, dout):
        return (-dout * F.rsqrt(1 - x * x),)


class Atan(Unary):
    function = "atan"

    def gradient(self, x, out, dout):
        return (dout / (1 + x * x),)


class Sinh(Unary):
    function = "sinh"

    def gradient(self, x, out, dout):
        return (dout * F.cosh(x),)


class Cosh(Unary):
    function = "cosh"

    def gradient(self, x, out, dout):
        return (dout * F.sinh(x),)


class Tanh(Unary):
    function = "tanh"

    def gradient(self, x, out, dout):
        return (dout * (1 - out * out),)


class Asinh(Unary):
    function = "asinh"

    def gradient(self, x, out, dout):
        return (dout * F.rsqrt(x * x + 1),)


class Acosh(Unary):
    function = "acosh"

    def gradient(self, x, out, dout):
        return (dout * F.rsqrt(x * x - 1),)


class Atanh(Unary):
    function = "atanh"

    def gradient(self, x, out, dout):
        return (dout / (1 - x * x),)


class Floor(Step):
    """The largest whole number ≤ x."""
    function = "floor"


class Ceil(Step):
    """The smallest whole number ≥ x."""
    function = "ceil"


class Round(Step):
    """The nearest whole number; halves to the even one."""
    function = "round"


class Trunc(Step):
    """The whole number next to x on the side of 0."""
    function = "trunc"


class Erf(Unary):
    """2/√π · ∫₀ˣ exp(-t²) dt."""

    def forward(self, x):
        # erfc(z) = t·exp(P(t) - z²) with t = 2/(2+z): P is smooth on all of z ≥ 0. The array API has no erf.
        xp, z = namespace(x), namespace(x).abs(x)
        t = 2 / (2 + z)
        u, b, c = 4 * t - 2, xp.zeros_like(t), xp.zeros_like(t)        # Clenshaw's recurrence at 2t - 1
        coefficients = _erfc_series()
        for a in coefficients[:0:-1]:
            b, c = u * b - c + a, b
        tail = t * xp.exp(0.5 * u * b - c + coefficients[0] - z * z)
        return xp.where(x < 0, tail - 1, 1 - tail)

    def cpu(self, out, x):
        kernels.erf(x.reshape(-1), out.reshape(-1))

    def gradient(self, x, out, dout):
        return (dout * (2 / sqrt(pi)) * F.exp(-F.square(x)),)


@cache
def _erfc_series() -> list[float]:
    """Chebyshev coefficients of P on 0 < t ≤ 1, to double precision."""
    from numpy.polynomial import chebyshev  # here, as `import minispore` is to be fast
    def p(u):
        z = 4 / (u + 1) - 2
        if z < 25:
            scaled = erfc(z) * exp(z * z)
        else:
            scaled = (1 - 0.5 / z ** 2 + 0.75 / z ** 4 - 1.875 / z ** 6) / (z * sqrt(pi))
        return log(scaled * (2 + z) / 2)
    return chebyshev.chebinterpolate(np.vectorize(p), 40).tolist()
