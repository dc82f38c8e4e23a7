"""Pooling as cells (MindSpore: `mindspore.nn.layer.pooling`)."""
from minispore import ops
from minispore.nn.cell import Cell
from minispore.nn.layer.checks import only_nchw
from minispore.ops.window import four


class MaxPool2d(Cell):
    """The largest value of each window of x (n, c, h, w) (MindSpore: `nn.MaxPool2d`).

    pad_mode: "valid" (default), "same", or "pad" with `padding`. ceil_mode: a last window that hangs over the edge counts.

    >>> from minispore import Tensor, nn
    >>> nn.MaxPool2d(2, 2)(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).tolist()
    [[[[4.0]]]]
    """

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, dilation=1, return_indices=False,
                 ceil_mode=False, data_format="NCHW"):
        super().__init__()
        if return_indices or dilation not in (1, (1, 1)):
            raise ValueError(f"MaxPool2d: return_indices={return_indices}, dilation={dilation}; only False and 1 are there")
        only_nchw("MaxPool2d", data_format)
        self.kernel_size, self.stride, self.pad_mode, self.padding = kernel_size, stride, pad_mode, padding
        self.max_pool = ops.MaxPool(kernel_size, stride, pad_mode, four(padding, "MaxPool2d: padding"), ceil_mode)

    def construct(self, x):
        return self.max_pool(x)

    def extend_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode}"


class AvgPool2d(Cell):
    """The mean of each window of x (n, c, h, w) (MindSpore: `nn.AvgPool2d`).

    Args:
        pad_mode: "valid" (default), "same" (padding doesn't count), or "pad" with `padding` (it counts, unless
            count_include_pad is False).
        ceil_mode: a last window that hangs over the edge counts; what hangs over is neither summed nor counted.
        divisor_override: divide by this number instead of the window's size.

    >>> from minispore import Tensor, nn
    >>> nn.AvgPool2d(2, 2)(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).tolist()
    [[[[2.5]]]]
    """

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, ceil_mode=False, count_include_pad=True,
                 divisor_override=None, data_format="NCHW"):
        super().__init__()
        only_nchw("AvgPool2d", data_format)
        self.kernel_size, self.stride, self.pad_mode, self.padding = kernel_size, stride, pad_mode, padding
        self.avg_pool = ops.AvgPool(kernel_size, stride, pad_mode, four(padding, "AvgPool2d: padding"), ceil_mode,
                                    count_include_pad, divisor_override)

    def construct(self, x):
        return self.avg_pool(x)

    def extend_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode}"


class AdaptiveAvgPool2d(Cell):
    """Means over windows such that the output is (n, c, *output_size); None keeps a size."""

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def construct(self, input):
        return ops.adaptive_avg_pool2d(input, self.output_size)
