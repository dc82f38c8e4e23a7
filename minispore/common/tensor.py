"""Tensor: an array with a dtype under MindSpore's names, or a symbol while a graph is traced.

Its operators are ops like any other; they are looked up in `minispore.ops` when used, because a tensor
stands below the ops that work on it.
"""
from functools import cache
from numbers import Number

import numpy as np

from minispore.common import dtype as mstype
from minispore.common.errors import TraceError, script_line
from minispore.common.recorder import recorder
from minispore.common.state import current


@cache
def _ops():
    from minispore import ops
    return ops


def _uncompiled() -> str:
    """What to do for Python to see values: programs of logical tensors are compiled in both modes."""
    if current().compiler is None:
        return "run in ms.PYNATIVE_MODE"
    return "use hybrid_parallel or data_parallel mode, in which PYNATIVE_MODE runs op by op: a logical program is always compiled"


class Tensor:
    """An n-dimensional array of bools, integers or floats (MindSpore: `mindspore.Tensor`).

    Args:
        input_data: number, (nested) list, numpy array or Tensor; the data are copied.
            Python floats become float32, Python integers int64.
        dtype: the dtype to convert to, e.g. `ms.float32`.

    >>> from minispore import Tensor
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.shape, x.dtype.name, (x * 2 + 1).asnumpy().tolist()
    ((2, 2), 'float32', [[3.0, 5.0], [7.0, 9.0]])
    """

    __slots__ = ("__weakref__", "_array", "_layout", "_value")
    __array_priority__ = 1000           # so that numpy_array * tensor asks the tensor

    def __init__(self, input_data=None, dtype=None):
        if input_data is None:
            raise TypeError("Tensor(): no data given; pass a number, a list or a numpy array")
        layout = None
        if isinstance(input_data, Tensor):
            array, layout = input_data._data().copy(), input_data._layout
        else:
            try:
                array = np.array(input_data, order="C")
                if not array.dtype.isnative:
                    array = array.astype(array.dtype.newbyteorder("="))
            except ValueError as e:
                raise ValueError(f"Tensor(): the nested lists don't form a rectangle ({e}); "
                                 "make all rows equally long") from None
            if dtype is None and array.dtype == np.float64 and not hasattr(input_data, "dtype"):
                array = array.astype(np.float32)            # Python floats
        if dtype is not None:
            array = array.astype(mstype.to_dtype(dtype))
        elif array.dtype not in mstype.KNOWN:
            raise TypeError(f"Tensor(): data of type {array.dtype} can't be a tensor; "
                            "use numbers or bools in a rectangular nesting")
        self._array, self._value, self._layout = array, None, layout

    @classmethod
    def from_numpy(cls, array: np.ndarray, layout=None) -> "Tensor":
        """A Tensor on the array's own memory (if it is in row-major order): don't change the array afterwards.

        layout: how a larger, logical tensor lies over the ranks, if the array is this rank's piece of one.
        """
        tensor = Tensor.__new__(Tensor)
        tensor._array, tensor._value = (array if array.flags.c_contiguous else array.copy(order="C")), None
        tensor._layout = layout
        return tensor

    @classmethod
    def _symbol(cls, value) -> "Tensor":
        tensor = Tensor.__new__(Tensor)
        tensor._array, tensor._value, tensor._layout = value.array, value, None
        return tensor

    # ---- what it is -----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._value if self._array is None else self._array).shape

    @property
    def dtype(self) -> np.dtype:
        return (self._value if self._array is None else self._array).dtype

    @property
    def layout(self):
        """How the logical tensor lies over the ranks (parallel.layout.Placement) if this is one rank's piece, else None."""
        return self._layout

    def full(self) -> "Tensor":
        """The logical tensor, gathered from all ranks' pieces; all ranks must call it. A plain tensor gives a copy."""
        return Tensor(self) if self._layout is None else self._layout.full(self)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def _pending(self) -> bool:
        """Whether its initial values are still to be drawn (initializer.Pending)."""
        return self._array is None and hasattr(self._value, "make")

    def _data(self) -> np.ndarray:
        """The array itself, not a copy; an error when there is none yet."""
        if self._pending:
            self._array, self._value = self._value.make(), None         # initial values that were put off
        if self._array is None:
            raise TraceError(
                f"Python asked for the value of a tensor of shape {self.shape} ({self.dtype}) at {script_line()} while a graph "
                "is traced: values exist only when the compiled graph runs. Use ops instead (ops.select for a branch), move the "
                f"line out of what is compiled, or {_uncompiled()}")
        return self._array

    def asnumpy(self) -> np.ndarray:
        """A copy of the values as a numpy array."""
        return self._data().copy()

    def item(self):
        """The value of a one-element tensor as a Python number."""
        if self.size != 1:
            raise ValueError(f"item(): the tensor has shape {self.shape}, that is {self.size} values; "
                             "item() is for exactly one. Index it or reduce it first")
        return self._data().item()

    def tolist(self) -> list:
        return self._data().tolist()

    def __array__(self, dtype=None, copy=None):
        data = self.asnumpy()
        return data if dtype is None else data.astype(dtype)

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        if self.dtype.kind not in "iu":
            raise TypeError(f"a {self.dtype} tensor can't be an index; cast it to ms.int32")
        return int(self.item())

    def __bool__(self):
        if self._array is None:
            maker = f"the output of {self._value.node.op.name}" if self._value.node else repr(self._value)
            raise TraceError(
                f"a Python branch (if, while, and, or, assert) at {script_line()} on {maker}, a tensor of shape {self.shape}, "
                "while a graph is traced: its value exists only when the compiled graph runs. Use ops.select(condition, a, b), "
                f"or {_uncompiled()}")
        return bool(self.item())

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a scalar tensor")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self) if self._layout is None else self._layout.shape[0]))

    def __format__(self, spec):
        return format(self.item() if spec and self.size == 1 else str(self), spec)

    def __repr__(self):
        if self._array is None:
            return f"Tensor(shape={self.shape}, dtype={self.dtype}, traced)"
        return f"Tensor(shape={self.shape}, dtype={self.dtype}, value=\n{self._array})"

    def __str__(self):
        return repr(self) if self._array is None else str(self._array)

    def __deepcopy__(self, memo):
        return Tensor(self)

    def _demand_whole(self) -> None:
        if self._layout is not None:
            raise TypeError(f"a rank's piece of a logical tensor ({self._layout}) can't be pickled: elsewhere nobody knows of "
                            "the other pieces. Pickle tensor.full() or tensor.asnumpy(), or use save_checkpoint")

    def __reduce__(self):
        self._demand_whole()
        return Tensor, (self.asnumpy(),)

    # ---- operators: ops like any other ------------------------------------------------------------

    def __add__(self, other): return _ops().add(self, other)
    def __radd__(self, other): return _ops().add(other, self)
    def __sub__(self, other): return _ops().sub(self, other)
    def __rsub__(self, other): return _ops().sub(other, self)
    def __mul__(self, other): return _ops().mul(self, other)
    def __rmul__(self, other): return _ops().mul(other, self)
    def __truediv__(self, other): return _ops().div(self, other)
    def __rtruediv__(self, other): return _ops().div(other, self)
    def __pow__(self, other): return _ops().pow(self, other)
    def __rpow__(self, other): return _ops().pow(other, self)
    def __floordiv__(self, other): return _ops().floor_div(self, other)
    def __rfloordiv__(self, other): return _ops().floor_div(other, self)
    def __mod__(self, other): return _ops().floor_mod(self, other)
    def __rmod__(self, other): return _ops().floor_mod(other, self)
    def __neg__(self): return _ops().neg(self)
    def __pos__(self): return self
    def __abs__(self): return _ops().abs(self)
    def __matmul__(self, other): return _ops().matmul(self, other)
    def __rmatmul__(self, other): return _ops().matmul(Tensor(other), self)
    def __eq__(self, other): return _ops().equal(self, other) if _tensorial(other) else NotImplemented
    def __ne__(self, other): return _ops().not_equal(self, other) if _tensorial(other) else NotImplemented
    def __lt__(self, other): return _ops().less(self, other)
    def __le__(self, other): return _ops().less_equal(self, other)
    def __gt__(self, other): return _ops().greater(self, other)
    def __ge__(self, other): return _ops().greater_equal(self, other)
    def __invert__(self): return _ops().logical_not(self)
    def __and__(self, other): return _ops().logical_and(self, other)
    def __or__(self, other): return _ops().logical_or(self, other)
    def __xor__(self, other): return _ops().logical_xor(self, other)
    def __getitem__(self, index): return _ops().getitem(self, index)

    __hash__ = object.__hash__          # == is elementwise, identity is what a dict needs

    def __setitem__(self, index, value):
        if recorder() is not None:
            raise TraceError(f"item assignment on a tensor of shape {self.shape} inside a gradient or a graph: "
                             "it would change a value others have read. Build the new tensor with ops.select or "
                             "ops.concat, or assign to a Parameter as a whole")
        array = self._data().copy()
        array[index] = value._data() if isinstance(value, Tensor) else value
        self._array = array

    # ---- methods: the functional forms ------------------------------------------------------------

    @property
    def T(self): return _ops().transpose(self, tuple(range(self.ndim))[::-1])
    def astype(self, dtype): return _ops().cast(self, dtype)
    def to(self, dtype): return _ops().cast(self, dtype)
    def reshape(self, *shape): return _ops().reshape(self, _as_shape(shape))
    def view(self, *shape): return _ops().reshape(self, _as_shape(shape))
    def flatten(self, start_dim=0, end_dim=-1):
        return _ops().flatten(self, start_dim=start_dim, end_dim=end_dim)
    def transpose(self, *axes): return _ops().transpose(self, _as_shape(axes))
    def sum(self, axis=None, keepdims=False, *, dtype=None): return _ops().sum(self, axis, keepdims, dtype=dtype)
    def argmax(self, axis=None, keepdims=False): return _ops().argmax(self, axis, keepdims)
    def max(self, axis=None, keepdims=False): return _ops().amax(self, axis, keepdims)
    def min(self, axis=None, keepdims=False): return _ops().amin(self, axis, keepdims)
    def split(self, split_size_or_sections, axis=0): return _ops().split(self, split_size_or_sections, axis)
    def repeat(self, repeats, axis=None): return _ops().repeat_interleave(self, repeats, axis)
    def fill(self, value): return _ops().full_like(self, value)
    def type_as(self, other): return _ops().cast(self, other.dtype)
    def float(self): return _ops().cast(self, mstype.float32)
    def half(self): return _ops().cast(self, mstype.float16)
    def int(self): return _ops().cast(self, mstype.int32)
    def long(self): return _ops().cast(self, mstype.int64)
    def bool(self): return _ops().cast(self, mstype.bool_)
    def numel(self): return self.size
    def dim(self): return self.ndim
    def copy(self): return Tensor(self)
    clone = copy


# Methods that are the op of their name, with the tensor as its first argument.
FORMS = (
    "abs", "absolute", "acos", "add", "addmm", "all", "amax", "amin", "any", "argmin", "argsort", "asin", "asinh", "atan",
    "atanh", "bmm", "broadcast_to", "ceil", "chunk", "clamp", "clip", "cos", "cosh", "cumsum", "div", "divide", "dot", "eq",
    "equal", "erf", "exp", "expand_dims", "expm1", "flip", "floor", "floor_divide", "gather_elements", "ge", "gelu",
    "greater", "greater_equal", "gt", "index_select", "isfinite", "isinf", "isnan", "le", "less", "less_equal", "log",
    "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "lt", "masked_fill", "matmul",
    "maximum", "mean", "minimum", "mm", "movedim", "mul", "multiply", "ne", "neg", "negative", "norm", "not_equal", "outer",
    "pow", "prod", "ravel", "reciprocal", "relu", "remainder", "roll", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
    "softmax", "sort", "sqrt", "square", "squeeze", "std", "sub", "subtract", "swapaxes", "tan", "tanh", "tile", "topk",
    "tril", "triu", "true_divide", "trunc", "unbind", "unsqueeze", "var",
)


def _form(name):
    def method(self, *args, **kwargs):
        return getattr(_ops(), name)(self, *args, **kwargs)
    method.__name__, method.__doc__ = name, f"`ops.{name}` of this tensor."
    return method


for _name in FORMS:
    setattr(Tensor, _name, _form(_name))


def is_tensor(x) -> bool:
    """For taking nested results apart (common/tree.py)."""
    return isinstance(x, Tensor)


def _tensorial(x) -> bool:
    return isinstance(x, (Tensor, Number, np.ndarray, np.generic))


def _as_shape(args) -> tuple:
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else tuple(args)
