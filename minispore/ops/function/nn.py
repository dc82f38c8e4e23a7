"""Functional forms of what networks are made of: activations, normalisations, pooling, classes, losses, dropout."""
from functools import cache

from minispore.common.tensor import Tensor
from minispore.ops import activation, conv, elementary, normalization, pool, softmax
from minispore.ops import functional as F
from minispore.ops.primitive import rounded_once

__all__ = [
    "adaptive_avg_pool2d", "avg_pool2d", "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu",
    "check_reduction", "conv2d", "cosine_similarity", "dropout", "elu", "gelu", "group_norm", "hardsigmoid", "hardswish",
    "hardtanh", "huber_loss", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "log_softmax", "logsigmoid", "max_pool2d",
    "mish", "mse_loss", "prelu", "reduced", "relu", "relu6", "rms_norm", "selu", "sigmoid", "silu",
    "smooth_l1_loss", "softmax_", "softplus", "softsign",
]

relu, relu6, sigmoid, silu, selu = (f() for f in (activation.ReLU, activation.ReLU6, activation.Sigmoid, activation.SiLU,
                                                  activation.SeLU))
clamped_log = elementary.ClampedLog()
hardsigmoid, hardswish, mish = activation.HSigmoid(), activation.HSwish(), activation.Mish()
logsigmoid, softsign, prelu = activation.LogSigmoid(), activation.Softsign(), activation.PReLU()

_softmax, _log_softmax, _leaky, _elu, _gelu = map(cache, (softmax.Softmax, softmax.LogSoftmax, activation.LeakyReLU,
                                                          activation.Elu, activation.GeLU))


def leaky_relu(input, alpha=0.2) -> Tensor:
    """x where x > 0, else alpha · x."""
    return _leaky(alpha)(input)


def elu(input_x, alpha=1.0) -> Tensor:
    """x where x > 0, else alpha · (exp(x) - 1)."""
    return _elu(alpha)(input_x)


def celu(x, alpha=1.0) -> Tensor:
    """x where x > 0, else alpha · (exp(x / alpha) - 1)."""
    return F.select(x > 0, x, _elu(alpha)(x / alpha))


def gelu(input, approximate="none") -> Tensor:
    """x · Φ(x), by erf ("none") or by tanh ("tanh")."""
    return _gelu(approximate)(input)


def softplus(input, beta=1, threshold=20) -> Tensor:
    """log(1 + exp(beta · x)) / beta. The threshold above which MindSpore takes x itself isn't needed here."""
    return activation.Softplus()(input) if beta == 1 else activation.Softplus()(input * beta) / beta


def hardtanh(input, min_val=-1.0, max_val=1.0) -> Tensor:
    """x between min_val and max_val."""
    return F.clip_by_value(input, min_val, max_val)


def softmax_(input, axis=-1, *, dtype=None) -> Tensor:
    """exp(x) / Σ exp(x) along an axis."""
    return _softmax(axis)(input if dtype is None else F.cast(input, dtype))


def log_softmax(logits, axis=-1) -> Tensor:
    """log softmax along an axis."""
    return _log_softmax(axis)(logits)


def dropout(input, p=0.5, training=True, seed=None) -> Tensor:
    """Each value times 0 with probability p, else times 1 / (1 - p); unchanged unless training.

    The same values are dropped on any number of ranks; `seed` names another stream of random numbers.
    """
    from minispore.ops.random import Dropout
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ValueError(f"dropout: p={p!r} must be in 0 … 1, the share of values that are dropped")
    if not training or p == 0:
        return input
    return F.zeros_like(input) * input if p == 1 else Dropout(1 - p, Seed0=seed or 0)(input)[0]


# ---- normalisations -------------------------------------------------------------------------------------

@rounded_once
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5) -> Tensor:
    """Normalised over the last dims, of `normalized_shape`; · weight + bias of that shape."""
    shape = tuple(normalized_shape)
    if input.shape[input.ndim - len(shape):] != shape:
        raise ValueError(f"layer_norm: normalized_shape {shape} must be the last dims of the input {input.shape}")
    y = normalization.normalised(input, tuple(range(input.ndim - len(shape), input.ndim)), eps)[0]
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5) -> Tensor:
    """Normalised over groups of neighbouring channels (dim 1); · weight + bias of one value a channel."""
    channels = input.shape[1:2]
    weight = F.ones(channels, input.dtype) if weight is None else weight
    bias = F.zeros(channels, input.dtype) if bias is None else bias
    return normalization.GroupNorm(num_groups, eps)(input, weight, bias)[0]


def batch_norm(input_x, running_mean, running_var, weight, bias, training=False, momentum=0.1, eps=1e-5) -> Tensor:
    """Normalised over all dims but 1; in training by the batch, and running_mean and running_var (Parameters) move."""
    return normalization.BatchNorm(training, eps, momentum)(input_x, weight, bias, running_mean, running_var)[0]


def rms_norm(x, gamma, epsilon=1e-6) -> tuple[Tensor, Tensor]:
    """(x / rms · gamma, 1 / rms) over the last dims, those of gamma."""
    return normalization.RmsNorm(epsilon)(x, gamma)


# ---- images ---------------------------------------------------------------------------------------------

def conv2d(input, weight, bias=None, stride=1, pad_mode="valid", padding=0, dilation=1, groups=1) -> Tensor:
    """Convolution of images (n, i, h, w) with weight (o, i / groups, kh, kw), plus bias (o,)."""
    op = conv.Conv2D(weight.shape[0], weight.shape[2:], 1, pad_mode, padding, stride, dilation, groups)
    return op(input, weight) if bias is None else F.bias_add(op(input, weight), bias)


def max_pool2d(x, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) -> Tensor:
    """The largest value of each window; stride None: the kernel's size."""
    if return_indices or dilation not in (1, (1, 1)):
        raise ValueError(f"max_pool2d: return_indices={return_indices}, dilation={dilation}; only False and 1 are there")
    return pool.MaxPool(kernel_size, kernel_size if stride is None else stride, "pad" if padding else "valid",
                        _around(padding), ceil_mode)(x)


def avg_pool2d(input_x, kernel_size=1, stride=1, padding=0, ceil_mode=False, count_include_pad=True,
               divisor_override=0) -> Tensor:
    """The mean of each window; divisor_override: divide by this number instead."""
    return pool.AvgPool(kernel_size, stride, "pad" if padding else "valid", _around(padding), ceil_mode, count_include_pad,
                        divisor_override or None)(input_x)


def adaptive_avg_pool2d(input, output_size) -> Tensor:
    """Means over windows such that the output is of a given size: a number, or (height, width) with None for "as it is"."""
    size = (output_size, output_size) if isinstance(output_size, int) or output_size is None else tuple(output_size)
    if len(size) != 2 or any(n is not None and (not isinstance(n, int) or n < 1) for n in size):
        raise ValueError(f"adaptive_avg_pool2d: output_size {output_size!r} must be a number ≥ 1 or a pair of them, "
                         "(height, width)")
    x = input
    for axis, (n, want) in zip((-2, -1), zip(input.shape[-2:], size, strict=True), strict=True):
        if want in (None, n):
            continue
        if n % want == 0:                       # windows side by side
            at = x.ndim + axis
            x = F.mean(F.reshape(x, (*x.shape[:at], want, n // want, *x.shape[at + 1:])), at + 1)
        else:
            parts = [F.mean(F.narrow(x, x.ndim + axis, i * n // want, -(-(i + 1) * n // want) - i * n // want), axis, True)
                     for i in range(want)]
            x = F.concat(parts, axis)
    return x


def _around(padding):
    return (padding[0], padding[0], padding[1], padding[1]) if isinstance(padding, tuple) and len(padding) == 2 else padding


# ---- losses ---------------------------------------------------------------------------------------------

def reduced(loss, reduction) -> Tensor:
    """The mean, the sum or the losses themselves."""
    return F.mean(loss) if reduction == "mean" else F.sum(loss) if reduction == "sum" else loss


def check_reduction(name: str, reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{name}: reduction {reduction!r} must be 'mean', 'sum' or 'none'")


def mse_loss(input, target, reduction="mean") -> Tensor:
    """(input - target)²."""
    check_reduction("mse_loss", reduction)
    return reduced(F.square(input - target), reduction)


def l1_loss(input, target, reduction="mean") -> Tensor:
    """|input - target|."""
    check_reduction("l1_loss", reduction)
    return reduced(F.abs(input - target), reduction)


def smooth_l1_loss(input, target, beta=1.0, reduction="none") -> Tensor:
    """½·d²/beta where d = |input - target| < beta, else d - ½·beta."""
    check_reduction("smooth_l1_loss", reduction)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta {beta} must be ≥ 0")
    d = F.abs(input - target)
    return reduced(d if beta == 0 else F.select(d < beta, F.square(input - target) * (0.5 / beta), d - 0.5 * beta), reduction)


def huber_loss(input, target, reduction="mean", delta=1.0) -> Tensor:
    """½·d² where d = |input - target| ≤ delta, else delta·(d - ½·delta)."""
    check_reduction("huber_loss", reduction)
    d = F.abs(input - target)
    return reduced(F.select(d <= delta, 0.5 * F.square(input - target), delta * (d - 0.5 * delta)), reduction)


def binary_cross_entropy(logits, labels, weight=None, reduction="mean") -> Tensor:
    """-(labels · log p + (1 - labels) · log(1 - p)) of probabilities p; the logarithms end at -100, as PyTorch's."""
    check_reduction("binary_cross_entropy", reduction)
    loss = -(labels * clamped_log(logits) + (1 - labels) * clamped_log(1 - logits))
    return reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(logits, label, weight=None, pos_weight=None, reduction="mean") -> Tensor:
    """The same of p = sigmoid(logits), without overflow; pos_weight multiplies the positive share."""
    check_reduction("binary_cross_entropy_with_logits", reduction)
    positive = label if pos_weight is None else label * pos_weight
    loss = positive * F.softplus(-logits) + (1 - label) * F.softplus(logits)
    return reduced(loss if weight is None else loss * weight, reduction)


def kl_div(logits, labels, reduction="mean") -> Tensor:
    """labels · (log labels - logits), of log probabilities and probabilities; "batchmean": the sum over the batch's size."""
    if reduction != "batchmean":
        check_reduction("kl_div", reduction)
    safe = F.select(labels > 0, labels, F.ones_like(labels))
    loss = labels * (F.log(safe) - logits)
    return F.sum(loss) / logits.shape[0] if reduction == "batchmean" else reduced(loss, reduction)


@rounded_once
def cosine_similarity(x1, x2, dim=1, eps=1e-8) -> Tensor:
    """x1 · x2 / max(‖x1‖·‖x2‖, eps) along a dim."""
    norms = F.sqrt(F.sum(F.square(x1), dim) * F.sum(F.square(x2), dim))
    return F.sum(x1 * x2, dim) / F.maximum(norms, eps)
