"""Everyone with everyone, one partner a round."""
import numpy as np

from minispore.communication.algorithms.link import Accumulate, Steps


def pairwise_all_to_all(link, outgoing: list[np.ndarray], incoming: list[np.ndarray]) -> Steps:
    """incoming[s] becomes rank s's outgoing[rank]. Cost (p-1)·(α + n/p·β)."""
    p = link.size
    incoming[link.rank][...] = outgoing[link.rank]
    for step in range(1, p):
        to, source = (link.rank + step) % p, (link.rank - step) % p
        yield [link.send(outgoing[to], to), link.receive(incoming[source], source)]


def pairwise_reduce_scatter(link, chunks: list[np.ndarray], accumulate: Accumulate) -> Steps:
    """chunks[rank] becomes the reduction of that chunk over all ranks; every chunk goes straight to its owner.

    The other chunks stay as they are. Cost (p-1)·α + (p-1)/p·n·β, as the ring's, over p·(p-1) links.
    """
    p, mine = link.size, chunks[link.rank]
    arrived = np.empty_like(mine)
    for step in range(1, p):
        to, source = (link.rank + step) % p, (link.rank - step) % p
        yield [link.send(chunks[to], to), link.receive(arrived, source)]
        accumulate(mine, arrived)
