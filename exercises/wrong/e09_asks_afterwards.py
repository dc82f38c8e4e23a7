"""Rejected by test_no_bucket_is_too_large: looks whether the bucket is full once the gradient is in it."""
import numpy as np


def plan_buckets(sizes, most):
    """Which gradients travel together: lists of their numbers."""
    buckets, filled = [], most
    for i, size in enumerate(sizes):
        if filled >= most:
            buckets.append([])
            filled = 0
        buckets[-1].append(i)
        filled += size
    return buckets


def reduce_in_buckets(comm, order, gradients, most):
    """{name: the sum of that gradient over the ranks}."""
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
