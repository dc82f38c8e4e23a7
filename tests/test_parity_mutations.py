"""Mutation checks: what the parity tests are worth. Each breaks one thing that parity rests on, and it is noticed."""
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from parity import Traced, directed
from test_redistribution import all_layouts, check

from minispore import Tensor, ops
from minispore.ops import indexing
from minispore.ops.activation import ReLUGrad
from minispore.ops.random import Keep, Random
from minispore.parallel import collectives, complete, mesh, partition, redistribution
from minispore.parallel.mesh import Mesh

X, Y = (np.random.default_rng(i).permutation(np.linspace(-2, 2, 96)).reshape(12, 8) for i in (0, 1))
INDEX = np.random.default_rng(2).integers(0, 12, (8, 6))
MASK = Random((12, 8), Keep(0.5), np.dtype("float64"), ("test", 1))


def no_offset(dim, rule, pieces):
    found = slice_of(dim, rule, pieces)
    return found and (0, found[1])


slice_of, groups, moves, layouts = indexing._slice_of, mesh._groups, redistribution.moves, complete.layouts

# name: (what is patched, with what, the call that notices)
MUTATIONS = {
    "a rule: MatMul's, transposed": (
        (ops.MatMul, "rule", lambda self, x, w: "... k, k n -> ... n"), ops.MatMul(False, True), (X[:8], Y[:8])),
    "a rule: Gather's axis": (
        (ops.Gather, "rule", lambda self, x, i: "a b, i j -> i j b"), lambda x, i: ops.Gather(1)(x, i), (X[:8, :8], INDEX % 8)),
    "a rule: Softmax's axis split": ((ops.Softmax, "rule", lambda self, x: "a b -> a b"), ops.Softmax(), (X,)),
    "a reduction: the maximum summed": ((ops.ReduceMax, "reduction", "sum"), lambda x: ops.ReduceMax()(x, 0), (X,)),
    "a linearity: Tanh": ((ops.Tanh, "linear", ((0,),)), ops.Tanh(), (X,)),
    "a linearity: Add of one alone": ((ops.Add, "linear", ((0,), (1,))), ops.Add(), (X, Y)),
    "a linearity: Mul of both": ((ops.Mul, "linear", ((0, 1),)), ops.Mul(), (X, Y)),
    "a linearity: Div's divisor": ((ops.Div, "linear", ((0,), (1,))), ops.Div(), (X, Y * Y + 1)),
    "a linearity: Maximum": ((ops.Maximum, "linear", ((0, 1),)), ops.Maximum(), (X, Y + 0.01)),
    "a linearity: ReLUGrad's value": ((ReLUGrad, "linear", ((0,), (1,))), ReLUGrad(), (X, Y)),
    "an offset: Gather": ((indexing, "_slice_of", no_offset), lambda x, i: ops.Gather()(x, i), (X, INDEX)),
    "an offset: OneHot": (
        (indexing, "_slice_of", no_offset), lambda x, i: ops.OneHot()(i, 8, Tensor(1.5), Tensor(0.5)) * ops.sum(x), (X, INDEX)),
    "an offset: ScatterAdd": (
        (indexing, "_slice_of", no_offset), lambda d, i: ops.ScatterAdd(0, 12)(i, d), (X[:8, :6], INDEX)),
    "an offset: random numbers": ((Random, "local", lambda self, rule, pieces: replace(self, region=tuple(
        (0, n // (pieces[d[0]].count if d[0] in pieces else 1)) for d, n in zip(rule.outs[0], self.shape, strict=True)))),
        lambda x: x * MASK(), (X,)),
    "a divisor: ReduceMean's": (
        (ops.ReduceMean, "local", lambda self, rule, pieces: self), lambda x: ops.ReduceMean()(x, 0), (X,)),
    "the order of a group": ((mesh, "_groups", lambda m, axes: tuple(g[::-1] for g in groups(m, axes))), ops.Softmax(), (X,)),
    "a move: the kind of a maximum over two axes is lost after the first": (
        (redistribution, "moves", lambda *args: ((c, replace(m, dst=replace(m.dst, kind="sum"))) for c, m in moves(*args))),
        ops.Tanh(), (X,)),
    "a layout: no partial is a maximum": (
        (complete, "layouts", lambda rule, assignment, kind: layouts(rule, assignment)), ops.Tanh(), (X,)),
    "a gather along the wrong dim": (
        (collectives.AllGatherOver, "joint", lambda self, xs: [np.concatenate(xs, 1 - self.dim).reshape(
            collectives.AllGatherOver.infer(self, xs[0]).shape)] * len(xs)), ops.Softmax(), (X,)),
    "rows are not brought": ((partition, "cheapest", lambda *args: (0.0, ())), ops.Softmax(0), (X,)),
}


@pytest.fixture
def forgetful():
    """What is cached under a mutation must not outlive it."""
    forget()
    yield
    forget()


def forget():
    redistribution.route.cache_clear()
    redistribution.search.cache_clear()


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_noticed(name, monkeypatch, forgetful):
    (where, what, broken), fn, arrays = MUTATIONS[name]
    case = Traced(fn, list(arrays))
    assert directed(case, (4, 6), 3) > 10
    forget()
    monkeypatch.setattr(where, what, broken)
    with pytest.raises((AssertionError, ValueError, KeyError)):
        directed(case, (4, 6), 3)


@pytest.mark.parametrize("name", [n for n in MUTATIONS if n.startswith(("the order", "a move", "a gather"))])
def test_it_is_noticed_between_layouts_too(name, monkeypatch, forgetful):
    where, what, broken = MUTATIONS[name][0]
    monkeypatch.setattr(where, what, broken)
    some = [x for x in all_layouts(Mesh(4), 2, ("sum", "max"))]
    with pytest.raises((AssertionError, ValueError)):
        check(Mesh(4), (8, 12), product(some, some))
