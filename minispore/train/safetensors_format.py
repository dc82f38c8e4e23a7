"""safetensors files: eight bytes with the header's length, a header in JSON, the data.

The header is {name: {"dtype", "shape", "data_offsets"}, "__metadata__": {str: str}}. The library of this name reads what
is written here and the other way round (a test holds it to that); by hand it takes as few lines as calling it, streams,
and checksums on the way: the metadata's "minispore" is the note, its "crc32" the file's checksum, computed with zeros
in that place.
"""
import json
from collections.abc import Iterator
from zlib import crc32

from minispore.train.entries import SAFETENSORS, Damage, Entry, check, checksums, dtype_of, from_raw, name_of, raw

LONGEST = 100_000_000           # bytes of a header, as in the library
META, UNSUMMED = "__metadata__", "00000000"


def encode(entries: list[Entry], note: dict) -> Iterator:
    """The file's bytes, piece by piece; str entries travel in the note.

    >>> import numpy as np
    >>> data = b"".join(encode([("w", np.float32([1, 2]))], {}))
    >>> decode(data)[0]
    [('w', array([1., 2.], dtype=float32))]
    """
    arrays = [(name, value) for name, value in entries if not isinstance(value, str)]
    text = {name: value for name, value in entries if isinstance(value, str)}
    note = note | {"crc32": checksums(entries)} | ({"text": text} if text else {})
    header, at = {META: {"crc32": UNSUMMED, "minispore": json.dumps(note)}}, 0
    laid = sorted(arrays, key=lambda a: -a[1].dtype.itemsize)       # so each lies at a multiple of its item size
    places = {}
    for name, array in laid:
        places[name] = [at, at + array.nbytes]
        at += array.nbytes
    for name, array in arrays:
        if name == META:
            raise ValueError(f"a parameter can't be named {META!r} in a safetensors file; use format='ckpt'")
        header[name] = {"dtype": name_of(array.dtype, SAFETENSORS), "shape": array.shape, "data_offsets": places[name]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    begin = len(head).to_bytes(8, "little") + head
    total = crc32(begin)
    for _, array in laid:
        total = crc32(raw(array), total)
    yield begin.replace(_place(UNSUMMED), _place(f"{total:08x}"), 1)
    for _, array in laid:
        yield raw(array)


def decode(data, verify: bool = True) -> tuple[list[Entry], dict]:
    """(entries, note) of a file's bytes; arrays lie on them. Damage for what is no safetensors file.

    verify: False reads the header alone and leaves the checksums to who reads an entry (`check_one`).
    """
    view = memoryview(data)
    begin = 8 + header_length(data)
    try:
        header = json.loads(bytes(view[8:begin]))
    except (ValueError, RecursionError):
        raise Damage("its header isn't JSON") from None
    if not isinstance(header, dict):
        raise Damage("its header isn't a dict")
    meta, entries, places = header.pop(META, None) or {}, [], []
    for name, about in header.items():
        try:
            kind, shape, (first, last) = about["dtype"], tuple(about["shape"]), about["data_offsets"]
            whole = all(type(n) is int and n >= 0 for n in (*shape, first, last)) and first <= last
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole or not isinstance(kind, str):
            raise Damage("its header says something senseless", name)
        if begin + last > len(data):
            raise Damage(f"its data end at byte {begin + last}, the file at {len(data)}; it is cut off", name)
        places.append((first, last, name))
        array = from_raw(view[begin + first:begin + last], dtype_of(kind, SAFETENSORS, name), shape, name)
        entries.append((name, array))
    at = 0
    for first, last, name in sorted(places):
        if first != at:
            raise Damage(f"its data begin at {first} where the data before end at {at}", name)
        at = last
    if begin + at != len(data):
        raise Damage(f"{len(data) - begin - at} bytes after the last parameter")
    return _noted(entries, meta, view, begin, verify)


def _noted(entries, meta, view, begin, verify):
    """Entries with the str ones, and the note; its checksums are right if they are to be verified."""
    if not isinstance(meta, dict) or not {"minispore", "crc32"} & set(meta):
        return entries, {}
    try:
        note, stated = json.loads(meta["minispore"]), int(meta["crc32"], 16)
        entries += list(note.get("text", {}).items())
        if f"{stated:08x}" != meta["crc32"] or not isinstance(note["crc32"], dict):
            raise ValueError
    except (KeyError, ValueError, TypeError, AttributeError):
        raise Damage("minispore's note can't be read") from None
    if verify:
        head = bytes(view[:begin]).replace(_place(meta["crc32"]), _place(UNSUMMED), 1)
        check(entries, note, crc32(view[begin:], crc32(head)), stated)
    return entries, {k: v for k, v in note.items() if k != "text"}


def header_length(data: bytes) -> int:
    """Length of the header; Damage if the file can't have one so long."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= size <= min(LONGEST, len(data) - 8):
        raise Damage(f"its header's length is {size} where the file has {len(data)} bytes; it may be cut off")
    return size


def _place(total: str) -> bytes:
    return f'"crc32": "{total}"'.encode()
