"""Data types under MindSpore's names. They are numpy dtypes, so arrays go in and out without a table."""
import ml_dtypes
import numpy as np

bool_ = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(f"int{b}") for b in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{b}") for b in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{b}") for b in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)         # float32's range, 8 bits of precision
half, single, double = float16, float32, float64

KNOWN = frozenset((bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, bfloat16))
NARROW = frozenset((float16, bfloat16))         # what is computed in float32 and rounded once
_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2}       # bool < integer < float; numpy files bfloat16 under "V"


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype == bfloat16


def is_integer(dtype: np.dtype) -> bool:
    return dtype.kind in "iu"


def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The dtype in which two tensors meet: the higher kind wins, inside a kind the wider one.

    Unlike numpy, an integer never widens a float: int64 with float32 is float32, as in MindSpore.

    >>> promote(int64, float32).name, promote(int32, int64).name, promote(bool_, float16).name
    ('float32', 'int64', 'float16')
    >>> promote(float16, bfloat16).name
    'float32'
    """
    if a == b:
        return a
    if a in NARROW and b in NARROW:
        return float32
    ka, kb = _ORDER[a.kind], _ORDER[b.kind]
    if ka != kb:
        return a if ka > kb else b
    return np.promote_types(a, b)


def beside(like: np.dtype, natural: np.dtype) -> np.dtype:
    """The dtype a Python number takes beside a tensor: the tensor's, unless the number's kind is higher.

    >>> beside(float16, int64).name, beside(int8, float32).name
    ('float16', 'float32')
    """
    return natural if _ORDER[natural.kind] > _ORDER[like.kind] else like


def to_dtype(name) -> np.dtype:
    """A dtype from a dtype, a numpy or Python type, or a name.

    >>> to_dtype("float32") == to_dtype(np.float32) == float32
    True
    """
    if name is None:
        raise TypeError("a dtype was asked for, None was given; use e.g. ms.float32")
    if name is float:
        return float32
    if name is int:
        return int64
    dtype = np.dtype(name)
    if dtype not in KNOWN:
        raise TypeError(f"dtype {dtype} is not supported; use a bool, integer or float type such as ms.float32")
    return dtype
