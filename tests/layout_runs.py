"""A small network that trains in several layouts, for the tests of checkpoints that change layout."""
import numpy as np

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.communication import get_rank, init
from minispore.lab import run_ranks
from minispore.parallel.layout import TensorLayout
from minispore.parallel.mesh import Mesh
from minispore.parallel.program import lay_out

# ranks: strategies of the two products
STRATEGIES = {
    8: (((2, 2), (2, 2)), ((2, 4), (4, 1))),
    4: (((1, 4), (4, 1)), ((2, 1), (1, 2))),
    3: (((1, 1), (1, 3)), ((1, 3), (3, 1))),
    1: (((1, 1), (1, 1)), ((1, 1), (1, 1))),
}
# how the first moments lie, which are laid out otherwise than their parameters: axes of dim 0 and dim 1, by ranks
MOMENTS = {8: ((2, 0), (1,)), 4: ((), (1, 0)), 3: ((0,), ()), 1: ((), ())}


class Net(nn.Cell):
    def __init__(self, n):
        super().__init__()
        rng = np.random.default_rng(0)
        self.w1 = Parameter(Tensor(rng.normal(size=(24, 48)).astype(np.float32) / 5), name="w1")
        self.w2 = Parameter(Tensor(rng.normal(size=(48, 24)).astype(np.float32) / 7), name="w2")
        self.b = Parameter(Tensor(np.zeros(24, np.float32)), name="b")
        self.first, self.second = (ops.MatMul().shard(s) for s in STRATEGIES[n])

    def construct(self, x):
        return self.second(ops.relu(self.first(x, self.w1)), self.w2) + self.b


def training(n):
    """A rank's training cell in the layout for n ranks."""
    net = Net(n)
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.01))


def batch(step):
    rng = np.random.default_rng(100 + step)
    return [Tensor(rng.normal(size=(24, 24)).astype(np.float32)) for _ in range(2)]


def train(cell, steps):
    return [float(cell(*batch(step))) for step in steps]


def spread_moments(cell, n):
    """Lay out the first moments in another way than their parameters, as a sharded optimizer does."""
    for p in cell.get_parameters():
        if p.name.startswith("moment1.w"):
            lay_out(p, Mesh(n), TensorLayout(MOMENTS[n]))


def laid_out(n):
    """A training cell that has run, so that its parameters and moments lie in pieces."""
    cell = training(n)
    spread_moments(cell, n)
    train(cell, [50])
    return cell


def whole(cell):
    """All values as logical arrays; a collective."""
    return {p.name: p.full().asnumpy() for p in cell.get_parameters()}


def same(a, b):
    return a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and
                                        a[n].tobytes() == b[n].tobytes() for n in a)


def on_ranks(n, fn, *args, **context):
    """Run fn(rank, *args) on n thread ranks in semi_auto_parallel mode."""
    def program():
        init()
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", **context)
        return fn(get_rank(), *args)
    return run_ranks(program, n)
