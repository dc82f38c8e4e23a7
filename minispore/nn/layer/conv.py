"""Convolutions as cells (MindSpore: `mindspore.nn.layer.conv`)."""
from math import prod, sqrt

from minispore import ops
from minispore.common import dtype as mstype
from minispore.common.initializer import HeUniform, Uniform, initializer
from minispore.common.parameter import Parameter
from minispore.nn.cell import Cell
from minispore.nn.layer.checks import only_nchw, positive
from minispore.ops.window import pair


class Conv2d(Cell):
    """Convolution of images x (n, in_channels, h, w) (MindSpore: `nn.Conv2d`).

    Args:
        kernel_size, stride, dilation: an int or (height, width).
        pad_mode: "same" (default: keeps ceil(size / stride), the odd one at the bottom and right), "valid", or "pad"
            with `padding`, an int or (top, bottom, left, right).
        group: channels fall into that many groups, each convolved by itself.
        has_bias: False by default. weight_init, bias_init: uniform ±1/√(in_channels / group · kernel) by default.

    >>> from minispore import Tensor, nn
    >>> import numpy as np
    >>> x = Tensor(np.zeros((2, 1, 28, 28), np.float32))
    >>> nn.Conv2d(1, 6, 5)(x).shape, nn.Conv2d(1, 6, 5, pad_mode="valid")(x).shape
    ((2, 6, 28, 28), (2, 6, 24, 24))
    """

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same", padding=0, dilation=1,
                 group=1, has_bias=False, weight_init=None, bias_init=None, data_format="NCHW", dtype=mstype.float32):
        super().__init__()
        positive("Conv2d", in_channels=in_channels, out_channels=out_channels, group=group)
        only_nchw("Conv2d", data_format)
        if in_channels % group or out_channels % group:
            raise ValueError(f"Conv2d: group={group} must divide in_channels={in_channels} and out_channels={out_channels}")
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        self.kernel_size, self.stride = pair(kernel_size, "Conv2d: kernel_size"), stride
        self.pad_mode, self.padding, self.dilation, self.group = pad_mode, padding, dilation, group
        self.bias_add = ops.BiasAdd()
        self.conv2d = ops.Conv2D(out_channels, self.kernel_size, pad_mode=pad_mode, pad=padding, stride=stride,
                                 dilation=dilation, group=group)
        fan_in = in_channels // group * prod(self.kernel_size)
        init = HeUniform(sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(init, (out_channels, in_channels // group, *self.kernel_size), dtype),
                                name="weight")
        if has_bias:
            init = Uniform(1 / sqrt(fan_in)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(init, (out_channels,), dtype), name="bias")

    def construct(self, x):
        x = self.conv2d(x, self.weight)
        return self.bias_add(x, self.bias) if self.has_bias else x

    def extend_repr(self):
        return (f"input_channels={self.in_channels}, output_channels={self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}, pad_mode={self.pad_mode}, padding={self.padding}, dilation={self.dilation}, "
                f"group={self.group}, has_bias={self.has_bias}")
