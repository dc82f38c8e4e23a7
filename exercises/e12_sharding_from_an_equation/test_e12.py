"""E12: what the sharding of an equation must be."""
import re
from itertools import product

import numpy as np

from minispore.grade import plain, points
from minispore.ops.rule import bind
from minispore.ops.strategy import Strategy
from minispore.parallel.legality import Check
from minispore.parallel.mesh import Mesh
from minispore.parallel.sharding import layouts

TAKEN_AWAY = ["minispore.ops.rule:bind", "minispore.parallel.legality:Check", "minispore.parallel.sharding:layouts",
              "minispore.parallel.simulate:compile"]

MATMUL = "mk,kn->mn"
SIZES = {"b": 2, "m": 4, "k": 6, "n": 8, "q": 2, "C": 4}
EQUATIONS = ("m->m", "mn->nm", "mn->m", "mn->", "mn,mn->mn", "mk,k->m", "m,n->mn", MATMUL, "mk,nk->mn", "km,kn->mn", "mC->mC",
             "mk,kC->mC", "bmk,bkn->bmn", "bmk,kn->bmn", "bqk,bmk->bqm")
PER_EQUATION = 60


def shapes_of(equation):
    return tuple(tuple(SIZES[c] for c in term) for term in equation.split("->")[0].split(","))


class Verdict(Check):
    """The library's check, without its search for a better strategy."""

    def nearest(self):
        return None


def of_the_library(equation, shapes, strategy, devices):
    """What the library says: (out, partial), or None if the strategy is illegal."""
    spaced = ",".join(" ".join(term) for term in equation.replace("->", ",").split(","))
    text = spaced[::-1].replace(",", ">-", 1)[::-1]
    rule, mesh = bind(text, shapes, [tuple(SIZES[c] for c in equation.split("->")[1])]), Mesh(devices)
    try:
        options = Verdict("", rule, shapes, Strategy(strategy), mesh).options(list(mesh.axes))
    except ValueError:
        return None
    (assignment, *_), outs = options, layouts(rule, options[0])[1]
    partial = sorted(f for f, axes in assignment.items() if rule.contracted(f) and axes)
    return tuple(mesh.count(axes) for axes in outs[0].dims), "".join(partial)


def cases():
    """(equation, shapes, strategy, devices, expected), the short equations first."""
    rng, out = np.random.default_rng(12), []
    for equation in EQUATIONS:
        shapes = shapes_of(equation)
        every = list(product(*(product((1, 2, 3, 4), repeat=len(shape)) for shape in shapes)))
        legal_looking = [s for s in every if all(n % c == 0 for shape, cs in zip(shapes, s, strict=True)
                                                 for n, c in zip(shape, cs, strict=True))]
        for some in (every, legal_looking):
            for i in rng.permutation(len(some))[:PER_EQUATION]:
                devices = (1, 2, 3, 4, 6, 8)[rng.integers(6)]
                out.append((equation, shapes, some[i], devices, of_the_library(equation, shapes, some[i], devices)))
    return out


CASES = cases()         # made now: while an answer runs, the library's rules are out of its reach


def told(answer, equation, shapes, strategy, devices):
    """The answer as (tuple of ints, text); an error says what is wrong with its form."""
    got = answer.sharding(equation, shapes, strategy, devices)
    assert type(got) is tuple and len(got) == 2, f"sharding should return (out, partial), it returned {got!r:.80}"
    out, partial = got
    assert type(partial) is str, f"partial should be a str of letters such as 'k' or '', it is {partial!r:.80}"
    out = plain(out)
    assert out.ndim == 1, f"out should be a tuple of counts, it is {got[0]!r:.80}"
    return tuple(int(n) for n in out), str(partial)


def expect(answer, equation, strategy, devices, expected):
    shapes = shapes_of(equation)
    got = told(answer, equation, shapes, strategy, devices)
    assert got == expected, (f"sharding({equation!r}, {shapes}, {strategy}, {devices}) should be {expected}, it is {got}")


def refused(answer, equation, shapes, strategy, devices, why):
    """The message with which an illegal strategy is refused."""
    try:
        got = answer.sharding(equation, shapes, strategy, devices)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"sharding({equation!r}, {shapes}, {strategy}, {devices}) should raise a ValueError: {why}; "
                         f"it returned {got!r:.80}")


@points(2, hint=1)
def test_a_split_free_letter_splits_the_output(answer):
    for strategy, devices, out in ((((1, 1), (1, 1)), 1, (1, 1)), (((2, 1), (1, 1)), 2, (2, 1)), (((1, 1), (1, 4)), 4, (1, 4)),
                                   (((2, 1), (1, 4)), 8, (2, 4)), (((2, 1), (1, 2)), 8, (2, 2))):
        expect(answer, MATMUL, strategy, devices, (out, ""))
    expect(answer, "mk,nk->mn", ((2, 1), (4, 1)), 8, ((2, 4), ""))


@points(2, hint=2)
def test_a_split_contracted_letter_leaves_a_partial_sum(answer):
    expect(answer, MATMUL, ((1, 2), (2, 1)), 2, ((1, 1), "k"))
    expect(answer, MATMUL, ((2, 3), (3, 1)), 6, ((2, 1), "k"))
    expect(answer, "mk,k->m", ((1, 2), (2,)), 2, ((1,), "k"))
    expect(answer, "mn->", ((2, 2),), 4, ((), "mn"))


@points(1, hint=2)
def test_the_pieces_put_together_are_the_whole(answer):
    rng = np.random.default_rng(0)
    for equation, strategy, devices in (("mk,kn->mn", ((2, 2), (2, 2)), 8), ("mn->m", ((2, 4),), 8),
                                        ("bmk,bkn->bmn", ((2, 1, 2), (2, 2, 2)), 8)):
        xs = [rng.integers(-4, 5, shape).astype(float) for shape in shapes_of(equation)]
        out, partial = told(answer, equation, shapes_of(equation), strategy, devices)
        got, whole = together(equation, xs, strategy, out, partial), np.einsum(equation, *xs)
        assert got.shape == whole.shape and np.array_equal(got, whole), (
            f"{equation} with {strategy}: cut {out} and summed over {partial!r}, the pieces do not give einsum's result: it "
            f"should begin with {whole.flat[0]}, it begins with {got.flat[0] if got.size else 'nothing'}")


def together(equation, xs, strategy, out, partial):
    """The output made of the ranks' pieces: those that differ in letters of `partial` are added, others stand side by side."""
    inputs, output = equation.split("->")
    count = {c: n for term, counts in zip(inputs.split(","), strategy, strict=True) for c, n in zip(term, counts, strict=True)}
    whole = np.zeros([SIZES[c] for c in output])
    for place in product(*map(range, count.values())):
        at = dict(zip(count, place, strict=True))
        cut = [x[tuple(slice(at[c] * n // count[c], (at[c] + 1) * n // count[c]) for c, n in zip(term, x.shape, strict=True))]
               for term, x in zip(inputs.split(","), xs, strict=True)]
        piece = np.einsum(equation, *cut)
        if tuple(s * n for s, n in zip(piece.shape, out, strict=False)) != whole.shape:
            return np.zeros(0)
        where = tuple(slice(at[c] * s, (at[c] + 1) * s) for c, s in zip(output, piece.shape, strict=True))
        first = all(at[c] == 0 for c in count if c in partial)
        whole[where] = piece if first else whole[where] + piece
    return whole


@points(2, hint=3)
def test_refuses_and_names_the_letter(answer):
    for equation, strategy, devices, letter, why in (
            (MATMUL, ((1, 2), (1, 1)), 2, "k", "k is split into 2 pieces in the first input and 1 in the second"),
            (MATMUL, ((1, 2), (3, 1)), 6, "k", "k is split into 2 pieces in the first input and 3 in the second"),
            (MATMUL, ((3, 1), (1, 1)), 3, "m", "m has 4 values, which can't be split into 3 equal pieces"),
            (MATMUL, ((1, 1), (1, 3)), 3, "n", "n has 8 values, which can't be split into 3 equal pieces"),
            ("mC->mC", ((1, 2),), 2, "C", "C is upper-case and must stay whole")):
        said = refused(answer, equation, shapes_of(equation), strategy, devices, why)
        assert re.search(rf"\b{letter}\b", said), (f"sharding({equation!r}, {shapes_of(equation)}, {strategy}, {devices}) is "
                                                   f"rightly refused; the message should name {letter}, it says {said!r:.120}")


@points(1, hint=4)
def test_counts_the_devices(answer):
    for strategy, devices, needed in ((((2, 1), (1, 4)), 4, 8), (((1, 3), (3, 1)), 4, 3), (((4, 1), (1, 1)), 6, 4)):
        refused(answer, MATMUL, shapes_of(MATMUL), strategy, devices, f"{needed} devices are needed, there are {devices}")
    expect(answer, MATMUL, ((1, 3), (3, 1)), 6, ((1, 1), "k"))


@points(2, hint=4)
def test_every_strategy_of_many_equations(answer):
    for equation, shapes, strategy, devices, expected in CASES:
        if expected is None:
            refused(answer, equation, shapes, strategy, devices, "the library refuses it")
            continue
        try:
            got = told(answer, equation, shapes, strategy, devices)
        except ValueError as error:
            got = f"refused: {error}"
        assert got == expected, f"sharding({equation!r}, {shapes}, {strategy}, {devices}) should be {expected}, it is {got}"


