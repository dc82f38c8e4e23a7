"""Communication as functions (MindSpore: `mindspore.communication.comm_func`).

They return new tensors; `src`, `dst` and `peer` are ranks of the world, whatever the group. Without async_op they are made of
ops, so they trace and differentiate, to the gradients of the sum of all ranks' losses (ops/communication.py). What returns a
handle is for PYNATIVE_MODE, outside of gradients: its tensor has its values once handle.wait() has returned.

All raise TypeError for what is no tensor and groups that are no strings, ValueError for ranks outside the group and shapes that
don't fit, RuntimeError before init(), CollectiveError where it can't complete.
"""
import numpy as np

from minispore.common import dtype as mstype
from minispore.common.tensor import Tensor
from minispore.communication.management import HCCL_WORLD_COMM_GROUP, communicator
from minispore.communication.pending import (
    EXCHANGE,
    CommHandle,
    Done,
    check_batch,
    demand_group,
    demand_list,
    demand_rows,
    demand_shape,
    demand_tensor,
    into,
    not_in_a_graph,
    pieces,
    place,
    split_sizes,
)
from minispore.ops import communication as C
from minispore.ops import functional as F
from minispore.ops.rooted import CollectiveGather, CollectiveScatter

__all__ = [
    "P2POp", "all_gather_into_tensor", "all_reduce", "all_to_all_single_with_output_shape", "all_to_all_with_output_shape",
    "barrier", "batch_isend_irecv", "broadcast", "gather_into_tensor", "irecv", "isend", "recv", "reduce",
    "reduce_scatter_tensor", "scatter_tensor", "send",
]
LATER = "async_op=True is for PYNATIVE_MODE outside of gradients. Leave it out: a graph's collectives are ops"


def all_reduce(tensor, op="sum", group=HCCL_WORLD_COMM_GROUP, async_op=False):
    """The reduction of the ranks' tensors, on all of them (MindSpore: `comm_func.all_reduce`).

    Args:
        tensor: of any shape, the same on all ranks, and any dtype.
        op: "sum", "max", "min" or "prod".

    Returns: (tensor of this shape and dtype, handle); the handle is None without async_op.

    >>> from minispore import Tensor
    >>> from minispore.communication import get_rank, init
    >>> from minispore.lab import run_ranks
    >>> def program():
    ...     init()
    ...     return all_reduce(Tensor([1.0, get_rank()]))[0].tolist()
    >>> run_ranks(program, 3)
    [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
    """
    prim = C.AllReduce(op, demand_group("all_reduce", group))
    return _run("all_reduce", prim, tensor, async_op, lambda comm, x: comm.all_reduce(x, op))


def all_gather_into_tensor(tensor, group=HCCL_WORLD_COMM_GROUP, async_op=False):
    """The ranks' tensors (k, …) one behind the other: (ranks·k, …) (MindSpore: `comm_func.all_gather_into_tensor`).

    Returns: (tensor, handle); the handle is None without async_op.
    """
    prim = C.AllGather(demand_group("all_gather_into_tensor", group))
    return _run("all_gather_into_tensor", prim, tensor, async_op, lambda comm, x: comm.all_gather(x))


def reduce_scatter_tensor(tensor, op="sum", group=HCCL_WORLD_COMM_GROUP, async_op=False):
    """The reduction of the ranks' tensors (ranks·k, …), of which rank r gets the r-th part (k, …).

    Returns: (tensor, handle); the handle is None without async_op (MindSpore: `comm_func.reduce_scatter_tensor`).
    """
    prim = C.ReduceScatter(op, demand_group("reduce_scatter_tensor", group))
    return _run("reduce_scatter_tensor", prim, tensor, async_op, lambda comm, x: comm.reduce_scatter(x, op))


def all_to_all_with_output_shape(output_shape_list, input_tensor_list, group=None, async_op=False):
    """The r-th tensor goes to rank r of the group; the s-th result came from rank s.

    Args:
        output_shape_list: for each rank the shape of what comes from it: a tuple, or a tensor of that shape.
        input_tensor_list: for each rank what goes there, of any shapes and one dtype; receiver and sender must agree.

    Returns: (tuple of tensors, handle); the handle is None without async_op (MindSpore:
    `comm_func.all_to_all_with_output_shape`).
    """
    name, comm = _begun("all_to_all_with_output_shape", async_op), communicator(group)
    xs = demand_list(name, "input_tensor_list", input_tensor_list, comm.size, comm.name)
    shapes = [demand_shape(name, s) for s in demand_list(name, "output_shape_list", output_shape_list, comm.size, comm.name)]
    for x in xs:
        demand_tensor(name, "an input", x)
    if len({x.dtype for x in xs}) > 1:
        raise TypeError(f"{name}: the inputs have dtypes {', '.join(str(x.dtype) for x in xs)}; use one for all")
    return _exchange(comm, xs, shapes, async_op)


def all_to_all_single_with_output_shape(output_shape, tensor, output_split_sizes=None, input_split_sizes=None, group=None,
                                        async_op=False):
    """Parts of dim 0 go to the ranks; what comes from them is joined along dim 0.

    Args:
        output_shape: the result's shape: a tuple, or a tensor of that shape.
        tensor: (rows, …); output_shape must agree with it in all dims but the first.
        output_split_sizes, input_split_sizes: rows from and to each rank; None: equally many.

    Returns: (tensor, handle); the handle is None without async_op (MindSpore:
    `comm_func.all_to_all_single_with_output_shape`).

    >>> from minispore import Tensor
    >>> from minispore.communication import get_rank, init
    >>> from minispore.lab import run_ranks
    >>> def program():
    ...     init()
    ...     x = Tensor([10 * get_rank() + i for i in range(2)])
    ...     return all_to_all_single_with_output_shape((2,), x)[0].tolist()
    >>> run_ranks(program, 2)
    [[0, 10], [1, 11]]
    """
    name, comm = _begun("all_to_all_single_with_output_shape", async_op), communicator(group)
    shape, x = demand_shape(name, output_shape), demand_rows(name, "tensor", tensor)
    if len(shape) != x.ndim or shape[1:] != x.shape[1:]:
        raise ValueError(f"{name}: output_shape {shape} and the tensor's {x.shape} must agree in all dims but the first")
    outgoing = split_sizes(name, "input_split_sizes", input_split_sizes, x.shape[0], comm)
    incoming = split_sizes(name, "output_split_sizes", output_split_sizes, shape[0], comm)
    starts = [sum(outgoing[:i]) for i in range(comm.size)]
    xs = [F.narrow(x, 0, at, n) for at, n in zip(starts, outgoing, strict=True)] if not async_op else [
        Tensor.from_numpy(p) for p in pieces(x._data(), outgoing)]
    parts, handle = _exchange(comm, xs, [(n, *shape[1:]) for n in incoming], async_op)
    if handle is None:
        return F.concat(parts), None
    result = Tensor.from_numpy(np.zeros(shape, x.dtype))
    handle._parts.append((Done(), lambda _: into(result)(np.concatenate([p._data() for p in parts]))))
    return result, handle


def barrier(group=HCCL_WORLD_COMM_GROUP):
    """Returns when all ranks of the group have called it (MindSpore: `comm_func.barrier`)."""
    C.Barrier(demand_group("barrier", group))()


def broadcast(tensor, src=0, group=HCCL_WORLD_COMM_GROUP):
    """World rank src's tensor, on all ranks of the group; shape and dtype must be the same everywhere.

    Returns: a tensor of this shape and dtype (MindSpore: `comm_func.broadcast`).
    """
    demand_tensor("broadcast", "tensor", tensor)
    return C.Broadcast(place("broadcast", "src", src, demand_group("broadcast", group)), group)((tensor,))[0]


def gather_into_tensor(tensor, dst=0, group=HCCL_WORLD_COMM_GROUP):
    """The ranks' tensors (k, …) one behind the other, on world rank dst: (ranks·k, …).

    The others get zeros of shape (1,), which mean nothing (MindSpore: `comm_func.gather_into_tensor`).
    """
    demand_tensor("gather_into_tensor", "tensor", tensor)
    at = place("gather_into_tensor", "dst", dst, demand_group("gather_into_tensor", group))
    return CollectiveGather(at, group)(tensor)


def scatter_tensor(tensor, src=0, group=HCCL_WORLD_COMM_GROUP):
    """World rank src's tensor (ranks·k, …), cut along dim 0: (k, …) to each rank (MindSpore: `comm_func.scatter_tensor`).

    The other ranks' tensors say but shape and dtype.
    """
    demand_tensor("scatter_tensor", "tensor", tensor)
    return CollectiveScatter(place("scatter_tensor", "src", src, demand_group("scatter_tensor", group)), group)(tensor)


def reduce(tensor, dst, op="sum", group=HCCL_WORLD_COMM_GROUP):
    """The reduction of the ranks' tensors on world rank dst.

    Returns: a tensor of this shape and dtype; on the other ranks it is zeros, which mean nothing (MindSpore's has shape (1,)
    there; `comm_func.reduce`).
    """
    demand_tensor("reduce", "tensor", tensor)
    return C.Reduce(place("reduce", "dst", dst, demand_group("reduce", group)), op, group)(tensor)


# ---- single messages ----------------------------------------------------------------------------------------------------

def send(tensor, dst=0, group=HCCL_WORLD_COMM_GROUP, tag=0):
    """Send to world rank dst; it is copied first, so this doesn't wait (MindSpore: `comm_func.send`)."""
    demand_tensor("send", "tensor", tensor)
    C.Send(tag, place("send", "dst", dst, demand_group("send", group)), group)(tensor)


def recv(tensor, src=0, group=HCCL_WORLD_COMM_GROUP, tag=0):
    """What world rank src sends with this tag, a tensor of `tensor`'s shape and dtype (MindSpore: `comm_func.recv`)."""
    demand_tensor("recv", "tensor", tensor)
    return C.Receive(tag, place("recv", "src", src, demand_group("recv", group)), tensor.shape, tensor.dtype, group)()


def isend(tensor, dst=0, group=HCCL_WORLD_COMM_GROUP, tag=0):
    """Begin to send to world rank dst. Returns: a handle (MindSpore: `comm_func.isend`)."""
    demand_tensor("isend", "tensor", tensor)
    not_in_a_graph("isend", "use send there, which is an op and doesn't wait either")
    to = place("isend", "dst", dst, demand_group("isend", group))
    return CommHandle([(communicator(group).send(tensor._data(), to, tag), None)])


def irecv(tensor, src=0, group=HCCL_WORLD_COMM_GROUP, tag=0):
    """Begin to receive from world rank src. Returns: (tensor of `tensor`'s shape and dtype, handle).

    MindSpore: `comm_func.irecv`.
    """
    demand_tensor("irecv", "tensor", tensor)
    not_in_a_graph("irecv", "use recv there, which is an op")
    source = place("irecv", "src", src, demand_group("irecv", group))
    out = Tensor.from_numpy(np.zeros(tensor.shape, tensor.dtype))
    return out, CommHandle([(communicator(group).receive(out.shape, out.dtype, source, tag), into(out))])


class P2POp:
    """One message of batch_isend_irecv (MindSpore: `comm_func.P2POp`).

    Args:
        op: "isend" or "irecv", or one of these functions.
        tensor: what is sent; for "irecv" a tensor of the shape and dtype that come, or the shape with recv_dtype.
        peer: the other's rank in the world.
    """

    def __init__(self, op, tensor, peer, group=None, tag=0, *, recv_dtype=None):
        kind = op if isinstance(op, str) else getattr(op, "__name__", None)
        if kind not in ("isend", "irecv"):
            raise ValueError(f"P2POp: op {op!r} must be 'isend' or 'irecv', or one of these functions")
        if isinstance(tensor, (tuple, list)) and kind == "irecv":
            if recv_dtype is None:
                raise TypeError(f"P2POp: the shape {tuple(tensor)} is to be received, of unknown dtype; give recv_dtype")
            self.shape, self.dtype = tuple(tensor), mstype.to_dtype(recv_dtype)
        else:
            demand_tensor("P2POp", "tensor", tensor)
            self.shape, self.dtype = tensor.shape, tensor.dtype
        self.op, self.tensor, self.peer, self.group, self.tag = kind, tensor, peer, group or HCCL_WORLD_COMM_GROUP, tag


def batch_isend_irecv(p2p_op_list):
    """Many messages at once: all are sent before the first is waited for, so no order of the list can hang.

    Returns: a tuple of tensors, one for each P2POp: what was received, or where it sends a zero that means nothing (MindSpore:
    `comm_func.batch_isend_irecv`).

    >>> from minispore import Tensor
    >>> from minispore.communication import get_rank, init
    >>> from minispore.lab import run_ranks
    >>> def program():
    ...     init()
    ...     x, other = Tensor(10.0 * get_rank()), 1 - get_rank()
    ...     return batch_isend_irecv([P2POp("irecv", x, other), P2POp("isend", x, other)])[0].item()
    >>> run_ranks(program, 2)
    [10.0, 0.0]
    """
    ops = check_batch("batch_isend_irecv", p2p_op_list, P2POp)
    places = [place("batch_isend_irecv", "peer", o.peer, o.group) for o in ops]
    for o, at in zip(ops, places, strict=True):
        if o.op == "isend":
            C.Send(o.tag, at, o.group)(o.tensor)
    return tuple(C.Receive(o.tag, at, o.shape, o.dtype, o.group)() if o.op == "irecv" else F.zeros((), o.dtype)
                 for o, at in zip(ops, places, strict=True))


# ---- what they share ----------------------------------------------------------------------------------------------------

def _begun(name, async_op):
    """The name, once we know that we are in no graph if async_op."""
    if async_op:
        not_in_a_graph(name, LATER)
    return name


def _run(name, prim, tensor, async_op, begin):
    """The op's result, or the same begun: its tensor and handle."""
    demand_tensor(_begun(name, async_op), "tensor", tensor)
    if not async_op:
        return prim(tensor), None
    spec = prim.infer(tensor)
    out = Tensor.from_numpy(np.zeros(spec.shape, spec.dtype))
    return out, CommHandle([(begin(prim.comm, tensor._data()), into(out))])


def _exchange(comm, xs, shapes, async_op):
    """Tensor r to rank r, and one of the s-th shape from rank s."""
    everybody, dtype = tuple(range(comm.size)), xs[0].dtype
    if not async_op:
        exchange = C.NeighborExchange(everybody, everybody, shapes, [x.shape for x in xs], dtype, comm.name)
        return exchange(tuple(xs)), None
    outs = [Tensor.from_numpy(np.zeros(s, dtype)) for s in shapes]
    sent = [(comm.send(x._data(), r, EXCHANGE), None) for r, x in enumerate(xs)]
    came = [(comm.receive(o.shape, dtype, r, EXCHANGE), into(o)) for r, o in enumerate(outs)]
    return tuple(outs), CommHandle(sent + came)
