"""Networks and data that several tests use."""
from pathlib import Path

import numpy as np

import minispore as ms
from minispore import Tensor, nn, ops

GOLDEN = Path(__file__).parent / "golden"


class LeNet5(nn.Cell):
    """The first document's network."""

    def __init__(self, dtype=ms.float32):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid", dtype=dtype)
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", dtype=dtype)
        self.fc1 = nn.Dense(16 * 4 * 4, 120, dtype=dtype)
        self.fc2 = nn.Dense(120, 84, dtype=dtype)
        self.fc3 = nn.Dense(84, 10, dtype=dtype)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = ops.flatten(x, 1)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


def golden_lenet():
    """(LeNet's golden values, training images (n, 1, 28, 28) normalised, labels int32)."""
    golden = np.load(GOLDEN / "lenet.npz")
    return golden, normalised(golden["train_x"]), golden["train_y"].astype(np.int32)


def normalised(images):
    """What Rescale(1/255, 0), Normalize(0.1307, 0.3081) and HWC2CHW make of them."""
    x = images.astype(np.float32) * np.float32(1 / 255)
    return ((x - np.float32(0.1307)) / np.float32(0.3081))[:, None]


def train_steps(net, optimizer, x, y, batch, steps, dtype=np.float32):
    """Losses of `steps` steps on this rank's strided share of each global batch, without shuffling."""
    rank, ranks = ms.get_rank(), ms.get_group_size()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    losses = []
    for i in range(steps):
        at = i * batch % (len(x) // batch * batch)
        rows = slice(at + rank, at + batch, ranks)
        losses.append(float(step(Tensor(x[rows].astype(dtype)), Tensor(y[rows]))))
    return losses
