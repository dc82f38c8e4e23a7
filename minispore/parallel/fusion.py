"""Fusion: the collectives of gradients and of new parameters are gathered into buckets, each one message.

What needs a member of a bucket waits until nothing else is left to do; then the buckets go out.
"""
from math import prod

from minispore.communication.buckets import limits
from minispore.graph.ir import Node, Value
from minispore.parallel.partition import Partitioned, Step
from minispore.parallel.redistribution import Move

KEYS = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter"}


def fuse(cut: Partitioned, settings: dict, groups: dict[Value, int]) -> None:
    """Bucket the steps of a program.

    settings: the parallel context, see communication/buckets.py; indices count reduced parameters. groups: {gradient or new
    value: number given by set_comm_fusion}; equal numbers go together, 0 goes alone.
    """
    total = {kind: sum(_bytes(s) for s in cut.steps if _kind(s, groups) == kind) for kind in KEYS.values()}
    limit = {kind: limits(settings, kind, size) for kind, size in total.items()}
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
            kind = _kind(step, groups)
            if kind is None:
                steps.append(step)
                continue
            move, value = step.do, step.outs[0].value
            number = seen.get(kind, 0)
            seen[kind] = number + (value.like is not None)      # the loss isn't a parameter's
            most, part = limit[kind](number)
            key = (move.op, move.axes, move.dim, move.src.kind, value.dtype, groups[value], part)
            if key in buckets and sum(map(_bytes, buckets[key])) + _bytes(step) > most:
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


def _kind(step: Step, groups) -> str | None:
    """What comm_fusion calls a step that may be bucketed."""
    return KEYS.get(step.do.op) if isinstance(step.do, Move) and groups.get(step.outs[0].value) else None


def _bytes(step: Step) -> int:
    return max(h.value.dtype.itemsize * prod(h.value.shape) for h in (*step.ins, *step.outs))
