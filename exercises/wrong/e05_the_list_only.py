"""Rejected by test_two_ranks: puts new arrays into the list, so nothing changes for the caller; and always adds."""
import numpy as np


def reduce_scatter(link, chunks, accumulate):
    p, right, left = link.size, (link.rank + 1) % link.size, (link.rank - 1) % link.size
    for step in range(p - 1):
        there, here = (link.rank - step - 1) % p, (link.rank - step - 2) % p
        incoming = np.empty_like(chunks[here])
        yield [link.send(chunks[there], right), link.receive(incoming, left)]
        chunks[here] = chunks[here] + incoming
