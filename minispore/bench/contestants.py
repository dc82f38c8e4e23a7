"""Who is timed: for one op and size, calls that do the same by different means, and what each must give.

All but "shared" work on the same two arrays. AllReduce and Broadcast are done in place.
"""
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from minispore.communication import selection
from minispore.communication.algorithms import ALGORITHMS

OPS = {"all_reduce": "AllReduce", "reduce_scatter": "ReduceScatter", "all_gather": "AllGather", "broadcast": "Broadcast",
       "all_to_all": "AlltoAll"}
MESSAGES = sorted({name for op in OPS.values() for name in ALGORITHMS[op]})
NAMES = ["shared", "private", *MESSAGES, "mpi", "gloo", "copy"]
ROOT = 0


@dataclass
class Contestant:
    """x: the array to fill before a call; call(): does it, and gives the result; around(): what to do it in."""
    name: str
    x: np.ndarray
    call: Callable[[], np.ndarray]
    around: Callable = nullcontext


def elements(nbytes: int, op: str, n: int) -> int:
    """How many float32 the whole vector has: at least nbytes, and where it is cut, as many for each rank."""
    count = -(-nbytes // 4)
    return count if op in ("AllReduce", "Broadcast") else -(-count // n) * n


def contestants(op: str, count: int, comm, names, gloo=None) -> list[Contestant]:
    """Those of `names` that this op and this machine have. gloo: torch, where it is installed and set up (else None)."""
    whole, out = np.ones(count, np.float32), np.ones(count, np.float32)
    x, y = given(op, whole, comm.size), taken(op, out, comm.size)
    made = []
    if comm.room is not None:
        common, result = (comm.empty(count, np.float32) for _ in range(2))
        if in_shared_memory(comm, common, result):
            common, result = given(op, common, comm.size), taken(op, result, comm.size)
            made.append(Contestant("shared", common, ours(op, comm, common, result)))
        made.append(Contestant("private", x, ours(op, comm, x, y)))
    for name in ALGORITHMS[op]:
        made.append(Contestant(name, x, ours(op, comm, x, y), lambda name=name: selection.algorithm(name)))
    made.append(Contestant("mpi", x, mpis(op, comm.endpoint.transport.MPI, x, y)))
    if gloo is not None:
        made.append(Contestant("gloo", x, gloos(op, gloo, x, y)))
    made.append(Contestant("copy", whole, lambda: np.copyto(out, whole)))
    return [c for c in made if c.name in names]


def in_shared_memory(comm, *arrays: np.ndarray) -> bool:
    """Whether all ranks got memory that the others reach: comm.empty gives other memory where there is too little of it."""
    transport = comm.endpoint.transport
    segment = transport.node.segments[comm.endpoint.rank]
    inside = all(0 <= x.ctypes.data - segment.address < segment.size for x in arrays)
    return transport.comm.allreduce(inside, transport.MPI.LAND)


def given(op: str, whole: np.ndarray, n: int) -> np.ndarray:
    """The part of the vector that a rank gives."""
    return whole[:len(whole) // n] if op == "AllGather" else whole


def taken(op: str, whole: np.ndarray, n: int) -> np.ndarray:
    """The part of the vector that a rank gets."""
    return whole[:len(whole) // n] if op == "ReduceScatter" else whole


def ours(op: str, comm, x, out) -> Callable:
    return {"AllReduce": lambda: comm.all_reduce_now(x, out=x),
            "ReduceScatter": lambda: comm.reduce_scatter(x, out=out).wait(),
            "AllGather": lambda: comm.all_gather(x, out).wait(),
            "Broadcast": lambda: comm.broadcast(x, ROOT, x).wait(),
            "AlltoAll": lambda: comm.all_to_all(x, out).wait()}[op]


def mpis(op: str, MPI, x, out) -> Callable:
    world = MPI.COMM_WORLD
    return {"AllReduce": lambda: world.Allreduce(MPI.IN_PLACE, x) or x,
            "ReduceScatter": lambda: world.Reduce_scatter_block(x, out) or out,
            "AllGather": lambda: world.Allgather(x, out) or out,
            "Broadcast": lambda: world.Bcast(x, ROOT) or x,
            "AlltoAll": lambda: world.Alltoall(x, out) or out}[op]


def gloos(op: str, torch, x, out) -> Callable:
    dist, a, b = torch.distributed, torch.from_numpy(x), torch.from_numpy(out)

    def call(f, *args, result):
        f(*args)            # it returns a Work or nothing, by version
        return result
    return {"AllReduce": lambda: call(dist.all_reduce, a, result=x),
            "ReduceScatter": lambda: call(dist.reduce_scatter_tensor, b, a, result=out),
            "AllGather": lambda: call(dist.all_gather_into_tensor, b, a, result=out),
            "Broadcast": lambda: call(dist.broadcast, a, ROOT, result=x),
            "AlltoAll": lambda: call(dist.all_to_all_single, b, a, result=out)}[op]


def values(op: str, count: int, rank: int, n: int) -> np.ndarray:
    """What a rank gives, to see whether the result is right."""
    pattern = (np.arange(count) % 7).astype(np.float32)
    return (np.split(pattern, n)[rank] if op == "AllGather" else pattern) + np.float32(rank)


def expected(op: str, count: int, rank: int, n: int) -> np.ndarray:
    """What a rank gets if each gave its `values`.

    >>> expected("AllReduce", 4, 0, 2).tolist(), expected("ReduceScatter", 4, 1, 2).tolist()
    ([1.0, 3.0, 5.0, 7.0], [5.0, 7.0])
    >>> expected("AllGather", 4, 0, 2).tolist(), expected("AlltoAll", 4, 1, 2).tolist()
    ([0.0, 1.0, 3.0, 4.0], [2.0, 3.0, 3.0, 4.0])
    """
    if op == "Broadcast":
        return values(op, count, ROOT, n)
    each = [values(op, count, r, n) for r in range(n)]
    if op == "AllGather":
        return np.concatenate(each)
    if op == "AlltoAll":
        return np.concatenate([np.split(v, n)[rank] for v in each])
    total = np.sum(each, 0, np.float32)
    return total if op == "AllReduce" else np.split(total, n)[rank]
