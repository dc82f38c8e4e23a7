"""The training steps that `minispore bench calibrate` takes its times from: of every common kind, small and larger."""
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

import minispore as ms
from minispore import Tensor, nn, ops

ADAM, MOMENTUM = (lambda p: nn.Adam(p, 1e-4)), (lambda p: nn.Momentum(p, 1e-4, 0.9))
SGD, DECAY = (lambda p: nn.SGD(p, 1e-4)), (lambda p: nn.AdamWeightDecay(p, 1e-4))


def steps(few: bool = False) -> Iterator[tuple[str, Callable, list[Tensor]]]:
    """(name, training step, its inputs). few: only the smallest of each kind."""
    yield case("mlp 8 × 24-48", classifier(mlp(24, 48)), SGD, floats(8, 24), classes(8, 48))
    yield case("conv 4 × 2 × 12²", classifier(convolutions(2, 6, 12, 3, 5)), MOMENTUM, floats(4, 2, 12, 12), classes(4, 5))
    yield case("transformer 2 × 8 × 16", Language(30, 16, 2), ADAM, classes((2, 8), 30), classes((2, 8), 30))
    yield case("others 4 × 6 × 8", Others(8), DECAY, floats(4, 6, 8))
    yield case("mlp 30 × 72-240-24, float64", classifier(mlp(72, 240, 24, dtype=ms.float64)), SGD,
               floats(30, 72, dtype=np.float64), classes(30, 24))
    if few:
        return
    yield case("mlp 48 × 160-320-24", classifier(mlp(160, 320, 24)), MOMENTUM, floats(48, 160), classes(48, 24))
    yield case("mlp 320 × 96-224-224-12", classifier(mlp(96, 224, 224, 12)), ADAM, floats(320, 96), classes(320, 12))
    yield case("mlp 24 × 900-1400-700", classifier(mlp(900, 1400, 700)), SGD, floats(24, 900), classes(24, 700))
    yield case("mlp 160 × 640-640-640", classifier(mlp(640, 640, 640)), ADAM, floats(160, 640), classes(160, 640))
    yield case("mlp 1200 × 32-600-20", classifier(mlp(32, 600, 20)), SGD, floats(1200, 32), classes(1200, 20))
    yield case("conv 12 × 3 × 24²", classifier(convolutions(3, 12, 24, 3, 10)), ADAM, floats(12, 3, 24, 24), classes(12, 10))
    yield case("conv 40 × 1 × 20²", classifier(convolutions(1, 10, 20, 5, 30)), SGD, floats(40, 1, 20, 20), classes(40, 30))
    yield case("conv 6 × 20 × 16²", classifier(convolutions(20, 40, 16, 3, 10)), MOMENTUM, floats(6, 20, 16, 16), classes(6, 10))
    yield case("transformer 6 × 24 × 48", Language(250, 48, 4), MOMENTUM, classes((6, 24), 250), classes((6, 24), 250))
    yield case("transformer 3 × 80 × 112", Language(900, 112, 7), ADAM, classes((3, 80), 900), classes((3, 80), 900))
    yield case("transformer 12 × 20 × 160", Language(100, 160, 5), SGD, classes((12, 20), 100), classes((12, 20), 100))
    yield case("others 24 × 40 × 64", Others(64), DECAY, floats(24, 40, 64))
    yield case("others 10 × 120 × 180", Others(180), SGD, floats(10, 120, 180))


def case(name: str, network: nn.Cell, optimizer: Callable, *inputs: Tensor) -> tuple[str, Callable, list[Tensor]]:
    return name, nn.TrainOneStepCell(network.set_train(), optimizer(network.trainable_params())), list(inputs)


def floats(*shape: int, dtype=np.float32) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(dtype))


def classes(shape, n: int) -> Tensor:
    return Tensor(np.random.default_rng(0).integers(0, n, shape).astype(np.int32))


def classifier(network: nn.Cell) -> nn.Cell:
    return nn.WithLossCell(network, nn.CrossEntropyLoss())


def mlp(*widths: int, dtype=ms.float32) -> nn.Cell:
    """Dense layers with ReLU between them."""
    layers = [layer for i, o in pairwise(widths) for layer in (nn.Dense(i, o, dtype=dtype), nn.ReLU())]
    return nn.SequentialCell(layers[:-1])


def convolutions(channels: int, more: int, side: int, kernel: int, n: int) -> nn.Cell:
    """Two convolutions, a batch norm, both kinds of pooling, and a dense layer behind them."""
    return nn.SequentialCell([
        nn.Conv2d(channels, more, kernel), nn.BatchNorm2d(more), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(more, 2 * more, 3, pad_mode="valid"), nn.ReLU(), nn.AvgPool2d(2, 2), nn.Flatten(),
        nn.Dense(2 * more * ((side // 2 - 2) // 2) ** 2, n)])


class Language(nn.Cell):
    """Ids and labels to the loss: an embedding, attention and an MLP behind layer norms, a head."""

    def __init__(self, vocabulary: int, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(vocabulary, width)
        self.norms = nn.CellList([nn.LayerNorm((width,)) for _ in range(2)])
        self.qkvo = nn.CellList([nn.Dense(width, width) for _ in range(4)])
        self.up, self.down, self.head = nn.Dense(width, 4 * width), nn.Dense(4 * width, width), nn.Dense(width, vocabulary)
        self.drop, self.gelu, self.loss = nn.Dropout(p=0.1), nn.GELU(), nn.CrossEntropyLoss()
        self.score, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()

    def split(self, x: Tensor) -> Tensor:
        return ops.transpose(ops.reshape(x, (*x.shape[:2], self.heads, -1)), (0, 2, 1, 3))

    def construct(self, ids, labels):
        x = self.table(ids)
        a = self.norms[0](x)
        q, k, v = (self.split(dense(a)) for dense in list(self.qkvo)[:3])
        weights = ops.softmax(self.score(q, k) * (q.shape[-1] ** -0.5), -1)
        mixed = ops.reshape(ops.transpose(self.mix(self.drop(weights), v), (0, 2, 1, 3)), x.shape)
        x = x + self.qkvo[3](mixed)
        x = x + self.down(self.gelu(self.up(self.norms[1](x))))
        logits = self.head(x)
        return self.loss(ops.reshape(logits, (-1, logits.shape[-1])), ops.reshape(labels, (-1,)))


class Others(nn.Cell):
    """x (batch, sequence, width) to a loss, by what the other networks have not: the further elementwise ops, cuts and joins."""

    def __init__(self, width: int):
        super().__init__()
        self.weights, self.up = nn.Dense(width, width), nn.Dense(width, 2 * width, activation="silu")

    def construct(self, x):
        y = ops.tanh(self.weights(x)) * ops.sigmoid(x)
        a, b = ops.split(self.up(y), x.shape[-1], -1)
        y = ops.maximum(a, b) + ops.minimum(ops.abs(a), 1.0)
        y = ops.concat((y[:, 1:], y[:, :1]), 1) / (ops.exp(-ops.square(x)) + 1.0)
        y = ops.select(y > 0.0, y, ops.elu(y)) + ops.leaky_relu(y) + ops.softplus(y) - ops.pow(ops.abs(y) + 1.0, 0.5)
        y = y + ops.gelu(y, "none") * ops.sin(x) - ops.hardswish(y) * ops.cos(x) + ops.relu6(y)
        y = ops.log_softmax(ops.clamp(y, -3.0, 3.0), -1) * ops.rsqrt(ops.square(y) + 1.0)
        y = ops.concat((y, ops.broadcast_to(ops.amax(y, -1, True), y.shape)), -1)
        y = ops.pad(y, (0, 0, 1, 1)) + ops.cumsum(ops.pad(y, (0, 0, 2, 0)), 1)
        return ops.mean(ops.log(ops.square(ops.stack((y, ops.tile(ops.mean(y, 1, True), (1, y.shape[1], 1))))) + 1.0))
