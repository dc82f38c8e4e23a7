"""Distances that double: after a round with reach 1, 2, 4, … a rank knows of twice as many others. Any rank count.

Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
message-passing systems", 1997.
"""
import numpy as np

from minispore.communication.algorithms.link import Steps, unpack


def dissemination_barrier(link) -> Steps:
    """Nobody leaves before all have come. Cost ⌈log₂ p⌉·α (Hensgen, Finkel and Manber, 1988)."""
    token, reach = np.zeros(1, np.uint8), 1
    while reach < link.size:
        yield [link.send(token, (link.rank + reach) % link.size),
               link.receive(np.empty_like(token), (link.rank - reach) % link.size)]
        reach *= 2


def bruck_all_gather(link, chunks: list[np.ndarray]) -> Steps:
    """Every rank gets all chunks; rank r brings chunks[r]. Cost ⌈log₂ p⌉·α + (p-1)/p·n·β: for short chunks.

    After a round with reach 2ᵏ a rank has the chunks of 2ᵏ⁺¹ ranks, its own and those to its right.
    """
    p, reach = link.size, 1
    mine = [chunks[(link.rank + i) % p] for i in range(p)]         # counted from my own
    while reach < p:
        count = min(reach, p - reach)
        incoming = mine[reach:reach + count]
        arrived = np.empty(sum(map(len, incoming)), mine[0].dtype)
        yield [link.send(np.concatenate(mine[:count]), (link.rank - reach) % p),
               link.receive(arrived, (link.rank + reach) % p)]
        unpack(arrived, incoming)
        reach *= 2


def bruck_all_to_all(link, outgoing: list[np.ndarray], incoming: list[np.ndarray]) -> Steps:
    """incoming[s] becomes rank s's outgoing[rank]; all are of one length. Cost ⌈log₂ p⌉·(α + n/2·β): for short parts.

    What has to go d places on travels in the rounds whose reach is a binary digit of d.
    """
    p, reach = link.size, 1
    parts = [outgoing[(link.rank + d) % p] for d in range(p)]      # parts[d] has to go d places on
    while reach < p:
        moving = [d for d in range(p) if d & reach]
        packed = np.concatenate([parts[d] for d in moving])
        arrived = np.empty_like(packed)
        yield [link.send(packed, (link.rank + reach) % p), link.receive(arrived, (link.rank - reach) % p)]
        for d, part in zip(moving, np.split(arrived, len(moving)), strict=True):
            parts[d] = part
        reach *= 2
    for d, part in enumerate(parts):
        incoming[(link.rank - d) % p][...] = part
