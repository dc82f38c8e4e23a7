"""Functional forms of arithmetic, elementary functions, comparisons and products.

Ops whose attributes are few and fixed are made once, here.
"""
from functools import cache

from minispore.common import dtype as mstype
from minispore.common.tensor import Tensor
from minispore.ops import compare, control, elementary, elementwise, linear
from minispore.ops import functional as F

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "addmm", "asin", "asinh", "assign", "assign_add", "assign_sub", "atan",
    "atanh", "bias_add", "bmm", "cast", "ceil", "clamp", "clip", "clip_by_global_norm", "clip_by_norm", "clip_by_value",
    "cos", "cosh", "dense", "depend", "div", "divide", "dot", "eq", "equal", "erf", "exp", "expm1", "floor", "floor_div",
    "floor_divide", "floor_mod", "ge", "greater", "greater_equal", "gt", "identity", "isfinite", "isinf", "isnan", "le",
    "less", "less_equal", "log", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "matmul",
    "maximum", "minimum", "mm", "mul", "multiply", "mv", "ne", "neg", "negative", "not_equal", "outer", "pow", "print_",
    "reciprocal", "remainder", "round", "rsqrt", "select", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub",
    "subtract", "tan", "tanh", "true_divide", "trunc", "where",
]

add, sub, mul, div = elementwise.Add(), elementwise.Sub(), elementwise.Mul(), elementwise.Div()
subtract, multiply, divide, true_divide = sub, mul, div, div
pow, floor_div, floor_mod = elementwise.Pow(), elementwise.FloorDiv(), elementwise.FloorMod()
floor_divide, remainder = floor_div, floor_mod
maximum, minimum = elementwise.Maximum(), elementwise.Minimum()
neg, abs, sign, square = elementwise.Neg(), elementwise.Abs(), elementwise.Sign(), elementwise.Square()
negative, absolute = neg, abs

exp, expm1, log, log1p, log2 = (f() for f in (elementary.Exp, elementary.Expm1, elementary.Log, elementary.Log1p,
                                              elementary.Log2))
sqrt, rsqrt, reciprocal, erf = elementary.Sqrt(), elementary.Rsqrt(), elementary.Reciprocal(), elementary.Erf()
sin, cos, tan, asin, acos, atan = (f() for f in (elementary.Sin, elementary.Cos, elementary.Tan, elementary.Asin,
                                                 elementary.ACos, elementary.Atan))
sinh, cosh, tanh, asinh, acosh, atanh = (f() for f in (elementary.Sinh, elementary.Cosh, elementary.Tanh, elementary.Asinh,
                                                       elementary.Acosh, elementary.Atanh))
floor, ceil, round, trunc = elementary.Floor(), elementary.Ceil(), elementary.Round(), elementary.Trunc()

equal, not_equal = compare.Equal(), compare.NotEqual()
less, less_equal = compare.Less(), compare.LessEqual()
greater, greater_equal = compare.Greater(), compare.GreaterEqual()
eq, ne, lt, le, gt, ge = equal, not_equal, less, less_equal, greater, greater_equal
logical_not, logical_and = compare.LogicalNot(), compare.LogicalAnd()
logical_or, logical_xor = compare.LogicalOr(), compare.LogicalXor()
isnan, isinf, isfinite = compare.IsNan(), compare.IsInf(), compare.IsFinite()
select = compare.Select()
where = select

bias_add = linear.BiasAdd()
stop_gradient, identity = control.StopGradient(), control.Identity()
depend, print_ = control.Depend(), control.Print()
assign, assign_add, assign_sub = control.Assign(), control.AssignAdd(), control.AssignSub()

_matmul, _bmm, _cast = map(cache, (linear.MatMul, linear.BatchMatMul, elementwise.Cast))


def cast(input, dtype) -> Tensor:
    """The tensor in another dtype; itself where it is that already."""
    return input if input.dtype == dtype else _cast(mstype.to_dtype(dtype))(input)


# ---- limits ---------------------------------------------------------------------------------------

def clip_by_value(x, clip_value_min=None, clip_value_max=None):
    """Values below the minimum or above the maximum are set to it; a tensor, or a tuple or list of them.

    >>> from minispore import Tensor
    >>> clip_by_value(Tensor([-2.0, 0.5, 3.0]), -1, 1).tolist()
    [-1.0, 0.5, 1.0]
    """
    if clip_value_min is None and clip_value_max is None:
        raise ValueError("clip_by_value: neither clip_value_min nor clip_value_max is given; give at least one")
    if isinstance(x, (tuple, list)):
        return type(x)(clip_by_value(t, clip_value_min, clip_value_max) for t in x)
    x = x if clip_value_min is None else maximum(x, clip_value_min)
    return x if clip_value_max is None else minimum(x, clip_value_max)


def clamp(input, min=None, max=None):
    """clip_by_value under its other name."""
    return clip_by_value(input, min, max)


clip = clamp


def clip_by_norm(x, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scaled down so that the norm of all values together is at most max_norm; a tensor, or a tuple or list of them."""
    tensors = _tensors("clip_by_norm", x)
    total = F.norm(F.concat([F.reshape(t, (-1,)) for t in tensors]), norm_type)
    if error_if_nonfinite and not bool(isfinite(total)):
        raise RuntimeError(f"clip_by_norm: the total norm of order {norm_type} is {float(total)}; with error_if_nonfinite=False "
                           "it is used all the same")
    factor = minimum(max_norm / (total + 1e-6), 1.0)
    clipped = [t * cast(factor, t.dtype) for t in tensors]
    return clipped[0] if isinstance(x, Tensor) else type(x)(clipped)


def clip_by_global_norm(x, clip_norm=1.0, use_norm=None):
    """Each tensor times clip_norm / max(global norm, clip_norm), the global norm being √Σ of all squares.

    >>> from minispore import Tensor
    >>> [t.tolist() for t in clip_by_global_norm((Tensor([3.0]), Tensor([4.0])), 2.5)]
    [[1.5], [2.0]]
    """
    if use_norm is not None:
        raise ValueError(f"clip_by_global_norm: use_norm={use_norm!r}; only None is there, as in MindSpore")
    if not clip_norm > 0:
        raise ValueError(f"clip_by_global_norm: clip_norm {clip_norm!r} must be > 0")
    tensors = _tensors("clip_by_global_norm", x)
    wide = [cast(t, mstype.float32) if t.dtype in mstype.NARROW else t for t in tensors]
    total = F.sum(square(wide[0]))
    for t in wide[1:]:
        total = total + F.sum(square(t))
    factor = clip_norm / maximum(sqrt(total), clip_norm)
    clipped = tuple(cast(w * factor, t.dtype) for w, t in zip(wide, tensors, strict=True))
    return list(clipped) if isinstance(x, list) else clipped


def _tensors(what: str, x) -> list[Tensor]:
    """A tensor or a sequence of them, at least one, as a list."""
    tensors = [x] if isinstance(x, Tensor) else list(x)
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"{what}: item {i} is a {type(t).__name__}; it takes tensors, e.g. the gradients")
    if not tensors:
        raise ValueError(f"{what}: no tensors given; pass at least one")
    return tensors


# ---- products -------------------------------------------------------------------------------------

def matmul(input, other) -> Tensor:
    """input (…, m, k) @ other (…, k, n), leading dims broadcast; vectors (k,) on either side lose their dim again.

    >>> from minispore import ops
    >>> matmul(ops.ones((2, 1, 3, 4)), ops.ones((5, 4, 6))).shape
    (2, 5, 3, 6)
    """
    if not input.ndim or not other.ndim:
        raise ValueError(f"matmul: a scalar has no matrix product; the shapes are {input.shape} and {other.shape}")
    if other.ndim == 1:
        out = matmul(input, F.reshape(other, (-1, 1)))
        return F.reshape(out, out.shape[:-1])
    if input.ndim == 1:
        out = matmul(F.reshape(input, (1, -1)), other)
        return F.reshape(out, (*out.shape[:-2], out.shape[-1]))
    return _matmul()(input, other) if other.ndim == 2 else _bmm()(input, other)


def mm(input, mat2) -> Tensor: return _matmul()(input, mat2)
def bmm(input_x, mat2) -> Tensor: return _bmm()(input_x, mat2)
def mv(mat, vec) -> Tensor: return matmul(mat, vec)


def dot(input, other) -> Tensor:
    """Σ input · other of two vectors."""
    return F.sum(input * other)


def outer(input, vec2) -> Tensor:
    """All products of two vectors: (n,), (m,) -> (n, m)."""
    return F.reshape(input, (-1, 1)) * F.reshape(vec2, (1, -1))


def addmm(input, mat1, mat2, *, beta=1, alpha=1) -> Tensor:
    """beta · input + alpha · mat1 @ mat2."""
    return beta * input + alpha * matmul(mat1, mat2)


def dense(input, weight, bias=None) -> Tensor:
    """input (…, k) @ weight (n, k)ᵀ + bias (n,)."""
    out = _matmul(False, True)(input, weight)
    return out if bias is None else add(out, bias)
