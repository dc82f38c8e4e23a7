"""Conv2D and the two ops of its gradient. Each of the three is bilinear, and the others' gradients are made of it.

Shapes: x (n, i, h, w), weight (o, i, kh, kw), out (n, o, p, q). With groups the channels are (g i) and (g o): each group
is a convolution of its own. The portable forwards add up the kernel's taps; the CPU's are in device/kernels/conv.py.

Rows and columns may be split: each rank then gets the rows next to its own besides (`windows`), with zeros for the padding.
"""
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import ClassVar

import numpy as np

from minispore.common import dtype as mstype
from minispore.device import kernels
from minispore.ops.primitive import Primitive, Spec, demand_float, namespace
from minispore.ops.rule import bind
from minispore.ops.window import Line, Window, four, pair


class Convolving(Primitive):
    """Base of the three: they work group by group. `axes`: where the groups lie in the inputs and in the output.

    roles: what the inputs and the output are to the convolution. fetched: the one of which a piece needs more than its own.
    """
    arity, linear = 2, ((0,), (1,))
    axes: ClassVar[tuple[int, int, int]]
    roles: ClassVar[tuple[str, str, str]]
    fetched: ClassVar[str] = "x"

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

    # ---- on slices ------------------------------------------------------------------------------------

    def rule(self, *shapes):
        """Rows r and columns c are cut as x and out can be cut alike."""
        shapes = [*shapes, self.infer(*(Spec(s, mstype.float32) for s in shapes)).shape]
        at = dict(zip(self.roles, shapes, strict=True))
        i, o = ("i", "o") if self.groups_of.group == 1 else ("(g i)", "(g o)")
        terms = {"x": f"n {i} (r R) (c C)", "w": f"{o} i K L", "out": f"n {o} (r P) (c Q)"}
        a, b, out = (terms[role] for role in self.roles)
        return bind(f"{a}, {b} -> {out}", shapes[:2], shapes[2:],
                    **{f: gcd(x, y) for f, x, y in zip("rc", at["x"][2:], at["out"][2:], strict=True)})

    def lines(self, rule) -> dict[str, Line]:
        """How the window slides along the whole rows and columns."""
        size, window = rule.sizes, self.groups_of.window
        plane, out = (size["r"] * size["R"], size["c"] * size["C"]), (size["r"] * size["P"], size["c"] * size["Q"])
        lows = window.pads(plane)[::2]
        return dict(zip("rc", map(Line, plane, out, window.spans(), window.stride, lows), strict=True))

    def windows(self, rule, pieces):
        i = self.roles.index(self.fetched)
        return {(i, d): line.seen(pieces[f]) if self.fetched == "x" else line.seeing(pieces[f])
                for d, (f, line) in enumerate(self.lines(rule).items(), 2) if f in pieces}

    def local_conv(self, rule, pieces) -> "Conv2D":
        """The convolution of a slice: its channels and groups, and only what padding isn't among the rows fetched."""
        conv, lines = self.groups_of, self.lines(rule)
        top, bottom, left, right = conv.window.pads(tuple(line.values for line in lines.values()))
        pads = {"r": (top, bottom), "c": (left, right)}
        for f in pieces.keys() & pads.keys():
            pads[f] = (0, 0) if self.fetched == "x" else lines[f].padding(pieces[f])
        g, o = (pieces[f].count if f in pieces else 1 for f in "go")
        return replace(conv, out_channel=conv.out_channel // (g * o), group=conv.group // g, pad_mode="pad",
                       pad=(*pads["r"], *pads["c"]))


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
    axes, roles = (1, 0, 1), ("x", "w", "out")

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
        return self.local_conv(rule, pieces)


@dataclass(frozen=True)
class Conv2DBackpropInput(Convolving):
    """Conv2D's transpose in x: each output's gradient, times the weight, added where the kernel looked."""
    conv: Conv2D
    shape: tuple
    axes, roles, fetched = (1, 0, 1), ("out", "w", "x"), "out"

    @property
    def groups_of(self):
        return self.conv

    def one_group(self):
        return replace(self, conv=self.conv.one_group(), shape=(self.shape[0], self.shape[1] // self.conv.group, *self.shape[2:]))

    def local(self, rule, pieces):
        plane = (n // (pieces[f].count if f in pieces else 1) for f, n in zip("rc", self.shape[2:], strict=True))
        return replace(self, conv=self.local_conv(rule, pieces), shape=(*self.shape[:2], *plane))

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
    axes, roles = (1, 1, 0), ("out", "x", "w")

    @property
    def groups_of(self):
        return self.conv

    def one_group(self):
        return replace(self, conv=self.conv.one_group(), shape=(self.shape[0] // self.conv.group, *self.shape[1:]))

    def local(self, rule, pieces):
        return replace(self, conv=self.local_conv(rule, pieces))

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
