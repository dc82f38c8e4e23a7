"""Seconds of an op: its operations and bytes over the device's rates.

Splitting shares both out: a rank does its part of the logical op's operations (a factor that isn't split is repeated), and
reads and writes its pieces.
"""
from collections.abc import Iterable
from math import prod

from minispore.graph.ir import Node
from minispore.ops.primitive import Pin, Primitive
from minispore.parallel.cost.cluster import Device


def op_seconds(device: Device, op: Primitive, flops: float, bytes: float, itemsize: int) -> float:
    """Seconds of one call. Views and names cost nothing."""
    if op.view or isinstance(op, Pin):
        return 0.0
    rate = device.rate(op.name, itemsize)
    return rate.overhead + max(flops / rate.flops, bytes / rate.bytes)


def node_seconds(device: Device, node: Node) -> float:
    """Seconds of a node of one rank's program."""
    if node.op.view or isinstance(node.op, Pin):
        return 0.0
    return op_seconds(device, node.op, node.op.flops(*node.ins), size_of((*node.ins, *node.outs)), float_size(node))


def size_of(values: Iterable) -> int:
    """Bytes of values."""
    return sum(prod(v.shape) * v.dtype.itemsize for v in values)


def float_size(node: Node) -> int:
    """Bytes of the floats it computes with; of an op on whole numbers, of a float32."""
    return max((v.dtype.itemsize for v in (*node.ins, *node.outs) if v.dtype.kind not in "iub"), default=4)
