"""E5: reduce-scatter on a ring.

Four ranks have an array each, cut into four chunks. After a *reduce-scatter*, rank r has chunk r of the sum of all four arrays.
On a ring each rank sends to its right neighbour only, and receives from its left one. A chunk travels once round the ring; at
every stop that rank's own numbers are added to it; its journey ends at the rank it belongs to.

Write `reduce_scatter(link, chunks, accumulate)`, a generator:

    link.rank, link.size        this rank's place on the ring, and how many ranks there are
    link.send(array, to)        post a message to a rank
    link.receive(array, source) post a receive into an array, of the length that is sent
    chunks                      a list of link.size flat numpy arrays, chunk i belongs to rank i. Lengths may differ, or be 0
    accumulate(dst, src)        dst = dst + src, in place (or another reduction: you never need to know)

Post a step's messages and yield them as a list; behind the yield they have arrived:

    yield [link.send(outgoing, right), link.receive(incoming, left)]

An example with 3 ranks, chunks of length 1. Before:

    rank 0: [1] [2] [3]         rank 1: [10] [20] [30]          rank 2: [100] [200] [300]

After: rank 0 has [111] in chunks[0], rank 1 has [222] in chunks[1], rank 2 has [333] in chunks[2]. What is then in the other
chunks doesn't matter.

Graded: the sum on any number of ranks; chunks of any length; any accumulate; messages to the right neighbour only, size - 1 a
rank; no byte more than needed.
"""
import numpy as np


def reduce_scatter(link, chunks, accumulate):
    """Make chunks[link.rank] the reduction of that chunk over all ranks, in place. Yields lists of messages."""
    ### BEGIN SOLUTION
    p, right, left = link.size, (link.rank + 1) % link.size, (link.rank - 1) % link.size
    arrived = np.empty(max(len(chunk) for chunk in chunks), chunks[0].dtype)
    for step in range(p - 1):
        outgoing, mine = chunks[(link.rank - step - 1) % p], chunks[(link.rank - step - 2) % p]
        incoming = arrived[:len(mine)]
        yield [link.send(outgoing, right), link.receive(incoming, left)]
        accumulate(mine, incoming)
    ### END SOLUTION
