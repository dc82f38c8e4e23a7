"""Buckets: which tensors travel in one message, as set_auto_parallel_context's comm_fusion and all_reduce_fusion_config say.

A bucket goes out when its last tensor is there, so several of them overlap with what is still computed, and only the last
can't be hidden. Where nothing is asked for there are about four. None has more than 25 MB, so that the first doesn't wait
long; below 1 MB a message's latency (tens of µs a hop) is felt beside its transfer, so a small model's gradients go as one.
"""
from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import prod

MEGABYTE = 2 ** 20
AUTO = 64                               # MB, in MindSpore's mode "auto"
LEAST, MOST, SHARE = 1, 25, 4           # MB, MB, buckets: where nothing is asked for


def limits(settings: dict, kind: str, total: int) -> Callable[[int], tuple[float, int]]:
    """For the how manieth tensor of a program: (bytes its bucket may have, the part of the program it falls into).

    settings: the parallel context; kind: "allreduce", "allgather" or "reducescatter"; total: bytes of all the tensors.
    """
    setting = (settings["comm_fusion"] or {}).get(kind) or {"mode": None, "config": None}
    indices = settings["all_reduce_fusion_config"] if kind == "allreduce" else []
    if setting["mode"] == "index":
        indices = setting["config"] or []
    if indices:
        return lambda number: (float("inf"), bisect_right(sorted(indices), number))
    if setting["mode"] is None:
        size = min(MOST * MEGABYTE, max(LEAST * MEGABYTE, total / SHARE))
    else:
        size = (setting["config"] if setting["mode"] == "size" else AUTO) * MEGABYTE
    return lambda number: (size, 0)


def buckets(settings: dict, kind: str, tensors: Sequence, groups: Sequence[int]) -> list[list[int]]:
    """Which tensors (of a shape and a dtype, in the order in which they are made) go together, the bucket that is complete
    first before the others. groups: numbers given by set_comm_fusion; equal ones go together, 0 goes alone."""
    sizes = [t.dtype.itemsize * prod(t.shape) for t in tensors]
    limit = limits(settings, kind, sum(sizes))
    made: list[list[int]] = []
    filling: dict[tuple, list[int]] = {}
    for i, t in enumerate(tensors):
        most, part = limit(i)
        key = (t.dtype, groups[i], part)
        bucket = filling.get(key)
        if bucket is None or groups[i] == 0 or sum(sizes[j] for j in bucket) + sizes[i] > most:
            bucket = filling[key] = []
            made.append(bucket)
        bucket.append(i)
    return sorted(made, key=lambda bucket: bucket[-1])
