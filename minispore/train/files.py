"""Checkpoint files by their names: where they are, what they are, what is in them."""
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from mmap import ACCESS_READ, mmap

import numpy as np

from minispore.common.errors import warn
from minispore.train import ckpt_format, safetensors_format
from minispore.train.background import wait_for_async_save
from minispore.train.entries import Damage, Entry, check_one, from_raw

FORMATS = ("ckpt", "safetensors")


def read_entries(ckpt_file_name) -> tuple[list[Entry], dict, str]:
    """(entries, note, file name) of a checkpoint file whose checksums are right."""
    if not isinstance(ckpt_file_name, (str, os.PathLike)):
        raise TypeError(f"load_checkpoint: ckpt_file_name is a {type(ckpt_file_name).__name__}; it must be a file's name")
    wait_for_async_save()
    file = _existing(os.fspath(ckpt_file_name))
    with open(file, "rb") as f:
        data = f.read()
    with naming(file):
        return *decode(data, file), file


@dataclass(frozen=True)
class Place:
    """Where a file has an array: `at` this byte, or in pieces (None)."""
    at: int | None
    dtype: np.dtype
    shape: tuple[int, ...]


def find_entries(ckpt_file_name) -> tuple[dict[str, Place | str], dict, str]:
    """(places of the arrays, note, file name) of a file of which little more than that is read, and no checksum."""
    wait_for_async_save()
    file = _existing(os.fspath(ckpt_file_name))
    with _mapped(file) as data, naming(file):
        entries, note = decode(data, file, verify=False)
        begin, size = np.frombuffer(data, np.uint8).ctypes.data if data else 0, len(data)
        places = {}
        for name, value in entries:
            if not isinstance(value, str):
                at = value.ctypes.data - begin
                value = Place(at if 0 <= at <= size else None, value.dtype, value.shape)
            places[name] = value
        del entries, data
    return places, note, file


def read_entry(file: str, name: str, place: Place, note: dict) -> np.ndarray:
    """An array of a file, whose checksum is right if the file has one."""
    with naming(file):
        if place.at is None:
            return dict(read_entries(file)[0])[name]
        with open(file, "rb") as f:
            f.seek(place.at)
            value = from_raw(f.read(prod(place.shape) * place.dtype.itemsize), place.dtype, place.shape, name)
        if "minispore" in note:
            check_one(name, value, note)
        return value


@contextmanager
def _mapped(file: str):
    """A file's bytes, of which only those are read that are looked at."""
    if not os.path.getsize(file):
        yield memoryview(b"")
        return
    with open(file, "rb") as f:
        yield memoryview(mmap(f.fileno(), 0, access=ACCESS_READ))       # goes with the last view of it


@contextmanager
def naming(file: str):
    """Damage found inside is a ValueError that names the file."""
    try:
        yield
    except Damage as e:
        raise ValueError(f"load_checkpoint: {file} is damaged: {e}. Use another copy, or an earlier one: "
                         "train.latest_checkpoint(folder, prefix) finds the newest that is whole") from None


def decode(data, file: str, verify: bool = True) -> tuple[list[Entry], dict]:
    """(entries, note) of a file's bytes, whichever format they are in."""
    if not data:
        raise ValueError(f"load_checkpoint: {file} is empty; whatever wrote it was cut off. Use another copy")
    if data[8:9] == b"{" or file.endswith(".safetensors"):
        try:
            safetensors_format.header_length(data)
        except Damage:
            if file.endswith(".safetensors"):
                raise
        else:
            return safetensors_format.decode(data, verify)
    others = {b"PK": "a zip archive, as PyTorch's files and .npz are", b"\x93NUMPY": "a numpy array", b"\x89HDF": "HDF5",
              b"\x80": "a pickle", b"\x1f\x8b": "compressed with gzip"}
    head = bytes(data[:8])
    for begin, what in others.items():
        if head.startswith(begin):
            raise ValueError(f"load_checkpoint: {file} is {what}; it must be a .ckpt of MindSpore's or a safetensors file")
    if head[:1] != b"\x0a" and not head.startswith(ckpt_format.varint(ckpt_format.NOTE << 3 | ckpt_format.BYTES)):
        raise ValueError(f"load_checkpoint: {file} is neither a .ckpt of MindSpore's nor a safetensors file (it begins with "
                         f"{head!r}); it is something else, encrypted, or damaged")
    return ckpt_format.decode(data, verify)


def file_name(name, format: str) -> str:
    """The file a save makes: with the format's suffix, unless it ends in one already."""
    if format not in FORMATS:
        raise ValueError(f"save_checkpoint: format {format!r} is unknown; use one of {FORMATS}")
    if not isinstance(name, (str, os.PathLike)):
        raise TypeError(f"save_checkpoint: ckpt_file_name is a {type(name).__name__}; it must be a file's name")
    name = os.fspath(name)
    if os.path.isdir(name):
        raise IsADirectoryError(f"save_checkpoint: {name} is a folder; give a file's name in it, e.g. "
                                f"{os.path.join(name, 'net.ckpt')}")
    return name if name.endswith((f".{format}", ".safetensors")) else f"{name}.{format}"


def latest_checkpoint(directory, prefix="CKP") -> str | None:
    """The newest whole checkpoint that ModelCheckpoint saved in a directory, None if there is none.

    Newest is the latest run's (prefix_2 before prefix_1) last epoch and step. A file that is cut off or damaged is
    skipped with a warning.

    >>> import tempfile
    >>> latest_checkpoint(tempfile.mkdtemp()) is None
    True
    """
    found = []
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        match = _pattern(prefix).fullmatch(name)
        if match and not match["breakpoint"]:
            found.append(([int(match[part] or 0) for part in ("run", "epoch", "step")], name))
    for _, name in sorted(found, reverse=True):
        file = os.path.join(os.fspath(directory), name)
        try:
            read_entries(file)
            return file
        except (ValueError, OSError) as e:
            warn(f"latest_checkpoint: {file} is skipped: {e}")
    return None


def _pattern(prefix: str) -> re.Pattern:
    return re.compile(rf"{re.escape(prefix)}(?:_(?P<run>\d+))?-(?P<epoch>\d+)_(?P<step>\d+)(?P<breakpoint>_breakpoint)?"
                      rf"\.(?:{'|'.join(FORMATS)})")


def free_prefix(directory: str, prefix: str) -> str:
    """The prefix, with the number of the next run behind it if it is in use."""
    matches = filter(None, map(_pattern(prefix).fullmatch, os.listdir(directory)))
    runs = [int(match["run"] or 0) for match in matches]
    return f"{prefix}_{max(runs) + 1}" if runs else prefix


def _existing(name: str) -> str:
    for file in (name, *(f"{name}.{format}" for format in FORMATS)):
        if os.path.isfile(file):
            return file
    folder = os.path.dirname(name) or "."
    if os.path.isdir(name):
        raise IsADirectoryError(f"load_checkpoint: {name} is a folder; name a file{_offer(name, '')}")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"load_checkpoint: {name} isn't there, nor is its folder {folder}; check the path")
    raise FileNotFoundError(f"load_checkpoint: {name} isn't there{_offer(folder, os.path.basename(name))}")


def _offer(folder: str, name: str) -> str:
    files = sorted(f for f in os.listdir(folder) if f.endswith(tuple(f".{format}" for format in FORMATS)))
    if not files:
        return f"; {folder} has no .ckpt or .safetensors file"
    from difflib import get_close_matches  # only an error needs it

    close = get_close_matches(name, files, 5, 0.4) or files
    return f"; {folder} has {some(close)}"


def some(items: list[str], between: str = ", ") -> str:
    """The first few, for a message."""
    return between.join(items[:5]) + (f"{between}and {len(items) - 5} more" if len(items) > 5 else "")
