"""A window that slides over a plane: what convolutions and pooling have in common, and what a piece of a split plane needs."""
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minispore.ops.primitive import Piece, Primitive, namespace


def pair(value, what: str) -> tuple[int, int]:
    """(height, width) from an int, a pair, or MindSpore's (1, 1, h, w)."""
    values = (value, value) if isinstance(value, (int, np.integer)) else tuple(value)
    values = values[2:] if len(values) == 4 else values
    if len(values) != 2 or any(not isinstance(v, (int, np.integer)) or v < 1 for v in values):
        raise ValueError(f"{what} {value!r} must be a positive whole number or a pair of them (height, width)")
    return int(values[0]), int(values[1])


def four(value, what: str) -> tuple[int, int, int, int]:
    """(top, bottom, left, right) from an int, a pair (height, width) or four."""
    values = (value,) * 4 if isinstance(value, (int, np.integer)) else tuple(value)
    values = (values[0], values[0], values[1], values[1]) if len(values) == 2 else values
    if len(values) != 4 or any(not isinstance(v, (int, np.integer)) or v < 0 for v in values):
        raise ValueError(f"{what} {value!r} must be a whole number ≥ 0, or four: top, bottom, left, right")
    return tuple(map(int, values))


@dataclass(frozen=True)
class Window:
    """A window of taps that slides over a plane: what convolutions and pooling have in common.

    ceil_mode: a last window that would hang over the edge counts too, if it begins inside.
    """
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad_mode: str = "valid"
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil_mode: bool = False

    def __post_init__(self):
        if self.pad_mode not in ("same", "valid", "pad"):
            raise ValueError(f"pad_mode {self.pad_mode!r} must be 'same', 'valid' or 'pad'")
        if self.pad_mode != "pad" and any(self.pad):
            raise ValueError(f"padding {self.pad} is only used with pad_mode='pad', pad_mode is {self.pad_mode!r}; "
                             "set pad_mode='pad' or leave padding 0")

    def spans(self) -> tuple[int, int]:
        """Height and width that the dilated kernel covers."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def pads(self, plane: tuple[int, int]) -> tuple[int, int, int, int]:
        """(top, bottom, left, right); 'same' puts the odd one at the bottom and on the right."""
        if self.pad_mode != "same" and not self.ceil_mode:
            return self.pad
        out = []
        for n, s, span, (low, high) in zip(plane, self.stride, self.spans(), (self.pad[:2], self.pad[2:]), strict=True):
            if self.pad_mode == "same":
                total = max((-(-n // s) - 1) * s + span - n, 0)
                out += [total // 2, total - total // 2]
            else:
                steps = min(-(-(n + low + high - span) // s), (n + low - 1) // s)
                out += [low, max(high, steps * s + span - n - low)]
        return tuple(out)

    def plane(self, plane: tuple[int, int], op: Primitive, shape) -> tuple[int, int]:
        """Height and width of the output."""
        top, bottom, left, right = self.pads(plane)
        padded = (plane[0] + top + bottom, plane[1] + left + right)
        if any(p < s for p, s in zip(padded, self.spans(), strict=True)):
            raise ValueError(f"{op.name}: the kernel {self.kernel} covers {self.spans()}, more than the padded plane "
                             f"{padded} of the input {shape}; use a smaller kernel or pad_mode='same'")
        return tuple((p - s) // step + 1 for p, s, step in zip(padded, self.spans(), self.stride, strict=True))

    def taps(self, out_plane: tuple[int, int]):
        """(k, l, slices of the padded plane that tap (k, l) sees), row by row."""
        for k in range(self.kernel[0]):
            for l in range(self.kernel[1]):
                at = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in
                      zip((k, l), self.dilation, out_plane, self.stride, strict=True)]
                yield k, l, (slice(None), slice(None), *at)

    def padded(self, x, fill: float):
        """x with its padding, in a new array."""
        xp, (top, bottom, left, right) = namespace(x), self.pads(tuple(x.shape[2:]))
        h, w = x.shape[2:]
        out = xp.full((*x.shape[:2], h + top + bottom, w + left + right), fill, dtype=x.dtype)
        out[:, :, top:top + h, left:left + w] = x
        return out


class Line(NamedTuple):
    """A window along one dim: `values` it slides over, `places` where it stops, `span` it covers, `stride`, padding before.

    Split, all pieces are of one length, and so is what each of them needs of the other pieces.
    """
    values: int
    places: int
    span: int
    stride: int
    low: int

    def seen(self, piece: Piece) -> tuple[int, int]:
        """(first value, how many) that a piece of the places sees; those outside 0 … values-1 are padding.

        >>> [Line(8, 8, 3, 1, 1).seen(Piece(k, 2)) for k in range(2)]
        [(-1, 6), (3, 6)]
        """
        n = self.places // piece.count
        return piece.index * n * self.stride - self.low, (n - 1) * self.stride + self.span

    def seeing(self, piece: Piece) -> tuple[int, int]:
        """(first place, how many) that see something of a piece of the values, perhaps one more; some may not exist."""
        n = self.values // piece.count
        first = [(k * n + self.low - self.span + 1) // self.stride for k in range(piece.count)]
        last = [((k + 1) * n - 1 + self.low) // self.stride for k in range(piece.count)]
        return first[piece.index], max(b - a + 1 for a, b in zip(first, last, strict=True))

    def padding(self, piece: Piece) -> tuple[int, int]:
        """Padding (before, after) with which a window that stops at the places `seeing` a piece just covers it."""
        n, (first, many) = self.values // piece.count, self.seeing(piece)
        before = self.low + piece.index * n - first * self.stride
        return before, max((many - 1) * self.stride + self.span - before - n, 0)
