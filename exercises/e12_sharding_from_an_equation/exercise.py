"""E12: what an equation says about splitting.

MatMul is `mk,kn->mn`: one letter for each dim. A strategy says into how many pieces each dim of each input is split, for
example ((1, 4), (4, 1)). Write `sharding(equation, shapes, strategy, devices)`:

    equation   "mk,kn->mn"            one letter a dim; a term may be empty (a scalar)
    shapes     ((8, 4), (4, 6))       one shape an input
    strategy   ((1, 4), (4, 1))       one count a dim of each input, as in shard()
    devices    4                      how many ranks there are

It returns (out, partial):

    out        (1, 1)                 the number of pieces of each dim of the output
    partial    "k"                    the letters over which results are still to be summed, in order of the alphabet

so `sharding("mk,kn->mn", ((8, 4), (4, 6)), ((1, 4), (4, 1)), 4)` is `((1, 1), "k")`: every rank gets a matrix of the whole
size, and the sum of the four is the product.

An illegal strategy raises a ValueError whose message names the letter: "k is split into 4 pieces in one input, 2 in another".
Illegal is
  - a letter split into different numbers of pieces in two inputs,
  - a count that does not divide the dim's size,
  - a split upper-case letter: it must stay whole (softmax over C is "mC->mC"),
  - a number of pieces, over all letters together, that does not divide `devices`. (No letter to name here.)

Graded: the output's split (2), partial sums (2), that the pieces put together are the whole (1), what is refused and why (3),
and every strategy of many equations, compared with the library (2).
"""
from math import prod


def sharding(equation, shapes, strategy, devices):
    """(pieces of each dim of the output, letters still to be summed); ValueError for an illegal strategy."""
    raise NotImplementedError("E12: write sharding(equation, shapes, strategy, devices), see above")
