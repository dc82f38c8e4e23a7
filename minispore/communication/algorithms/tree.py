"""Trees: in every round the ranks that are done double, or those that aren't yet halve. ⌈log₂ p⌉ rounds."""
from collections.abc import Iterator

import numpy as np

from minispore.communication.algorithms.link import Accumulate, Steps, split, unpack
from minispore.communication.algorithms.ring import ring_all_gather, ring_reduce_scatter


def tree_broadcast(link, x: np.ndarray, root: int) -> Steps:
    """x becomes root's x: the ranks that have it double in every round. Cost ⌈log₂ p⌉·(α + n·β)."""
    p, me = link.size, (link.rank - root) % link.size          # places in the tree are counted from the root
    reach = 1
    while reach < p:
        if reach <= me < 2 * reach:
            yield [link.receive(x, (me - reach + root) % p)]
        elif me < reach and me + reach < p:
            yield [link.send(x, (me + reach + root) % p)]
        reach *= 2


def tree_reduce(link, x: np.ndarray, root: int, accumulate: Accumulate) -> Steps:
    """root's x becomes the reduction; the broadcast tree, run backwards. Cost ⌈log₂ p⌉·(α + n·β)."""
    p, me = link.size, (link.rank - root) % link.size
    reach = 1 << (p - 1).bit_length() >> 1 if p > 1 else 0
    arrived = np.empty_like(x)
    while reach:
        if reach <= me < 2 * reach:
            yield [link.send(x, (me - reach + root) % p)]
        elif me < reach and me + reach < p:
            yield [link.receive(arrived, (me + reach + root) % p)]
            accumulate(x, arrived)
        reach //= 2


def tree_all_reduce(link, x: np.ndarray, accumulate: Accumulate) -> Steps:
    """Reduce to place 0, then broadcast: simple, and place 0 carries most. Cost 2·⌈log₂ p⌉·(α + n·β)."""
    yield from tree_reduce(link, x, 0, accumulate)
    yield from tree_broadcast(link, x, 0)


def tree_barrier(link) -> Steps:
    """Place 0 hears of all, then tells all. Cost 2·⌈log₂ p⌉·α."""
    yield from tree_all_reduce(link, np.zeros(1, np.uint8), lambda dst, src: None)


# ---- trees in which each rank has a part of the array ------------------------------------------------

def halvings(rank: int, size: int) -> Iterator[tuple[int, int, int]]:
    """The cuts (low, middle, high) of 0 … size-1 in which the rank is low or middle, from the widest on.

    >>> list(halvings(3, 6))
    [(0, 3, 6), (3, 5, 6), (3, 4, 5)]
    """
    low, high = 0, size
    while high - low > 1:
        middle = (low + high + 1) // 2
        if rank in (low, middle):
            yield low, middle, high
        low, high = (low, middle) if rank < middle else (middle, high)


def scatter_parts(link, x: np.ndarray, bounds: list[int]) -> Steps:
    """Place i gets x[bounds[i]:bounds[i + 1]] from place 0; beside it, what it passed on. ⌈log₂ p⌉·α + (p-1)/p·n·β."""
    for low, middle, high in halvings(link.rank, link.size):
        part = x[bounds[middle]:bounds[high]]
        yield [link.send(part, middle) if link.rank == low else link.receive(part, low)]


def gather_parts(link, x: np.ndarray, bounds: list[int]) -> Steps:
    """The same backwards: place 0 gets all parts."""
    for low, middle, high in reversed(list(halvings(link.rank, link.size))):
        part = x[bounds[middle]:bounds[high]]
        yield [link.receive(part, middle) if link.rank == low else link.send(part, low)]


def from_root(link, root: int):
    """The link with its places counted from the root."""
    return link.within([(root + i) % link.size for i in range(link.size)])


def bounds_of(parts: list[np.ndarray]) -> list[int]:
    """Where each part begins and ends in the array they make up."""
    return np.cumsum([0, *map(len, parts)]).tolist()


def tree_scatter(link, chunks: list[np.ndarray], x: np.ndarray, root: int) -> Steps:
    """x becomes root's chunks[rank]; all chunks are of one length. Each rank passes on what is for its half.

    Cost ⌈log₂ p⌉·α + (p-1)/p·n·β, n bytes in all (binomial scatter; here a tree of halves, for any p).
    """
    p, k, order = link.size, len(x), from_root(link, root)
    whole = np.empty(p * k, x.dtype)           # of which a rank but the root touches its own subtree's part alone
    if order.rank == 0:
        np.concatenate([chunks[place] for place in order.places], out=whole)
    yield from scatter_parts(order, whole, [i * k for i in range(p + 1)])
    x[...] = whole[order.rank * k:(order.rank + 1) * k]


def tree_gather(link, x: np.ndarray, chunks: list[np.ndarray], root: int) -> Steps:
    """root's chunks[s] becomes rank s's x, all of one length. Cost ⌈log₂ p⌉·α + (p-1)/p·n·β, n bytes in all."""
    p, k, order = link.size, len(x), from_root(link, root)
    whole = np.empty(p * k, x.dtype)
    whole[order.rank * k:(order.rank + 1) * k] = x
    yield from gather_parts(order, whole, [i * k for i in range(p + 1)])
    if order.rank == 0:
        unpack(whole, [chunks[place] for place in order.places])


def van_de_geijn_broadcast(link, x: np.ndarray, root: int) -> Steps:
    """x becomes root's x: the root deals out parts, and a ring gathers them everywhere. For large arrays.

    Cost (⌈log₂ p⌉ + p-1)·α + 2·(p-1)/p·n·β (Barnett, Shuler, van de Geijn and others, 1994).
    """
    order, parts = from_root(link, root), split(x, link.size)
    yield from scatter_parts(order, x, bounds_of(parts))
    yield from ring_all_gather(order, parts)


def rabenseifner_reduce(link, x: np.ndarray, root: int, accumulate: Accumulate) -> Steps:
    """root's x becomes the reduction: reduce-scatter, then gather. Van de Geijn's broadcast backwards, for large arrays.

    Cost (p-1 + ⌈log₂ p⌉)·α + 2·(p-1)/p·n·β (Rabenseifner, 1997, with a ring for the first half).
    """
    order, parts = from_root(link, root), split(x, link.size)
    yield from ring_reduce_scatter(order, parts, accumulate)
    yield from gather_parts(order, x, bounds_of(parts))
