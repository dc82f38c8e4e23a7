"""Run by msrun in tests/test_memory.py: peak resident memory of a rank of a large MLP under no_init_parameters.

Arguments: layers, width, folder. Prints nothing; writes {rank}.json with bytes above the empty process.
"""
import gc
import json
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import numpy as np

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.nn.utils import no_init_parameters


class Layer(nn.Cell):
    """x @ w with w split into 4 by rows or by columns."""

    def __init__(self, width, by_rows):
        super().__init__()
        self.weight = ms.Parameter(ms.common.initializer.initializer("normal", (width, width)), name="weight")
        self.matmul = ops.MatMul().shard(((1, 4), (4, 1)) if by_rows else ((1, 1), (1, 4)))

    def construct(self, x):
        return self.matmul(x, self.weight)


def peak() -> int:
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024


def main():
    layers, width, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    ms.init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    ops.AllReduce()(Tensor(np.ones(1, np.float32)))        # an empty process is one that has loaded what ranks need
    empty, found = peak(), {}
    with no_init_parameters():
        net = nn.SequentialCell([Layer(width, i % 2 == 1) for i in range(layers)])
        optimizers = {"SGD": nn.SGD(net.trainable_params(), 0.01), "Adam": nn.Adam(net.trainable_params(), 0.01)}
    x = Tensor(np.ones((8, width), np.float32))
    net(x)
    found["forward"] = peak() - empty
    for name, optimizer in optimizers.items():
        nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)(x, x)
        found[name] = peak() - empty
        gc.collect()                    # a program's memory goes with the cell it was compiled for
    (folder / f"{ms.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
