"""Collectives over messages, each written once against send and receive.

An algorithm is a generator: it posts messages on its `link`, yields them, and goes on when they have arrived. So it
can be waited for, polled while other work is done, or watched step by step; threads and MPI run the same code.

    link.rank, link.size            this rank's place in the group, and the group's size
    link.send(array, to)            post a message; the array mustn't change before it is complete
    link.receive(array, source)     post a receive into the array

Costs are in the α-β model: α seconds a message, β seconds a byte; p ranks, n bytes (Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", 2005).
"""
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

Steps = Iterator[list]
Accumulate = Callable[[np.ndarray, np.ndarray], None]      # (dst, src): dst = dst op src


def split(x: np.ndarray, parts: int) -> list[np.ndarray]:
    """Consecutive views of a flat array, as equal as can be; some are empty when it is shorter than `parts`."""
    bounds = [len(x) * i // parts for i in range(parts + 1)]
    return [x[a:b] for a, b in pairwise(bounds)]


def ring_reduce_scatter(link, chunks: list[np.ndarray], accumulate: Accumulate) -> Steps:
    """chunks[rank] becomes the reduction of that chunk over all ranks; the other chunks are used up.

    Each chunk travels once round the ring and grows at every stop. Cost (p-1)·α + (p-1)/p·n·β.
    """
    p, right, left = link.size, (link.rank + 1) % link.size, (link.rank - 1) % link.size
    arrived = np.empty(max(map(len, chunks)), chunks[0].dtype)
    for step in range(p - 1):
        outgoing, mine = chunks[(link.rank - step - 1) % p], chunks[(link.rank - step - 2) % p]
        incoming = arrived[:len(mine)]
        yield [link.send(outgoing, right), link.receive(incoming, left)]
        accumulate(mine, incoming)


def ring_all_gather(link, chunks: list[np.ndarray]) -> Steps:
    """Every rank gets all chunks; rank r brings chunks[r]. Cost (p-1)·α + (p-1)/p·n·β."""
    p, right, left = link.size, (link.rank + 1) % link.size, (link.rank - 1) % link.size
    for step in range(p - 1):
        outgoing, incoming = chunks[(link.rank - step) % p], chunks[(link.rank - step - 1) % p]
        yield [link.send(outgoing, right), link.receive(incoming, left)]


def ring_all_reduce(link, x: np.ndarray, accumulate: Accumulate) -> Steps:
    """x, a flat array, becomes the reduction over all ranks: reduce-scatter, then all-gather.

    2·p·(p-1) messages over p links; each rank sends 2·(p-1)/p·n bytes, whatever p (Patarasuk and Yuan, 2009).
    Cost 2·(p-1)·α + 2·(p-1)/p·n·β.
    """
    chunks = split(x, link.size)
    yield from ring_reduce_scatter(link, chunks, accumulate)
    yield from ring_all_gather(link, chunks)


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


def pairwise_all_to_all(link, outgoing: list[np.ndarray], incoming: list[np.ndarray]) -> Steps:
    """incoming[s] becomes rank s's outgoing[rank]. Cost (p-1)·(α + n/p·β)."""
    p = link.size
    incoming[link.rank][...] = outgoing[link.rank]
    for step in range(1, p):
        to, source = (link.rank + step) % p, (link.rank - step) % p
        yield [link.send(outgoing[to], to), link.receive(incoming[source], source)]


def linear_gather(link, x: np.ndarray, chunks: list[np.ndarray], root: int) -> Steps:
    """root's chunks[s] becomes rank s's x. Cost (p-1)·α + (p-1)/p·n·β at the root, n bytes in all."""
    if link.rank != root:
        yield [link.send(x, root)]
        return
    chunks[root][...] = x
    yield [link.receive(chunks[s], s) for s in range(link.size) if s != root]


def linear_scatter(link, chunks: list[np.ndarray], x: np.ndarray, root: int) -> Steps:
    """x becomes root's chunks[rank]. Cost (p-1)·α + (p-1)/p·n·β at the root."""
    if link.rank != root:
        yield [link.receive(x, root)]
        return
    x[...] = chunks[root]
    yield [link.send(chunks[to], to) for to in range(link.size) if to != root]


def dissemination_barrier(link) -> Steps:
    """Nobody leaves before all have come. Cost ⌈log₂ p⌉·α (Hensgen, Finkel and Manber, 1988)."""
    token, reach = np.zeros(1, np.uint8), 1
    while reach < link.size:
        yield [link.send(token, (link.rank + reach) % link.size),
               link.receive(np.empty_like(token), (link.rank - reach) % link.size)]
        reach *= 2


def message_out(link, x: np.ndarray, to: int) -> Steps:
    """One message."""
    yield [link.send(x, to)]


def message_in(link, x: np.ndarray, source: int) -> Steps:
    """One message."""
    yield [link.receive(x, source)]
