"""Communication as ops: they trace, they differentiate, and they run in the order of the program.

Gradients are those of **the sum of all ranks' losses**: what one rank's output did to any rank's loss comes back to it.
So AllReduce(sum) answers with AllReduce(sum), AllGather with ReduceScatter, Broadcast with Reduce, Send with Receive.
These ops are for the local view (data and hybrid parallel); a logical program gets its collectives from the compiler.
"""
from dataclasses import dataclass
from functools import partial

import numpy as np

from minispore.common import dtype as mstype
from minispore.communication.management import HCCL_WORLD_COMM_GROUP, communicator
from minispore.ops import functional as F
from minispore.ops.primitive import Primitive, Spec, normal_axis
from minispore.ops.reduce import product_of_others


class ReduceOp:
    """Names of reductions (MindSpore: `ops.ReduceOp`)."""
    SUM, MAX, MIN, PROD = "sum", "max", "min", "prod"


class Collective(Primitive):
    """Base: an op all ranks of `group` call together."""
    effect, widens = True, False

    def rule(self, *shapes):
        return None

    def flops(self, *xs):
        return 0

    @property
    def comm(self):
        return communicator(self.group)

    def forward(self, *xs):
        raise TypeError(f"{self.name} runs on CPU ranks' arrays; device arrays come with the native backend")

    def cpu(self, out, *xs):
        for handle in self.post(out, *xs):
            handle.wait()

    def rows(self, x, parts, what="dim 0"):
        if not x.shape or x.shape[0] % parts:
            raise ValueError(f"{self.name}: {what} of shape {x.shape} must divide by {parts}, the ranks of group "
                             f"{self.group}; pad the tensor or use another group")
        return x.shape[0] // parts


@dataclass(frozen=True)
class Reducing(Collective):
    """A collective with a reduction: "sum", "max", "min" or "prod"."""
    op: str = ReduceOp.SUM
    group: str = HCCL_WORLD_COMM_GROUP

    def __post_init__(self):
        if self.op not in ("sum", "max", "min", "prod"):
            raise ValueError(f"{self.name}: op {self.op!r} must be one of ops.ReduceOp: 'sum', 'max', 'min', 'prod'")

    def pull_back(self, x, whole, upstream):
        """The gradient to this rank's x; `whole` is the reduction, `upstream` its gradient summed over the ranks."""
        if self.op == "sum":
            return upstream
        if self.op == "prod":
            everybody = AllGather(self.group)(F.expand_dims(x, 0))
            last = F.transpose(everybody, (*range(1, everybody.ndim), 0))
            return upstream * product_of_others(last)[..., self.comm.rank]
        won = F.cast(F.equal(x, whole), upstream.dtype)             # max, min: ties share equally
        return upstream * won / AllReduce("sum", self.group)(won)


class AllReduce(Reducing):
    """The reduction of the ranks' tensors, on all of them (MindSpore: `ops.AllReduce`)."""

    def post(self, out, x):
        return [self.comm.all_reduce(x, self.op, out=out)]

    def cpu(self, out, x):
        self.comm.all_reduce_now(x, self.op, out)

    def gradient(self, x, out, dout):
        return (self.pull_back(x, out, AllReduce("sum", self.group)(dout)),)


class ReduceScatter(Reducing):
    """The reduction, cut along dim 0; each rank keeps its part (MindSpore: `ops.ReduceScatter`)."""

    def infer(self, x):
        return Spec((self.rows(x, self.comm.size), *x.shape[1:]), x.dtype)

    def post(self, out, x):
        return [self.comm.reduce_scatter(x, self.op).then(partial(np.copyto, out))]

    def gradient(self, x, out, dout):
        gather = AllGather(self.group)
        return (self.pull_back(x, gather(out), gather(dout)),)


@dataclass(frozen=True)
class AllGather(Collective):
    """The ranks' tensors one behind the other along dim 0 (MindSpore: `ops.AllGather`)."""
    group: str = HCCL_WORLD_COMM_GROUP

    def infer(self, x):
        if not x.shape:
            raise ValueError("AllGather: a scalar has no dim 0 to gather along; reshape it to (1,)")
        return Spec((x.shape[0] * self.comm.size, *x.shape[1:]), x.dtype)

    def post(self, out, x):
        return [self.comm.all_gather(x).then(partial(np.copyto, out))]

    def gradient(self, x, out, dout):
        return (ReduceScatter("sum", self.group)(dout),)


@dataclass(frozen=True)
class Broadcast(Collective):
    """root's tensor(s) on all ranks; takes and returns a tuple, as MindSpore's. `root_rank` is a place in the group."""
    root_rank: int = 0
    group: str = HCCL_WORLD_COMM_GROUP
    arity = None

    def infer(self, *xs):
        if not 0 <= self.root_rank < self.comm.size:
            raise ValueError(f"Broadcast: root_rank {self.root_rank} is not in 0 … {self.comm.size - 1}, the places of "
                             f"group {self.group}")
        return [Spec(x.shape, x.dtype) for x in xs]

    def post(self, out, *xs):
        return [self.comm.broadcast(x, self.root_rank).then(partial(np.copyto, o)) for o, x in zip(out, xs, strict=True)]

    def gradient(self, *xs_outs_douts):
        *_xs, _outs, douts = xs_outs_douts
        return [Reduce(self.root_rank, "sum", self.group)(d) for d in douts]


@dataclass(frozen=True)
class Reduce(Collective):
    """The reduction on the rank at place `dest_rank`, zeros on the others (MindSpore: `ops.Reduce`)."""
    dest_rank: int = 0
    op: str = ReduceOp.SUM
    group: str = HCCL_WORLD_COMM_GROUP
    gradient_waits = True           # the others' outputs are rarely used, but their gradients come from dest_rank

    __post_init__, pull_back = Reducing.__post_init__, Reducing.pull_back

    def infer(self, x):
        _peer(self, self.dest_rank)
        return Spec(x.shape, x.dtype)

    def post(self, out, x):
        mine = self.comm.rank == self.dest_rank
        return [self.comm.reduce(x, self.dest_rank, self.op).then(lambda result: np.copyto(out, result if mine else 0))]

    def gradient(self, x, out, dout):
        if not mstype.is_float(x.dtype):
            return (None,)
        broadcast = Broadcast(self.dest_rank, self.group)
        return (self.pull_back(x, out if self.op == "sum" else broadcast((out,))[0], broadcast((dout,))[0]),)


@dataclass(frozen=True)
class AlltoAll(Collective):
    """Part r along split_dim goes to rank r; what arrives is joined along concat_dim (MindSpore: `ops.AlltoAll`)."""
    split_count: int
    split_dim: int = 0
    concat_dim: int = 0
    group: str = HCCL_WORLD_COMM_GROUP

    def infer(self, x):
        split, join = (normal_axis(d, len(x.shape), self) for d in (self.split_dim, self.concat_dim))
        if self.split_count != self.comm.size:
            raise ValueError(f"AlltoAll: split_count {self.split_count} must be the group's size, {self.comm.size}")
        if x.shape[split] % self.split_count:
            raise ValueError(f"AlltoAll: dim {split} of shape {x.shape} must divide by split_count {self.split_count}")
        shape = list(x.shape)
        shape[split] //= self.split_count
        shape[join] *= self.split_count
        return Spec(tuple(shape), x.dtype)

    def post(self, out, x):
        parts = np.stack(np.split(x, self.split_count, self.split_dim))
        return [self.comm.all_to_all(parts).then(lambda arrived: np.concatenate(list(arrived), self.concat_dim, out=out))]

    def gradient(self, x, out, dout):
        return (AlltoAll(self.split_count, self.concat_dim, self.split_dim, self.group)(dout),)


@dataclass(frozen=True)
class Send(Collective):
    """Send x to `dest_rank` (a place in the group) and return it; its gradient comes back from there.

    The message is copied first, so Send never waits (MindSpore: `ops.Send`).
    """
    sr_tag: int
    dest_rank: int
    group: str = HCCL_WORLD_COMM_GROUP
    gradient_waits = True

    def cpu(self, out, x):
        self.comm.send(x, _peer(self, self.dest_rank), self.sr_tag)
        np.copyto(out, x)

    def gradient(self, x, out, dout):
        if not mstype.is_float(x.dtype):
            return (None,)
        return (dout + Receive(_back(self.sr_tag), self.dest_rank, x.shape, x.dtype, self.group)(),)


@dataclass(frozen=True)
class Receive(Collective):
    """The tensor that `src_rank` (a place in the group) sends; its gradient is sent back (MindSpore: `ops.Receive`)."""
    sr_tag: int
    src_rank: int
    shape: tuple
    dtype: np.dtype
    group: str = HCCL_WORLD_COMM_GROUP
    arity, gradient_waits = 0, True

    def __post_init__(self):
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", mstype.to_dtype(self.dtype))

    def infer(self):
        return Spec(self.shape, self.dtype)

    def cpu(self, out):
        np.copyto(out, self.comm.receive(self.shape, self.dtype, _peer(self, self.src_rank), self.sr_tag).wait())

    def gradient(self, out, dout):
        if mstype.is_float(self.dtype):
            Send(_back(self.sr_tag), self.src_rank, self.group)(dout)
        return ()


@dataclass(frozen=True)
class NeighborExchange(Collective):
    """Each tensor goes to its neighbour, one comes from each of some neighbours (MindSpore: `ops.NeighborExchange`).

    Tensor i of the tuple given goes to send_rank_ids[i]; output i, of shape recv_shapes[i], comes from recv_rank_ids[i].
    Ranks are places in the group. Between two ranks tensors meet in the order in which they stand there.
    """
    send_rank_ids: tuple
    recv_rank_ids: tuple
    recv_shapes: tuple
    send_shapes: tuple
    recv_type: np.dtype
    group: str = HCCL_WORLD_COMM_GROUP
    arity, gradient_waits = None, True

    def __post_init__(self):
        set_ = object.__setattr__
        for name in ("send_rank_ids", "recv_rank_ids"):
            set_(self, name, tuple(getattr(self, name)))
        for name in ("recv_shapes", "send_shapes"):
            set_(self, name, tuple(map(tuple, getattr(self, name))))
        set_(self, "recv_type", mstype.to_dtype(self.recv_type))
        for ids, shapes in (("send_rank_ids", "send_shapes"), ("recv_rank_ids", "recv_shapes")):
            if len(getattr(self, ids)) != len(getattr(self, shapes)):
                raise ValueError(f"NeighborExchange: {ids} names {len(getattr(self, ids))} ranks, {shapes} has "
                                 f"{len(getattr(self, shapes))} shapes; one for each")

    def infer(self, *xs):
        for rank in (*self.send_rank_ids, *self.recv_rank_ids):
            _peer(self, rank)
        if tuple(x.shape for x in xs) != self.send_shapes:
            raise ValueError(f"NeighborExchange: the tensors have shapes {[x.shape for x in xs]}, send_shapes says "
                             f"{list(self.send_shapes)}")
        return [Spec(shape, self.recv_type) for shape in self.recv_shapes]

    def cpu(self, out, *xs):
        comm = self.comm
        for x, rank in zip(xs, self.send_rank_ids, strict=True):
            comm.send(x, rank, _NEIGHBOUR)
        handles = [comm.receive(o.shape, o.dtype, rank, _NEIGHBOUR) for o, rank in zip(out, self.recv_rank_ids, strict=True)]
        for o, handle in zip(out, handles, strict=True):
            np.copyto(o, handle.wait())

    def gradient(self, *args):
        xs, douts = args[:-2], args[-1]
        if not mstype.is_float(self.recv_type):
            return [None for _ in xs]
        back = NeighborExchange(self.recv_rank_ids, self.send_rank_ids, self.send_shapes, self.recv_shapes,
                                xs[0].dtype if xs else self.recv_type, self.group)
        return list(back(tuple(douts)))


_NEIGHBOUR = 0x4000         # the tag of NeighborExchange's messages


@dataclass(frozen=True)
class Barrier(Collective):
    """Returns when all ranks of the group have called it (MindSpore: `ops.Barrier()()`)."""
    group: str = HCCL_WORLD_COMM_GROUP
    arity = 0

    def infer(self):
        return []

    def cpu(self, out):
        self.comm.barrier().wait()

    def gradient(self, outs, douts):
        return ()


def _peer(op, place):
    if not 0 <= place < op.comm.size:
        raise ValueError(f"{op.name}: rank {place} is not in 0 … {op.comm.size - 1}, the places of group {op.group}")
    return place


def _back(tag: int) -> int:
    """The tag of the gradient's way back: unlike any the user is likely to take, and its own inverse."""
    return tag ^ 0x8000


def fused(collective, tensors: list) -> list:
    """One collective on many tensors: flattened, joined into one message a dtype, and taken apart again."""
    out: list = [None] * len(tensors)
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        members = [i for i, t in enumerate(tensors) if t.dtype == dtype]
        flat = collective(F.concat([F.reshape(tensors[i], (-1,)) for i in members]))
        at = 0
        for i in members:
            out[i] = F.reshape(F.narrow(flat, 0, at, tensors[i].size), tensors[i].shape)
            at += tensors[i].size
    return out
