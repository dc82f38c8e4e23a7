"""PyTorch-like functions of networks (MindSpore: `mindspore.mint.nn.functional`)."""
from minispore import ops
from minispore.ops import (
    adaptive_avg_pool2d,
    binary_cross_entropy,
    cross_entropy,
    dropout,
    elu,
    gelu,
    group_norm,
    hardswish,
    hardtanh,
    huber_loss,
    kl_div,
    l1_loss,
    layer_norm,
    logsigmoid,
    mish,
    mse_loss,
    nll_loss,
    pad,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
)


def softmax(input, dim=-1, *, dtype=None): return ops.softmax(input, dim, dtype=dtype)
def log_softmax(input, dim=-1): return ops.log_softmax(input, dim)
def leaky_relu(input, negative_slope=0.01): return ops.leaky_relu(input, negative_slope)
def linear(input, weight, bias=None): return ops.dense(input, weight, bias)
def embedding(input, weight): return ops.gather(weight, input, 0)
def smooth_l1_loss(input, target, reduction="mean", beta=1.0): return ops.smooth_l1_loss(input, target, beta, reduction)


def one_hot(tensor, num_classes):
    """1 at the index, 0 elsewhere, int64."""
    return ops.one_hot(tensor, num_classes)


def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    """Binary cross-entropy of sigmoid(input)."""
    return ops.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution with `padding` zeros around: a number, (height, width), "valid" or "same"."""
    if isinstance(padding, str):
        return ops.conv2d(input, weight, bias, stride, padding, 0, dilation, groups)
    around = (padding,) * 4 if isinstance(padding, int) else (padding[0], padding[0], padding[1], padding[1])
    return ops.conv2d(input, weight, bias, stride, "pad", around, dilation, groups)


def max_pool2d(input, kernel_size, stride=None, padding=0): return ops.max_pool2d(input, kernel_size, stride, padding)


def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    """The mean of each window; stride None: the kernel's size."""
    return ops.avg_pool2d(input, kernel_size, kernel_size if stride is None else stride, padding, ceil_mode, count_include_pad,
                          divisor_override or 0)
