"""Recursive halving and doubling: in each round a rank's partner differs in one binary digit of its place.

That needs 2ᵏ ranks. Of any other number p, the first places fold up two by two, until 2ᵏ are left: the second of a pair
gives its data to the first, and gets the result from it in the end.
"""
import numpy as np

from minispore.communication.algorithms.link import Accumulate, Steps, unpack


def core_of(size: int) -> list[int]:
    """The places that stay when the others have folded: as many as the largest power of two that fits.

    >>> core_of(7)
    [0, 2, 4, 6]
    >>> core_of(5)
    [0, 2, 3, 4]
    """
    left = 1 << size.bit_length() - 1
    return [i + min(i, size - left) for i in range(left)]


def folded(link, x: np.ndarray, accumulate: Accumulate, all_reduce) -> Steps:
    """An AllReduce for 2ᵏ ranks, on any number of them. The surplus costs 2·(α + n·β) more."""
    core = core_of(link.size)
    if link.rank not in core:
        yield [link.send(x, link.rank - 1)]
        yield [link.receive(x, link.rank - 1)]
        return
    has_second = link.rank + 1 < link.size and link.rank + 1 not in core
    if has_second:
        arrived = np.empty_like(x)
        yield [link.receive(arrived, link.rank + 1)]
        accumulate(x, arrived)
    yield from all_reduce(link.within(core), x, accumulate)
    if has_second:
        yield [link.send(x, link.rank + 1)]


def recursive_doubling_all_reduce(link, x: np.ndarray, accumulate: Accumulate) -> Steps:
    """x becomes the reduction over all ranks: partners swap all they have. Cost log₂ p·(α + n·β): for short arrays."""
    return folded(link, x, accumulate, _doubling)


def _doubling(link, x, accumulate):
    arrived, distance = np.empty_like(x), 1
    while distance < link.size:
        other = link.rank ^ distance
        yield [link.send(x, other), link.receive(arrived, other)]
        if other > link.rank:
            accumulate(x, arrived)
        else:                       # both do "lower op higher": of NaNs and of zeros with signs, the first one may win
            accumulate(arrived, x)
            x[...] = arrived
        distance *= 2


def rabenseifner_all_reduce(link, x: np.ndarray, accumulate: Accumulate) -> Steps:
    """x becomes the reduction over all ranks: halving reduce-scatter, doubling all-gather.

    The ring's bytes in a tree's rounds: 2·log₂ p·α + 2·(p-1)/p·n·β (Rabenseifner, 2004), more where ranks fold.
    """
    return folded(link, x, accumulate, _halving_doubling)


def _halving_doubling(link, x, accumulate):
    low, high, distance, rounds = 0, len(x), link.size // 2, []
    arrived = np.empty((len(x) + 1) // 2, x.dtype)
    while distance:                 # partners hold the same part; each gives away one half, and reduces the other
        other, middle = link.rank ^ distance, (low + high) // 2
        mine, theirs = (low, middle), (middle, high)
        if link.rank > other:
            mine, theirs = theirs, mine
        incoming = arrived[:mine[1] - mine[0]]
        yield [link.send(x[slice(*theirs)], other), link.receive(incoming, other)]
        accumulate(x[slice(*mine)], incoming)
        rounds.append((other, mine, theirs))
        (low, high), distance = mine, distance // 2
    for other, mine, theirs in reversed(rounds):
        yield [link.send(x[slice(*mine)], other), link.receive(x[slice(*theirs)], other)]


def recursive_halving_reduce_scatter(link, chunks: list[np.ndarray], accumulate: Accumulate) -> Steps:
    """chunks[rank] becomes the reduction of that chunk over all ranks; the other chunks are used up.

    Cost log₂ p·α + (p-1)/p·n·β for 2ᵏ ranks; where ranks fold, 2·α + (1 + 1/p)·n·β more.
    """
    core, me = core_of(link.size), link.rank
    second = me + 1 if me + 1 < link.size and me + 1 not in core else None
    if me not in core:
        yield [link.send(np.concatenate(chunks), me - 1)]
        yield [link.receive(chunks[me], me - 1)]
        return
    if second is not None:
        arrived = np.empty(sum(map(len, chunks)), chunks[0].dtype)
        yield [link.receive(arrived, second)]
        _accumulate_packed(chunks, arrived, accumulate)
    inner = link.within(core)
    first = [*core, link.size]      # inner place i works for chunks first[i] … first[i + 1], its own and its second's
    low, distance = 0, inner.size // 2
    while distance:
        other, middle, high = inner.rank ^ distance, low + distance, low + 2 * distance
        halves = chunks[first[low]:first[middle]], chunks[first[middle]:first[high]]
        mine, theirs = halves if inner.rank < other else halves[::-1]
        arrived = np.empty(sum(map(len, mine)), chunks[0].dtype)
        yield [inner.send(np.concatenate(theirs), other), inner.receive(arrived, other)]
        _accumulate_packed(mine, arrived, accumulate)
        low, distance = low if inner.rank < other else middle, distance // 2
    if second is not None:
        yield [link.send(chunks[second], second)]


def _accumulate_packed(chunks, packed, accumulate):
    at = 0
    for chunk in chunks:
        accumulate(chunk, packed[at:at + len(chunk)])
        at += len(chunk)


def recursive_doubling_all_gather(link, chunks: list[np.ndarray]) -> Steps:
    """Every rank gets all chunks; rank r brings chunks[r]. Cost log₂ p·α + (p-1)/p·n·β for 2ᵏ ranks.

    Where ranks fold, 2·α + (1 + 1/p)·n·β more; there Bruck's is better.
    """
    core, me = core_of(link.size), link.rank
    second = me + 1 if me + 1 < link.size and me + 1 not in core else None
    everything = sum(map(len, chunks))
    if me not in core:
        arrived = np.empty(everything, chunks[0].dtype)
        yield [link.send(chunks[me], me - 1)]
        yield [link.receive(arrived, me - 1)]
        unpack(arrived, chunks)
        return
    if second is not None:
        yield [link.receive(chunks[second], second)]
    inner, first, distance = link.within(core), [*core, link.size], 1
    while distance < inner.size:
        other = inner.rank ^ distance
        mine, theirs = (chunks[first[start]:first[start + distance]] for start in
                        (inner.rank // distance * distance, other // distance * distance))
        arrived = np.empty(sum(map(len, theirs)), chunks[0].dtype)
        yield [inner.send(np.concatenate(mine), other), inner.receive(arrived, other)]
        unpack(arrived, theirs)
        distance *= 2
    if second is not None:
        yield [link.send(np.concatenate(chunks), second)]
