"""A Transformer whose ops are split by data, tensor and sequence: the network of tests/test_transformer.py."""
from typing import NamedTuple

import numpy as np

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.common.initializer import Normal, initializer

VOCAB, WIDTH, HEADS, SEQUENCE, BATCH = 16, 16, 4, 8, 8


class Split(NamedTuple):
    """How many pieces: of the batch, of the heads and hidden units, of the sequence."""
    data: int = 1
    tensor: int = 1
    sequence: int = 1


class Block(nn.Cell):
    """Attention and MLP, each behind a layer norm and with a residual."""

    def __init__(self, split: Split | None, dtype, dropout):
        super().__init__()
        d = WIDTH
        for name, shape in dict(wq=(d, d), wk=(d, d), wv=(d, d), wo=(d, d), w1=(d, 4 * d), w2=(4 * d, d)).items():
            setattr(self, name, Parameter(initializer(Normal(0.2), shape, dtype), name=name))
        self.norm1, self.norm2 = nn.LayerNorm((d,), dtype=dtype), nn.LayerNorm((d,), dtype=dtype)
        self.drop = nn.Dropout(p=dropout)
        self.query, self.key, self.value, self.out, self.up, self.down = (ops.MatMul() for _ in range(6))
        self.score, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        if split:
            dp, mp, sp = split
            for op in (self.query, self.key, self.value, self.up):
                op.shard(((dp, sp, 1), (1, mp)))
            for op in (self.out, self.down):
                op.shard(((dp, sp, mp), (mp, 1)))
            self.score.shard(((dp, mp, sp, 1), (dp, mp, 1, 1)))
            self.mix.shard(((dp, mp, sp, 1), (dp, mp, 1, 1)))

    def heads(self, x):
        return ops.transpose(ops.reshape(x, (*x.shape[:2], HEADS, -1)), (0, 2, 1, 3))

    def construct(self, x):
        a = self.norm1(x)
        q, k, v = (self.heads(op(a, w)) for op, w in ((self.query, self.wq), (self.key, self.wk), (self.value, self.wv)))
        weights = ops.softmax(self.score(q, k) / float(np.sqrt(WIDTH // HEADS)), -1)
        mixed = ops.reshape(ops.transpose(self.mix(weights, v), (0, 2, 1, 3)), x.shape)
        x = x + self.drop(self.out(mixed, self.wo))
        return x + self.drop(self.down(ops.gelu(self.up(self.norm2(x), self.w1)), self.w2))


class Transformer(nn.Cell):
    """(ids, labels) to the loss; the output weights are the embedding table."""

    def __init__(self, split: Split | None = None, dtype=ms.float64, dropout=0.1, layers=2):
        super().__init__()
        self.table = Parameter(initializer(Normal(0.5), (VOCAB, WIDTH), dtype), name="table")
        self.blocks = nn.CellList([Block(split, dtype, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm((WIDTH,), dtype=dtype)
        self.embed, self.head = ops.Gather(), ops.MatMul(transpose_b=True)
        if split:
            self.embed.shard(((1, 1), (split.data, split.sequence)))
            self.head.shard(((split.data, split.sequence, 1), (1, 1)))

    def construct(self, ids, labels):
        x = self.embed(self.table, ids, 0)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x), self.table)
        return ops.cross_entropy(ops.reshape(logits, (-1, VOCAB)), ops.reshape(labels, (-1,)))


def training_step(split: Split | None = None, dtype=ms.float64, **kwargs):
    """A TrainOneStepCell with Adam; the same initial values whatever the split."""
    ms.set_seed(3)
    net = Transformer(split, dtype, **kwargs).set_train()
    return nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 0.01))


def batches(n: int):
    """n batches of (ids, labels)."""
    rng = np.random.default_rng(0)
    return [tuple(Tensor(rng.integers(0, VOCAB, (BATCH, SEQUENCE)).astype(np.int32)) for _ in range(2)) for _ in range(n)]


def losses(steps: int, split: Split | None = None, dtype=ms.float64) -> list[float]:
    """The losses of a training."""
    step = training_step(split, dtype)
    return [float(step(*batch)) for batch in batches(steps)]
