"""Rejected by test_sums_where_the_chunks_are_equal: adds what comes in the second half too, where it should replace."""
import numpy as np

from minispore.communication.algorithms.ring import ring_reduce_scatter


def ring_all_reduce(link, x, accumulate):
    p, rank = link.size, link.rank
    bounds = [len(x) * i // p for i in range(p + 1)]
    chunks = [x[bounds[i]:bounds[i + 1]] for i in range(p)]
    yield from ring_reduce_scatter(link, chunks, accumulate)
    for step in range(p - 1):
        mine = chunks[(rank - step - 1) % p]
        incoming = np.empty_like(mine)
        yield [link.send(chunks[(rank - step) % p], (rank + 1) % p), link.receive(incoming, (rank - 1) % p)]
        accumulate(mine, incoming)
