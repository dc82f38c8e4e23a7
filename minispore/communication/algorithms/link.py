"""What all algorithms share: their types, cutting an array, and a link among some of the ranks.

An algorithm is a generator: it posts messages on its `link`, yields them, and goes on when they have arrived. So it
can be waited for, polled while other work is done, or watched step by step; threads and MPI run the same code.

    link.rank, link.size            this rank's place in the group, and the group's size
    link.send(array, to)            post a message; the array mustn't change before it is complete
    link.receive(array, source)     post a receive into the array
    link.nodes                      tuples of places, one a node of the machine
    link.within(places)             a link among these places only, which are 0, 1, … in it

Costs are in the α-β model: α seconds a message, β seconds a byte; p ranks, n bytes (Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", 2005).
"""
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

Steps = Iterator[list]
Accumulate = Callable[[np.ndarray, np.ndarray], None]      # (dst, src): dst = dst op src


def split(x: np.ndarray, parts: int) -> list[np.ndarray]:
    """Consecutive views of a flat array, as equal as can be; some are empty when it is shorter than `parts`.

    >>> [len(part) for part in split(np.arange(5), 3)]
    [1, 2, 2]
    """
    bounds = [len(x) * i // parts for i in range(parts + 1)]
    return [x[a:b] for a, b in pairwise(bounds)]


def unpack(packed: np.ndarray, into: Sequence[np.ndarray]) -> None:
    """Cut what np.concatenate made of arrays of these lengths."""
    at = 0
    for part in into:
        part[...] = packed[at:at + len(part)]
        at += len(part)


class Within:
    """A link among some places of another one; this rank must be one of them."""

    def __init__(self, link, places: Sequence[int]):
        self.link, self.places = link, tuple(places)
        self.rank, self.size = self.places.index(link.rank), len(self.places)

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        here = (tuple(self.places.index(i) for i in node if i in self.places) for node in self.link.nodes)
        return tuple(filter(None, here))

    def send(self, x: np.ndarray, to: int):
        return self.link.send(x, self.places[to])

    def receive(self, x: np.ndarray, source: int):
        return self.link.receive(x, self.places[source])

    def within(self, places: Sequence[int]) -> "Within":
        return Within(self, places)
