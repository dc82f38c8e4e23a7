"""E9: gradients travel in buckets.

A message costs a fixed time, however short it is. So gradients are put into buckets, and a bucket is one message. But a bucket
can only go when its last gradient is there, so it must not be too large either.

    plan_buckets(sizes, most) -> list of lists
        sizes[i] is the size in bytes of the gradient that is made i-th. A bucket is a list of such numbers i. All numbers come
        once and in order: bucket 0 begins with 0, and each bucket goes on where the one before it ended. A bucket holds at most
        `most` bytes, unless a single gradient is larger: that one goes alone. There are as few buckets as that allows.

        plan_buckets([4, 4, 4, 20, 4], most=8)  ->  [[0, 1], [2], [3], [4]]

    reduce_in_buckets(comm, order, gradients, most) -> dict
        Sums gradients over the ranks: one AllReduce a bucket, of a flat array that holds the bucket's gradients one behind the
        other. All AllReduces begin before the first is waited for. Returns {name: sum}, each of its gradient's shape.

comm: a communicator; comm.all_reduce(array) begins and returns a handle, handle.wait() ends it and returns the sum.
order: names, in the order in which gradients are made; the same on all ranks.
gradients: {name: float32 array}. A dict keeps the order in which things were put into it, and that may differ between ranks.

Graded: each number once and in order; the limit; as few as can be; the sums; bytes and messages; a dict in another order on
each rank; that all begin before one is waited for.
"""
import numpy as np


def plan_buckets(sizes, most):
    """Which gradients travel together: lists of their numbers."""
    ### BEGIN SOLUTION
    buckets, room = [], -1
    for i, size in enumerate(sizes):
        if size > room:
            buckets.append([])
            room = most
        buckets[-1].append(i)
        room -= size
    return buckets
    ### END SOLUTION


def reduce_in_buckets(comm, order, gradients, most):
    """{name: the sum of that gradient over the ranks}."""
    ### BEGIN SOLUTION
    buckets = plan_buckets([gradients[name].nbytes for name in order], most)
    handles = [comm.all_reduce(np.concatenate([gradients[order[i]].reshape(-1) for i in bucket])) for bucket in buckets]
    sums = {}
    for bucket, handle in zip(buckets, handles, strict=True):
        flat, at = handle.wait(), 0
        for i in bucket:
            gradient = gradients[order[i]]
            sums[order[i]] = flat[at:at + gradient.size].reshape(gradient.shape)
            at += gradient.size
    return sums
    ### END SOLUTION
