"""The networks of benchmarks/scaling.py: LeNet-5, ResNet-50, and a GPT of 1.3 billion weights. Their weights are never drawn, nor
do their batches take memory: only shapes matter to a simulation."""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import minispore as ms
from minispore import Parameter, nn, ops
from minispore.common.initializer import Normal, initializer
from minispore.demo.lenet import LeNet5
from minispore.nn.utils import no_init_parameters

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))       # ResNet-50's: channels within, blocks, stride


class Network(NamedTuple):
    """build(rows): a training step, and a card's inputs of so many rows; rows: of its batch."""
    name: str
    build: Callable
    rows: int


def shaped(shape, dtype=np.float32) -> np.ndarray:
    """An array of any shape in the memory of one number."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def images(net_of: Callable, shape: tuple, classes: int) -> Callable:
    def build(rows: int):
        with no_init_parameters():
            net = nn.WithLossCell(net_of(), nn.CrossEntropyLoss()).set_train()
            step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
        return step, (shaped((rows, *shape)), shaped((rows,), np.int32))
    return build


class Bottleneck(nn.Cell):
    """1×1, 3×3, 1×1, each with batch norm, beside a way straight on."""

    def __init__(self, before: int, within: int, stride: int):
        super().__init__()
        after = 4 * within
        self.way = nn.SequentialCell(
            nn.Conv2d(before, within, 1), nn.BatchNorm2d(within), nn.ReLU(),
            nn.Conv2d(within, within, 3, stride, pad_mode="pad", padding=1), nn.BatchNorm2d(within), nn.ReLU(),
            nn.Conv2d(within, after, 1), nn.BatchNorm2d(after))
        self.straight = None
        if before != after or stride != 1:
            self.straight = nn.SequentialCell(nn.Conv2d(before, after, 1, stride), nn.BatchNorm2d(after))

    def construct(self, x):
        return ops.relu(self.way(x) + (x if self.straight is None else self.straight(x)))


class ResNet50(nn.Cell):
    """He et al., 2015: 25.6 million weights."""

    def __init__(self):
        super().__init__()
        cells, before = [], 64
        for within, blocks, stride in STAGES:
            for i in range(blocks):
                cells.append(Bottleneck(before, within, stride if i == 0 else 1))
                before = 4 * within
        self.begin = nn.SequentialCell(nn.Conv2d(3, 64, 7, 2, pad_mode="pad", padding=3), nn.BatchNorm2d(64), nn.ReLU(),
                                       nn.MaxPool2d(3, 2, pad_mode="same"))
        self.stages, self.head = nn.SequentialCell(*cells), nn.Dense(before, 1000)

    def construct(self, x):
        return self.head(ops.mean(self.stages(self.begin(x)), (2, 3)))


class Block(nn.Cell):
    """Attention and MLP, each behind a layer norm and with a residual."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        for name, shape in dict(wq=(width, width), wk=(width, width), wv=(width, width), wo=(width, width),
                                w1=(width, 4 * width), w2=(4 * width, width)).items():
            setattr(self, name, weight(shape, name))
        self.norm1, self.norm2 = (nn.LayerNorm((width,), dtype=ms.float16) for _ in range(2))

    def split(self, x):
        return ops.transpose(ops.reshape(x, (*x.shape[:2], self.heads, -1)), (0, 2, 1, 3))

    def construct(self, x):
        product, score = ops.MatMul(), ops.BatchMatMul(transpose_b=True)
        a = self.norm1(x)
        q, k, v = (self.split(product(a, w)) for w in (self.wq, self.wk, self.wv))
        mixed = ops.BatchMatMul()(ops.softmax(score(q, k) * (q.shape[-1] ** -0.5), -1), v)
        x = x + product(ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), x.shape), self.wo)
        return x + product(ops.gelu(product(self.norm2(x), self.w1)), self.w2)


class GPT(nn.Cell):
    """Brown et al., 2020, table 2.1, "GPT-3 XL" in float16: (ids, labels) to the loss. The mask of causality is left out: it
    changes neither time nor bytes."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int):
        super().__init__()
        self.vocabulary, self.table = vocabulary, weight((vocabulary, width), "table")
        self.blocks = nn.CellList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm((width,), dtype=ms.float16)

    def construct(self, ids, labels):
        x = ops.Gather()(self.table, ids, 0)
        for block in self.blocks:
            x = block(x)
        logits = ops.cast(ops.MatMul(transpose_b=True)(self.norm(x), self.table), ms.float32)
        return ops.cross_entropy(ops.reshape(logits, (-1, self.vocabulary)), ops.reshape(labels, (-1,)))


def weight(shape: tuple, name: str) -> Parameter:
    return Parameter(initializer(Normal(0.02), shape, ms.float16), name=name)


def gpt(layers: int = 24, width: int = 2048, heads: int = 16, vocabulary: int = 50304, words: int = 1024) -> Callable:
    def build(rows: int):
        with no_init_parameters():
            net = GPT(layers, width, heads, vocabulary).set_train()
            step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 1e-4))
        return step, tuple(shaped((rows, words), np.int32) for _ in range(2))
    return build


NETWORKS = (Network("LeNet-5", images(LeNet5, (1, 28, 28), 10), 32),
            Network("ResNet-50", images(ResNet50, (3, 224, 224), 1000), 32),
            Network("GPT 1.3 G, float16", gpt(), 4))
