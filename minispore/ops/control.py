"""Ops about the graph itself: names for a value, gradients cut off or replaced, assignment."""
from collections.abc import Callable
from dataclasses import dataclass, replace

from minispore.common.parameter import Parameter
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten
from minispore.ops import functional as F
from minispore.ops.primitive import Composite, Primitive, Spec, as_tensor, checked_gradients


class Identity(Primitive):
    """The same value. It gives an argument of a differentiated function a name of its own."""
    linear, view, widens = ((0,),), True, False

    def forward(self, x):
        return x

    def gradient(self, x, out, dout):
        return (dout,)

    def flops(self, x):
        return 0


class StopGradient(Identity):
    """The same value, constant to differentiation (MindSpore: `ops.stop_gradient`)."""

    def gradient(self, x, out, dout):
        return (None,)


@dataclass(frozen=True)
class CustomGradient(Primitive):
    """Passes a Cell's outputs through and answers for their gradient with the Cell's own bprop.

    Inputs: the Cell's `inputs` arguments, then its outputs. bprop(*inputs, out, dout) gives one gradient an argument.
    """
    bprop: Callable
    inputs: int
    label: str
    arity, widens = None, False

    def rule(self, *shapes):
        terms = [" ".join(f"I{i}_{d}" for d in range(len(s))) for i, s in enumerate(shapes)]
        return f"{', '.join(terms)} -> {', '.join(terms[self.inputs:])}"

    def infer(self, *xs):
        return [Spec(x.shape, x.dtype) for x in xs[self.inputs:]]

    def forward(self, *xs):
        return xs[self.inputs:]

    def gradient(self, *args):
        xs, outs, douts = args[:-2], args[-2], args[-1]
        single = len(outs) == 1
        grads = self.bprop(*xs[:self.inputs], outs[0] if single else outs, douts[0] if single else douts)
        grads = grads if isinstance(grads, tuple) else (grads,)
        return [*checked_gradients(f"{self.label}.bprop", grads, xs[:self.inputs]), *(None for _ in outs)]

    def flops(self, *xs):
        return 0


class Assign(Primitive):
    """Give a Parameter a new value (MindSpore: `ops.Assign`). In a graph it becomes an output of the program."""
    arity, effect = 2, True

    def __call__(self, parameter, value):
        if not isinstance(parameter, Parameter):
            raise TypeError(f"Assign: the target is a {type(parameter).__name__}; only a Parameter can be assigned to")
        tensor = as_tensor(value, self, 1, parameter.dtype)
        if tensor.shape != parameter.shape:
            if len(tensor.shape) > len(parameter.shape) or \
                    any(a not in (1, b) for a, b in zip(tensor.shape[::-1], parameter.shape[::-1], strict=False)):
                raise ValueError(f"Assign: the value has shape {tensor.shape}, parameter {parameter.name} has {parameter.shape}; "
                                 "they must agree, or the value must broadcast")
            tensor = F.broadcast_to(tensor, parameter.shape)
        parameter.set_data(tensor)
        return F.cast(tensor, parameter.dtype)


class AssignBy(Composite):
    """Base of AssignAdd and AssignSub: a Parameter's new value from its old one."""
    assigned = (0,)

    def __call__(self, parameter, value):
        return Assign()(parameter, self.new(parameter, value))


class AssignAdd(AssignBy):
    """parameter += value."""

    def new(self, parameter, value):
        return parameter + value


class AssignSub(AssignBy):
    """parameter -= value."""

    def new(self, parameter, value):
        return parameter - value


class Depend(Primitive):
    """The first tensor, once the others have been computed (MindSpore: `ops.Depend()(value, expr)`).

    expr may be anything; of it the tensors count, also those in nested tuples.
    """
    arity, widens = None, False

    def take(self, value, *expr):
        return self, [as_tensor(value, self, 0), *flatten(expr, is_tensor)[0]]

    def rule(self, *shapes):
        terms = [" ".join(f"{'D' if i else 'd'}{i}_{d}" for d in range(len(s))) for i, s in enumerate(shapes)]
        return f"{', '.join(terms)} -> {terms[0]}"

    def forward(self, *xs):
        return xs[0]

    def gradient(self, *xs_out_dout):
        return (xs_out_dout[-1], *(None for _ in xs_out_dout[3:]))

    def flops(self, *xs):
        return 0


@dataclass(frozen=True)
class Print(Primitive):
    """Prints its tensors, with the text between them, when the program runs; returns the first (MindSpore: `ops.Print`)."""
    text: tuple = ()                    # for each place: a string, or None for the next tensor
    arity, effect, widens = None, True, False

    def __call__(self, *args):
        text = tuple(None if isinstance(a, Tensor) else str(a) for a in args)
        tensors = [a for a in args if isinstance(a, Tensor)]
        if not tensors:
            raise TypeError("Print: no tensor among the arguments; Python's print() is for the rest")
        return super(Print, replace(self, text=text)).__call__(*tensors)

    def rule(self, *shapes):
        return Depend().rule(*shapes)

    def forward(self, *xs):
        values = iter(xs)
        print(*(next(values) if t is None else t for t in self.text), flush=True)
        return xs[0]

    def gradient(self, *xs_out_dout):
        return Depend().gradient(*xs_out_dout)

    def flops(self, *xs):
        return 0


def constexpr(fn=None, get_instance=True, name=None, reuse_result=True, check=True):
    """Kept for MindSpore's programs, which mark functions of constants so: here Python computes them anyway.

    >>> constexpr(lambda n: n * 2)(3)
    6
    """
    return constexpr if fn is None else fn
