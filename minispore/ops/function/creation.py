"""Functional forms that make tensors of nothing: constants, ranges, grids."""
import numpy as np

from minispore.common import dtype as mstype
from minispore.common.tensor import Tensor
from minispore.ops import functional as F
from minispore.ops import shape

__all__ = [
    "arange", "eye", "full", "full_like", "linspace", "meshgrid", "ones", "ones_like", "range_", "zeros", "zeros_like",
]


def full(size, fill_value, *, dtype=None) -> Tensor:
    """A tensor of one value."""
    _number(fill_value, "full: fill_value")
    dtype = mstype.to_dtype(dtype or type(fill_value))
    return shape.Fill((size,) if isinstance(size, int) else tuple(size), fill_value, dtype)()


def zeros(size, dtype=mstype.float32) -> Tensor: return full(size, 0, dtype=dtype)
def ones(size, dtype=mstype.float32) -> Tensor: return full(size, 1, dtype=dtype)
def zeros_like(input, *, dtype=None) -> Tensor: return full(input.shape, 0, dtype=dtype or input.dtype)
def ones_like(input, *, dtype=None) -> Tensor: return full(input.shape, 1, dtype=dtype or input.dtype)
def full_like(input, fill_value, *, dtype=None) -> Tensor: return full(input.shape, fill_value, dtype=dtype or input.dtype)


def arange(start=0, end=None, step=1, *, dtype=None) -> Tensor:
    """start, start + step, … below end; int64 of whole numbers, else float32."""
    start, end = (0, start) if end is None else (start, end)
    values = np.arange(*(_number(x, "arange: start, end or step") for x in (start, end, step)))
    return Tensor(values, dtype or (mstype.int64 if values.dtype.kind in "iu" else mstype.float32))


def range_(start, end, step=1) -> Tensor:
    """start, start + step, … below end, of the arguments' dtype."""
    like = next((t.dtype for t in (start, end, step) if isinstance(t, Tensor)), None)
    return arange(start, end, step, dtype=like)


def linspace(start, end, steps) -> Tensor:
    """`steps` float32 values from start to end, equally far apart."""
    if not isinstance(steps, (int, np.integer)) or steps < 0:
        raise ValueError(f"linspace: steps {steps!r} must be a whole number ≥ 0")
    return Tensor(np.linspace(_number(start, "linspace: start"), _number(end, "linspace: end"), steps), mstype.float32)


def eye(n, m=None, dtype=mstype.float32) -> Tensor:
    """Ones on the diagonal of an (n, m) matrix of zeros."""
    for size in (n, n if m is None else m):
        if not isinstance(size, (int, np.integer)) or size < 0:
            raise ValueError(f"eye: the size {size!r} must be a whole number ≥ 0")
    return Tensor(np.eye(n, m), dtype)


def meshgrid(*inputs, indexing="xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid from those of its axes."""
    shaped = [F.reshape(t, tuple(-1 if i == k else 1 for i in range(len(inputs)))) for k, t in enumerate(inputs)]
    sizes = tuple(t.shape[0] for t in inputs)
    grids = [F.broadcast_to(t, sizes) for t in shaped]
    return tuple(F.swapaxes(g, 0, 1) if indexing == "xy" and len(sizes) > 1 else g for g in grids)


def _number(x, what):
    x = x.item() if isinstance(x, Tensor) else x
    if not isinstance(x, (int, float, np.number, np.bool_)):
        raise TypeError(f"{what} {x!r} is a {type(x).__name__}; it must be a number")
    return x
