"""Tasks of watch.py: for each op, what the ranks' arrays hold in the beginning, and what they should hold in the end, in symbols
(symbolic_link.py). One function an op, of the number of ranks, the length and the root."""
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minispore.communication.algorithms.link import split
from minispore.lab.symbolic_link import accumulate, unit


@dataclass(frozen=True)
class Part:
    """One array of each rank. All are object arrays (ranks, length). begin: the symbols; home: which element of the whole belongs
    in a place (None: any); expected: the symbol that should be there in the end (None: no matter which)."""
    begin: np.ndarray
    home: np.ndarray
    expected: np.ndarray


@dataclass(frozen=True)
class Task:
    """parts: the arrays of a rank by name, which lie one behind the other; arguments: makes of them what an algorithm gets behind
    its link."""
    parts: dict[str, Part]
    arguments: Callable[..., tuple]

    @property
    def sections(self) -> tuple[tuple[str, int, int], ...]:
        """(name, from, to) of each part."""
        ends = np.cumsum([0, *(part.begin.shape[1] for part in self.parts.values())]).tolist()
        return tuple(zip(self.parts, ends, ends[1:], strict=False))


def table(ranks: int, length: int, of: Callable[[int, int], object]) -> np.ndarray:
    """An object array (ranks, length) of of(rank, place)."""
    out = np.empty((ranks, length), object)
    for r in range(ranks):
        for i in range(length):
            out[r, i] = of(r, i)
    return out


def contributions(p: int, n: int) -> np.ndarray:
    """Each rank's own numbers."""
    return table(p, n, lambda r, i: unit(r, i, n))


def places(p: int, n: int) -> np.ndarray:
    """Place i is for element i."""
    return table(p, n, lambda r, i: i)


def in_own_chunk(p: int, n: int) -> np.ndarray:
    """bool (p, n): whether an element is in the rank's chunk."""
    owner = np.repeat(np.arange(p), list(map(len, split(np.empty(n), p))))
    return owner == np.arange(p)[:, None]


def only(root: int, p: int) -> np.ndarray:
    """bool (p, 1): whether a rank is the root."""
    return np.arange(p)[:, None] == root


def on_all(row: np.ndarray, p: int) -> np.ndarray:
    """The same row on each rank."""
    return np.tile(row, (p, 1))


def one_array(begin: np.ndarray, expected: np.ndarray, arguments: Callable[[np.ndarray], tuple]) -> Task:
    return Task({"": Part(begin, places(*begin.shape), expected)}, arguments)


# ---- one array a rank ----------------------------------------------------------------------------------

def all_reduce(p: int, n: int, root: int) -> Task:
    mine = contributions(p, n)
    return one_array(mine, on_all(mine.sum(0), p), lambda x: (x, accumulate))


def reduce_scatter(p: int, n: int, root: int) -> Task:
    mine = contributions(p, n)
    return one_array(mine, np.where(in_own_chunk(p, n), mine.sum(0), None), lambda x: (split(x, p), accumulate))


def all_gather(p: int, n: int, root: int) -> Task:
    begin = np.where(in_own_chunk(p, n), contributions(p, n), 0)
    return one_array(begin, on_all(begin.sum(0), p), lambda x: (split(x, p),))


def broadcast(p: int, n: int, root: int) -> Task:
    mine = contributions(p, n)
    return one_array(np.where(only(root, p), mine, 0), on_all(mine[root], p), lambda x: (x, root))


def reduce(p: int, n: int, root: int) -> Task:
    mine = contributions(p, n)
    return one_array(mine, np.where(only(root, p), mine.sum(0), None), lambda x: (x, root, accumulate))


def barrier(p: int, n: int, root: int) -> Task:
    return Task({"": Part(*(table(p, 0, unit) for _ in range(3)))}, lambda nothing: ())


# ---- two arrays a rank ---------------------------------------------------------------------------------

def equal_parts(p: int, n: int, what: str) -> int:
    """The length of each of p parts of n elements. ValueError if they can't be of one length."""
    if n % p:
        raise ValueError(f"watch: {what} takes parts of one length; {n} elements can't be dealt out evenly to {p} ranks. Take a "
                         f"length of {max(n // p, 1) * p} or {(n // p + 1) * p}")
    return n // p


def no_matter_what(p: int, n: int) -> np.ndarray:
    return table(p, n, lambda r, i: None)


def gather(p: int, n: int, root: int) -> Task:
    """Rank r's x, of k elements, becomes chunk r on the root."""
    k = equal_parts(p, n, "Gather")
    x = Part(table(p, k, lambda r, i: unit(r, i, n)), places(p, k), no_matter_what(p, k))
    there = only(root, p)
    chunks = Part(table(p, n, lambda r, i: 0), np.where(there, table(p, n, lambda r, i: i % k), None),
                  np.where(there, table(p, n, lambda r, i: unit(i // k, i % k, n)), None))
    return Task({"x": x, "chunks": chunks}, lambda x, chunks: (x, split(chunks, p), root))


def scatter(p: int, n: int, root: int) -> Task:
    """The root's chunk r becomes rank r's x, of k elements."""
    k = equal_parts(p, n, "Scatter")
    chunks = Part(np.where(only(root, p), contributions(p, n), 0), places(p, n), no_matter_what(p, n))
    x = Part(table(p, k, lambda r, i: 0), table(p, k, lambda r, i: r * k + i), table(p, k, lambda r, i: unit(root, r * k + i, n)))
    return Task({"chunks": chunks, "x": x}, lambda chunks, x: (split(chunks, p), x, root))


def all_to_all(p: int, n: int, root: int) -> Task:
    """Rank r's chunk s becomes rank s's chunk r."""
    k = equal_parts(p, n, "AlltoAll")
    outgoing = Part(contributions(p, n), places(p, n), no_matter_what(p, n))
    incoming = Part(table(p, n, lambda r, i: 0), table(p, n, lambda r, i: r * k + i % k),
                    table(p, n, lambda r, i: unit(i // k, r * k + i % k, n)))
    return Task({"outgoing": outgoing, "incoming": incoming}, lambda outgoing, incoming: (split(outgoing, p), split(incoming, p)))


TASKS = {"AllReduce": all_reduce, "ReduceScatter": reduce_scatter, "AllGather": all_gather, "Broadcast": broadcast,
         "Reduce": reduce, "AlltoAll": all_to_all, "Gather": gather, "Scatter": scatter, "Barrier": barrier}
