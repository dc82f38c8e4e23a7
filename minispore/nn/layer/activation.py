"""Activations as cells (MindSpore: `mindspore.nn.layer.activation`)."""
from minispore import ops
from minispore.common.initializer import initializer
from minispore.common.parameter import Parameter
from minispore.common.tensor import Tensor
from minispore.nn.cell import Cell
from minispore.nn.layer.checks import positive


class ReLU(Cell):
    """max(x, 0)."""

    def __init__(self):
        super().__init__()
        self.relu = ops.ReLU()

    def construct(self, x):
        return self.relu(x)


class ReLU6(Cell):
    """min(max(x, 0), 6)."""

    def construct(self, x):
        return ops.relu6(x)


class Tanh(Cell):
    """tanh(x)."""

    def construct(self, x):
        return ops.tanh(x)


class Sigmoid(Cell):
    """1 / (1 + exp(-x))."""

    def construct(self, x):
        return ops.sigmoid(x)


class SiLU(Cell):
    """x · sigmoid(x)."""

    def construct(self, x):
        return ops.silu(x)


class Softplus(Cell):
    """log(1 + exp(x))."""

    def construct(self, x):
        return ops.softplus(x)


class SeLU(Cell):
    """The self-normalising Elu."""

    def construct(self, x):
        return ops.selu(x)


class HSigmoid(Cell):
    """min(max(x + 3, 0), 6) / 6."""

    def construct(self, x):
        return ops.hardsigmoid(x)


class HSwish(Cell):
    """x · HSigmoid(x)."""

    def construct(self, x):
        return ops.hardswish(x)


class Mish(Cell):
    """x · tanh(softplus(x))."""

    def construct(self, x):
        return ops.mish(x)


class LogSigmoid(Cell):
    """log sigmoid(x)."""

    def construct(self, x):
        return ops.logsigmoid(x)


class Softsign(Cell):
    """x / (1 + |x|)."""

    def construct(self, x):
        return ops.softsign(x)


class LeakyReLU(Cell):
    """x where x > 0, else alpha · x."""

    def __init__(self, alpha=0.2):
        super().__init__()
        self.alpha = alpha

    def construct(self, x):
        return ops.leaky_relu(x, self.alpha)


class ELU(Cell):
    """x where x > 0, else alpha · (exp(x) - 1)."""

    def __init__(self, alpha=1.0):
        super().__init__()
        self.alpha = alpha

    def construct(self, x):
        return ops.elu(x, self.alpha)


class CELU(ELU):
    """x where x > 0, else alpha · (exp(x / alpha) - 1)."""

    def construct(self, x):
        return ops.celu(x, self.alpha)


class GELU(Cell):
    """x · Φ(x): by tanh (default), or with approximate=False by erf."""

    def __init__(self, approximate=True):
        super().__init__()
        self.approximate = approximate

    def construct(self, x):
        return ops.gelu(x, "tanh" if self.approximate else "none")


class PReLU(Cell):
    """x where x > 0, else w · x, with w learned: one for all, or one for each of `channel` channels (dim 1)."""

    def __init__(self, channel=1, w=0.25):
        super().__init__()
        positive("PReLU", channel=channel)
        self.w = Parameter(w if isinstance(w, Tensor) else initializer(w, (channel,)), name="a")

    def construct(self, x):
        return ops.prelu(x, self.w)


class Hardtanh(Cell):
    """x between min_val and max_val."""

    def __init__(self, min_val=-1.0, max_val=1.0):
        super().__init__()
        self.min_val, self.max_val = min_val, max_val

    def construct(self, x):
        return ops.hardtanh(x, self.min_val, self.max_val)


class Softmax(Cell):
    """exp(x) / Σ exp(x) along an axis."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis, self.softmax = axis, ops.Softmax(axis)

    def construct(self, x):
        return self.softmax(x)


class LogSoftmax(Cell):
    """log softmax along an axis."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = axis

    def construct(self, x):
        return ops.log_softmax(x, self.axis)


ACTIVATIONS = {
    "relu": ReLU, "relu6": ReLU6, "tanh": Tanh, "sigmoid": Sigmoid, "softmax": Softmax, "logsoftmax": LogSoftmax, "gelu": GELU,
    "silu": SiLU, "swish": SiLU, "elu": ELU, "leakyrelu": LeakyReLU, "prelu": PReLU, "hswish": HSwish, "hsigmoid": HSigmoid,
    "logsigmoid": LogSigmoid, "mish": Mish, "softplus": Softplus, "softsign": Softsign, "selu": SeLU,
}


def get_activation(name, prim_name=None):
    """The activation cell of a name; a Cell, an op or None is returned as it is.

    >>> type(get_activation("gelu")).__name__
    'GELU'
    """
    if not isinstance(name, str):
        return name
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is unknown; use one of {sorted(ACTIVATIONS)}, or a Cell")
    return ACTIVATIONS[name]()
