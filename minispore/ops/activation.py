"""Activation functions. Those with a kernel or a gradient of their own are primitives, the others are made of them."""
from dataclasses import dataclass
from math import inf, pi, sqrt

import numpy as np

from minispore.device import kernels
from minispore.ops import functional as F
from minispore.ops.elementary import Erf
from minispore.ops.elementwise import Unary
from minispore.ops.primitive import Composite, Primitive, namespace


class Sigmoid(Unary):
    """1 / (1 + exp(-x)). exp(-x) may be infinite, and 1 / inf is right: where x is far below 0 no digit is lost."""

    def forward(self, x):
        return 1 / (1 + namespace(x).exp(-x))

    def cpu(self, out, x):
        np.negative(x, out=out)
        np.exp(out, out=out)
        out += 1
        np.divide(1, out, out=out)

    def gradient(self, x, out, dout):
        return (dout * out * (1 - out),)


class ReLU(Unary):
    """max(x, 0); NaN stays NaN."""
    floating = False

    def forward(self, x):
        xp = namespace(x)
        return xp.where(x < 0, xp.zeros_like(x), x)

    def cpu(self, out, x):
        np.maximum(x, 0, out=out)

    def gradient(self, x, out, dout):
        return (ReLUGrad()(dout, out),)


class ReLUGrad(Primitive):
    """The upstream gradient where the ReLU's output is positive, else 0."""
    arity, linear = 2, ((0,),)

    def rule(self, *shapes):
        return "..., ... -> ..."

    def forward(self, dout, y):
        xp = namespace(y)
        return xp.where(y > 0, dout, xp.zeros_like(dout))

    def cpu(self, out, dout, y):
        np.multiply(dout, y > 0, out=out)

    def gradient(self, dout, y, out, d):
        return (lambda: ReLUGrad()(d, y)), None


class ReLU6(Unary):
    """min(max(x, 0), 6)."""
    floating = False

    def forward(self, x):
        return namespace(x).clip(x, 0, 6)

    def cpu(self, out, x):
        np.clip(x, 0, 6, out=out)

    def gradient(self, x, out, dout):
        return (F.select(F.logical_and(out > 0, out < 6), dout, F.zeros_like(dout)),)


@dataclass(frozen=True)
class LeakyReLU(Unary):
    """x where x > 0, else alpha · x."""
    alpha: float = 0.2

    def forward(self, x):
        return namespace(x).where(x > 0, x, self.alpha * x)

    def gradient(self, x, out, dout):
        return (F.select(x > 0, dout, self.alpha * dout),)


@dataclass(frozen=True)
class Elu(Unary):
    """x where x > 0, else alpha · (exp(x) - 1) (Clevert et al., 2015)."""
    alpha: float = 1.0

    def forward(self, x):
        xp = namespace(x)
        return xp.where(x > 0, x, self.alpha * xp.expm1(x))

    def gradient(self, x, out, dout):
        return (F.select(x > 0, dout, dout * (out + self.alpha)),)


@dataclass(frozen=True)
class GeLU(Unary):
    """x · Φ(x), Φ the normal distribution (Hendrycks and Gimpel, 2016).

    approximate "none": by erf; "tanh" (default, as `ops.GeLU` has it): ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
    """
    approximate: str = "tanh"

    def __post_init__(self):
        if self.approximate not in ("tanh", "none"):
            raise ValueError(f"GeLU: approximate {self.approximate!r} must be 'tanh' or 'none' (by erf)")

    def forward(self, x):
        if self.approximate == "none":
            return 0.5 * x * (1 + Erf().forward(x * sqrt(0.5)))
        return 0.5 * x * (1 + namespace(x).tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))

    def cpu(self, out, x):
        if self.approximate == "none":
            kernels.gelu(x.reshape(-1), out.reshape(-1))
        else:
            np.copyto(out, self.forward(x))

    def gradient(self, x, out, dout):
        if self.approximate == "none":
            return (dout * (0.5 * (1 + F.erf(x * sqrt(0.5))) + x * F.exp(-0.5 * x * x) * sqrt(0.5 / pi)),)
        t = F.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))
        inner = sqrt(2 / pi) * (1 + 3 * 0.044715 * F.minimum(x * x, 1000.0))    # beyond it is multiplied by 0: no inf · 0
        return (dout * 0.5 * (1 + t + x * (1 - t * t) * inner),)


class SiLU(Unary):
    """x · sigmoid(x)."""

    def forward(self, x):
        return x * Sigmoid().forward(x)

    def gradient(self, x, out, dout):
        s = F.sigmoid(x)
        return (dout * (s + out * (1 - s)),)


class Softplus(Unary):
    """log(1 + exp(x)), without overflow."""

    def forward(self, x):
        xp = namespace(x)
        return xp.log1p(xp.exp(-xp.abs(x))) + xp.clip(x, 0, inf)

    def gradient(self, x, out, dout):
        return (dout * F.sigmoid(x),)


class PReLU(Composite):
    """x where x > 0, else weight · x; weight (1,) or one value for each of dim 1 (He et al., 2015)."""

    def rule(self, x, weight):
        return "..., 1" if weight == (1,) else "n c ..., c"

    def __call__(self, x, weight):
        if weight.shape != (1,) and (x.ndim < 2 or weight.shape != x.shape[1:2]):
            raise ValueError(f"PReLU: x {x.shape} needs a weight of shape (1,) or {x.shape[1:2]}, got {weight.shape}")
        if weight.shape != (1,):
            weight = F.reshape(weight, (-1, *(1,) * (x.ndim - 2)))
        return F.select(x > 0, x, weight * x)


class SeLU(Composite):
    """scale · Elu with the constants that keep mean 0 and variance 1 (Klambauer et al., 2017)."""

    def __call__(self, x):
        return 1.0507009873554805 * Elu(1.6732632423543772)(x)


class HSigmoid(Composite):
    """min(max(x + 3, 0), 6) / 6."""

    def __call__(self, x):
        return F.relu6(x + 3) / 6


class HSwish(Composite):
    """x · HSigmoid(x) (Howard et al., 2019)."""

    def __call__(self, x):
        return x * HSigmoid()(x)


class Mish(Composite):
    """x · tanh(softplus(x)) (Misra, 2019)."""

    def __call__(self, x):
        return x * F.tanh(F.softplus(x))


class LogSigmoid(Composite):
    """log sigmoid(x) = -softplus(-x)."""

    def __call__(self, x):
        return -F.softplus(-x)


class Softsign(Composite):
    """x / (1 + |x|)."""

    def __call__(self, x):
        return x / (1 + F.abs(x))
