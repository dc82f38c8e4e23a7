"""MindSpore's .ckpt files: protobuf, written and read here byte by byte, since the message is so small.

    message Checkpoint  { repeated Value value = 1; }
    message Value       { required string tag = 1; required TensorProto tensor = 2; }
    message TensorProto { repeated int64 dims = 1; required string tensor_type = 2; required bytes tensor_content = 3; }

A field is a key (number · 8 + wire type), then for wire type 2 a length and that many bytes; numbers are varints, seven
bits a byte, low ones first. Of a large tensor several values with the same tag follow one another, each with a slice of
the bytes. A str has the type "str" and four bytes a character. With crc_check the file ends in b"crc_num" and ten bytes,
the crc32 of all before.

minispore adds two fields that protobuf readers skip: its note at the beginning, and a crc32 of all before it at the end.
A file that begins with a note and lacks the end is cut off.
"""
import json
from collections.abc import Iterator
from zlib import crc32

import numpy as np

from minispore.train.entries import MINDSPORE, Damage, Entry, check, checksums, dtype_of, from_raw, name_of, raw

SLICE = 512 * 2 ** 20           # bytes of a tensor in one value
NOTE, SUM = 1000, 1001          # minispore's own fields of Checkpoint
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
TRAILER = b"crc_num"


def encode(entries: list[Entry], note: dict, crc_check: bool = False) -> Iterator:
    """The file's bytes, piece by piece.

    >>> b"".join(encode([("w", np.float32([1, 2]))], {}))[-35:-7].hex(" ")
    '0a 1a 0a 01 77 12 15 08 02 12 07 46 6c 6f 61 74 33 32 1a 08 00 00 80 3f 00 00 00 40'
    """
    total = 0
    for piece in _pieces(entries, note | {"crc32": checksums(entries)}):
        total = crc32(piece, total)
        yield piece
    end = field(SUM, total.to_bytes(4, "little"))
    yield end
    if crc_check:
        yield TRAILER + crc32(end, total).to_bytes(10, "big")


def _pieces(entries: list[Entry], note: dict) -> Iterator:
    yield field(NOTE, json.dumps(note).encode())
    for name, value in entries:
        if isinstance(value, str):
            dims, kind, content = (0,), "str", memoryview((value or "\0").encode("utf-32-le"))
        else:
            dims, kind, content = value.shape, name_of(value.dtype, MINDSPORE), raw(value)
        head = b"".join(varint(1 << 3) + varint(d) for d in dims) + field(2, kind.encode())
        for begin in range(0, len(content) or 1, SLICE):
            part = content[begin:begin + SLICE]
            tensor = head + varint(3 << 3 | BYTES) + varint(len(part))
            inside = field(1, name.encode()) + varint(2 << 3 | BYTES) + varint(len(tensor) + len(part)) + tensor
            yield varint(1 << 3 | BYTES) + varint(len(inside) + len(part)) + inside
            yield part


def decode(data, verify: bool = True) -> tuple[list[Entry], dict]:
    """(entries, note) of a file's bytes; arrays lie on them. Damage for what is no .ckpt.

    verify: False reads names and shapes alone; who reads an entry checks it (`check_one`) and copies it, since it may lie
    where numpy is slow.
    """
    end, crc = len(data), {}
    if data[-17:-10] == TRAILER:
        end, crc = end - 17, {"crc_num": int.from_bytes(data[-10:], "big")}
        if crc32(memoryview(data)[:end]) != crc["crc_num"]:
            raise Damage("its bytes have changed since they were written (MindSpore's crc)")
    slices, note, whole = _values(data, end)
    entries = [(tag, _value(tag, *tensor, aligned=verify)) for tag, tensor in slices.items() if tensor[1] != "random_op"]
    if note is not None:
        if whole is None:
            raise Damage("it is cut off; its end is missing", _first_missing(note, slices))
        if verify:
            check(entries, note, crc32(memoryview(data)[:whole[0]]), whole[1])
    return entries, note or crc


def _values(data: bytes, end: int):
    """({tag: (dims, type, [slices])}, note, (where the checksum stands, it)); note and checksum None without."""
    view, tensors, note, whole, last = memoryview(data), {}, None, None, None
    try:
        for number, kind, content, at in fields(view, 0, end):
            if whole is not None:
                raise Damage(f"bytes after the file's end, at {at}")
            if number == NOTE and at == 0:
                note = _json(content)
            elif number == SUM:
                whole = at, int.from_bytes(content, "little")
            elif number == 1 and kind == BYTES:
                tag, tensor = _one(content)
                if tag not in tensors:
                    tensors[tag] = (*tensor[:2], [tensor[2]])
                elif tag == last and tensors[tag][:2] == tensor[:2]:
                    tensors[tag][2].append(tensor[2])
                else:
                    raise Damage("it is there twice", tag)
                last = tag
    except Damage as e:                     # where a file is cut off, the parameter that should have come is meant
        raise Damage(e.what, e.name or _first_missing(note, tensors)) from None
    return tensors, note, whole


def _first_missing(note: dict | None, found: dict) -> str | None:
    """The first parameter that the note lists and that isn't there (yet)."""
    return next((name for name in (note or {}).get("crc32", ()) if name not in found), None)


def _one(content: memoryview):
    """(tag, (dims, type, bytes)) of a Value."""
    tag = tensor = None
    for number, kind, part, _ in fields(content, 0, len(content)):
        if number == 3:
            raise Damage("it is a MapParameter, which minispore hasn't", tag)
        if kind == BYTES and number == 1:
            tag = _text(part, None)
        elif kind == BYTES and number == 2:
            tensor = part
    if tag is None or tensor is None:
        raise Damage("a value without " + ("a name" if tag is None else "a tensor"), tag)
    dims, dtype, data = [], None, None
    for number, kind, part, _ in fields(tensor, 0, len(tensor), tag):
        if number == 1 and kind == VARINT:
            dims.append(part)
        elif number == 1 and kind == BYTES:             # packed, as proto3 writers do
            at = 0
            while at < len(part):
                value, at = read_varint(part, at, len(part), tag)
                dims.append(value)
        elif number == 2 and kind == BYTES:
            dtype = _text(part, tag)
        elif number == 3 and kind == BYTES:
            data = part
    if dtype is None or data is None:
        raise Damage("a tensor without " + ("a type" if dtype is None else "data"), tag)
    return tag, (tuple(dims), dtype, data)


def _value(tag: str, dims: tuple, kind: str, slices: list, aligned: bool) -> np.ndarray | str:
    content = slices[0] if len(slices) == 1 else b"".join(slices)
    if kind == "str":
        try:
            return bytes(content).decode("utf-32-le").rstrip("\0")
        except UnicodeDecodeError:
            raise Damage("a str that isn't one", tag) from None
    if dims == (0,) and len(content):
        dims = ()               # so older MindSpore writes scalars
    return from_raw(content, dtype_of(kind, MINDSPORE, tag), dims, tag, aligned)


# ---- the wire format ---------------------------------------------------------------------------------


def varint(n: int) -> bytes:
    """
    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    """A field of wire type 2."""
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def read_varint(data: memoryview, at: int, end: int, name=None) -> tuple[int, int]:
    """(number, where the next byte is)."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise Damage(f"it ends in the middle of a number, at byte {at}", name)
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise Damage(f"a number of more than ten bytes, at byte {at}", name)


def fields(data: memoryview, at: int, end: int, name=None) -> Iterator[tuple[int, int, object, int]]:
    """(number, wire type, int or bytes, where it begins) of the fields in data[at:end]."""
    while at < end:
        begin = at
        key, at = read_varint(data, at, end, name)
        kind = key & 7
        if kind == VARINT:
            content, at = read_varint(data, at, end, name)
        elif kind in (FIXED64, BYTES, FIXED32):
            size, at = read_varint(data, at, end, name) if kind == BYTES else (8 if kind == FIXED64 else 4, at)
            if size > end - at:
                raise Damage(f"a field at byte {begin} of {size} bytes where {end - at} are left; it may be cut off", name)
            content, at = data[at:at + size], at + size
        else:
            raise Damage(f"no field begins at byte {begin}", name)
        if not key >> 3:
            raise Damage(f"a field number 0 at byte {begin}", name)
        yield key >> 3, kind, content, begin


def _text(part: memoryview, name) -> str:
    try:
        return bytes(part).decode()
    except UnicodeDecodeError:
        raise Damage("a name that isn't UTF-8", name) from None


def _json(part) -> dict:
    try:
        note = json.loads(bytes(part))
    except (ValueError, RecursionError):
        note = None
    if not isinstance(note, dict) or not isinstance(note.get("crc32", {}), dict):
        raise Damage("minispore's note can't be read")
    return note
