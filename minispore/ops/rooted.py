"""Gather to one rank and scatter from one rank, as ops. Each is the other's gradient."""
from dataclasses import dataclass

import numpy as np

from minispore.common import dtype as mstype
from minispore.communication.management import HCCL_WORLD_COMM_GROUP
from minispore.ops import functional as F
from minispore.ops.communication import Collective, _peer
from minispore.ops.primitive import Spec


@dataclass(frozen=True)
class CollectiveGather(Collective):
    """The ranks' tensors one behind the other along dim 0, on the rank at place `dest_rank` (MindSpore: `ops.CollectiveGather`).

    The others get zeros of shape (1,), which mean nothing, as in MindSpore.
    """
    dest_rank: int = 0
    group: str = HCCL_WORLD_COMM_GROUP
    gradient_waits = True           # the others' outputs are rarely used, but their gradients come from dest_rank

    def infer(self, x):
        _peer(self, self.dest_rank)
        if not x.shape:
            raise ValueError("CollectiveGather: a scalar has no dim 0 to gather along; reshape it to (1,)")
        here = self.comm.rank == self.dest_rank
        return Spec((x.shape[0] * self.comm.size, *x.shape[1:]) if here else (1,), x.dtype)

    def cpu(self, out, x):
        gathered = self.comm.gather(x, self.dest_rank).wait()
        np.copyto(out, 0 if gathered is None else gathered)

    def gradient(self, x, out, dout):
        if not mstype.is_float(x.dtype):
            return (None,)
        whole = (x.shape[0] * self.comm.size, *x.shape[1:])
        dout = dout if dout.shape == whole else F.zeros(whole, x.dtype)        # only its shape counts there
        return (CollectiveScatter(self.dest_rank, self.group)(dout),)


@dataclass(frozen=True)
class CollectiveScatter(Collective):
    """The r-th part along dim 0 of the tensor at place `src_rank` goes to rank r (MindSpore: `ops.CollectiveScatter`).

    Of the other ranks' tensors only shape and dtype count; they must be the same on all ranks.
    """
    src_rank: int = 0
    group: str = HCCL_WORLD_COMM_GROUP
    gradient_waits = True

    def infer(self, x):
        _peer(self, self.src_rank)
        return Spec((self.rows(x, self.comm.size), *x.shape[1:]), x.dtype)

    def cpu(self, out, x):
        np.copyto(out, self.comm.scatter(x, self.src_rank).wait())

    def gradient(self, x, out, dout):
        if not mstype.is_float(x.dtype):
            return (None,)
        gathered = CollectiveGather(self.src_rank, self.group)(dout)
        return (gathered if self.comm.rank == self.src_rank else F.zeros(x.shape, x.dtype),)
