"""Functional forms: `ops.relu(x)` for `ops.ReLU()(x)`, with MindSpore's names and defaults.

Ops whose attributes are few and fixed are made once, here.
"""
from functools import cache
from math import prod

from minispore.common import dtype as mstype
from minispore.common.tensor import Tensor
from minispore.ops import control, elementwise, indexing, linear, reduce, shape, softmax

__all__ = [
    "abs", "add", "amax", "amin", "argmax", "assign", "bias_add", "broadcast_to", "cast", "cat", "concat", "dense",
    "div", "divide", "equal", "exp", "expand_dims", "flatten", "full", "gather", "getitem", "greater",
    "greater_equal", "identity", "less", "less_equal", "log", "log_softmax", "logical_and", "logical_not",
    "logical_or", "matmul", "maximum", "mean", "minimum", "mul", "multiply", "narrow", "neg", "not_equal", "one_hot",
    "ones", "ones_like", "pow", "relu", "reshape", "select", "sigmoid", "sign", "sqrt", "square", "squeeze",
    "stop_gradient", "sub", "subtract", "sum", "tanh", "transpose", "true_divide", "unbroadcast", "where", "zeros",
    "zeros_like",
]

add, sub, mul, div = elementwise.Add(), elementwise.Sub(), elementwise.Mul(), elementwise.Div()
subtract, multiply, divide, true_divide = sub, mul, div, div
pow = elementwise.Pow()
maximum, minimum = elementwise.Maximum(), elementwise.Minimum()
equal, not_equal = elementwise.Equal(), elementwise.NotEqual()
less, less_equal = elementwise.Less(), elementwise.LessEqual()
greater, greater_equal = elementwise.Greater(), elementwise.GreaterEqual()
logical_not, logical_and, logical_or = elementwise.LogicalNot(), elementwise.LogicalAnd(), elementwise.LogicalOr()
neg, abs, sign = elementwise.Neg(), elementwise.Abs(), elementwise.Sign()
exp, log, sqrt, square = elementwise.Exp(), elementwise.Log(), elementwise.Sqrt(), elementwise.Square()
tanh, sigmoid, relu = elementwise.Tanh(), elementwise.Sigmoid(), elementwise.ReLU()
select = where = elementwise.Select()
bias_add = linear.BiasAdd()
stop_gradient, identity = control.StopGradient(), control.Identity()
assign = control.Assign()
getitem = indexing.getitem

_cast, _reshape, _transpose, _broadcast = map(cache, (elementwise.Cast, shape.Reshape, shape.Transpose,
                                                      shape.BroadcastTo))
_matmul, _softmax, _log_softmax = map(cache, (linear.MatMul, softmax.Softmax, softmax.LogSoftmax))


# ---- shape --------------------------------------------------------------------------------------

def cast(input, dtype) -> Tensor:
    """The tensor in another dtype; itself where it is that already."""
    return input if input.dtype == dtype else _cast(mstype.to_dtype(dtype))(input)


def reshape(input, shape) -> Tensor:
    """Row-major reshape; one -1 is worked out.

    >>> from minispore import Tensor
    >>> reshape(Tensor([[1, 2, 3], [4, 5, 6]]), (3, -1)).shape
    (3, 2)
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return input if input.shape == shape else _reshape(shape)(input)


def flatten(input, order="C", *, start_dim=1, end_dim=-1) -> Tensor:
    """Make the dims start_dim … end_dim one. A number as `order` is taken for start_dim: flatten(x, 1).

    >>> from minispore import Tensor
    >>> flatten(Tensor([[[1, 2], [3, 4]]])).shape
    (1, 4)
    """
    if isinstance(order, int):
        start_dim = order
    elif order != "C":
        raise ValueError(f"flatten: order {order!r}; only row-major 'C' is there, transpose the tensor first")
    if input.ndim == 0:
        return reshape(input, (1,))
    names = {"start_dim": start_dim, "end_dim": end_dim}
    for name, d in names.items():
        if not -input.ndim <= d < input.ndim:
            if input.ndim == 1 and name == "start_dim" and d == 1:
                return input
            raise ValueError(f"flatten: {name} {d} is outside the {input.ndim} dims of shape {input.shape}")
    first, last = start_dim % input.ndim, end_dim % input.ndim
    if first > last:
        raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in shape {input.shape}")
    return reshape(input, (*input.shape[:first], prod(input.shape[first:last + 1]), *input.shape[last + 1:]))


def transpose(input, perm) -> Tensor:
    """out's dim i is input's dim perm[i]; no perm reverses all dims."""
    perm = tuple(perm) or tuple(range(input.ndim))[::-1]
    return input if perm == tuple(range(input.ndim)) else _transpose(perm)(input)


def expand_dims(input, axis: int) -> Tensor:
    """A new dim of size 1 at `axis` of the result."""
    if not -input.ndim - 1 <= axis <= input.ndim:
        raise ValueError(f"expand_dims: axis {axis} must be in {-input.ndim - 1} … {input.ndim} (shape {input.shape})")
    axis %= input.ndim + 1
    return reshape(input, (*input.shape[:axis], 1, *input.shape[axis:]))


def squeeze(input, axis=None) -> Tensor:
    """Without the dims of size 1, or without those named."""
    axes = {a % input.ndim for a in ((axis,) if isinstance(axis, int) else axis)} if axis is not None else \
           {i for i, n in enumerate(input.shape) if n == 1}
    for a in axes:
        if input.shape[a] != 1:
            raise ValueError(f"squeeze: dim {a} of shape {input.shape} has size {input.shape[a]}; only 1 can go")
    return reshape(input, tuple(n for i, n in enumerate(input.shape) if i not in axes))


def broadcast_to(input, shape) -> Tensor:
    """Repeat dims of size 1, and new leading dims, to `shape`."""
    return input if input.shape == tuple(shape) else _broadcast(tuple(shape))(input)


def concat(tensors, axis=0) -> Tensor:
    """Tensors one behind the other along an axis."""
    return shape.Concat(axis)(tuple(tensors))


cat = concat


def narrow(input, axis: int, start: int, length: int) -> Tensor:
    """`length` entries of one axis from `start` on."""
    if start == 0 and length == input.shape[axis]:
        return input
    begin = tuple(start if i == axis else 0 for i in range(input.ndim))
    end = tuple(start + length if i == axis else n for i, n in enumerate(input.shape))
    return shape.StridedSlice(begin, end, (1,) * input.ndim)(input)


def unbroadcast(grad, shape) -> Tensor:
    """Sum a gradient over the dims that broadcasting repeated."""
    if grad.shape == tuple(shape):
        return grad
    lead = grad.ndim - len(shape)
    axes = tuple(i for i in range(grad.ndim) if i < lead or shape[i - lead] == 1 != grad.shape[i])
    return reshape(sum(grad, axes), shape)


def full(size, fill_value, *, dtype=None) -> Tensor:
    """A tensor of one value."""
    dtype = mstype.to_dtype(dtype or type(fill_value))
    return shape.Fill((size,) if isinstance(size, int) else tuple(size), fill_value, dtype)()


def zeros(size, dtype=mstype.float32) -> Tensor: return full(size, 0, dtype=dtype)
def ones(size, dtype=mstype.float32) -> Tensor: return full(size, 1, dtype=dtype)
def zeros_like(input, *, dtype=None) -> Tensor: return full(input.shape, 0, dtype=dtype or input.dtype)
def ones_like(input, *, dtype=None) -> Tensor: return full(input.shape, 1, dtype=dtype or input.dtype)


# ---- reductions ---------------------------------------------------------------------------------

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
        return reduce.Argmax(0)(reshape(input, (-1,)))
    out = reduce.Argmax(dim)(input)
    return expand_dims(out, dim) if keepdim else out


def _axis(axis):
    return () if axis is None else tuple(axis) if isinstance(axis, list) else axis


def _as(x, dtype):
    return x if dtype is None else cast(x, dtype)


# ---- products, classes ----------------------------------------------------------------------------

def matmul(input, other) -> Tensor:
    """input (…, m, k) @ other (k, n); a vector `other` (k,) gives (…, m)."""
    if other.ndim == 1:
        return reshape(_matmul()(input, reshape(other, (-1, 1))), input.shape[:-1])
    return _matmul()(input, other)


def dense(input, weight, bias=None) -> Tensor:
    """input (…, k) @ weight (n, k)ᵀ + bias (n,)."""
    out = _matmul(False, True)(input, weight)
    return out if bias is None else add(out, bias)


def softmax_(input, axis=-1, *, dtype=None) -> Tensor:
    """exp(x) / Σ exp(x) along an axis."""
    return _softmax(axis)(input if dtype is None else cast(input, dtype))


def log_softmax(logits, axis=-1) -> Tensor:
    """log softmax along an axis."""
    return _log_softmax(axis)(logits)


def one_hot(indices, depth, on_value=1, off_value=0, axis=-1) -> Tensor:
    """on_value at the index, off_value elsewhere; of on_value's dtype (a Python integer: int64)."""
    dtype = on_value.dtype if isinstance(on_value, Tensor) else mstype.to_dtype(type(on_value))
    return indexing.OneHot(axis, dtype=dtype)(indices, depth, on_value, off_value)


def gather(input_params, input_indices, axis) -> Tensor:
    """input_params[…, input_indices, …] along an axis."""
    return indexing.Gather(axis)(input_params, input_indices)
