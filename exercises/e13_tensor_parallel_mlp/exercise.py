"""E13: an MLP over p ranks with one AllReduce each way.

    y = relu(x @ w1) @ w2          x (rows, d), w1 (d, h), w2 (h, d); no bias

First by strategies. The network of the test is written for one device:

    class MLP(nn.Cell):
        def __init__(self, d, h):
            super().__init__()
            self.up, self.down = nn.Dense(d, h, has_bias=False), nn.Dense(h, d, has_bias=False)

        def construct(self, x):
            return self.down(ops.relu(self.up(x)))

`strategies(p)` returns {"up": …, "down": …}, the in_strategy of each Dense's `matmul`. Mind that nn.Dense keeps its weight
as (out, in): its product is "mk,nk->mn". The batch stays whole.

Then by hand, as the program of one rank, with numpy and a communicator:

    cut(w1, w2, rank, p)       -> the pieces (c1, c2) that rank `rank` of p holds: 1/p of each. Here w1 is (d, h), w2 (h, d)
    forward(comm, x, c1, c2)   -> (y, kept): y, whole on every rank, and what backward will want
    backward(comm, dy, kept, c1, c2)
                               -> (dx, dc1, dc2): the gradients of x (whole on every rank) and of the two pieces, from dy, the
                                  gradient of y, which every rank has whole

comm.all_reduce(a).wait() gives the sum over the ranks. relu's gradient is 1 where its output is greater than 0, else 0.

Graded: strategies that split both weights (2) and compile to one AllReduce each way (2); pieces of 1/p (1); forward (2) and
backward (2) equal to one device's on 1, 2 and 4 ranks; one AllReduce of y's size forward and one of x's size backward, and
nothing else sent (1).
"""
import numpy as np


def strategies(p):
    """The in_strategy of MLP.up.matmul and of MLP.down.matmul, for p ranks."""
    raise NotImplementedError("E13: write strategies(p), see above")


def cut(w1, w2, rank, p):
    """This rank's pieces of the two weights."""
    raise NotImplementedError("E13: write cut(w1, w2, rank, p), see above")


def forward(comm, x, c1, c2):
    """(y, what backward wants)."""
    raise NotImplementedError("E13: write forward(comm, x, c1, c2), see above")


def backward(comm, dy, kept, c1, c2):
    """The gradients of x, c1 and c2."""
    raise NotImplementedError("E13: write backward(comm, dy, kept, c1, c2), see above")
