"""Random numbers inside a program: new ones in every step, the same on any number of ranks and in both modes.

A draw's key is (seed, the cell's path, the how-manieth draw there in this step, the step), and each element takes the
number that its place in the logical tensor has (common/random.py).
"""
from dataclasses import dataclass, replace

import numpy as np

from minispore.common import dtype as mstype
from minispore.common import random
from minispore.common.initializer import Initializer
from minispore.common.state import LOCAL_MODES, current
from minispore.ops import functional as F
from minispore.ops.primitive import Composite, Primitive, Spec
from minispore.ops.rule import letters


@dataclass(frozen=True)
class Keep(Initializer):
    """1 / keep_prob with probability keep_prob, else 0: a dropout mask."""
    keep_prob: float = 0.5

    def values(self, key, shape, region=None):
        return (random.uniform(key, shape, region=region) < self.keep_prob) / self.keep_prob


@dataclass(frozen=True)
class Random(Primitive):
    """Values that an Initializer draws for the logical `shape`, anew in every step; of them, the part `region`
    (first and last + 1 of each dim; a slice could not be hashed).

    by_rows: in data and hybrid parallel this rank holds every n-th row of the logical tensor: its row i is row i·n + r.
    shards: (n, b): in a logical program the batch consists of n shards of b rows, one after the other; row r·b + i takes the
    numbers of row i·n + r. Where there are k rows for each of the batch's, they stay together.
    """
    shape: tuple
    init: Initializer
    dtype: np.dtype = mstype.float32
    stream: tuple = ()
    by_rows: bool = False
    region: tuple[tuple[int, int], ...] | None = None
    shards: tuple[int, int] | None = None
    arity, fresh, widens = 0, True, False

    def rule(self):
        return f"-> {' '.join(letters(len(self.shape)))}"

    def infer(self):
        part = self.shape if self.region is None else tuple(stop - start for start, stop in self.region)
        return Spec(part, self.dtype)

    def forward(self):
        state, shape = current(), self.shape
        region = self.region and tuple(slice(*bounds) for bounds in self.region)
        if self.by_rows and shape and region is None and state.size > 1 and state.parallel["parallel_mode"] in LOCAL_MODES:
            n, rows = state.size, shape[0]
            shape = (rows * n, *shape[1:])
            region = (slice(state.rank, rows * n, n), *(slice(0, k) for k in shape[1:]))
        key = ("random", state.seed or 0, *self.stream, state.steps)
        if self.shards:
            return self.of_shards(key).astype(self.dtype)
        return self.init.values(key, shape, region).astype(self.dtype)

    def of_shards(self, key) -> np.ndarray:
        """The part `region` of a batch of shards: drawn as (b, n, k, …), the dataset's order, and turned to (n, b, k, …)."""
        n, b = self.shards
        rows, *rest = (slice(*bounds) for bounds in self.region or [(0, size) for size in self.shape])
        k = self.shape[0] // (n * b)
        first, last = rows.start // (b * k), -(-rows.stop // (b * k))       # the shards of which there are rows
        i, end = 0, b
        if last - first == 1:                                               # of one shard, perhaps not all
            i, end = rows.start // k - first * b, -(-rows.stop // k) - first * b
        drawn = self.init.values(key, (b, n, k, *self.shape[1:]), (slice(i, end), slice(first, last), slice(0, k), *rest))
        drawn = drawn.swapaxes(0, 1).reshape(-1, *drawn.shape[3:])
        start = rows.start - (first * b + i) * k
        return drawn[start:start + rows.stop - rows.start]

    def cpu(self, out):
        np.copyto(out, self.forward())

    def gradient(self, out, dout):
        return ()

    def local(self, rule, pieces):
        def part(dim, n):
            index, count = pieces.get(dim[0], (0, 1)) if dim else (0, 1)
            return index * (n // count), (index + 1) * (n // count)
        return replace(self, region=tuple(map(part, rule.outs[0], self.shape)))


def draw(shape, init: Initializer, dtype=mstype.float32, *, what="", by_rows=False):
    """A tensor of random numbers, keyed by where in the program, and in which step, it is drawn."""
    with random.step():
        return Random(tuple(shape), init, mstype.to_dtype(dtype), random.next_stream(what), by_rows)()


@dataclass(frozen=True)
class Dropout(Composite):
    """(x · mask, mask): the mask is 1/keep_prob with probability keep_prob, else 0 (MindSpore: `ops.Dropout`).

    On ranks that train together each row gets the mask it has on one rank. Seed0, Seed1: name another stream of numbers.
    """
    keep_prob: float = 0.5
    Seed0: int = 0
    Seed1: int = 0

    def __post_init__(self):
        if not 0 < self.keep_prob <= 1:
            raise ValueError(f"Dropout: keep_prob {self.keep_prob!r} must be in 0 < keep_prob ≤ 1")

    def __call__(self, x):
        what = f"dropout{(self.Seed0, self.Seed1) if self.Seed0 or self.Seed1 else ''}"
        mask = draw(x.shape, Keep(self.keep_prob), x.dtype, what=what, by_rows=True)
        return F.mul(x, mask), mask
