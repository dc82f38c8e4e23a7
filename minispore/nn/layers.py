"""Layers: Dense, Conv2d, MaxPool2d, Flatten and activations, with MindSpore's parameter names and defaults."""
from math import prod, sqrt

from minispore import ops
from minispore.common import dtype as mstype
from minispore.common.initializer import HeUniform, Uniform, initializer
from minispore.common.parameter import Parameter
from minispore.nn.cell import Cell
from minispore.nn.explain import explain_features
from minispore.ops.conv import four, pair


class Dense(Cell):
    """y (…, out_channels) = x (…, in_channels) · weightᵀ + bias, then an activation (MindSpore: `nn.Dense`).

    Args:
        in_channels, out_channels: sizes of the last dim in and out.
        weight_init: what `initializer` takes; uniform ±1/√in_channels by default. weight is (out, in).
        bias_init: the same; bias is (out,).
        activation: a name ("relu", "tanh", "sigmoid", "softmax", "logsoftmax"), a Cell or an op, or None.

    >>> from minispore import Tensor, nn
    >>> nn.Dense(3, 4, weight_init="ones", bias_init="zeros")(Tensor([[1.0, 2.0, 3.0]])).tolist()
    [[6.0, 6.0, 6.0, 6.0]]
    """

    def __init__(self, in_channels, out_channels, weight_init=None, bias_init=None, has_bias=True, activation=None,
                 dtype=mstype.float32):
        super().__init__()
        for name, n in (("in_channels", in_channels), ("out_channels", out_channels)):
            _positive("Dense", name, n)
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        init = HeUniform(sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(init, (out_channels, in_channels), dtype), name="weight")
        if has_bias:
            init = Uniform(1 / sqrt(in_channels)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(init, (out_channels,), dtype), name="bias")
        self.activation = get_activation(activation)

    def construct(self, x):
        if not x.shape or x.shape[-1] != self.in_channels:
            raise ValueError(f"Dense(in_channels={self.in_channels}, out_channels={self.out_channels}): "
                             + explain_features(x, self.in_channels))
        x = ops.dense(x, self.weight, self.bias if self.has_bias else None)
        return x if self.activation is None else self.activation(x)

    def extend_repr(self):
        return f"input_channels={self.in_channels}, output_channels={self.out_channels}, has_bias={self.has_bias}"


class Conv2d(Cell):
    """Convolution of images x (n, in_channels, h, w) (MindSpore: `nn.Conv2d`).

    Args:
        kernel_size, stride, dilation: an int or (height, width).
        pad_mode: "same" (default: keeps ceil(size / stride), the odd one at the bottom and right), "valid", or "pad"
            with `padding`, an int or (top, bottom, left, right).
        has_bias: False by default. weight_init, bias_init: uniform ±1/√(in_channels · kernel) by default.

    >>> from minispore import Tensor, nn
    >>> import numpy as np
    >>> x = Tensor(np.zeros((2, 1, 28, 28), np.float32))
    >>> nn.Conv2d(1, 6, 5)(x).shape, nn.Conv2d(1, 6, 5, pad_mode="valid")(x).shape
    ((2, 6, 28, 28), (2, 6, 24, 24))
    """

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same", padding=0, dilation=1,
                 group=1, has_bias=False, weight_init=None, bias_init=None, data_format="NCHW", dtype=mstype.float32):
        super().__init__()
        for name, n in (("in_channels", in_channels), ("out_channels", out_channels)):
            _positive("Conv2d", name, n)
        if data_format != "NCHW":
            raise ValueError(f"Conv2d: data_format {data_format!r}; only 'NCHW' is there, use HWC2CHW in the dataset")
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        self.kernel_size, self.stride = pair(kernel_size, "Conv2d: kernel_size"), stride
        self.pad_mode, self.padding, self.dilation, self.group = pad_mode, padding, dilation, group
        self.conv2d = ops.Conv2D(out_channels, self.kernel_size, pad_mode=pad_mode, pad=padding, stride=stride,
                                 dilation=dilation, group=group)
        fan_in = in_channels * prod(self.kernel_size)
        init = HeUniform(sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(init, (out_channels, in_channels, *self.kernel_size), dtype), name="weight")
        if has_bias:
            init = Uniform(1 / sqrt(fan_in)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(init, (out_channels,), dtype), name="bias")

    def construct(self, x):
        x = self.conv2d(x, self.weight)
        return ops.bias_add(x, self.bias) if self.has_bias else x

    def extend_repr(self):
        return (f"input_channels={self.in_channels}, output_channels={self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}, pad_mode={self.pad_mode}, padding={self.padding}, dilation={self.dilation}, "
                f"group={self.group}, has_bias={self.has_bias}")


class MaxPool2d(Cell):
    """The largest value of each window of x (n, c, h, w) (MindSpore: `nn.MaxPool2d`).

    pad_mode: "valid" (default), "same", or "pad" with `padding`.

    >>> from minispore import Tensor, nn
    >>> nn.MaxPool2d(2, 2)(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).tolist()
    [[[[4.0]]]]
    """

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, dilation=1, return_indices=False,
                 ceil_mode=False, data_format="NCHW"):
        super().__init__()
        if return_indices or ceil_mode or data_format != "NCHW":
            raise ValueError("MaxPool2d: return_indices, ceil_mode and data_format other than 'NCHW' aren't there")
        self.kernel_size, self.stride, self.pad_mode, self.padding = kernel_size, stride, pad_mode, padding
        self.max_pool = ops.MaxPool(kernel_size, stride, pad_mode, four(padding, "MaxPool2d: padding"), dilation)

    def construct(self, x):
        return self.max_pool(x)

    def extend_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode}"


class Flatten(Cell):
    """The dims start_dim … end_dim made one (MindSpore: `nn.Flatten`)."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def construct(self, x):
        return ops.flatten(x, start_dim=self.start_dim, end_dim=self.end_dim)


class ReLU(Cell):
    """max(x, 0)."""

    def construct(self, x):
        return ops.relu(x)


class Tanh(Cell):
    """tanh(x)."""

    def construct(self, x):
        return ops.tanh(x)


class Sigmoid(Cell):
    """1 / (1 + exp(-x))."""

    def construct(self, x):
        return ops.sigmoid(x)


class Softmax(Cell):
    """exp(x) / Σ exp(x) along an axis."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = axis

    def construct(self, x):
        return ops.softmax(x, self.axis)


class LogSoftmax(Cell):
    """log softmax along an axis."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = axis

    def construct(self, x):
        return ops.log_softmax(x, self.axis)


ACTIVATIONS = {"relu": ReLU, "tanh": Tanh, "sigmoid": Sigmoid, "softmax": Softmax, "logsoftmax": LogSoftmax}


def get_activation(name):
    """The activation cell of a name; a Cell, an op or None is returned as it is."""
    if not isinstance(name, str):
        return name
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is unknown; use one of {sorted(ACTIVATIONS)}, or a Cell")
    return ACTIVATIONS[name]()


def _positive(layer, name, n):
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"{layer}: {name}={n!r} must be a positive whole number")
