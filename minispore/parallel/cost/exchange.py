"""Seconds of communication: the α-β formulas of the collectives' algorithms over the cluster's links."""
from collections.abc import Sequence
from math import prod

from minispore.communication.cost import fastest
from minispore.parallel.cost.cluster import Cluster, Link
from minispore.parallel.halo import Halo
from minispore.parallel.layout import TensorLayout, local_shape
from minispore.parallel.mesh import Mesh
from minispore.parallel.redistribution import INFINITE, Move, route

FORMULA = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "all_to_all": "AlltoAll",
           "broadcast": "Broadcast", "reduce": "Reduce", "barrier": "Barrier"}


def collective_seconds(cluster: Cluster, op: str, mesh: Mesh, axes: tuple[int, ...], bytes: float) -> float:
    """Seconds of a collective among the ranks along mesh axes; bytes as below."""
    return link_seconds(cluster.link(op, mesh, axes), op, mesh.count(axes), bytes)


def group_seconds(cluster: Cluster, op: str, ranks: Sequence[int], bytes: float) -> float:
    """Seconds of a collective among a group of ranks. bytes: of what it is about as a whole - the array that is reduced, gathered
    or scattered, each rank's array of an all_to_all, the message of a permute or halo.

    >>> from minispore.parallel.cost import cluster_of
    >>> a100 = cluster_of("a100")
    >>> group_seconds(a100, "all_reduce", (0, 1), 3e8) < group_seconds(a100, "all_reduce", (0, 8), 3e8)
    True
    """
    return link_seconds(cluster.link_between(op, ranks), op, len(ranks), bytes)


def link_seconds(link: Link, op: str, ranks: int, bytes: float) -> float:
    """Seconds of a collective of so many ranks that this link bounds; alone a rank has nobody to talk to."""
    if ranks == 1:
        return 0.0
    if op in FORMULA:
        return fastest(FORMULA[op], ranks=ranks, bytes=bytes, alpha=link.alpha, beta=1 / link.bandwidth)
    return link.alpha + bytes / link.bandwidth


def move_seconds(cluster: Cluster, mesh: Mesh, move: Move, shape: tuple, itemsize: int) -> float:
    """Seconds of one step of a redistribution of a tensor of the logical `shape`. A slice is a copy."""
    if move.op in ("all_reduce", "reduce_scatter") and itemsize == 2:
        itemsize = 4                                        # summed as float32, and sent so; see collectives.Between.wire
    here, there = (prod(local_shape(mesh, shape, lay)) * itemsize for lay in (move.src, move.dst))
    if move.op == "slice":
        rate = cluster.device.rate("StridedSlice", itemsize)
        return rate.overhead + 2 * there / rate.bytes
    if isinstance(move, Halo):
        return collective_seconds(cluster, move.op, mesh, move.axes, max(move.size - move.length, 0) / move.length * here)
    return collective_seconds(cluster, move.op, mesh, move.axes, max(here, there))


def exchange_seconds(cluster: Cluster, mesh: Mesh, shape: tuple, itemsize: int, src: TensorLayout, dst: TensorLayout) -> float:
    """Seconds from one layout to another by the route the compiler takes; infinite where there is none."""
    if src == dst:
        return 0.0
    found = route(mesh, shape, src, dst)
    return INFINITE if found is None else sum(move_seconds(cluster, mesh, move, shape, itemsize) for move in found[1])
