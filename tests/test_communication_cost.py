"""Predicted costs: the formulas against records of real runs, crossovers, and what is fitted to times."""
from math import inf, isclose

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from minispore.communication import communicator, init
from minispore.communication.algorithms import ALGORITHMS
from minispore.communication.selection import algorithm
from minispore.lab import cost, ranks, watch

BY = {op: sorted(by for o, by in cost.TERMS if o == op) for op, _ in cost.TERMS}
SECONDS = st.floats(1e-9, 1e-2)
P = st.integers(1, 64)


def call(op, x):
    c = communicator()
    rooted = {"Broadcast": (x, 0), "Reduce": (x, 0), "Barrier": ()}.get(op, (x,))
    name = {"AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter", "AllGather": "all_gather", "AlltoAll": "all_to_all"}
    return getattr(c, name.get(op, op.lower()))(*rooted).wait()


def recorded(op, by, p, elements):
    """(messages, bytes) that each rank sent; the whole array has `elements` float64 values."""
    def program():
        init()
        call(op, np.ones(elements // p if op == "AllGather" else elements))
    with algorithm(by):
        job = ranks(p).run(program)
    return [(len(r.messages()), sum(m.bytes for m in r.messages())) for r in job.records]


@pytest.mark.parametrize("op, by", [key for key in cost.TERMS if key[1] in ("ring", "pairwise")])
@pytest.mark.parametrize("p", [1, 3, 4, 7])
def test_rings_send_what_the_formula_says(op, by, p):
    elements = 12 * p
    messages, share = cost.TERMS[op, by](p)
    assert recorded(op, by, p, elements) == [(messages, pytest.approx(share * elements * 8))] * p


@pytest.mark.parametrize("by", ["recursive_doubling", "rabenseifner"])
@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_recursions_on_powers_of_two_send_what_the_formula_says(by, p):
    messages, share = cost.TERMS["AllReduce", by](p)
    assert recorded("AllReduce", by, p, 16) == [(messages, share * 128)] * p


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_trees_send_a_whole_array_a_message(p):
    for op, least in (("Broadcast", 0), ("Reduce", 0), ("AllReduce", 2)):
        sent = recorded(op, "tree", p, 4)
        assert sum(n for n, _ in sent) == max(least, 1) * (p - 1) and all(size == 32 * n for n, size in sent)


@settings(max_examples=30)
@given(st.sampled_from(list(cost.TERMS)), st.integers(1, 10))
def test_a_watched_runs_steps_and_longest_messages_are_the_formulas(key, p):
    op, by = key
    messages, share = cost.TERMS[key](p)
    watched = watch(ALGORITHMS[op][by], p, 8 * p)
    assert watched.steps == messages
    longest = [max(m.count for m in frame.messages) for frame in watched.frames[:-1]]
    assert op == "Barrier" or sum(longest) == pytest.approx(share * 8 * p)


@given(st.sampled_from(list(cost.TERMS)), P, st.integers(0, 1 << 30), SECONDS, SECONDS)
def test_costs_grow_with_bytes_and_add_up(key, p, n, alpha, beta):
    op, by = key

    def cost_of(n, alpha, beta):
        return cost.seconds(by, op, ranks=p, bytes=n, alpha=alpha, beta=beta)
    assert cost_of(n, alpha, beta) <= cost_of(n + 1, alpha, beta)
    assert isclose(cost_of(n, alpha, beta), cost_of(n, alpha, 0) + cost_of(n, 0, beta))
    assert p > 1 or cost_of(n, alpha, beta) == 0


def test_bytes_may_be_an_array():
    assert cost.seconds("ring", ranks=4, bytes=np.array([0, 8]), alpha=1, beta=0.5).tolist() == [6, 12]


@given(st.sampled_from(list(BY)), st.data(), P, SECONDS, SECONDS)
def test_the_first_is_faster_below_the_crossover_and_not_above(op, data, p, alpha, beta):
    first, second = (data.draw(st.sampled_from(BY[op])) for _ in range(2))
    (a, b), (c, d) = cost.TERMS[op, first](p), cost.TERMS[op, second](p)
    assume(not (c < a and b < d))

    def faster(n):
        x, y = (cost.seconds(by, op, ranks=p, bytes=n, alpha=alpha, beta=beta) for by in (first, second))
        return x < y and not isclose(x, y, rel_tol=1e-9)
    at = cost.crossover(first, second, op, ranks=p, alpha=alpha, beta=beta)
    assert at >= 0
    if at == 0:
        assert not any(faster(n) for n in (1, 1e3, 1e9, 1e15))
    elif at == inf:
        assert faster(1e15) or faster(1)
    else:
        assert faster(at * 0.9) and not faster(at * 1.1)


def test_exchanged_algorithms_are_told():
    with pytest.raises(ValueError, match="ring takes more messages than tree and sends fewer bytes; exchange them"):
        cost.crossover("ring", "tree", ranks=4, alpha=1.0, beta=0.5)
    assert cost.crossover("tree", "ring", ranks=2, alpha=1.0, beta=0.5) == 0
    assert cost.crossover("tree", "ring", ranks=4, alpha=1.0, beta=0.0) == inf


@settings(max_examples=50)
@given(st.floats(1e-7, 1e-3), st.floats(1e-11, 1e-7), st.lists(st.integers(1, 1 << 26), min_size=2, max_size=8, unique=True))
def test_what_was_put_in_is_fitted(alpha, beta, sizes):
    assume(max(sizes) > 2 * min(sizes))
    times = [alpha + beta * n for n in sizes]
    fitted = cost.fit(sizes, times)
    assert all(isclose(fitted[0] + fitted[1] * n, t, rel_tol=1e-6) for n, t in zip(sizes, times, strict=True))


@given(st.lists(st.tuples(st.integers(0, 1 << 26), st.floats(1e-7, 1)), min_size=2, max_size=8, unique_by=lambda pair: pair[0]))
def test_fitted_seconds_are_never_below_0_and_no_other_fits_better(measured):
    n, t = np.array(measured).T
    alpha, beta = cost.fit(n, t)

    def error(alpha, beta):
        return (((alpha + beta * n) / t - 1) ** 2).sum()
    assert alpha >= 0 and beta >= 0
    for a, b in ((1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99)):
        assert error(alpha, beta) <= error(alpha * a, beta * b) * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("ask", [lambda **o: cost.seconds("ring", bytes=8, **o), lambda **o: cost.crossover("tree", "ring", **o)])
@pytest.mark.parametrize("wrong, says", [
    (dict(ranks=0), "ranks=0 must be a whole number, 1 or more"), (dict(ranks=2.0), "ranks=2.0"),
    (dict(alpha=-1.0), "alpha=-1.0 and beta=0.5 are seconds; give 0 or more"), (dict(beta=-1), "beta=-1 are seconds"),
    (dict(op="Gather"), "no formula for Gather by '(ring|tree)'.*There are: AllReduce by ring, "),
    (dict(op="ring"), "no formula for ring")])
def test_what_has_no_cost_is_told(ask, wrong, says):
    with pytest.raises(ValueError, match=says):
        ask(**{"ranks": 4, "alpha": 1.0, "beta": 0.5, **wrong})


@pytest.mark.parametrize("sizes, times", [([], []), ([1], [1.0]), ([5, 5], [1.0, 2.0]), ([1, 2], [1.0]), ([1, 2], [0.0, 1.0]),
                                          ([1, 2], [np.nan, 1.0]), ([-1, 2], [1.0, 1.0]), ([[1, 2]], [[1.0, 1.0]])])
def test_what_cannot_be_fitted_is_told(sizes, times):
    with pytest.raises(ValueError, match="give two sizes at least, each with a time above 0"):
        cost.fit(sizes, times)
