"""The 10 networks of benchmarks/cost_model.py, each with 6 ways to split its training step over 2 devices.

None of them is among those that `minispore bench calibrate` takes its times from (minispore/bench/training.py). Others of these
kinds can be drawn, so that the cost model meets networks on which nobody has worked.
"""
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

import numpy as np

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.common.initializer import Normal, initializer

WHOLE, DATA, COLUMNS, ROWS = ((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (1, 2)), ((1, 2), (2, 1))     # of a product


class Case(NamedTuple):
    network: str
    strategy: str
    build: Callable                 # gives (training step, inputs)
    settings: dict                  # of the parallel context


def cases(few: bool = False, seed: int | None = None) -> Iterator[Case]:
    """All of them, network by network. few: of two small ones; seed: of networks drawn by it."""
    made = drawn(np.random.default_rng(seed)) if seed is not None else [
        ("MLP 32 × 640-1600-96", MLP, ((640, 1600, 96), nn.SGD, 32)),
        ("embedding 128 × 12 of 6000 × 48", Embedded, (6000, 48, 12, nn.Adam, 128)),
        ("MLP 700 × 200-512-200", MLP, ((200, 512, 200), nn.Momentum, 700)),
        ("MLP 96 × 7 layers of 288", MLP, ((288,) * 8, nn.Adam, 96)),
        ("MLP 1536 × 9 layers of 56", MLP, ((56,) * 10, nn.Momentum, 1536)),
        ("conv 32 × 1 × 28², channels 6, 16", Convolutions, (1, (6, 16), 28, 5, nn.Momentum, 32)),
        ("conv 8 × 8 × 32², channels 32, 32, 48", Convolutions, (8, (32, 32, 48), 32, 3, nn.Adam, 8)),
        ("Transformer 8 × 32 × 64, 2 layers", Transformer, (2, 64, 4, 32, 200, nn.Adam, 8)),
        ("Transformer 4 × 32 × 256", Transformer, (1, 256, 8, 32, 600, nn.Momentum, 4)),
        ("Transformer 2 × 160 × 64, 2 layers", Transformer, (2, 64, 2, 160, 64, nn.SGD, 2)),
    ]
    for name, kind, arguments in made[:2] if few else made:
        for strategy in kind.strategies:
            settings = shared(arguments) if strategy == "optimizer" else {}

            def build(kind=kind, arguments=arguments, strategy=strategy):
                *shape, optimizer, batch = arguments
                ms.set_seed(1)
                network = kind(kind.strategies[strategy], *shape).set_train()
                rate = (1e-4, 0.9) if optimizer is nn.Momentum else (1e-4,)
                return nn.TrainOneStepCell(network, optimizer(network.trainable_params(), *rate)), network.inputs(batch)
            yield Case(name, strategy, build, settings)


def drawn(rng: np.random.Generator) -> list[tuple]:
    """Ten networks of any sizes, as (name, kind, arguments)."""
    def even(low: int, high: int) -> int:
        """Between the two, each order of magnitude as likely."""
        return 4 * int(np.exp(rng.uniform(np.log(low / 4), np.log(high / 4))))

    def optimizer():
        return (nn.SGD, nn.Momentum, nn.Adam)[rng.integers(3)]
    made = []
    for _ in range(4):
        widths = tuple(even(32, 1024) for _ in range(rng.integers(3, 9)))
        made.append((MLP, (widths, optimizer(), even(16, 1024))))
    made.append((Embedded, (even(1000, 10_000), even(16, 96), int(rng.integers(4, 20)), optimizer(), even(32, 256))))
    for _ in range(2):
        channels = tuple(even(4, 48) for _ in range(rng.integers(2, 4)))
        made.append((Convolutions, (int(rng.choice([1, 4, 8])), channels, int(rng.choice([16, 28, 32])), int(rng.choice([3, 5])),
                                    optimizer(), even(8, 32))))
    for _ in range(3):
        heads = int(rng.choice([2, 4, 8]))
        made.append((Transformer, (int(rng.integers(1, 4)), 2 * heads * even(8, 20), heads, even(16, 128), even(64, 800),
                                   optimizer(), 2 * int(rng.integers(1, 5)))))
    return [(f"{kind.__name__} " + " ".join(getattr(x, "__name__", str(x)) for x in arguments), kind, arguments)
            for kind, arguments in made]


def shared(arguments: tuple) -> dict:
    """Optimizer parallel; SGD here has no states to share out, so the parameters are."""
    level = "level3" if nn.SGD in arguments else "level1"
    return dict(enable_parallel_optimizer=True,
                parallel_optimizer_config={"parallel_optimizer_threshold": 0, "optimizer_level": level})


def weights(*shape: int, name: str) -> Parameter:
    return Parameter(initializer(Normal(0.05), shape), name=name)


def floats(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def classes(n: int, *shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).integers(0, n, shape).astype(np.int32))


class MLP(nn.Cell):
    """strategy(layer, of how many): of its product."""
    strategies: ClassVar = dict(
        replicated=lambda i, n: WHOLE, data=lambda i, n: DATA, pairs=lambda i, n: ROWS if i % 2 else COLUMNS,
        columns=lambda i, n: COLUMNS, mixed=lambda i, n: DATA if i < n - 1 else ROWS, optimizer=lambda i, n: DATA)

    def __init__(self, strategy, widths):
        super().__init__()
        self.widths, n = widths, len(widths) - 1
        for i in range(n):
            setattr(self, f"w{i}", weights(*widths[i:i + 2], name=f"w{i}"))
            setattr(self, f"b{i}", weights(widths[i + 1], name=f"b{i}"))
        self.products = [ops.MatMul().shard(strategy(i, n)) for i in range(n)]

    def construct(self, x, labels):
        for i, product in enumerate(self.products):
            x = product(ops.relu(x) if i else x, getattr(self, f"w{i}")) + getattr(self, f"b{i}")
        return ops.cross_entropy(x, labels)

    def inputs(self, batch):
        return [floats(batch, self.widths[0]), classes(self.widths[-1], batch)]


class Embedded(nn.Cell):
    """Rows of a table, their mean, and two products. A strategy is those of the three."""
    strategies: ClassVar = dict(
        replicated=(((1, 1), (1, 1)), WHOLE, WHOLE), data=(((1, 1), (2, 1)), DATA, DATA), rows=(((2, 1), (1, 1)), WHOLE, WHOLE),
        columns=(((1, 2), (1, 1)), ROWS, COLUMNS), mixed=(((1, 1), (2, 1)), COLUMNS, ROWS),
        optimizer=(((1, 1), (2, 1)), DATA, DATA))

    def __init__(self, strategy, vocabulary, width, words):
        super().__init__()
        self.sizes, (first, second, third) = (vocabulary, words), strategy
        self.table = weights(vocabulary, width, name="table")
        self.up, self.down = weights(width, 8 * width, name="up"), weights(8 * width, 32, name="down")
        self.look, self.first, self.second = ops.Gather().shard(first), ops.MatMul().shard(second), ops.MatMul().shard(third)

    def construct(self, ids, labels):
        x = ops.mean(self.look(self.table, ids, 0), 1)
        return ops.cross_entropy(self.second(ops.tanh(self.first(x, self.up)), self.down), labels)

    def inputs(self, batch):
        return [classes(self.sizes[0], batch, self.sizes[1]), classes(32, batch)]


class Convolutions(nn.Cell):
    """Convolutions with ReLU and pooling, and a dense layer. A strategy is that of the convolutions and of the product."""
    strategies: ClassVar = dict(
        replicated=(((1, 1, 1, 1), (1, 1, 1, 1)), WHOLE), data=(((2, 1, 1, 1), (1, 1, 1, 1)), DATA),
        channels=(((1, 1, 1, 1), (2, 1, 1, 1)), ROWS), space=(((1, 1, 2, 1), (1, 1, 1, 1)), WHOLE),
        mixed=(((2, 1, 1, 1), (1, 1, 1, 1)), ROWS), optimizer=(((2, 1, 1, 1), (1, 1, 1, 1)), DATA))

    def __init__(self, strategy, channels, more, side, kernel):
        super().__init__()
        self.shape, n = (channels, side, side), len(more)
        self.convolutions = nn.CellList([nn.Conv2d(i, o, kernel) for i, o in zip((channels, *more), more, strict=False)])
        for layer in self.convolutions:
            layer.conv2d.shard(strategy[0])
        self.pool, self.product = nn.MaxPool2d(2, 2), ops.MatMul().shard(strategy[1])
        self.w = weights(more[-1] * (side // 2 ** min(n, 2)) ** 2, 20, name="w")

    def construct(self, x, labels):
        for i, layer in enumerate(self.convolutions):
            x = ops.relu(layer(x))
            x = self.pool(x) if i < 2 else x
        return ops.cross_entropy(self.product(ops.flatten(x), self.w), labels)

    def inputs(self, batch):
        return [floats(batch, *self.shape), classes(20, batch)]


class Transformer(nn.Cell):
    """Ids and labels to the loss. A strategy is the pieces of batch, heads and sequence in attention, and in the rest."""
    strategies: ClassVar = dict(
        replicated=((1, 1, 1),) * 2, data=((2, 1, 1),) * 2, tensor=((1, 2, 1),) * 2, sequence=((1, 1, 2),) * 2,
        mixed=((1, 2, 1), (2, 1, 1)), optimizer=((2, 1, 1),) * 2)

    def __init__(self, strategy, layers, width, heads, sequence, vocabulary):
        super().__init__()
        self.sizes, (_, (dp, _, sp)) = (vocabulary, sequence), strategy
        self.table = weights(vocabulary, width, name="table")
        self.blocks = nn.CellList([Block(strategy, width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm((width,))
        self.look = ops.Gather().shard(((1, 1), (dp, sp)))
        self.head = ops.MatMul(transpose_b=True).shard(((dp, sp, 1), (1, 1)))

    def construct(self, ids, labels):
        x = self.look(self.table, ids, 0)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x), self.table)
        return ops.cross_entropy(ops.reshape(logits, (-1, logits.shape[-1])), ops.reshape(labels, (-1,)))

    def inputs(self, batch):
        return [classes(self.sizes[0], batch, self.sizes[1]) for _ in range(2)]


class Block(nn.Cell):
    """Attention and MLP, each behind a layer norm and with a residual."""

    def __init__(self, strategy, width, heads):
        super().__init__()
        self.heads, ((dp, mp, sp), (dp2, mp2, sp2)) = heads, strategy
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        for name in ("wq", "wk", "wv", "wo"):
            setattr(self, name, weights(width, width, name=name))
        self.w1, self.w2 = weights(width, 4 * width, name="w1"), weights(4 * width, width, name="w2")
        self.query, self.key, self.value = (ops.MatMul().shard(((dp, sp, 1), (1, mp))) for _ in range(3))
        self.out = ops.MatMul().shard(((dp, sp, mp), (mp, 1)))
        self.score = ops.BatchMatMul(transpose_b=True).shard(((dp, mp, sp, 1), (dp, mp, 1, 1)))
        self.mix = ops.BatchMatMul().shard(((dp, mp, sp, 1), (dp, mp, 1, 1)))
        self.up, self.down = ops.MatMul().shard(((dp2, sp2, 1), (1, mp2))), ops.MatMul().shard(((dp2, sp2, mp2), (mp2, 1)))

    def split(self, x):
        return ops.transpose(ops.reshape(x, (*x.shape[:2], self.heads, -1)), (0, 2, 1, 3))

    def construct(self, x):
        a = self.norm1(x)
        q, k, v = (self.split(op(a, w)) for op, w in ((self.query, self.wq), (self.key, self.wk), (self.value, self.wv)))
        mixed = self.mix(ops.softmax(self.score(q, k) * (q.shape[-1] ** -0.5), -1), v)
        x = x + self.out(ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), x.shape), self.wo)
        return x + self.down(ops.gelu(self.up(self.norm2(x), self.w1)), self.w2)
