"""Pooling. MaxPool, its gradient, and that one's gradient look for the first largest value of each window; AvgPool and its
gradient are each other's transpose."""
from dataclasses import astuple, dataclass
from math import inf, prod

from minispore.device import kernels
from minispore.ops.primitive import Primitive, Spec, demand_float, namespace
from minispore.ops.window import Window, four, pair


@dataclass(frozen=True)
class Pool(Primitive):
    """Base: one value for each window of x (n, c, h, w)."""
    kernel_size: int | tuple = 1
    strides: int | tuple = 1
    pad_mode: str = "valid"
    pad: int | tuple = 0
    ceil_mode: bool = False

    def __post_init__(self):
        set_, name = object.__setattr__, type(self).__name__
        set_(self, "kernel_size", pair(self.kernel_size, f"{name}: kernel_size"))
        set_(self, "strides", pair(self.strides, f"{name}: strides"))
        set_(self, "pad", four(self.pad, f"{name}: pad"))
        if any(2 * p > k for p, k in zip(self.pad, (self.kernel_size[0],) * 2 + (self.kernel_size[1],) * 2,
                                         strict=True)):
            raise ValueError(f"{name}: padding {self.pad} is more than half the kernel {self.kernel_size}, so a window "
                             "could hold padding alone; pad less")

    @property
    def window(self) -> Window:
        return Window(self.kernel_size, self.strides, self.pad_mode, self.pad, ceil_mode=self.ceil_mode)

    def rule(self, *shapes):
        return "n c H W -> n c P Q"

    def out_shape(self, x):
        if len(x.shape) != 4:
            raise ValueError(f"{self.name}: x has shape {x.shape}; it takes (batch, channels, height, width)")
        return (*x.shape[:2], *self.window.plane(x.shape[2:], self, x.shape))

    def infer(self, x):
        demand_float(self, x=x)
        return Spec(self.out_shape(x), x.dtype)

    def flops(self, *xs):
        return prod(self.out_shape(xs[0])) * prod(self.kernel_size)


class MaxPool(Pool):
    """The largest value of each window; padding never wins (MindSpore: `ops.MaxPool`). x is (n, c, h, w)."""

    def forward(self, x):
        xp, plane, wide = namespace(x), self.out_shape(x)[2:], self.window.padded(x, -inf)
        best = None
        for _k, _l, at in self.window.taps(plane):
            best = wide[at] if best is None else xp.maximum(best, wide[at])
        return best

    def cpu(self, out, x):
        self._kernel(kernels.max_pool, x, (x,), out)

    def _kernel(self, kernel, x, arrays, out):
        kernel(*arrays, out, self.kernel_size, self.strides, self.window.pads(x.shape[2:]))

    def winners(self, x):
        """For each tap: where it is the first largest of its window, and the slices it sees."""
        xp, plane, wide = namespace(x), self.out_shape(x)[2:], self.window.padded(x, -inf)
        best = self.forward(x)
        open_ = xp.ones(best.shape, dtype=xp.bool)
        for _k, _l, at in self.window.taps(plane):
            won = open_ & ((wide[at] == best) | xp.isnan(wide[at]))
            open_ = open_ & ~won
            yield won, at

    def gradient(self, x, out, dout):
        return (lambda: MaxPoolGrad(*astuple(self))(x, dout),)


class MaxPoolGrad(MaxPool):
    """Each window's gradient added to the value that won it: (x, dout) -> x's shape."""
    arity, linear = 2, ((1,),)

    def rule(self, *shapes):
        return "n c H W, n c P Q -> n c H W"

    def infer(self, x, dout):
        return Spec(x.shape, x.dtype)

    def forward(self, x, dout):
        xp, wide = namespace(x), self.window.padded(x * 0, 0)
        for won, at in self.winners(x):
            wide[at] = wide[at] + xp.where(won, dout, xp.zeros_like(dout))
        (h, w), (top, _, left, _) = x.shape[2:], self.window.pads(tuple(x.shape[2:]))
        return wide[:, :, top:top + h, left:left + w]

    def winners(self, x):
        return MaxPool(*astuple(self)).winners(x)

    def cpu(self, out, x, dout):
        self._kernel(kernels.max_pool_grad, x, (x, dout), out)

    def gradient(self, x, dout, out, d):
        return None, (lambda: MaxPoolGather(*astuple(self))(x, d))


class MaxPoolGather(MaxPool):
    """For each window the value of g where x won: (x, g) -> the pooled shape. MaxPoolGrad's transpose."""
    arity, linear = 2, ((1,),)

    def rule(self, *shapes):
        return "n c H W, n c H W -> n c P Q"

    def infer(self, x, g):
        return Spec(self.out_shape(x), x.dtype)

    def forward(self, x, g):
        xp, wide, out = namespace(x), self.window.padded(g, 0), None
        for won, at in MaxPool(*astuple(self)).winners(x):
            term = xp.where(won, wide[at], xp.zeros_like(wide[at]))
            out = term if out is None else out + term
        return out

    def cpu(self, out, x, g):
        self._kernel(kernels.max_pool_gather, x, (x, g), out)

    def gradient(self, x, g, out, dout):
        return None, (lambda: MaxPoolGrad(*astuple(self))(x, dout))


@dataclass(frozen=True)
class AvgPool(Pool):
    """The mean of each window (MindSpore: `ops.AvgPool`). x is (n, c, h, w).

    With pad_mode "same" padding doesn't count, with "pad" it does unless count_include_pad is False; divisor: divide by
    this number instead.
    """
    count_include_pad: bool = True
    divisor: int | None = None
    linear = ((0,),)

    def share(self, xp, plane, dtype):
        """What each value of a window counts: a number, or (1, 1, p, q) of them."""
        if self.divisor is not None:
            return 1 / self.divisor
        with_pad = self.pad_mode == "pad" and self.count_include_pad
        if not self.ceil_mode and (with_pad or self.pad_mode == "valid"):
            return 1 / prod(self.kernel_size)
        inside = self.window.padded(xp.ones((1, 1, *plane), dtype=dtype), 0)
        if with_pad:                            # the padding asked for, not what hangs over the edge besides
            inside[:, :, :plane[0] + sum(self.pad[:2]), :plane[1] + sum(self.pad[2:])] = 1
        taps = self.window.taps(self.window.plane(plane, self, plane))
        return 1 / sum((inside[at] for _k, _l, at in taps), xp.zeros((), dtype=dtype))

    def forward(self, x):
        xp, wide, total = namespace(x), self.window.padded(x, 0), None
        for _k, _l, at in self.window.taps(self.out_shape(x)[2:]):
            total = wide[at] if total is None else total + wide[at]
        return total * self.share(xp, tuple(x.shape[2:]), x.dtype)

    def gradient(self, x, out, dout):
        return (AvgPoolGrad(*astuple(self), x.shape[2:])(dout),)


@dataclass(frozen=True)
class AvgPoolGrad(AvgPool):
    """AvgPool's transpose: each window's gradient spread evenly over a plane of the given size."""
    plane: tuple[int, int] = (1, 1)

    def rule(self, *shapes):
        return "n c P Q -> n c H W"

    def infer(self, dout):
        return Spec((*dout.shape[:2], *self.plane), dout.dtype)

    def forward(self, dout):
        xp, (h, w), (top, bottom, left, right) = namespace(dout), self.plane, self.window.pads(self.plane)
        wide = xp.zeros((*dout.shape[:2], h + top + bottom, w + left + right), dtype=dout.dtype)
        dout = dout * self.share(xp, self.plane, dout.dtype)
        for _k, _l, at in self.window.taps(tuple(dout.shape[2:])):
            wide[at] = wide[at] + dout
        return wide[:, :, top:top + h, left:left + w]

    def gradient(self, dout, out, d):
        return (AvgPool(*astuple(self)[:-1])(d),)

    def flops(self, dout):
        return prod(dout.shape) * prod(self.kernel_size)
