"""Fusion: the collectives of gradients and of new parameters are gathered into buckets, each one message.

What needs a member of a bucket waits until nothing else is left to do; then the buckets go out.
"""
from bisect import bisect_right
from math import prod

from minispore.graph.ir import Node, Value
from minispore.parallel.partition import Partitioned, Step
from minispore.parallel.redistribution import Move

MEGABYTE = 2 ** 20
AUTO = 64                                       # MB in a bucket where nothing else is asked for
KEYS = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter"}


def fuse(cut: Partitioned, comm_fusion: dict | None, indices: list[int], groups: dict[Value, int]) -> None:
    """Bucket the steps of a program (`comm_fusion` as in set_auto_parallel_context).

    indices: all_reduce_fusion_config: where, counted in reduced parameters, a new bucket begins. groups: {gradient or new
    value: number given by set_comm_fusion}; equal numbers go together, 0 goes alone.
    """
    steps: list[Step] = []
    buckets: dict[tuple, list[Step]] = {}
    seen: dict[str, int] = {}                   # how many parameters' there were of each kind

    def send(key) -> None:
        members = buckets.pop(key)
        steps.append(Step(members[0].do, tuple(h for m in members for h in m.ins), tuple(h for m in members for h in m.outs)))

    todo = cut.steps
    while todo:
        later: list[Step] = []
        missing: set = set()                    # what waiting steps and unsent buckets will make
        for step in todo:
            if not missing.isdisjoint(step.ins) or (later and _in_order(step)):
                later.append(step)
                missing.update(step.outs)
                continue
            value = step.outs[0].value if step.outs else None
            if not isinstance(step.do, Move) or step.do.op not in KEYS or not groups.get(value):
                steps.append(step)
                continue
            move, kind = step.do, KEYS[step.do.op]
            number = seen.get(kind, 0)
            seen[kind] = number + (value.like is not None)      # the loss isn't a parameter's
            limit, part = _limit((comm_fusion or {}).get(kind), indices if kind == "allreduce" else [], number)
            key = (move.op, move.axes, move.dim, move.src.kind, value.dtype, groups[value], part)
            if key in buckets and sum(map(_bytes, buckets[key])) + _bytes(step) > limit:
                send(key)
            buckets.setdefault(key, []).append(step)
            missing.update(step.outs)
        for key in list(buckets):
            send(key)
        todo = later
    cut.steps = steps


def _in_order(step: Step) -> bool:
    """Whether the user sees when it happens, e.g. Print."""
    return isinstance(step.do, Node) and step.do.op.effect


def _limit(setting: dict | None, indices, number: int) -> tuple[float, int]:
    """(bytes a bucket may have, which part of the program the number falls into)."""
    if setting and setting["mode"] == "index":
        indices = setting["config"] or []
    if indices:
        return float("inf"), bisect_right(sorted(indices), number)
    size = setting["config"] if setting and setting["mode"] == "size" else AUTO
    return size * MEGABYTE, 0


def _bytes(step: Step) -> int:
    return max(h.value.dtype.itemsize * prod(h.value.shape) for h in (*step.ins, *step.outs))
