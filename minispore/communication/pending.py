"""What comm_func and mint.distributed share: handles of asynchronous calls, and looks at their arguments."""
from collections.abc import Callable, Iterable

import numpy as np

from minispore.common.errors import TraceError, script_line
from minispore.common.parameter import Parameter
from minispore.common.recorder import recorder
from minispore.common.tensor import Tensor
from minispore.communication.communicator import Communicator, Handle
from minispore.communication.management import communicator

EXCHANGE = 0x4000           # the tag of NeighborExchange too, so that one rank may call asynchronously and another one not
Part = tuple[Handle, Callable | None]       # a communication under way, and what is to be done with its result


class CommHandle:
    """An asynchronous communication (MindSpore: `CommHandle`). Its tensors have their values once wait() has returned."""

    def __init__(self, parts: Iterable[Part]):
        self._parts = list(parts)

    def wait(self) -> None:
        """Return when it is complete; a second call does nothing. CollectiveError if it can't complete."""
        while self._parts:
            handle, store = self._parts[0]
            result = handle.wait()
            if store is not None:
                store(result)
            del self._parts[0]

    def is_completed(self) -> bool:
        """Whether it is complete; doesn't wait. Once it says so the tensors have their values."""
        if all([handle.test() for handle, _ in self._parts]):
            self.wait()
        return not self._parts


class Done:
    """A communication that is complete: the last part of a handle, when something is left to do."""

    def test(self): return True
    def wait(self): return None


def finish(parts: Iterable[Part], async_op: bool) -> CommHandle | None:
    """The handle of an asynchronous call; without async_op its end is awaited here, and there is None."""
    work = CommHandle(parts)
    if async_op:
        return work
    work.wait()
    return None


def into(tensor: Tensor) -> Callable:
    """What puts a result into a tensor. Other tensors keep their values, also if they shared its memory."""
    def store(result):
        if isinstance(tensor, Parameter):
            tensor.set_data(Tensor.from_numpy(np.array(result).reshape(tensor.shape)))
        else:
            tensor._array = np.array(result, order="C").reshape(tensor.shape)
    return store


# ---- looks at arguments -------------------------------------------------------------------------------------------------

def not_in_a_graph(name: str, instead: str) -> None:
    """A TraceError where a graph is traced or a gradient taken: what returns before its values are there is no op."""
    if recorder() is not None:
        raise TraceError(f"{name} at {script_line()} is called inside a graph or a gradient; {instead}")


def demand_tensor(name: str, what: str, x) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: {what} is a {type(x).__name__}; give a Tensor")
    return x


def demand_like(name: str, what: str, x, shape, dtype) -> Tensor:
    """A tensor of this shape and dtype."""
    demand_tensor(name, what, x)
    if x.shape != tuple(shape):
        raise ValueError(f"{name}: {what} has shape {x.shape}; here it must have {tuple(shape)}")
    if x.dtype != dtype:
        raise TypeError(f"{name}: {what} is {x.dtype}, its partner {dtype}; use one dtype, e.g. x.astype(ms.{dtype})")
    return x


def demand_list(name: str, what: str, xs, size: int, group: str) -> list:
    """One entry for each rank."""
    if not isinstance(xs, (list, tuple)):
        raise TypeError(f"{name}: {what} is a {type(xs).__name__}; give a list with one entry for each rank")
    if len(xs) != size:
        raise ValueError(f"{name}: {what} has {len(xs)} entries; group {group!r} has {size} ranks, give one for each")
    return list(xs)


def split_sizes(name: str, what: str, sizes, rows: int, comm: Communicator) -> list[int]:
    """How many rows each rank has of `rows`; None: equally many."""
    if sizes is None:
        if rows % comm.size:
            raise ValueError(f"{name}: {rows} rows don't divide by the {comm.size} ranks of group {comm.name!r}; "
                             f"give {what}, one number for each rank")
        return [rows // comm.size] * comm.size
    sizes = demand_list(name, what, sizes, comm.size, comm.name)
    if any(not isinstance(s, (int, np.integer)) or s < 0 for s in sizes) or sum(sizes) != rows:
        raise ValueError(f"{name}: {what} {sizes} must be whole numbers from 0 on that sum up to {rows}, the size of dim 0")
    return [int(s) for s in sizes]


def demand_rows(name: str, what: str, x) -> Tensor:
    """A tensor that has a dim 0."""
    if not demand_tensor(name, what, x).ndim:
        raise ValueError(f"{name}: {what} is a scalar, without a dim 0 to cut; reshape it to (1,)")
    return x


def pieces(x: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """x cut along dim 0."""
    return np.split(x, np.cumsum(sizes)[:-1])


def place(name: str, what: str, rank: int, group: str | None) -> int:
    """The place in the group of a world rank."""
    if not isinstance(rank, (int, np.integer)) or isinstance(rank, bool):
        raise TypeError(f"{name}: {what} {rank!r} is a {type(rank).__name__}; give the rank's number in the world")
    comm = communicator(group)
    if rank not in comm.ranks:
        raise ValueError(f"{name}: {what} {rank} is not in group {comm.name!r}, whose world ranks are {list(comm.ranks)}; "
                         f"{what} is a number in the world, not a place in the group")
    return comm.ranks.index(rank)


def demand_group(name, group):
    if not isinstance(group, str):
        raise TypeError(f"{name}: group {group!r} is a {type(group).__name__}; a group is named by a string")
    return group


def demand_shape(name, shape) -> tuple:
    if isinstance(shape, Tensor):
        return shape.shape
    if not isinstance(shape, (tuple, list)) or any(not isinstance(n, (int, np.integer)) for n in shape):
        raise TypeError(f"{name}: {shape!r} must say a shape: a tuple of whole numbers, or a tensor")
    return tuple(shape)


def check_batch(name, ops, kind) -> list:
    """The P2POps of a batch, which must be of one group."""
    if not isinstance(ops, (list, tuple)) or not ops or not all(isinstance(o, kind) for o in ops):
        raise TypeError(f"{name}: it takes a list of at least one {kind.__name__}, not {ops!r}")
    if len({o.group for o in ops}) > 1:
        raise TypeError(f"{name}: the messages belong to groups {sorted({o.group for o in ops})}; use one group a batch")
    return list(ops)
