"""Rejected by test_the_largest_instead_of_the_sum: adds with +=, whatever reduction was asked for."""
import numpy as np


def ring_all_reduce(link, x, accumulate):
    p, rank, right, left = link.size, link.rank, (link.rank + 1) % link.size, (link.rank - 1) % link.size
    bounds = [len(x) * i // p for i in range(p + 1)]
    chunks = [x[bounds[i]:bounds[i + 1]] for i in range(p)]
    for step in range(p - 1):
        mine = chunks[(rank - step - 2) % p]
        incoming = np.empty_like(mine)
        yield [link.send(chunks[(rank - step - 1) % p], right), link.receive(incoming, left)]
        mine += incoming
    for step in range(p - 1):
        yield [link.send(chunks[(rank - step) % p], right), link.receive(chunks[(rank - step - 1) % p], left)]
