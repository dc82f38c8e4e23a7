"""Conv2D and the two ops of its gradient. Each of the three is bilinear, and the others' gradients are made of it.

Shapes: x (n, i, h, w), weight (o, i, kh, kw), out (n, o, p, q). With groups the channels are (g i) and (g o): each group
is a convolution of its own. The portable forwards add up the kernel's taps; the CPU's are in device/kernels/conv.py.
"""
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from minispore.common import dtype as mstype
from minispore.device import kernels
from minispore.ops.primitive import Primitive, Spec, demand_float, namespace


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


class Convolving(Primitive):
    """Base of the three: they work group by group. `axes`: where the groups lie in the inputs and in the output."""
    arity, linear = 2, ((0,), (1,))
    axes: ClassVar[tuple[int, int, int]]

    def plain(self, a, b):
        """One group's values, by the array API."""

    def kernel(self, out, a, b):
        """The same on the CPU."""

    def one_group(self) -> "Convolving":
        """The op on a single group."""

    def groups(self, *arrays):
        """The arrays of each group in turn."""
        n = self.groups_of.group
        for g in range(n):
            yield [a[(*(slice(None),) * axis, slice(g * (a.shape[axis] // n), (g + 1) * (a.shape[axis] // n)), ...)]
                   for a, axis in zip(arrays, self.axes, strict=False)]

    def forward(self, a, b):
        if self.groups_of.group == 1:
            return self.plain(a, b)
        one = self.one_group()
        return namespace(a).concat([one.plain(*part) for part in self.groups(a, b)], axis=self.axes[2])

    def cpu(self, out, a, b):
        if self.groups_of.group == 1:
            return self.kernel(out, a, b)
        one = self.one_group()
        for *ins, place in self.groups(a, b, out):
            part = np.empty(place.shape, place.dtype)
            one.kernel(part, *map(np.ascontiguousarray, ins))
            place[...] = part


@dataclass(frozen=True)
class Conv2D(Convolving):
    """out[n,o,p,q] = Σ_ikl x[n, i, p·s + k·d - top, q·s + l·d - left] · weight[o,i,k,l] (MindSpore: `ops.Conv2D`).

    pad_mode "same" keeps ceil(size / stride), "valid" adds nothing, "pad" takes `pad`.
    """
    out_channel: int
    kernel_size: int | tuple = 1
    mode: int = 1
    pad_mode: str = "valid"
    pad: int | tuple = 0
    stride: int | tuple = 1
    dilation: int | tuple = 1
    group: int = 1
    axes = (1, 0, 1)

    def __post_init__(self):
        set_ = object.__setattr__
        set_(self, "kernel_size", pair(self.kernel_size, "Conv2D: kernel_size"))
        set_(self, "stride", pair(self.stride, "Conv2D: stride"))
        set_(self, "dilation", pair(self.dilation, "Conv2D: dilation"))
        set_(self, "pad", four(self.pad, "Conv2D: pad"))
        _ = self.window             # refuses a padding that pad_mode doesn't use
        if self.mode != 1:
            raise ValueError(f"Conv2D: mode={self.mode}; only 1 is there. For a depthwise convolution set group to the channels")
        if not isinstance(self.group, int) or self.group < 1 or self.out_channel % self.group:
            raise ValueError(f"Conv2D: group {self.group!r} must be a whole number ≥ 1 that divides out_channel "
                             f"{self.out_channel}")

    @property
    def groups_of(self) -> "Conv2D":
        return self

    def one_group(self):
        return replace(self, out_channel=self.out_channel // self.group, group=1)

    @property
    def window(self) -> Window:
        return Window(self.kernel_size, self.stride, self.pad_mode, self.pad, self.dilation)

    def rule(self, x, w):
        return "n i H W, o i K L -> n o P Q" if self.group == 1 else "n (g i) H W, (g o) i K L -> n (g o) P Q"

    def infer(self, x, w):
        if len(x.shape) != 4 or not mstype.is_float(x.dtype):
            raise TypeError(f"Conv2D: x is {x.dtype} of shape {x.shape}; it takes float images (batch, channels, "
                            "height, width). Images of a dataset come as uint8 (height, width, channels): map "
                            "[Rescale(1/255, 0), HWC2CHW()] over them, and batch them")
        demand_float(self, x=x, weight=w)
        want = (self.out_channel, x.shape[1] // self.group, *self.kernel_size)
        if w.shape != want or x.shape[1] % self.group:
            groups = "" if self.group == 1 else f" in {self.group} groups"
            raise ValueError(f"Conv2D: x {x.shape} has {x.shape[1]} channels{groups}, so the weight must be {want} (out, "
                             f"in{' / group' if groups else ''}, height, width); it is {w.shape}. Check in_channels"
                             f"{' and group' if groups else ''}, and that images are (n, c, h, w)")
        return Spec((x.shape[0], self.out_channel, *self.window.plane(x.shape[2:], self, x.shape)), x.dtype)

    def plain(self, x, w):
        xp, window = namespace(x), self.window
        plane = window.plane(tuple(x.shape[2:]), self, x.shape)
        wide = window.padded(x, 0)
        out = xp.zeros((x.shape[0], w.shape[0], *plane), dtype=x.dtype)
        for k, l, at in window.taps(plane):
            out = out + xp.permute_dims(xp.tensordot(w[:, :, k, l], wide[at], axes=((1,), (1,))), (1, 0, 2, 3))
        return out

    def kernel(self, out, x, w):
        kernels.conv2d(x, w, out, self.stride, self.window.pads(x.shape[2:]), self.dilation)

    def gradient(self, x, w, out, dout):
        return (lambda: Conv2DBackpropInput(self, x.shape)(dout, w)), \
               (lambda: Conv2DBackpropFilter(self, w.shape)(dout, x))

    def flops(self, x, w):
        return 2 * prod(self.infer(x, w).shape) * prod(w.shape[1:])

    def local(self, rule, pieces):
        g, o = (pieces[f].count if f in pieces else 1 for f in "go")
        return replace(self, out_channel=self.out_channel // (g * o), group=self.group // g)


@dataclass(frozen=True)
class Conv2DBackpropInput(Convolving):
    """Conv2D's transpose in x: each output's gradient, times the weight, added where the kernel looked."""
    conv: Conv2D
    shape: tuple
    axes = (1, 0, 1)

    @property
    def groups_of(self):
        return self.conv

    def one_group(self):
        return replace(self, conv=self.conv.one_group(), shape=(self.shape[0], self.shape[1] // self.conv.group, *self.shape[2:]))

    def local(self, rule, pieces):
        return replace(self, conv=self.conv.local(rule, pieces))

    def rule(self, dout, w):
        return "n o P Q, o i K L -> n i H W" if self.conv.group == 1 else "n (g o) P Q, (g o) i K L -> n (g i) H W"

    def infer(self, dout, w):
        return Spec((dout.shape[0], w.shape[1] * self.conv.group, *self.shape[2:]), dout.dtype)

    def plain(self, dout, w):
        xp, window = namespace(dout), self.conv.window
        (h, wd), (top, bottom, left, right) = self.shape[2:], window.pads(self.shape[2:])
        wide = xp.zeros((dout.shape[0], w.shape[1], h + top + bottom, wd + left + right), dtype=dout.dtype)
        for k, l, at in window.taps(tuple(dout.shape[2:])):
            term = xp.tensordot(w[:, :, k, l], dout, axes=((0,), (1,)))
            wide[at] = wide[at] + xp.permute_dims(term, (1, 0, 2, 3))
        return wide[:, :, top:top + h, left:left + wd]

    def kernel(self, out, dout, w):
        conv = self.conv
        kernels.conv2d_input(dout, w, out, conv.stride, conv.window.pads(self.shape[2:]), conv.dilation)

    def gradient(self, dout, w, out, d):
        return (lambda: self.conv(d, w)), (lambda: Conv2DBackpropFilter(self.conv, w.shape)(dout, d))

    def flops(self, dout, w):
        return 2 * prod(dout.shape) * prod(w.shape[1:])


@dataclass(frozen=True)
class Conv2DBackpropFilter(Convolving):
    """Conv2D's transpose in the weight: each tap's inputs times the output's gradient, summed over n, p, q."""
    conv: Conv2D
    shape: tuple
    axes = (1, 1, 0)

    @property
    def groups_of(self):
        return self.conv

    def one_group(self):
        return replace(self, conv=self.conv.one_group(), shape=(self.shape[0] // self.conv.group, *self.shape[1:]))

    def local(self, rule, pieces):
        return replace(self, conv=self.conv.local(rule, pieces))

    def rule(self, dout, x):
        return "n o P Q, n i H W -> o i K L" if self.conv.group == 1 else "n (g o) P Q, n (g i) H W -> (g o) i K L"

    def infer(self, dout, x):
        return Spec((dout.shape[1], x.shape[1] // self.conv.group, *self.shape[2:]), dout.dtype)

    def plain(self, dout, x):
        xp, window = namespace(dout), self.conv.window
        wide = window.padded(x, 0)
        out = xp.zeros((dout.shape[1], x.shape[1], *self.shape[2:]), dtype=dout.dtype)
        for k, l, at in window.taps(tuple(dout.shape[2:])):
            out[:, :, k, l] = xp.tensordot(dout, wide[at], axes=((0, 2, 3), (0, 2, 3)))
        return out

    def kernel(self, out, dout, x):
        conv = self.conv
        kernels.conv2d_filter(dout, x, out, conv.stride, conv.window.pads(x.shape[2:]), conv.dilation)

    def gradient(self, dout, x, out, d):
        return (lambda: self.conv(x, d)), (lambda: Conv2DBackpropInput(self.conv, x.shape)(dout, d))

    def flops(self, dout, x):
        return 2 * prod(dout.shape) * prod(self.shape[1:])
