"""Two levels: inside each node, where messages are cheap, and between the nodes, where they aren't.

Reductions and gathers work in pieces: with m ranks on the smallest node, the first m of each node are its carriers, and
the j-th carriers of all nodes deal with the j-th of m pieces. So all of them use the wire between the nodes, and each
byte crosses it no more often than if every node were one rank. A broadcast has one carrier, the node's leader.

Costs: N nodes of k ranks each, α and β inside a node, A and B between nodes.
"""
import numpy as np

from minispore.communication.algorithms.bruck import dissemination_barrier
from minispore.communication.algorithms.link import Accumulate, Steps, split, unpack
from minispore.communication.algorithms.recursive import rabenseifner_all_reduce
from minispore.communication.algorithms.ring import ring_all_gather, ring_reduce_scatter
from minispore.communication.algorithms.tree import tree_broadcast, tree_reduce


def home(link) -> tuple[int, ...]:
    """The places on this rank's node."""
    return next(node for node in link.nodes if link.rank in node)


def carried(link) -> list[list[list[int]]]:
    """carried(link)[j][b]: the places on node b whose data the j-th carriers deal with, the carrier's own first."""
    m = min(map(len, link.nodes))
    return [[list(node[j::m]) for node in link.nodes] for j in range(m)]


def carriers(link, j: int):
    """A link among the j-th carriers of all nodes."""
    return link.within([node[j] for node in link.nodes])


def hierarchical_all_reduce(link, x: np.ndarray, accumulate: Accumulate) -> Steps:
    """x becomes the reduction over all ranks: reduce-scatter in the node, AllReduce between nodes, all-gather in the node.

    Cost 2·(k-1)·α + 2·(k-1)/k·n·β + 2·log₂ N·A + 2·(N-1)/N·n/k·B a rank (Cho and others, "BlueConnect", 2019).
    """
    node, m = home(link), min(map(len, link.nodes))
    inside = link.within(node)
    pieces = split(x, m) + [x[:0]] * (len(node) - m)               # who is no carrier reduces nothing
    yield from ring_reduce_scatter(inside, pieces, accumulate)
    if inside.rank < m:
        yield from rabenseifner_all_reduce(carriers(link, inside.rank), pieces[inside.rank], accumulate)
    yield from ring_all_gather(inside, pieces)


def hierarchical_reduce_scatter(link, chunks: list[np.ndarray], accumulate: Accumulate) -> Steps:
    """chunks[rank] becomes the reduction of that chunk over all ranks: in the node first, then between nodes.

    Cost (k-1)·α + (k-1)/k·n·β + (N-1)·A + (N-1)/N·n/k·B a rank.
    """
    node, places = home(link), carried(link)
    inside, m = link.within(node), len(places)
    pieces = [np.concatenate([chunks[i] for group in piece for i in group]) for piece in places]
    pieces += [pieces[0][:0]] * (len(node) - m)
    yield from ring_reduce_scatter(inside, pieces, accumulate)
    if inside.rank >= m:
        yield [link.receive(chunks[link.rank], node[inside.rank % m])]
        return
    wanted = places[inside.rank]                                    # by node
    ends = np.cumsum([sum(len(chunks[i]) for i in group) for group in wanted])
    parts, between = np.split(pieces[inside.rank], ends[:-1]), carriers(link, inside.rank)
    yield from ring_reduce_scatter(between, parts, accumulate)
    here = wanted[between.rank]
    unpack(parts[between.rank], [chunks[i] for i in here])
    yield [link.send(chunks[i], i) for i in here[1:]]


def hierarchical_all_gather(link, chunks: list[np.ndarray]) -> Steps:
    """Every rank gets all chunks; rank r brings chunks[r]: between nodes first, then in the node.

    Cost (N-1)·A + (N-1)/N·n/k·B + (k-1)·α + (k-1)/k·n·β a rank.
    """
    node, places = home(link), carried(link)
    inside, m = link.within(node), len(places)
    lengths = [[sum(len(chunks[i]) for i in group) for group in piece] for piece in places]
    pieces = [np.empty(sum(piece), chunks[0].dtype) for piece in lengths]
    if inside.rank >= m:
        yield [link.send(chunks[link.rank], node[inside.rank % m])]
    else:
        between = carriers(link, inside.rank)
        here = places[inside.rank][between.rank]
        yield [link.receive(chunks[i], i) for i in here[1:]]
        parts = np.split(pieces[inside.rank], np.cumsum(lengths[inside.rank])[:-1])
        np.concatenate([chunks[i] for i in here], out=parts[between.rank])
        yield from ring_all_gather(between, parts)
    yield from ring_all_gather(inside, pieces + [pieces[0][:0]] * (len(node) - m))
    for piece, groups in zip(pieces, places, strict=True):
        unpack(piece, [chunks[i] for group in groups for i in group])


def leaders(link, root: int = -1) -> list[int]:
    """One place of each node: the root on its own node, the first on the others."""
    return [root if root in node else node[0] for node in link.nodes]


def hierarchical_broadcast(link, x: np.ndarray, root: int) -> Steps:
    """x becomes root's x: from leader to leader, then in each node. Cost ⌈log₂ N⌉·(A + n·B) + ⌈log₂ k⌉·(α + n·β)."""
    node, first = home(link), leaders(link, root)
    if link.rank in first:
        yield from tree_broadcast(link.within(first), x, first.index(root))
    yield from tree_broadcast(link.within(node), x, next(i for i, place in enumerate(node) if place in first))


def hierarchical_reduce(link, x: np.ndarray, root: int, accumulate: Accumulate) -> Steps:
    """root's x becomes the reduction; the broadcast backwards. Cost ⌈log₂ N⌉·(A + n·B) + ⌈log₂ k⌉·(α + n·β)."""
    node, first = home(link), leaders(link, root)
    yield from tree_reduce(link.within(node), x, next(i for i, place in enumerate(node) if place in first), accumulate)
    if link.rank in first:
        yield from tree_reduce(link.within(first), x, first.index(root), accumulate)


def hierarchical_barrier(link) -> Steps:
    """The node's ranks report to its leader, the leaders wait for one another. Cost 2·⌈log₂ k⌉·α + ⌈log₂ N⌉·A."""
    inside, first, token = link.within(home(link)), leaders(link), np.zeros(1, np.uint8)
    yield from tree_reduce(inside, token, 0, lambda dst, src: None)
    if link.rank in first:
        yield from dissemination_barrier(link.within(first))
    yield from tree_broadcast(inside, token, 0)
