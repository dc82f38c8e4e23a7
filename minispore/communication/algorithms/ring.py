"""Rings: each rank sends to its right neighbour only. Least bytes, most steps: for large arrays."""
import numpy as np

from minispore.communication.algorithms.link import Accumulate, Steps, split


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
