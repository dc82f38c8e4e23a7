"""What a checkpoint file holds, whatever its format: entries and a note.

An entry is (name, array) or (name, str). The note is a dict of minispore's own (JSON), which other readers of the file
skip: a checksum of every entry, and the training state where it was asked for.
"""
from math import prod
from zlib import crc32

import numpy as np

Entry = tuple[str, np.ndarray | str]

# numpy's, MindSpore's and safetensors' name of each dtype
DTYPES = (
    ("bool", "Bool", "BOOL"),
    ("int8", "Int8", "I8"), ("int16", "Int16", "I16"), ("int32", "Int32", "I32"), ("int64", "Int64", "I64"),
    ("uint8", "UInt8", "U8"), ("uint16", "UInt16", "U16"), ("uint32", "UInt32", "U32"), ("uint64", "UInt64", "U64"),
    ("float16", "Float16", "F16"), ("float32", "Float32", "F32"), ("float64", "Float64", "F64"),
    ("bfloat16", "BFloat16", "BF16"),
)
MINDSPORE, SAFETENSORS = 1, 2


class Damage(ValueError):
    """What is wrong with a file's bytes, and the entry it was found in, if known. Its reader adds the file's name."""

    def __init__(self, what: str, name: str | None = None):
        super().__init__(what if name is None else f"{what}, in parameter {name!r}")
        self.what, self.name = what, name


def name_of(dtype: np.dtype, column: int) -> str:
    """A dtype's name in a format.

    >>> name_of(np.dtype("float32"), MINDSPORE), name_of(np.dtype("int64"), SAFETENSORS)
    ('Float32', 'I64')
    """
    for row in DTYPES:
        if row[0] == dtype.name:
            return row[column]
    raise TypeError(f"a checkpoint can't hold {dtype}; it holds {', '.join(row[0] for row in DTYPES)}")


def dtype_of(name: str, column: int, entry: str) -> np.dtype:
    """The dtype that a format names so; Damage if none."""
    for row in DTYPES:
        if row[column] == name:
            if row[0] != "bfloat16":
                return np.dtype(row[0])
            try:
                import ml_dtypes
            except ImportError:
                raise ImportError(f"parameter {entry!r} is bfloat16, which numpy knows through ml_dtypes: "
                                  "pip install ml_dtypes") from None
            return np.dtype(ml_dtypes.bfloat16)
    raise Damage(f"unknown dtype {name[:40]!r}", entry)


def in_order(array: np.ndarray) -> np.ndarray:
    """The array in row-major order and this machine's byte order; the same array if it is so already."""
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")


def raw(array: np.ndarray) -> memoryview:
    """The bytes of an array (row-major), not copied."""
    return array.reshape(-1).view(np.uint8).data


def from_raw(data, dtype: np.dtype, shape: tuple[int, ...], entry: str, aligned: bool = True) -> np.ndarray:
    """The array these bytes are, on their own memory if that suits it; Damage if there are too many or too few.

    aligned: False: on their own memory in any case."""
    if prod(shape) * dtype.itemsize != len(data) or max(shape, default=0) >= 2 ** 63 or len(shape) > 64:
        raise Damage(f"{len(data)} bytes for shape {shape} of {dtype}, which takes {prod(shape) * dtype.itemsize}", entry)
    array = np.frombuffer(data, dtype)
    if aligned and not array.flags.aligned:             # numpy would work on it item by item
        array = np.frombuffer(data, np.uint8).copy().view(dtype)
    return array.reshape(shape)


def checksum(name: str, value: np.ndarray | str) -> int:
    """crc32 of an entry: name, dtype, shape and data."""
    if isinstance(value, str):
        return crc32(value.encode(), crc32(f"{name}\n".encode()))
    return crc32(raw(value), crc32(f"{name}\n{value.dtype.name}{value.shape}".encode()))


def checksums(entries: list[Entry]) -> dict[str, int]:
    return {name: checksum(name, value) for name, value in entries}


def check_one(name: str, value: np.ndarray | str, note: dict) -> None:
    """Damage where an entry's checksum isn't the one in the file's note."""
    if note.get("crc32", {}).get(name) != checksum(name, value):
        raise Damage("its bytes have changed since they were written (checksum)", name)


def check(entries: list[Entry], note: dict, whole: int, stated: int) -> None:
    """Damage where the checksums in a file aren't those of what it holds; `whole` is the file's own, `stated` in it."""
    for name, value in entries:
        check_one(name, value, note)
    if whole != stated:
        raise Damage("its bytes have changed since they were written (checksum of the file)")
