"""Rejected by test_all_begin_before_one_is_waited_for: each AllReduce is waited for before the next begins."""
import numpy as np


def plan_buckets(sizes, most):
    """Which gradients travel together: lists of their numbers."""
    buckets, room = [], -1
    for i, size in enumerate(sizes):
        if size > room or not buckets:
            buckets.append([])
            room = most
        buckets[-1].append(i)
        room -= size
    return buckets


def reduce_in_buckets(comm, order, gradients, most):
    """{name: the sum of that gradient over the ranks}."""
    buckets = plan_buckets([gradients[name].nbytes for name in order], most)
    handles = [comm.all_reduce(np.concatenate([gradients[order[i]].reshape(-1) for i in bucket])).wait()
               for bucket in buckets]
    sums = {}
    for bucket, handle in zip(buckets, handles, strict=True):
        flat, at = handle, 0
        for i in bucket:
            gradient = gradients[order[i]]
            sums[order[i]] = flat[at:at + gradient.size].reshape(gradient.shape)
            at += gradient.size
    return sums
