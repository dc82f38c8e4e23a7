"""The root with each rank in turn, and single messages."""
import numpy as np

from minispore.communication.algorithms.link import Steps


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


def message_out(link, x: np.ndarray, to: int) -> Steps:
    """One message."""
    yield [link.send(x, to)]


def message_in(link, x: np.ndarray, source: int) -> Steps:
    """One message."""
    yield [link.receive(x, source)]
