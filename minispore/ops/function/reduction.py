"""Functional forms of reductions."""
from minispore.common.tensor import Tensor
from minispore.ops import functional as F
from minispore.ops import reduce
from minispore.ops.primitive import rounded_once

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "logsumexp", "max", "mean", "min", "norm", "prod_", "std", "sum",
    "var",
]


def sum(input, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    """Σ over dim (an int, a tuple, None: all)."""
    return _as(reduce.ReduceSum(keepdim, _axis(dim))(input), dtype)


def mean(x, axis=None, keep_dims=False) -> Tensor:
    """The mean over axis (an int, a tuple, None: all)."""
    return reduce.ReduceMean(keep_dims, _axis(axis))(x)


def prod_(input, axis=None, keep_dims=False, dtype=None) -> Tensor:
    """Π over axis (an int, a tuple, None: all)."""
    return _as(reduce.ReduceProd(keep_dims, _axis(axis))(input), dtype)


def amax(input, axis=None, keepdims=False) -> Tensor:
    """The largest value over axis."""
    return reduce.ReduceMax(keepdims, _axis(axis))(input)


def amin(input, axis=None, keepdims=False) -> Tensor:
    """The smallest value over axis."""
    return reduce.ReduceMin(keepdims, _axis(axis))(input)


def argmax(input, dim=None, keepdim=False) -> Tensor:
    """Index of the largest value along dim, or in the flattened tensor."""
    if dim is None:
        return reduce.Argmax(0)(F.reshape(input, (-1,)))
    out = reduce.Argmax(dim)(input)
    return F.expand_dims(out, dim) if keepdim else out


def argmin(input, axis=None, keepdims=False) -> Tensor:
    """Index of the smallest value along an axis, or in the flattened tensor."""
    if axis is None:
        return reduce.Argmin(0)(F.reshape(input, (-1,)))
    out = reduce.Argmin(axis)(input)
    return F.expand_dims(out, axis) if keepdims else out


def max(input, axis=None, keepdims=False) -> tuple[Tensor, Tensor]:
    """(largest value, its index) along an axis; without axis of all values.

    >>> value, index = max(Tensor([[1.0, 5.0], [7.0, 2.0]]), 1)
    >>> value.tolist(), index.tolist()
    ([5.0, 7.0], [1, 0])
    """
    return _extreme(reduce.ArgMaxWithValue, input, axis, keepdims)


def min(input, axis=None, keepdims=False) -> tuple[Tensor, Tensor]:
    """(smallest value, its index) along an axis; without axis of all values."""
    return _extreme(reduce.ArgMinWithValue, input, axis, keepdims)


def _extreme(op, input, axis, keepdims):
    if axis is None:
        input, axis, keepdims = F.reshape(input, (-1,)), 0, False
    index, value = op(axis, keepdims)(input)
    return value, index


def any(input, axis=None, keep_dims=False) -> Tensor:
    """Whether one value is True (not zero)."""
    return reduce.ReduceAny(keep_dims, _axis(axis))(input)


def all(input, axis=None, keep_dims=False) -> Tensor:
    """Whether all values are True (not zero)."""
    return reduce.ReduceAll(keep_dims, _axis(axis))(input)


@rounded_once
def var(input, axis=None, ddof=0, keepdims=False) -> Tensor:
    """Mean squared distance from the mean; divided by (count - ddof). ddof=True stands for 1."""
    mean_ = mean(input, axis, True)
    squares = sum(F.square(input - mean_), axis, keepdims)
    count = input.size // mean_.size if mean_.size else 0
    return squares / (count - int(ddof) if count > ddof else 0)


@rounded_once
def std(input, axis=None, ddof=0, keepdims=False) -> Tensor:
    """Square root of `var`."""
    return _root(var(input, axis, ddof, keepdims))


def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    """(Σ |A|^ord)^(1/ord) over dim (None: all); ord None or "fro" is 2, ±inf the extreme absolute value.

    >>> float(norm(Tensor([3.0, 4.0])))
    5.0
    """
    return _norm(A if dtype is None else F.cast(A, dtype), ord, dim, keepdim)


@rounded_once
def _norm(A, ord, dim, keepdim):
    ord = 2 if ord in (None, "fro") else ord
    if not isinstance(ord, (int, float)):
        raise ValueError(f"norm: ord {ord!r}; a number, None or 'fro' is needed")
    if ord == 2:
        return _root(sum(F.square(A), dim, keepdim))
    if ord in (float("inf"), float("-inf")):
        return (amax if ord > 0 else amin)(F.abs(A), dim, keepdim)
    if ord == 0:
        return sum(F.cast(F.not_equal(A, 0), A.dtype), dim, keepdim)
    return F.pow(sum(F.pow(F.abs(A), ord), dim, keepdim), 1 / ord)


def logsumexp(input, axis, keep_dims=False) -> Tensor:
    """log Σ exp(x) over axis, without overflow."""
    top = F.stop_gradient(amax(input, axis, True))
    top = F.select(F.isfinite(top), top, F.zeros_like(top))        # else inf - inf
    out = F.log(sum(F.exp(input - top), axis, True)) + top
    return out if keep_dims else F.squeeze(out, _axis(axis) if axis is not None else tuple(range(input.ndim)))


def _root(x):
    """√x, with the gradient 0 at 0: a length has its minimum there."""
    zero = F.equal(x, 0)
    return F.select(zero, F.zeros_like(x), F.sqrt(F.select(zero, F.ones_like(x), x)))


def _axis(axis):
    return () if axis is None else tuple(axis) if isinstance(axis, list) else axis


def _as(x, dtype):
    return x if dtype is None else F.cast(x, dtype)