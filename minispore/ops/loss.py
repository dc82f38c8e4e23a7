"""Cross-entropy and negative log likelihood, composed of ops (MindSpore: `ops.cross_entropy`, `ops.nll_loss`)."""
from math import prod

from minispore.common import dtype as mstype
from minispore.common.tensor import Tensor
from minispore.ops import functional as F
from minispore.ops.function.nn import check_reduction
from minispore.ops.softmax import NegativeLogLikelihood, SparseSoftmaxCrossEntropyWithLogits


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
    axis = 0 if input.ndim == 1 else 1
    if mstype.is_integer(target.dtype):
        return of_indices("cross_entropy", SparseSoftmaxCrossEntropyWithLogits(), F.log_softmax, input, target, weight,
                          ignore_index, reduction, label_smoothing)
    _demand_smoothing("cross_entropy", label_smoothing)
    if target.shape != input.shape:
        raise TypeError(f"cross_entropy: labels of shape {target.shape} are {target.dtype}: neither class indices "
                        f"(integers of shape {_without(input.shape, axis)}) nor probabilities of the logits' shape "
                        f"{input.shape}. Class indices need TypeCast(ms.int32) in the dataset or .astype(ms.int32)")
    return _of_probabilities(input, target, weight, reduction, label_smoothing, axis)


def nll_loss(inputs, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0) -> Tensor:
    """-inputs[target], of log probabilities (batch, classes, …) and class indices (batch, …); else as `cross_entropy`."""
    return of_indices("nll_loss", NegativeLogLikelihood(), lambda x: x, inputs, target, weight, ignore_index, reduction,
                      label_smoothing)


def of_indices(name, op, log_probabilities, x, target, weight, ignore_index, reduction, smoothing) -> Tensor:
    """A loss of class indices: `op` gives each row's from x, whose log_probabilities are wanted for the smoothing."""
    check_reduction(name, reduction)
    _demand_smoothing(name, smoothing)
    axis = 0 if x.ndim == 1 else 1
    classes = x.shape[axis] if x.ndim else 0
    if not mstype.is_integer(target.dtype) or target.shape != _without(x.shape, axis):
        raise ValueError(f"{name}: logits {x.shape} need class indices of shape {_without(x.shape, axis)}, integers; got "
                         f"{target.dtype} of shape {target.shape}")
    counted = F.not_equal(target, ignore_index)
    if not 0 <= ignore_index < classes:             # else it is an ordinary class to the op
        target = F.select(counted, target, F.zeros_like(target))
    x = _move_last(x, axis)
    row = op(x, target)
    share = F.cast(counted, x.dtype)
    if weight is not None:
        weight = _weight(name, weight, classes, x)
        share = share * F.gather(weight, target, 0)
    loss = row * share
    if smoothing:
        logp = log_probabilities(x)
        even = -F.sum(logp if weight is None else logp * weight, -1) * F.cast(counted, x.dtype)
        loss = loss * (1 - smoothing) + even * (smoothing / classes)
    if reduction == "mean":
        return F.sum(loss) / F.sum(share)
    return F.sum(loss) if reduction == "sum" else loss


def _demand_smoothing(name, smoothing):
    if not 0 <= smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing {smoothing} must be between 0 and 1")


def _of_probabilities(input, target, weight, reduction, smoothing, axis):
    classes, target = input.shape[axis], F.cast(target, input.dtype)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    terms = F.log_softmax(_move_last(input, axis), -1) * _move_last(target, axis)
    loss = -F.sum(terms if weight is None else terms * _weight("cross_entropy", weight, classes, input), -1)
    if reduction == "mean":
        return F.sum(loss) / max(prod(loss.shape), 1)
    return F.sum(loss) if reduction == "sum" else loss


def _weight(name, weight, classes, input):
    if weight.shape != (classes,):
        raise ValueError(f"{name}: weight has shape {weight.shape}; one factor a class is needed, ({classes},)")
    return F.cast(weight, input.dtype)


def _without(shape, axis):
    return tuple(n for i, n in enumerate(shape) if i != axis)


def _move_last(x, axis):
    return F.transpose(x, (*(i for i in range(x.ndim) if i != axis), axis))
