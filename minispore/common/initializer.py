"""Initial values (MindSpore: `mindspore.common.initializer`), drawn by global element index.

Each draw is keyed by (seed, number of the draw since set_seed): all ranks that build the same network get the
same values, whatever their number.
"""
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from minispore.common import dtype as mstype
from minispore.common import random
from minispore.common.state import current
from minispore.common.tensor import Tensor


class Initializer:
    """Makes values of a logical shape; `region` (slices) asks for a part of them only."""

    def values(self, key: tuple, shape: tuple, region=None) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} defines no values(key, shape, region)")


@dataclass(frozen=True)
class Constant(Initializer):
    """The same value everywhere."""
    value: float = 0.0

    def values(self, key, shape, region=None):
        return np.full(shape if region is None else [len(range(n)[s]) for n, s in zip(shape, region, strict=True)], self.value)


def Zero(): return Constant(0.0)
def One(): return Constant(1.0)


@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform in [-scale, scale)."""
    scale: float = 0.07

    def values(self, key, shape, region=None):
        return random.uniform(key, shape, -self.scale, self.scale, region)


@dataclass(frozen=True)
class Normal(Initializer):
    """Normal with standard deviation sigma around mean."""
    sigma: float = 0.01
    mean: float = 0.0

    def values(self, key, shape, region=None):
        return random.normal(key, shape, self.mean, self.sigma, region)


@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Normal, redrawn outside [a, b]; as in MindSpore a and b are values, not multiples of sigma."""
    sigma: float = 0.01
    mean: float = 0.0
    a: float = -2.0
    b: float = 2.0

    def values(self, key, shape, region=None):
        return random.truncated_normal(key, shape, self.mean, self.sigma, self.a, self.b, region)


@dataclass(frozen=True)
class XavierUniform(Initializer):
    """Uniform with variance gain² · 2 / (fan_in + fan_out) (Glorot and Bengio, 2010)."""
    gain: float = 1.0

    def values(self, key, shape, region=None):
        bound = self.gain * sqrt(6 / sum(fans(shape)))
        return random.uniform(key, shape, -bound, bound, region)


@dataclass(frozen=True)
class XavierNormal(Initializer):
    """Normal with variance gain² · 2 / (fan_in + fan_out) (Glorot and Bengio, 2010)."""
    gain: float = 1.0

    def values(self, key, shape, region=None):
        return random.normal(key, shape, 0.0, self.gain * sqrt(2 / sum(fans(shape))), region)


@dataclass(frozen=True)
class _He(Initializer):
    """Variance 2 / ((1 + negative_slope²) · fan) (He et al., 2015)."""
    negative_slope: float = 0.0
    mode: str = "fan_in"
    nonlinearity: str = "leaky_relu"

    def sigma(self, shape) -> float:
        if self.mode not in ("fan_in", "fan_out"):
            raise ValueError(f"{type(self).__name__}: mode {self.mode!r}; use 'fan_in' or 'fan_out'")
        gains = {"leaky_relu": sqrt(2 / (1 + self.negative_slope ** 2)), "relu": sqrt(2), "tanh": 5 / 3,
                 "linear": 1.0, "sigmoid": 1.0}
        if self.nonlinearity not in gains:
            raise ValueError(f"{type(self).__name__}: nonlinearity {self.nonlinearity!r}; use one of {sorted(gains)}")
        return gains[self.nonlinearity] / sqrt(fans(shape)[self.mode == "fan_out"])


class HeUniform(_He):
    def values(self, key, shape, region=None):
        bound = sqrt(3) * self.sigma(shape)
        return random.uniform(key, shape, -bound, bound, region)


class HeNormal(_He):
    def values(self, key, shape, region=None):
        return random.normal(key, shape, 0.0, self.sigma(shape), region)


def fans(shape: tuple) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight (out, in, *kernel): how many values feed one output, and one input.

    >>> fans((120, 256)), fans((16, 6, 5, 5))
    ((256, 120), (150, 400))
    """
    if len(shape) < 2:
        raise ValueError(f"fan_in and fan_out need a weight of at least two dims, the shape is {shape}; "
                         "use Normal, Uniform or a constant for vectors")
    kernel = prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


NAMES = {"zeros": Zero, "zero": Zero, "ones": One, "one": One, "uniform": Uniform, "normal": Normal,
         "truncatedNormal": TruncatedNormal, "xavier_uniform": XavierUniform, "xavier_normal": XavierNormal,
         "he_uniform": HeUniform, "he_normal": HeNormal}


def initializer(init, shape=None, dtype=mstype.float32) -> Tensor:
    """A tensor of initial values.

    Args:
        init: a name ("normal", "xavier_uniform", …), a number, an Initializer, or a Tensor of the shape asked for.
        shape: tuple of ints, or one int.
        dtype: ms.float32 by default.

    >>> initializer("ones", (2, 3)).asnumpy().sum()
    np.float32(6.0)
    """
    if isinstance(init, Tensor):
        if shape is not None and tuple(shape) != init.shape:
            raise ValueError(f"initializer: the tensor given has shape {init.shape}, {tuple(shape)} is needed")
        return init
    if isinstance(init, str):
        if init not in NAMES:
            raise ValueError(f"initializer: unknown name {init!r}; use one of {sorted(NAMES)}")
        init = NAMES[init]()
    elif isinstance(init, (int, float)):
        init = Constant(init)
    if not isinstance(init, Initializer):
        raise TypeError(f"initializer: init is a {type(init).__name__}; give a name, a number, an Initializer or a Tensor")
    shape = (shape,) if isinstance(shape, int) else tuple(shape or ())
    if any(not isinstance(n, (int, np.integer)) or n < 0 for n in shape):
        raise ValueError(f"initializer: shape {shape} must be whole numbers, none negative")
    pending = Pending(init, random.next_key("init"), shape, mstype.to_dtype(dtype))
    return Tensor._symbol(pending) if current().lazy else Tensor.from_numpy(pending.make())


AT_ONCE = 2 ** 18               # values drawn in one go


@dataclass(frozen=True)
class Pending:
    """Initial values that are drawn when they are first wanted, or only those of a rank's piece; in the place of a tensor's
    Value until then."""
    init: Initializer
    key: tuple
    shape: tuple
    dtype: np.dtype
    graph = array = None

    def make(self, region=None) -> np.ndarray:
        """The values, or the part of them in `region`."""
        region = region or tuple(slice(0, n) for n in self.shape)
        out = np.empty([s.stop - s.start for s in region], self.dtype)
        if not self.shape:
            out[...] = self.init.values(self.key, self.shape)
            return out
        rows, (first, *others) = max(1, AT_ONCE // max(1, prod(out.shape[1:]))), region
        for at in range(0, len(out), rows):             # in blocks: random numbers take far more room than what they become
            block = slice(first.start + at, min(first.start + at + rows, first.stop))
            out[at:at + rows] = self.init.values(self.key, self.shape, (block, *others))
        return out
