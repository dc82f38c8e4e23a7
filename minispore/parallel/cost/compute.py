"""Seconds of an op: its operations and bytes over the device's rates.

Splitting shares both out: a rank does its part of the logical op's operations (a factor that isn't split is repeated), and
reads and writes its pieces.
"""
from collections.abc import Iterable
from math import prod

from minispore.graph.ir import Node
from minispore.ops.primitive import Pin, Primitive
from minispore.parallel.cost.cluster import Device


def op_seconds(device: Device, op: Primitive, flops: float, bytes: float, itemsize: int, far: float = 0.0) -> float:
    """Seconds of one call. Views and names cost nothing. far: of its bytes, those that no op before it has computed.

    >>> from minispore import ops
    >>> from minispore.parallel.cost import Rate
    >>> device = Device("slow", {4: 1e9}, 1e9, 1e9, 0.0, "for the example", measured={"Neg": Rate(1.0, 10.0, 4.0)}, far=2.0)
    >>> [op_seconds(device, ops.Neg(), *more) for more in ((5, 8, 4), (5, 8, 4, 4), (90, 8, 4))]
    [3.0, 5.0, 10.0]
    """
    if op.view or isinstance(op, Pin):
        return 0.0
    rate = device.rate(op.name, itemsize)
    return rate.overhead + max(flops / rate.flops, bytes / rate.bytes) + far / device.far


def node_seconds(device: Device, node: Node) -> float:
    """Seconds of a node of one rank's program."""
    if node.op.view or isinstance(node.op, Pin):
        return 0.0
    bytes = size_of((*node.ins, *node.outs))
    return op_seconds(device, node.op, node.op.flops(*node.ins), bytes, float_size(node), far_bytes(node))


def far_bytes(node: Node) -> int:
    """Bytes it reads that no node has made: parameters, states and inputs come from memory, not from the caches."""
    return size_of(v for v in node.ins if v.node is None)


def size_of(values: Iterable) -> int:
    """Bytes of values."""
    return sum(prod(v.shape) * v.dtype.itemsize for v in values)


def float_size(node: Node) -> int:
    """Bytes of the floats it computes with; of an op on whole numbers, of a float32."""
    return max((v.dtype.itemsize for v in (*node.ins, *node.outs) if v.dtype.kind not in "iub"), default=4)
