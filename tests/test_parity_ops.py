"""Every op under every legal strategy, with whole and with partial inputs: values and gradients equal one device's."""
import os
from collections import Counter
from contextlib import contextmanager

import numpy as np
import op_cases
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from op_cases import CASES, values
from parity import Traced, cut, directed, partials, splits

from minispore import nn, ops
from minispore.ops.communication import Collective
from minispore.ops.primitive import Primitive
from minispore.ops.random import Keep, Random
from minispore.parallel.mesh import Mesh

DEVICES = (2, 3, 4, 6, 8)
EVERY = int(os.environ.get("PARITY_EVERY", 8))     # `make test-all`: 5; 1: all strategies × all partial inputs, some 27,000 cases
DONE = Counter()


@contextmanager
def sizes_that_split():
    """op_cases with dims that many numbers of devices divide."""
    large = {"SIZES": st.sampled_from([12, 8, 6]), "FEW": st.sampled_from([4, 6]), "KERNEL": st.sampled_from([3, 2]),
             "SHAPES": st.sampled_from([(12, 8), (4, 6, 8), (24,), (6, 1, 8)]),
             "LONG": st.sampled_from([(12, 8), (8, 12), (4, 6, 8), (24,)])}
    usual = {name: getattr(op_cases, name) for name in large}
    vars(op_cases).update(large)
    try:
        yield
    finally:
        vars(op_cases).update(usual)


# ---- ops without a gradient ---------------------------------------------------------------------------

def indices(draw, shape, low, high):
    return np.random.default_rng(draw(st.integers(0, 99))).integers(low, high, shape)


def whole_numbers(fn):
    return lambda draw: (fn, [indices(draw, (8, 6), 0, 12)])


def on_floats(fn, many=1):
    return lambda draw: (fn, [values(draw, (12, 8)) for _ in range(many)])


def comparing(fn):
    """Of equal and unequal values, one of them broadcast."""
    return lambda draw: (fn, [indices(draw, s, 0, 3).astype(float) for s in ((12, 8), (1, 8))])


def deciding(fn, many=2):
    return lambda draw: (lambda *xs: fn(*(x > 0 for x in xs)), [indices(draw, (12, 8), 0, 2) for _ in range(many)])


VALUES = {
    **{name: comparing(getattr(ops, name)()) for name in ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")},
    "FloorDiv": lambda draw: (ops.FloorDiv(), [indices(draw, (12, 8), -9, 9).astype(float), indices(draw, (8,), 1, 5) * 1.0]),
    **{name: deciding(getattr(ops, name)()) for name in ("LogicalAnd", "LogicalOr", "LogicalXor")},
    "LogicalNot": deciding(ops.LogicalNot(), 1),
    **{name: on_floats(getattr(ops, name)()) for name in ("IsNan", "IsInf", "IsFinite", "Sign", "Floor", "Ceil", "Round",
                                                          "Trunc", "ZerosLike", "OnesLike", "StopGradient")},
    "Argmax": on_floats(ops.Argmax(1)), "Argmin": on_floats(ops.Argmin(0)), "ArgSort": on_floats(ops.ArgSort(0, True)),
    "ReduceAny": lambda draw: (lambda x: ops.ReduceAny()(x > 0, 1), [indices(draw, (8, 12), 0, 2)]),
    "ReduceAll": lambda draw: (lambda x: ops.ReduceAll()(x > 0, 1), [indices(draw, (8, 12), 0, 9)]),
    "OneHot": whole_numbers(lambda x: ops.OneHot()(x, 12, 2.0, 0.5)),
    "OneHot_first": whole_numbers(lambda x: ops.OneHot(0)(x, 24, 1.0, 0.0)),
}


def dropout(draw):
    """With its numbers drawn in the program, each at its place in the logical tensor."""
    mask = Random((12, 8), Keep(0.5), np.dtype("float64"), ("test", 1))
    return lambda x: x * mask(), [values(draw, (12, 8))]


class Squared(nn.Cell):
    """With a gradient of its own."""

    def construct(self, x):
        return x * x

    def bprop(self, x, out, dout):
        return (dout * x * 2.0,)


EVERYTHING = {**CASES, "Random": dropout, "CustomGradient": lambda draw: (Squared(), [values(draw, (12, 8))]), **VALUES}


def traced(name, draw):
    with sizes_that_split():
        fn, arrays = EVERYTHING[name](draw)
    return Traced(fn, arrays, differentiable=name not in VALUES)


@pytest.mark.parametrize("name", EVERYTHING)
@settings(max_examples=1, phases=[Phase.generate])
@given(st.data())
def test_every_strategy_with_whole_and_partial_inputs(name, data):
    """All strategies with whole inputs; with partial ones every few, in turn, so that each kind of input meets many."""
    first = traced(name, data.draw)
    DONE["names"] += 1
    DONE["cases"] += directed(first, DEVICES if len(first.forward) < 4 else (4, 6), EVERY)


@settings(max_examples=400)
@given(st.data())
def test_drawn_ops(data):
    """Any op of any shapes, some of its nodes split in any way, any inputs partial, on 1 to 8 ranks; on 24 it compiles."""
    def pick(xs):
        return data.draw(st.sampled_from(list(xs)))

    name, mesh = pick(EVERYTHING), Mesh(pick([*range(1, 9), 24]))
    case = traced(name, data.draw)
    case = Traced(case.fn, case.arrays, pick(partials(case.arrays)), case.differentiable)
    forced = case.reduced_over(mesh)
    if forced is None:
        return
    for node in case.graph.nodes:               # those of the gradient too
        if node not in forced and data.draw(st.booleans()):
            forced[node] = pick(splits(case.rules[node], mesh))
    switches = {switch: data.draw(st.booleans()) for switch in ("lazy", "settle", "hints", "thrift")}
    if mesh.n == 24:
        cut(case.graph, case.rules, mesh, forced=forced, **switches).for_rank(pick(range(24)))
    else:
        case.assert_parity(mesh, forced, **switches)


def test_enough_were_run():
    """At least 2,000 (if this whole file was run in one process)."""
    print(DONE)
    assert DONE["names"] < len(EVERYTHING) or DONE["cases"] >= 2000


# ---- is every op here? ----------------------------------------------------------------------------------

# Ops that aren't run above, and why.
ELSEWHERE = {
    "Assign": "never a node: the new value becomes a result of the program, as in every update of test_parity_networks",
    "Pin": "a composite with a strategy puts it around itself: test_layout_messages",
    "Print": "its rule is Depend's, which is run; on slices each rank prints its piece, which is no value to compare",
}


def rule_ops(cls=Primitive):
    """The classes of minispore.ops that take part in logical programs; bases of others have no public name."""
    for sub in cls.__subclasses__():
        yield from rule_ops(sub)
        if sub.__module__.startswith("minispore.ops.") and not issubclass(sub, Collective) and \
                (getattr(ops, sub.__name__, None) is sub or not sub.__subclasses__()):
            yield sub


def test_every_op_with_a_rule_is_run():
    run = set()

    @settings(max_examples=3, phases=[Phase.generate])
    @given(st.data())
    def trace(name, data):
        run.update(type(node.op).__name__ for node in traced(name, data.draw).graph.nodes)
    for name in EVERYTHING:
        trace(name)
    assert {c.__name__ for c in rule_ops()} - run == set(ELSEWHERE)
