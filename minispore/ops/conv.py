"""Conv2D and the two ops of its gradient. Each of the three is bilinear, and the others' gradients are made of it.

Shapes: x (n, i, h, w), weight (o, i, kh, kw), out (n, o, p, q). The portable forwards add up the kernel's taps;
the CPU's are in device/kernels/conv.py.
"""
from dataclasses import dataclass, replace
from math import prod

import numpy as np

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
    """A window of taps that slides over a plane: what Conv2D and MaxPool have in common."""
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad_mode: str = "valid"
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

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
        if self.pad_mode != "same":
            return self.pad
        out = []
        for n, s, span in zip(plane, self.stride, self.spans(), strict=True):
            total = max((-(-n // s) - 1) * s + span - n, 0)
            out += [total // 2, total - total // 2]
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


@dataclass(frozen=True)
class Conv2D(Primitive):
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
    arity, linear = 2, ((0,), (1,))

    def __post_init__(self):
        set_ = object.__setattr__
        set_(self, "kernel_size", pair(self.kernel_size, "Conv2D: kernel_size"))
        set_(self, "stride", pair(self.stride, "Conv2D: stride"))
        set_(self, "dilation", pair(self.dilation, "Conv2D: dilation"))
        set_(self, "pad", four(self.pad, "Conv2D: pad"))
        _ = self.window             # refuses a padding that pad_mode doesn't use
        if self.mode != 1 or self.group != 1:
            raise ValueError(f"Conv2D: mode={self.mode}, group={self.group}; only mode=1 and group=1 are there")

    @property
    def window(self) -> Window:
        return Window(self.kernel_size, self.stride, self.pad_mode, self.pad, self.dilation)

    def rule(self, x, w):
        return "n i H W, o i K L -> n o P Q"

    def infer(self, x, w):
        if len(x.shape) != 4 or x.dtype.kind != "f":
            raise TypeError(f"Conv2D: x is {x.dtype} of shape {x.shape}; it takes float images (batch, channels, "
                            "height, width). Images of a dataset come as uint8 (height, width, channels): map "
                            "[Rescale(1/255, 0), HWC2CHW()] over them, and batch them")
        demand_float(self, x=x, weight=w)
        want = (self.out_channel, x.shape[1], *self.kernel_size)
        if w.shape != want:
            raise ValueError(f"Conv2D: x {x.shape} has {x.shape[1]} channels, so the weight must be {want} (out, in, "
                             f"height, width); it is {w.shape}. Check in_channels, and that images are (n, c, h, w)")
        return Spec((x.shape[0], self.out_channel, *self.window.plane(x.shape[2:], self, x.shape)), x.dtype)

    def forward(self, x, w):
        xp, window = namespace(x), self.window
        plane = window.plane(tuple(x.shape[2:]), self, x.shape)
        wide = window.padded(x, 0)
        out = xp.zeros((x.shape[0], w.shape[0], *plane), dtype=x.dtype)
        for k, l, at in window.taps(plane):
            out = out + xp.permute_dims(xp.tensordot(w[:, :, k, l], wide[at], axes=((1,), (1,))), (1, 0, 2, 3))
        return out

    def cpu(self, out, x, w):
        if not kernels.supported(x.dtype):
            return super().cpu(out, x, w)
        kernels.conv2d(x, w, out, self.stride, self.window.pads(x.shape[2:]), self.dilation)

    def gradient(self, x, w, out, dout):
        return (lambda: Conv2DBackpropInput(self, x.shape)(dout, w)), \
               (lambda: Conv2DBackpropFilter(self, w.shape)(dout, x))

    def flops(self, x, w):
        return 2 * prod(self.infer(x, w).shape) * prod(w.shape[1:])

    def local(self, rule, pieces):
        return replace(self, out_channel=self.out_channel // (pieces["o"].count if "o" in pieces else 1))


@dataclass(frozen=True)
class Conv2DBackpropInput(Primitive):
    """Conv2D's transpose in x: each output's gradient, times the weight, added where the kernel looked."""
    conv: Conv2D
    shape: tuple
    arity, linear = 2, ((0,), (1,))

    def rule(self, dout, w):
        return "n o P Q, o i K L -> n i H W"

    def infer(self, dout, w):
        return Spec((dout.shape[0], w.shape[1], *self.shape[2:]), dout.dtype)

    def forward(self, dout, w):
        xp, window = namespace(dout), self.conv.window
        (h, wd), (top, bottom, left, right) = self.shape[2:], window.pads(self.shape[2:])
        wide = xp.zeros((dout.shape[0], w.shape[1], h + top + bottom, wd + left + right), dtype=dout.dtype)
        for k, l, at in window.taps(tuple(dout.shape[2:])):
            term = xp.tensordot(w[:, :, k, l], dout, axes=((0,), (1,)))
            wide[at] = wide[at] + xp.permute_dims(term, (1, 0, 2, 3))
        return wide[:, :, top:top + h, left:left + wd]

    def cpu(self, out, dout, w):
        if not kernels.supported(dout.dtype):
            return super().cpu(out, dout, w)
        conv = self.conv
        kernels.conv2d_input(dout, w, out, conv.stride, conv.window.pads(self.shape[2:]), conv.dilation)

    def gradient(self, dout, w, out, d):
        return (lambda: self.conv(d, w)), (lambda: Conv2DBackpropFilter(self.conv, w.shape)(dout, d))

    def flops(self, dout, w):
        return 2 * prod(dout.shape) * prod(w.shape[1:])


@dataclass(frozen=True)
class Conv2DBackpropFilter(Primitive):
    """Conv2D's transpose in the weight: each tap's inputs times the output's gradient, summed over n, p, q."""
    conv: Conv2D
    shape: tuple
    arity, linear = 2, ((0,), (1,))

    def rule(self, dout, x):
        return "n o P Q, n i H W -> o i K L"

    def infer(self, dout, x):
        return Spec((dout.shape[1], x.shape[1], *self.shape[2:]), dout.dtype)

    def forward(self, dout, x):
        xp, window = namespace(dout), self.conv.window
        wide = window.padded(x, 0)
        out = xp.zeros((dout.shape[1], x.shape[1], *self.shape[2:]), dtype=dout.dtype)
        for k, l, at in window.taps(tuple(dout.shape[2:])):
            out[:, :, k, l] = xp.tensordot(dout, wide[at], axes=((0, 2, 3), (0, 2, 3)))
        return out

    def cpu(self, out, dout, x):
        if not kernels.supported(dout.dtype):
            return super().cpu(out, dout, x)
        conv = self.conv
        kernels.conv2d_filter(dout, x, out, conv.stride, conv.window.pads(x.shape[2:]), conv.dilation)

    def gradient(self, dout, x, out, d):
        return (lambda: self.conv(x, d)), (lambda: Conv2DBackpropInput(self.conv, x.shape)(dout, d))

    def flops(self, dout, x):
        return 2 * prod(dout.shape) * x.shape[1] * prod(self.shape[2:])
