"""Hooks of a Cell: functions called with what goes into it, comes out of it, and with the gradients on their way back.

Forward hooks are Python, called when the cell's ops are: in PYNATIVE_MODE at each call with values, in GRAPH_MODE once,
while the graph is traced, with symbols; what they return becomes part of the graph. Backward hooks stand in the graph as
two ops that pass values on: one around the outputs, whose gradient is grad_output, one around the inputs, whose gradient is
grad_input. (MindSpore ignores hooks in GRAPH_MODE.)
"""
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from minispore.common.dtype import is_float
from minispore.common.recorder import recorder
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.ops.primitive import Primitive, Spec

_numbers = count()


@dataclass(frozen=True)
class GradientTap(Primitive):
    """Passes tensors on; their gradients go through `change(gradients)`.

    always: it is told about gradients even where nobody wants them, as at the first layer, whose inputs are data.
    """
    change: Callable
    always: bool = False
    arity = None

    @property
    def gradient_waits(self):
        return self.always

    effect = gradient_waits             # so that a tape, too, remembers it although nothing before it is to be differentiated

    def rule(self, *shapes):
        terms = ", ".join(" ".join(f"I{i}_{d}" for d in range(len(s))) for i, s in enumerate(shapes))
        return f"{terms} -> {terms}"

    def infer(self, *xs):
        return [Spec(x.shape, x.dtype) for x in xs]

    def forward(self, *xs):
        return xs

    def gradient(self, *xs_outs_douts):
        return list(self.change(tuple(xs_outs_douts[-1])))

    def flops(self, *xs):
        return 0


class HookHandle:
    """What register_… returns; `remove()` takes the hook away again."""

    def __init__(self, cell, kind, number):
        self._cell, self._kind, self._number = cell, kind, number

    def remove(self) -> None:
        if self._cell._hooks.get(self._kind, {}).pop(self._number, None) is not None:
            self._cell._changed()


class Hooks:
    """The part of Cell that registers hooks and calls them."""

    def register_forward_pre_hook(self, hook_fn, with_kwargs=False) -> HookHandle:
        """hook(cell, args) before construct; what it returns, if not None, takes the place of args.

        with_kwargs: hook(cell, args, kwargs), which may return (args, kwargs).
        """
        return self._register("forward_pre", hook_fn, with_kwargs)

    def register_forward_hook(self, hook_fn, with_kwargs=False) -> HookHandle:
        """hook(cell, args, output), with_kwargs: hook(cell, args, kwargs, output), after construct; may return another output.

        >>> from minispore import Tensor, nn
        >>> relu = nn.ReLU()
        >>> handle = relu.register_forward_hook(lambda cell, args, output: output + 1)
        >>> relu(Tensor([-1.0, 2.0])).tolist()
        [1.0, 3.0]
        >>> handle.remove()
        >>> relu(Tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
        """
        return self._register("forward", hook_fn, with_kwargs)

    def register_backward_pre_hook(self, hook_fn) -> HookHandle:
        """hook(cell, grad_output) with the gradients to the outputs, a tuple; may return others."""
        return self._register("backward_pre", hook_fn)

    def register_backward_hook(self, hook_fn) -> HookHandle:
        """hook(cell, grad_input, grad_output) with the gradients to inputs and outputs; may return another grad_input."""
        return self._register("backward", hook_fn)

    def _register(self, kind, hook, with_kwargs=False):
        if not callable(hook):
            raise TypeError(f"{type(self).__name__}: a {kind} hook is a function, not a {type(hook).__name__}")
        number = next(_numbers)
        self._hooks.setdefault(kind, {})[number] = (hook, with_kwargs)
        self._changed()
        return HookHandle(self, kind, number)

    def _each(self, kind):
        return list(self._hooks.get(kind, {}).values())

    def _hooked(self, run, args, kwargs):
        """run(*args, **kwargs) with all hooks around it."""
        for hook, with_kwargs in self._each("forward_pre"):
            new = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if new is not None and with_kwargs:
                args, kwargs = new
            elif new is not None:
                args = new if isinstance(new, tuple) else (new,)
        taps = recorder() is not None and (self._each("backward") or self._each("backward_pre"))
        arriving: list = []                 # grad_output, left here for the tap at the inputs
        given, inner = args, (args, kwargs)
        if taps and self._each("backward"):
            inner = _tapped(inner, GradientTap(lambda grads: self._grad_input(grads, arriving), True))
        out = run(*inner[0], **inner[1])
        if taps:
            alone = not any(is_float(t.dtype) for t in flatten(inner, is_tensor)[0])
            out = _tapped(out, GradientTap(lambda grads: self._grad_output(grads, arriving, alone)))
        for hook, with_kwargs in self._each("forward"):
            new = hook(self, given, kwargs, out) if with_kwargs else hook(self, given, out)
            out = out if new is None else new
        return out

    def _grad_output(self, grads, arriving, alone):
        for hook, _ in self._each("backward_pre"):
            grads = _replaced(self, "backward_pre", hook(self, grads), grads)
        arriving[:] = [grads]
        if alone:                           # no float inputs, so no tap there
            self._grad_input((), arriving)
        return grads

    def _grad_input(self, grads, arriving):
        for hook, _ in self._each("backward") if arriving else ():      # nothing arrived: the loss doesn't depend on it
            grads = _replaced(self, "backward", hook(self, grads, arriving[0]), grads)
        return grads


def _tapped(tree, tap):
    """The tree with its float tensors sent through the tap."""
    leaves, skeleton = flatten(tree, is_tensor)
    chosen = [i for i, t in enumerate(leaves) if is_float(t.dtype)]
    if chosen:
        for i, t in zip(chosen, tap(*(leaves[i] for i in chosen)), strict=True):
            leaves[i] = t
    return unflatten(skeleton, leaves)


def _replaced(cell, kind, new, old):
    if new is None:
        return old
    new = new if isinstance(new, tuple) else (new,)
    found = [t.shape if isinstance(t, Tensor) else type(t).__name__ for t in new]
    if found != [t.shape for t in old]:
        raise ValueError(f"{type(cell).__name__}: a {kind} hook returned {found}, the gradients have the shapes "
                         f"{[t.shape for t in old]}; return as many tensors of these shapes, or None")
    return new
