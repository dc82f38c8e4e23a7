"""jit, grad, value_and_grad: functions in, functions out (MindSpore: `mindspore.jit`, `grad`, `value_and_grad`)."""
from collections.abc import Callable
from functools import wraps

from minispore.common import random
from minispore.common.dtype import is_float
from minispore.common.errors import warn
from minispore.common.parameter import Parameter
from minispore.common.recorder import recorder, recording
from minispore.common.state import GRAPH_MODE, current
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.graph.compile import Compiled
from minispore.graph.differentiate import gradients
from minispore.graph.trace import Tape
from minispore.ops import functional as F


def jit(function: Callable | None = None, **options):
    """Compile a function to a graph, once for each kind of arguments; also as a decorator.

    Options of MindSpore's backends (jit_level, capture_mode, …) are accepted and have no effect.

    >>> from minispore import Tensor
    >>> double_plus = jit(lambda x: x * 2 + 1)
    >>> double_plus(Tensor([1.0, 2.0])).tolist()
    [3.0, 5.0]
    """
    if function is None:
        return lambda f: jit(f, **options)
    compiled = Compiled(function)

    @wraps(function)
    def call(*args, **kwargs):
        return (compiled if recorder() is None else function)(*args, **kwargs)
    return call


def mutable(input_data, dynamic_len=False):
    """Kept for MindSpore's programs: tensors in tuples, lists and dicts are inputs of a compiled function anyway."""
    return input_data


def value_and_grad(fn, grad_position=0, weights=None, has_aux=False, return_ids=False) -> Callable:
    """A function that returns fn's result and its gradients.

    Args:
        fn: function or Cell; with several outputs the gradient is that of their sum.
        grad_position: the argument(s) to differentiate to: an int, a tuple of ints, or None.
        weights: Parameter or tuple of Parameters to differentiate to, or None.
        has_aux: only the first output is differentiated, the others are passed through.

    Returns:
        (fn's result, gradients). Gradients are one tensor for an int, a tuple for a tuple; with grad_position and
        weights both given: (gradients to the arguments, gradients to the weights).

    >>> from minispore import Tensor
    >>> value, slope = value_and_grad(lambda x: x * x)(Tensor(3.0))
    >>> float(value), float(slope)
    (9.0, 6.0)
    """
    if return_ids:
        raise ValueError("value_and_grad: return_ids=True isn't there; gradients come in the order of weights")
    positions = () if grad_position is None else \
        (grad_position,) if isinstance(grad_position, int) else tuple(grad_position)
    params = () if weights is None else (weights,) if isinstance(weights, Parameter) else tuple(weights)
    for i, p in enumerate(params):
        if not isinstance(p, Parameter):
            raise TypeError(f"grad: weights[{i}] is a {type(p).__name__}; weights are Parameters, "
                            "e.g. net.trainable_params()")
    if not positions and weights is None:
        raise ValueError("grad: neither grad_position nor weights given; say what to differentiate to")

    def shape_of(to_args, to_params):
        to_args = to_args[0] if isinstance(grad_position, int) else tuple(to_args)
        to_params = to_params[0] if isinstance(weights, Parameter) else tuple(to_params)
        if weights is None:
            return to_args
        return to_params if grad_position is None else (to_args, to_params)

    def recorded(*args, **kwargs):
        listener = recorder()
        args = list(args)
        for p in positions:
            if not -len(args) <= p < len(args):
                raise ValueError(f"grad: grad_position {p}, but the function was called with {len(args)} arguments")
            if not isinstance(args[p], Tensor):
                raise TypeError(f"grad: argument {p} is a {type(args[p]).__name__}; gradients go to tensors")
        start = len(listener.graph.nodes)
        for p in positions:
            args[p] = listener.alias(args[p])
        wrt = [args[p]._value for p in positions] + [listener.value_of(p) for p in params]
        listener.nesting += 1
        out = fn(*args, **kwargs)
        listener.nesting -= 1
        if has_aux and not (isinstance(out, (tuple, list)) and len(out) > 1):
            raise TypeError("grad: has_aux=True, but the function returns one output; return (loss, others…), or leave has_aux "
                            "False")
        first = out[0] if has_aux else out
        leaves, _ = flatten(first, is_tensor)
        _warn_of_vector(fn, leaves, weights)
        ends = [(listener.value_of(t), t) for t in leaves if is_float(t.dtype)]
        if not ends:
            found = ", ".join(f"{t.dtype} of shape {t.shape}" for t in leaves) or f"a {type(first).__name__}"
            raise TypeError(f"grad: the function returned {found}, which has no gradient; return a float tensor, the loss")
        last = isinstance(listener, Tape) and not listener.nesting      # nobody will differentiate the gradient
        with recording(None if last else listener):
            seeds = [(v, F.ones(t.shape, t.dtype)) for v, t in ends]
            grads = gradients(listener.graph, start, seeds, wrt)
        return out, shape_of(grads[:len(positions)], grads[len(positions):])

    compiled = Compiled(recorded)

    @wraps(fn if not hasattr(fn, "construct") else fn.construct)
    def call(*args, **kwargs):
        if recorder() is not None:
            return recorded(*args, **kwargs)
        state = current()
        if state.mode == GRAPH_MODE or state.compiler is not None:
            return compiled(*args, **kwargs)
        with recording(Tape()), random.step():
            return _detached(recorded(*map(_as_tensor, args), **kwargs))
    return call


def grad(fn, grad_position=0, weights=None, has_aux=False, return_ids=False) -> Callable:
    """As `value_and_grad`, without the value; with has_aux: (gradients, the other outputs).

    >>> from minispore import Tensor
    >>> float(grad(grad(lambda x: x * x * x))(Tensor(2.0)))
    12.0
    """
    both = value_and_grad(fn, grad_position, weights, has_aux, return_ids)

    @wraps(both)
    def call(*args, **kwargs):
        out, grads = both(*args, **kwargs)
        return (grads, out[1:] if len(out) > 2 else out[1]) if has_aux else grads
    return call


class GradOperation:
    """MindSpore's older form: GradOperation(get_all, get_by_list, sens_param)(net, weights)(*inputs[, sens]).

    get_all: gradients to all inputs instead of the first; get_by_list: to the weights (with get_all: (inputs, weights));
    sens_param: the last argument of the call is the upstream gradient.

    >>> from minispore import Tensor
    >>> float(GradOperation()(lambda x: x * x)(Tensor(3.0)))
    6.0
    """

    def __init__(self, get_all=False, get_by_list=False, sens_param=False):
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param

    def __call__(self, fn, weights=None):
        if self.get_by_list and weights is None:
            weights = fn.trainable_params()
        made: dict = {}

        def scaled(*args):
            *inputs, sens = args
            return _weighted(fn(*inputs), sens)

        def call(*args):
            inputs = len(args) - bool(self.sens_param)
            if inputs not in made:
                position = tuple(range(inputs)) if self.get_all else None if self.get_by_list else 0
                made[inputs] = grad(scaled if self.sens_param else fn, position, weights if self.get_by_list else None)
            return made[inputs](*args)
        return call


def _weighted(out, sens):
    """Σ out · sens: its gradient is that of out with the upstream gradient sens."""
    outs = out if isinstance(out, tuple) else (out,)
    senses = sens if isinstance(sens, tuple) else (sens,)
    if len(outs) != len(senses):
        raise ValueError(f"GradOperation: {len(outs)} outputs but sens has {len(senses)}; give one for each")
    total = 0
    for i, (o, s) in enumerate(zip(outs, senses, strict=True)):
        if s.shape != o.shape:
            raise ValueError(f"GradOperation: output {i} has shape {o.shape}, its sens has {s.shape}; they must agree")
        total = total + F.sum(o * s)
    return total


def _as_tensor(x):
    return Tensor(x) if hasattr(x, "__array_interface__") and not isinstance(x, Tensor) else x


def _detached(tree):
    """The same tensors, no longer tied to the tape."""
    leaves, skeleton = flatten(tree, is_tensor)
    return unflatten(skeleton, [Tensor(t) if isinstance(t, Parameter) else Tensor.from_numpy(t._data()) for t in leaves])


def _warn_of_vector(fn, leaves, weights):
    state = current()
    if weights is None or len(leaves) != 1 or leaves[0].size == 1 or state.rank:
        return
    warn(
        f"value_and_grad: the loss has shape {leaves[0].shape}, so the gradient is that of the sum of its "
        f"{leaves[0].size} values, not of their mean, and it can't be printed as one number. Use a loss with "
        "reduction='mean' (nn.SoftmaxCrossEntropyWithLogits has 'none' by default), or loss.mean()")
