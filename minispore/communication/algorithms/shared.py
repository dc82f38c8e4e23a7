"""Collectives in memory that the ranks of one node share (room.py): no messages, each rank looks at what the others show.

Generators as those over messages; what they yield are meetings. What a rank shows before a meeting the others may look at until
the next one, so long arrays go in blocks of a stage's length. Sums are made in the order of the ranks, whatever the length.
Cost: α a meeting, and β for every byte that a rank copies or reads (γ); p ranks, n bytes.
"""
from collections.abc import Iterator

import numpy as np

from minispore.communication.algorithms.link import Accumulate, Steps, split


def stripes(length: int, dtype, room, chunks: int = 1) -> Iterator[slice]:
    """Slices of at most so many elements that those of `chunks` arrays fit a stage; one, if there are none at all."""
    width = room.kernels.STAGE // dtype.itemsize // chunks
    for lo in range(0, max(length, 1), max(width, 1)):
        yield slice(lo, min(lo + width, length))


def show(room, arrays: list[np.ndarray]) -> None:
    """Put the arrays on this rank's stage, one behind the other."""
    stage, at = room.stage(room.place, arrays[0].dtype, ahead=1), 0
    for x in arrays:
        stage[at:at + len(x)] = x
        at += len(x)


def reduce_shown(room, at: slice, out: np.ndarray, accumulate: Accumulate) -> None:
    """out = the reduction of the same elements of all stages, in order of the ranks."""
    out[...] = room.stage(0, out.dtype)[at]
    for p in range(1, room.size):
        accumulate(out, room.stage(p, out.dtype)[at])


def shared_all_reduce(link, x: np.ndarray, accumulate: Accumulate) -> Steps:
    """x becomes the reduction over all ranks. A block at a time: all show it, each reduces its part and shows that.

    Cost 2·⌈n/stage⌉·α + 4·n·β. (Arrays in the ranks' heaps, and short ones, never come here: see kernels.shared.all_reduce.)
    """
    room = link.room
    for stripe in stripes(len(x), x.dtype, room):
        block = x[stripe]
        parts = split(block, room.size)
        show(room, [block])
        yield [room.meet()]
        mine, before = parts[room.place], sum(map(len, parts[:room.place]))
        reduce_shown(room, slice(before, before + len(mine)), mine, accumulate)
        show(room, [mine])
        yield [room.meet()]
        for p, part in enumerate(parts):
            if p != room.place:
                part[...] = room.stage(p, x.dtype)[:len(part)]


def shared_reduce_scatter(link, chunks: list[np.ndarray], accumulate: Accumulate) -> Steps:
    """chunks[rank] becomes the reduction of that chunk over all ranks. Cost ⌈n/stage⌉·α + 2·n·β."""
    room = link.room
    for stripe in stripes(len(chunks[0]), chunks[0].dtype, room, room.size):
        show(room, [c[stripe] for c in chunks])
        yield [room.meet()]
        mine = chunks[room.place][stripe]
        reduce_shown(room, slice(room.place * len(mine), (room.place + 1) * len(mine)), mine, accumulate)


def shared_all_gather(link, chunks: list[np.ndarray]) -> Steps:
    """Every rank gets all chunks; rank r brings chunks[r]. Cost ⌈n/p/stage⌉·α + n·β."""
    room, mine = link.room, chunks[link.rank]
    for stripe in stripes(len(mine), mine.dtype, room):
        show(room, [mine[stripe]])
        yield [room.meet()]
        for p, chunk in enumerate(chunks):
            if p != room.place:
                chunk[stripe] = room.stage(p, mine.dtype)[:stripe.stop - stripe.start]


def shared_broadcast(link, x: np.ndarray, root: int) -> Steps:
    """x becomes root's x. Cost ⌈n/stage⌉·α + n·β for each rank."""
    room = link.room
    for stripe in stripes(len(x), x.dtype, room):
        if room.place == root:
            show(room, [x[stripe]])
        yield [room.meet()]
        if room.place != root:
            x[stripe] = room.stage(root, x.dtype)[:stripe.stop - stripe.start]


def shared_reduce(link, x: np.ndarray, root: int, accumulate: Accumulate) -> Steps:
    """root's x becomes the reduction, which it makes alone. Cost ⌈n/stage⌉·α + (p+1)·n·β."""
    room = link.room
    for stripe in stripes(len(x), x.dtype, room):
        show(room, [x[stripe]])
        yield [room.meet()]
        if room.place == root:
            reduce_shown(room, slice(stripe.stop - stripe.start), x[stripe], accumulate)


def shared_all_to_all(link, outgoing: list[np.ndarray], incoming: list[np.ndarray]) -> Steps:
    """incoming[s] becomes rank s's outgoing[rank]. Cost ⌈n/stage⌉·α + 2·n·β."""
    room, me = link.room, link.rank
    for stripe in stripes(len(outgoing[0]), outgoing[0].dtype, room, room.size):
        show(room, [o[stripe] for o in outgoing])
        yield [room.meet()]
        width = stripe.stop - stripe.start
        for p, chunk in enumerate(incoming):
            chunk[stripe] = room.stage(p, chunk.dtype)[me * width:(me + 1) * width]


def shared_gather(link, x: np.ndarray, chunks: list[np.ndarray], root: int) -> Steps:
    """root's chunks[s] becomes rank s's x. Cost ⌈n/p/stage⌉·α + n·β at the root."""
    room = link.room
    for stripe in stripes(len(x), x.dtype, room):
        show(room, [x[stripe]])
        yield [room.meet()]
        for p, chunk in enumerate(chunks):              # there are none but on the root
            chunk[stripe] = room.stage(p, x.dtype)[:stripe.stop - stripe.start]


def shared_scatter(link, chunks: list[np.ndarray], x: np.ndarray, root: int) -> Steps:
    """x becomes root's chunks[rank]. Cost ⌈n/stage⌉·α + n·β at the root."""
    room, me = link.room, link.rank
    for stripe in stripes(len(x), x.dtype, room, room.size):
        if me == root:
            show(room, [c[stripe] for c in chunks])
        yield [room.meet()]
        width = stripe.stop - stripe.start
        x[stripe] = room.stage(root, x.dtype)[me * width:(me + 1) * width]


def shared_barrier(link) -> Steps:
    """Nobody leaves before all have come. Cost α."""
    yield [link.room.meet()]


SHARED = {"AllReduce": shared_all_reduce, "ReduceScatter": shared_reduce_scatter, "AllGather": shared_all_gather,
          "Broadcast": shared_broadcast, "Reduce": shared_reduce, "AlltoAll": shared_all_to_all, "Gather": shared_gather,
          "Scatter": shared_scatter, "Barrier": shared_barrier}
