"""Normalisations, made of means and products: split any way, their statistics are those of the whole tensor."""
from dataclasses import dataclass

from minispore.common.parameter import Parameter
from minispore.ops import functional as F
from minispore.ops.primitive import Composite, demand_float, normal_axis, rounded_once, wide
from minispore.ops.rule import whole_dims


def normalised(x, axes, epsilon):
    """((x - mean) / √(variance + epsilon), mean, variance, 1/√…) over some axes; the statistics keep their dims."""
    mean = F.mean(x, axes, True)
    centred = x - mean
    variance = F.mean(F.square(centred), axes, True)
    rstd = F.rsqrt(variance + epsilon)
    return centred * rstd, mean, variance, rstd


@dataclass(frozen=True)
class LayerNorm(Composite):
    """(y, mean, 1/σ) over all dims from begin_norm_axis on; y = normalised · gamma + beta (Ba et al., 2016).

    gamma and beta have the shape of x from begin_params_axis on.
    """
    begin_norm_axis: int = 1
    begin_params_axis: int = 1
    epsilon: float = 1e-7

    def rule(self, x, gamma, beta):
        first, begin = (normal_axis(a, len(x), self) for a in (self.begin_norm_axis, self.begin_params_axis))
        names = whole_dims(len(x), range(first, len(x)))
        return ", ".join(map(" ".join, (names, names[begin:], names[begin:])))

    @rounded_once
    def __call__(self, x, gamma, beta):
        first = normal_axis(self.begin_norm_axis, x.ndim, self)
        for name, t in (("gamma", gamma), ("beta", beta)):
            if t.shape != x.shape[normal_axis(self.begin_params_axis, x.ndim, self):]:
                raise ValueError(f"LayerNorm: x {x.shape} with begin_params_axis={self.begin_params_axis} needs {name} of shape "
                                 f"{x.shape[normal_axis(self.begin_params_axis, x.ndim, self):]}, got {t.shape}")
        y, mean, _, rstd = normalised(x, tuple(range(first, x.ndim)), self.epsilon)
        return y * gamma + beta, mean, rstd


@dataclass(frozen=True)
class BatchNorm(Composite):
    """(y, mean, variance, mean, variance) of x (n, c, …) over all dims but 1 (Ioffe and Szegedy, 2015).

    In training the batch's own statistics are used, and mean and variance (Parameters) move towards them by the share
    `momentum`, the variance as the unbiased one; else the mean and variance given are used.
    """
    is_training: bool = False
    epsilon: float = 1e-5
    momentum: float = 0.1
    data_format: str = "NCHW"
    assigned = (3, 4)

    def rule(self, *shapes):
        return "n c ..., c, c, c, c"

    def __call__(self, x, scale, bias, mean, variance):
        _demand_channels(self, x, scale, bias, mean, variance)
        demand_float(self, x=x)
        dtype, x = x.dtype, wide(x)
        if not self.is_training:
            y = (x - _channels(mean, x)) * F.rsqrt(_channels(variance, x) + self.epsilon)
        else:
            axes = (0, *range(2, x.ndim))
            count = x.size // x.shape[1]
            y, own_mean, own_variance, _ = normalised(x, axes, self.epsilon)
            mean, variance = move((mean, variance), (own_mean, own_variance), count, self.momentum)
        y = F.cast(y * _channels(scale, x) + _channels(bias, x), dtype)
        return y, mean, variance, mean, variance


def move(moving, own, count, momentum):
    """The moving statistics, moved towards the batch's; the batch's, as (c,), are returned."""
    mean, variance = (F.reshape(t, (-1,)) for t in own)
    unbiased = variance * (count / (count - 1)) if not isinstance(count, int) or count > 1 else variance
    for old, new in zip(moving, (mean, unbiased), strict=True):
        if isinstance(old, Parameter):
            F.assign(old, (1 - momentum) * old + momentum * F.stop_gradient(new))
    return mean, variance


@dataclass(frozen=True)
class GroupNorm(Composite):
    """(y, mean, 1/σ) of x (n, c, …) over groups of neighbouring channels (Wu and He, 2018); gamma, beta (c,)."""
    num_groups: int
    epsilon: float = 1e-5

    def rule(self, x, gamma, beta):
        names = whole_dims(len(x), range(1, len(x)))
        return f"{' '.join(names)}, {names[1]}, {names[1]}"

    @rounded_once
    def __call__(self, x, gamma, beta):
        _demand_channels(self, x, gamma, beta)
        if x.shape[1] % self.num_groups:
            raise ValueError(f"GroupNorm: num_groups={self.num_groups} doesn't divide the {x.shape[1]} channels of {x.shape}")
        y, mean, _, rstd = normalised(F.reshape(x, (x.shape[0], self.num_groups, -1)), -1, self.epsilon)
        return F.reshape(y, x.shape) * _channels(gamma, x) + _channels(beta, x), mean, rstd


@dataclass(frozen=True)
class RmsNorm(Composite):
    """(y, 1/rms) over the last dims, those of gamma; y = x / √(mean x² + epsilon) · gamma (Zhang and Sennrich, 2019)."""
    epsilon: float = 1e-6

    def rule(self, x, gamma):
        lead = len(x) - len(gamma)
        names = whole_dims(len(x), range(lead, len(x)))
        return f"{' '.join(names)}, {' '.join(names[lead:])}"

    @rounded_once
    def __call__(self, x, gamma):
        lead = x.ndim - gamma.ndim
        if lead < 0 or x.shape[lead:] != gamma.shape:
            raise ValueError(f"RmsNorm: gamma {gamma.shape} must have the last dims of x {x.shape}")
        rstd = F.rsqrt(F.mean(F.square(x), tuple(range(lead, x.ndim)), True) + self.epsilon)
        return x * rstd * gamma, rstd


@dataclass(frozen=True)
class L2Normalize(Composite):
    """x / √max(Σ x², epsilon) along an axis (MindSpore: `ops.L2Normalize`)."""
    axis: int | tuple = 0
    epsilon: float = 1e-4

    def axes(self, ndim):
        axes = (self.axis,) if isinstance(self.axis, int) else tuple(self.axis)
        return tuple(normal_axis(a, ndim, self) for a in axes)

    def rule(self, x):
        return " ".join(whole_dims(len(x), self.axes(len(x))))

    @rounded_once
    def __call__(self, x):
        return x * F.rsqrt(F.maximum(F.sum(F.square(x), self.axes(x.ndim), True), self.epsilon))


def _channels(t, x):
    """(c,) aligned with dim 1 of x."""
    return F.reshape(t, (-1, *(1,) * (x.ndim - 2)))


def _demand_channels(op, x, *vectors):
    for i, t in enumerate(vectors, 1):
        if x.ndim < 2 or t.shape != x.shape[1:2]:
            raise ValueError(f"{op.name}: x {x.shape} needs one value for each of dim 1, shape {x.shape[1:2]}; input {i} has "
                             f"{t.shape}")
