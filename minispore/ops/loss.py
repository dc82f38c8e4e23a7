"""Cross-entropy as a function, composed of ops (MindSpore: `ops.cross_entropy`)."""
from math import prod

from minispore.common import dtype as mstype
from minispore.common.tensor import Tensor
from minispore.ops import functional as F
from minispore.ops.softmax import SparseSoftmaxCrossEntropyWithLogits


def cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0) -> Tensor:
    """-Σ_c w_c · p_c · log softmax(input)_c, where p is the target.

    Args:
        input: logits, (classes,), (batch, classes) or (batch, classes, d1, …).
        target: class indices (integers, the shape without the class dim) or probabilities (input's shape and dtype).
        weight: (classes,) factors, or None.
        ignore_index: rows with this index count nothing.
        reduction: "mean" (over the weights of the rows that count; over the batch for probabilities), "sum", "none".
        label_smoothing: 0 … 1, the share of the target that is spread evenly over all classes.

    >>> from minispore import Tensor
    >>> round(float(cross_entropy(Tensor([[0.0, 0.0]]), Tensor([1]))), 4)
    0.6931
    """
    check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing {label_smoothing} must be between 0 and 1")
    axis = 0 if input.ndim == 1 else 1
    classes = input.shape[axis] if input.ndim else 0
    if not mstype.is_integer(target.dtype):
        if target.shape != input.shape:
            raise TypeError(f"cross_entropy: labels of shape {target.shape} are {target.dtype}: neither class indices "
                            f"(integers of shape {_without(input.shape, axis)}) nor probabilities of the logits' shape "
                            f"{input.shape}. Class indices need TypeCast(ms.int32) in the dataset or .astype(ms.int32)")
        return _of_probabilities(input, target, weight, reduction, label_smoothing, axis)
    if target.shape != _without(input.shape, axis):
        raise ValueError(f"cross_entropy: logits {input.shape} need class indices of shape "
                         f"{_without(input.shape, axis)}, got {target.shape}")
    counted = F.not_equal(target, ignore_index)
    if not 0 <= ignore_index < classes:             # else it is an ordinary class to the op
        target = F.select(counted, target, F.zeros_like(target))
    last = _move_last(input, axis)
    row = SparseSoftmaxCrossEntropyWithLogits()(last, target)
    share = F.cast(counted, input.dtype)
    if weight is not None:
        weight = _weight(weight, classes, input)
        share = share * F.gather(weight, target, 0)
    loss = row * share
    if label_smoothing:
        logp = F.log_softmax(last, -1)
        even = -F.sum(logp if weight is None else logp * weight, -1) * F.cast(counted, input.dtype)
        loss = loss * (1 - label_smoothing) + even * (label_smoothing / classes)
    if reduction == "mean":
        return F.sum(loss) / F.sum(share)
    return F.sum(loss) if reduction == "sum" else loss


def check_reduction(name: str, reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{name}: reduction {reduction!r} must be 'mean', 'sum' or 'none'")


def _of_probabilities(input, target, weight, reduction, smoothing, axis):
    classes, target = input.shape[axis], F.cast(target, input.dtype)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    terms = F.log_softmax(_move_last(input, axis), -1) * _move_last(target, axis)
    loss = -F.sum(terms if weight is None else terms * _weight(weight, classes, input), -1)
    if reduction == "mean":
        return F.sum(loss) / max(prod(loss.shape), 1)
    return F.sum(loss) if reduction == "sum" else loss


def _weight(weight, classes, input):
    if weight.shape != (classes,):
        raise ValueError(f"cross_entropy: weight has shape {weight.shape}; one factor a class is needed, ({classes},)")
    return F.cast(weight, input.dtype)


def _without(shape, axis):
    return tuple(n for i, n in enumerate(shape) if i != axis)


def _move_last(x, axis):
    return F.transpose(x, (*(i for i in range(x.ndim) if i != axis), axis))
