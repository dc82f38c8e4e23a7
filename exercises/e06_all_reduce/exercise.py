"""E6 · AllReduce on a ring, for arrays of any length.

After a reduce-scatter each rank has one whole chunk; an all-gather round the same ring gives all chunks to everybody. The
two together are an all-reduce. Chunks need not be equal: 10 values on 4 ranks are chunks of 2, 3, 2 and 3, and 2 values on
4 ranks leave some chunks empty.

    link: link.rank, link.size; link.send(array, to) and link.receive(array, source) begin a message, and
        `yield [link.send(…), link.receive(…)]` goes on when both are complete. A receive fills the array it is given
    x: a flat array of any length, of the same length and dtype on all ranks; it is changed in place: at the end it holds,
        on every rank, the reduction of the ranks' arrays
    accumulate(dst, src): dst[i] = dst[i] op src[i], in place; the op is what the caller asked for: sum, max, …

ring_reduce_scatter(link, chunks, accumulate), which you know from E5, may be used: of a list of `link.size` arrays it makes
chunks[link.rank] whole. `yield from` runs it here. Cut x into views (x[a:b]), so that what is done to a chunk is done to x.

On 2 ranks with x = [1., 2., 3.] and [10., 20., 30.], both have [11., 22., 33.] at the end.

Graded: sums where the chunks are equal; any length on 1, 2, 3, 4 and 7 ranks, shorter than their number included; max; and
the record: 2·p·(p-1) messages on p ranks, over p links, no more values sent than needed.
"""
from minispore.communication.algorithms.ring import ring_reduce_scatter


def ring_all_reduce(link, x, accumulate):
    """x becomes the reduction over all ranks, on each of them. A generator of lists of messages."""
    raise NotImplementedError("E6: write ring_all_reduce(link, x, accumulate), see above")
