"""Compile: trace a Python function once for each kind of arguments, and keep the program."""
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from minispore.common import random
from minispore.common.parameter import Parameter
from minispore.common.recorder import recording
from minispore.common.state import RankState, current
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.graph.execute import Program
from minispore.graph.ir import Graph
from minispore.graph.passes import simplify
from minispore.graph.trace import Tracer


def is_input(x) -> bool:
    """What becomes an input of the graph. Parameters don't: the graph reads and assigns them by themselves."""
    return isinstance(x, np.ndarray) or (isinstance(x, Tensor) and not isinstance(x, Parameter))


def layout_of(x):
    """The layout of a tensor that is a piece of a logical one, else None."""
    return x._layout if isinstance(x, Tensor) else None


class Compiled:
    """A function that runs as a compiled graph (what `ms.jit` and, in GRAPH_MODE, a Cell's call make).

    One program is kept for each combination of shapes, dtypes, other arguments and training flags of the cells it
    calls, and for each rank. One whose cells have changed since, a program of the past, is dropped.
    """

    def __init__(self, fn: Callable):
        self.fn = fn
        self.programs: WeakKeyDictionary[RankState, dict] = WeakKeyDictionary()

    def __call__(self, *args, **kwargs):
        leaves, skeleton = flatten((args, kwargs), is_input)
        compiler = current().compiler
        key = (_frozen(skeleton), tuple((t.shape, t.dtype, layout_of(t)) for t in leaves), compiler)
        variants = self.programs.setdefault(current(), {}).setdefault(key, [])
        for program, result in variants:       # noqa: B007
            if all(cell._stamp() == stamp for cell, stamp in program.graph.cells.items()) and program.fits():
                break
        else:
            variants[:] = [v for v in variants if all(cell._stamp()[1:] == stamp[1:] for cell, stamp in v[0].graph.cells.items())]
            graph, result = trace(self.fn, leaves, skeleton)
            program = compiler.program(simplify(graph), leaves) if compiler else (current().stand_in or Program)(simplify(graph))
            variants.append((program, result))
        outs = program.run(leaves)
        current().steps += program.fresh
        return unflatten(result, outs)


def trace(fn: Callable, leaves: list, skeleton) -> tuple[Graph, object]:
    """The graph of fn(*args, **kwargs), and the shape of what it returns."""
    tracer = Tracer()
    graph = tracer.graph
    for i, t in enumerate(leaves):
        graph.inputs.append(graph.value(layout_of(t).shape if layout_of(t) else t.shape, t.dtype, name=f"x{i}"))
    args, kwargs = unflatten(skeleton, list(map(Tensor._symbol, graph.inputs)))
    with recording(tracer), random.tracing():
        out = fn(*args, **kwargs)
    graph.cells = {c: c._stamp() for cell in graph.cells for _, c in cell.cells_and_names()}
    results, shape = flatten(out, is_tensor)
    graph.outputs = [tracer.value_of(t) for t in results]
    return graph, shape


def trace_call(fn: Callable, *args, **kwargs) -> Graph:
    """The traced, not yet simplified graph of one call; its `show()` prints it.

    >>> from minispore import Tensor
    >>> print(trace_call(lambda x: x * 2 + 1, Tensor([1.0, 2.0])).show())
    input     x0           float32[2]
    %2: float32[2] = Mul()(x0, 2.0)
    %4: float32[2] = Add()(%2, 1.0)
    return %4
    """
    leaves, skeleton = flatten((args, kwargs), is_input)
    return trace(fn, leaves, skeleton)[0]


def _frozen(x):
    """A hashable picture of an argument that isn't a tensor."""
    if isinstance(x, dict):
        return tuple((k, _frozen(v)) for k, v in x.items())
    if isinstance(x, (list, tuple)):
        return (type(x), *map(_frozen, x))
    try:
        hash(x)
    except TypeError:
        return _Itself(x)
    return (type(x), x)


class _Itself:
    """An argument that can't be hashed, equal to nothing but itself. It is kept, so that no other takes its id."""

    def __init__(self, x):
        self.x = x

    def __hash__(self):
        return id(self.x)

    def __eq__(self, other):
        return isinstance(other, _Itself) and self.x is other.x
