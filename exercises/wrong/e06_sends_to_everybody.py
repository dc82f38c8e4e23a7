"""Rejected by test_messages_and_links: each rank sends its whole chunk to every other one, over p·(p-1) links."""
from minispore.communication.algorithms.ring import ring_reduce_scatter


def ring_all_reduce(link, x, accumulate):
    p, rank = link.size, link.rank
    bounds = [len(x) * i // p for i in range(p + 1)]
    chunks = [x[bounds[i]:bounds[i + 1]] for i in range(p)]
    yield from ring_reduce_scatter(link, chunks, accumulate)
    others = [other for other in range(p) if other != rank]
    yield [link.send(chunks[rank], to) for to in others] + [link.receive(chunks[source], source) for source in others]
