"""IDX, the file format of MNIST: 0, 0, type, number of dims; each dim's size (big-endian uint32); the data.

http://yann.lecun.com/exdb/mnist describes it. Only the type MNIST uses is read and written: unsigned bytes.
"""
import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np

_UNSIGNED_BYTE = 8


def encode(array: np.ndarray) -> bytes:
    """
    >>> encode(np.array([7, 9], np.uint8)).hex(" ")
    '00 00 08 01 00 00 00 02 07 09'
    """
    magic = bytes([0, 0, _UNSIGNED_BYTE, array.ndim])
    return magic + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def decode(data: bytes, ndim: int, name: str = "IDX data") -> np.ndarray:
    """The uint8 array of `ndim` dims in `data`, read-only. ValueError that names `name` if it is none."""
    header = 4 + 4 * ndim
    if len(data) < header:
        raise ValueError(f"{name}: an IDX file of {ndim} dims begins with {header} bytes of header, this "
                         f"one has {len(data)} bytes in all; it is cut off or no IDX file: fetch it again")
    magic = bytes([0, 0, _UNSIGNED_BYTE, ndim])
    if data[:4] != magic:
        raise ValueError(f"{name}: wrong magic number: an IDX file of bytes in {ndim} dims begins with "
                         f"{magic.hex(' ')}, this one with {data[:4].hex(' ')}; it isn't what its name says: "
                         "fetch it again")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", ndim, offset=4))
    expected = header + prod(shape)
    if len(data) != expected:
        raise ValueError(f"{name}: its header says shape {shape}, that is {expected} bytes, but there are "
                         f"{len(data)} bytes; the file is cut off or damaged: fetch it again")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def read(path: Path, ndim: int) -> np.ndarray:
    """The array in an IDX file, gzipped if named `.gz`. ValueError that names the file if it is damaged."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: its {len(data)} bytes are no whole gzip file ({error}); "
                             "fetch it again") from None
    return decode(data, ndim, str(path))
