"""Collectives in memory that the ranks of one node share (room.py): no messages; a table says who takes what from whose array.

An array is cut into segments. A Take is: what the arrays of some ranks have as segment `segment`, reduced in the order of the
ranks, becomes segment `to` of the results of some ranks. A collective is a list of takes for each rank, in two forms:

    direct   every rank reaches all arrays. Meet, take, meet again: 2·α, and no byte is copied but into a result.
    staged   it reaches only what the others show, so long arrays go stripe by stripe, α each: show, meet, take. Few bytes are
             one stripe.

The loops that carry this out are in device/kernels/shared.py. Cost: α a meeting; γ a byte that this rank reads or writes; n bytes
a rank's array, p ranks. Direct AllReduce: 2·α + 2·n·γ whatever p; AllGather, Broadcast, …: see DIRECT, row by row.
"""
from functools import lru_cache
from typing import NamedTuple

import numpy as np

COLUMNS = 16                    # of a plan, as a row of the record has
LINE = 64                       # bytes of a cache line, which two ranks had better not write both
FEW = 1 << 14                   # bytes of X up to which one meeting is enough
WORTH = 1 << 18                 # bytes from which on a new array had better lie in a heap: there it takes longer to make
X, OUT = 0, 1                   # the two arrays of a rank


class Take(NamedTuple):
    """Ranks first … last-1: their segment, reduced, becomes segment `to` of ranks to_first … to_last-1."""
    first: int
    last: int
    segment: int
    to_first: int
    to_last: int
    to: int


class Round(NamedTuple):
    """Of `array` (X or OUT), cut into segments of `length`, this rank shows `shown` from `first` on, of `abreast` that somebody
    shows at most; then it takes."""
    array: int
    length: int
    abreast: int
    first: int
    shown: int
    takes: list[Take]


def direct(op: str, me: int, p: int, root: int) -> list[Take]:
    """What rank `me` of p does where it reaches all arrays. Where all need the same, each makes its share of it for all."""
    everyone, own, the_root = (0, p), (me, me + 1), (root, root + 1)
    return {"AllReduce": [Take(*everyone, me, *everyone, me)],
            "ReduceScatter": [Take(*everyone, me, *own, 0)],
            "AllGather": [Take(*own, 0, *everyone, me)],
            "Broadcast": [Take(*the_root, me, *everyone, me)],
            "Reduce": [Take(*everyone, me, *the_root, me)],
            "AlltoAll": [Take(s, s + 1, me, *own, s) for s in range(p)],
            "Gather": [Take(*own, 0, *the_root, me)],
            "Scatter": [Take(*the_root, me, *own, 0)],
            "Barrier": []}[op]


def staged(op: str, me: int, p: int, root: int, count: int, part: int, few: bool) -> list[Round]:
    """The same where a rank reaches but what the others show. count: elements of X; part: of one of its p segments."""
    everyone, own, the_root = (0, p), (me, me + 1), (root, root + 1)
    from_each = [Take(s, s + 1, 0, *own, s) for s in range(p)]
    whole = [Take(*everyone, 0, *own, 0)]
    at_root, of_root = me == root, int(me == root)
    share = Round(X, part, p, 0, p, [Take(*everyone, me, *own, me)])            # reduce this rank's share of the array, and
    shares = Round(OUT, part, 1, me, 1, [Take(s, s + 1, s, *own, s) for s in range(p)])         # gather everybody's
    return {"AllReduce": [Round(X, count, 1, 0, 1, whole)] if few else [share, shares],
            "ReduceScatter": [Round(X, part, p, 0, p, [Take(*everyone, me, *own, 0)])],
            "AllGather": [Round(X, count, 1, 0, 1, from_each)],
            "Broadcast": [Round(X, count, 1, 0, of_root, [Take(*the_root, 0, *own, 0)])],
            "Reduce": [Round(X, count, 1, 0, 1, whole if at_root else [])] if few else
                      [share, shares if at_root else shares._replace(takes=[])],
            "AlltoAll": [Round(X, part, p, 0, p, [Take(s, s + 1, me, *own, s) for s in range(p)])],
            "Gather": [Round(X, count, 1, 0, 1, from_each if at_root else [])],
            "Scatter": [Round(X, part, p, 0, p * of_root, [Take(*the_root, me, *own, 0)])],
            "Barrier": []}[op]


def reached(op: str, p: int, root: int) -> tuple[int, int, int, int]:
    """Which ranks' X (from, to) and whose OUT (from, to) others read and write when they go about it directly."""
    takes = [(r, take) for r in range(p) for take in direct(op, r, p, root)]
    read = {s for r, t in takes for s in range(t.first, t.last) if s != r}
    written = {d for r, t in takes for d in range(t.to_first, t.to_last) if d != r}
    return (*_range(read), *_range(written))


def _range(places: set[int]) -> tuple[int, int]:
    return (min(places), max(places) + 1) if places else (0, 0)


@lru_cache(maxsize=4096)
def plan(op: str, me: int, p: int, root: int, count: int, width: int) -> np.ndarray:
    """All that the kernel must know of a collective on arrays of `count` elements of `width` bytes. int64 (rows, COLUMNS).

    Row 0 is left for the event of the record; row 1: few, number of direct takes, their segments' length, `reached`, whether
    X may be put into OUT beforehand, number of rounds. Then the direct takes; then, for each round, a row (array, length,
    abreast, first, shown, number of takes) and its takes.
    """
    few, exact = count * width <= FEW, op in ("ReduceScatter", "AlltoAll", "Scatter")
    part = count // p if exact else _up(-(-count // p), LINE // width)
    takes, length = direct(op, me, p, root), count if op in ("AllGather", "Gather") else part
    rounds = staged(op, me, p, root, count, part, few)
    rows = [(), (few, len(takes), length, *reached(op, p, root), op in ("AllReduce", "Broadcast"), len(rounds)), *takes]
    for *head, round_takes in rounds:
        rows += [(*head, len(round_takes)), *round_takes]
    table = np.zeros((len(rows), COLUMNS), np.int64)
    for row, values in zip(table, rows, strict=True):
        row[:len(values)] = values
    return table


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
