"""Rejected by test_any_length: chunks of len(x) // p values, so that what is left over is never summed."""
from minispore.communication.algorithms.ring import ring_reduce_scatter


def ring_all_reduce(link, x, accumulate):
    p, rank, size = link.size, link.rank, len(x) // link.size
    chunks = [x[i * size:(i + 1) * size] for i in range(p)]
    yield from ring_reduce_scatter(link, chunks, accumulate)
    for step in range(p - 1):
        yield [link.send(chunks[(rank - step) % p], (rank + 1) % p),
               link.receive(chunks[(rank - step - 1) % p], (rank - 1) % p)]
