"""The stages of a pipeline: each a small immutable object that turns the blocks before it into others.

A stage is a pure function of the epoch: `blocks(epoch)` called twice gives the same rows, on any rank,
however far another iteration over it has come. A new kind of stage is one class here.
"""
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from minispore.common.random import permutation
from minispore.dataset.block import Block, Epoch, alike, join, stack

BLOCK_ROWS, BLOCK_BYTES = 1024, 1 << 20     # a source's block: long enough for numpy, short enough for caches


class Stage:
    """What a pipeline consists of. Most stages leave the columns as the stage before them has them."""

    before: "Stage"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.before.columns

    @property
    def size(self) -> int:
        """The number of rows an epoch has on this rank."""
        return self.before.size

    @property
    def endless(self) -> bool:
        """Does an epoch never end? Then `size` counts the rows until it starts again."""
        return self.before.endless

    @property
    def batch_size(self) -> int:
        return self.before.batch_size

    @property
    def repeats(self) -> int:
        return self.before.repeats

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        raise NotImplementedError


@dataclass(frozen=True)
class Table(Stage):
    """A source: this shard's rows of arrays in memory, in an order that all shards cut from one.

    The order is a permutation of *all* rows keyed by (seed, epoch), continued from its beginning until
    the shards are equally long; shard r takes its places r, r + n, r + 2n, … So the k-th batches of n
    shards are together the k-th batch, n times as big, of a single one.

    >>> table = Table({"x": np.arange(5)}, shuffle=False, shards=2, shard=1)
    >>> [(b.columns["x"].tolist(), b.valid.tolist()) for b in table.blocks(Epoch(0, 0))]
    [([1, 3, 0], [True, True, False])]
    """

    table: dict[str, np.ndarray]
    shuffle: bool = True
    limit: int | None = None        # rows to take at most, a shard
    shards: int = 1
    shard: int = 0

    endless, batch_size, repeats = False, 1, 1

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table)

    @property
    def total(self) -> int:
        return len(next(iter(self.table.values())))

    @property
    def size(self) -> int:
        share = math.ceil(self.total / self.shards)
        return share if self.limit is None else min(share, self.limit)

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        places = self.shard + self.shards * np.arange(self.size)
        valid = places < self.total
        rows = places % self.total
        if self.shuffle:
            rows = permutation(("shuffle", epoch.seed, epoch.number), self.total)[rows]
        step = self._rows_a_block()
        for start in range(0, self.size, step):
            chosen = rows[start:start + step]
            columns = {name: array[chosen] for name, array in self.table.items()}
            yield Block(columns, valid[start:start + step])

    def _rows_a_block(self) -> int:
        row_bytes = max(array.nbytes // self.total for array in self.table.values())
        return max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes)))


@dataclass(frozen=True)
class Batch(Stage):
    """`count` rows each become one row, a batch; the last, shorter one is dropped or kept."""

    before: Stage
    count: int
    drop_remainder: bool

    @property
    def size(self) -> int:
        whole, rest = divmod(self.before.size, self.count)
        return whole if self.drop_remainder or not rest else whole + 1

    @property
    def batch_size(self) -> int:
        return self.count

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        waiting, rows, full = [], 0, False
        for block in self.before.blocks(epoch):
            waiting.append(block)
            rows += len(block)
            if rows >= self.count:
                block, rest = join(waiting), rows % self.count
                yield _group(block[:rows - rest], self.count)
                waiting, rows, full = [block[rows - rest:]] if rest else [], rest, True
        if rows and not self.drop_remainder:
            yield _group(join(waiting), rows)
        if self.drop_remainder and not full:
            raise ValueError(
                f"There is no valid data: batch(batch_size={self.count}, drop_remainder=True) was asked "
                f"for, but this rank has only {rows} rows an epoch, so no batch gets full; use a smaller "
                "batch_size, fewer shards, more data or drop_remainder=False")


def _group(block: Block, count: int) -> Block:
    """Consecutive rows in groups of `count`."""
    columns = {name: _group_column(f"column {name!r}", array, count) for name, array in block.columns.items()}
    return Block(columns, _group_column("valid", block.valid, count))


def _group_column(name: str, rows: np.ndarray, count: int) -> np.ndarray:
    if rows.dtype != object:
        return rows.reshape(-1, count, *rows.shape[1:])
    batches = [rows[i:i + count] for i in range(0, len(rows), count)]
    for batch in batches:
        for row in batch:
            if not alike(row, batch[0]):
                raise ValueError(
                    f"batch({count}): the rows of {name} can't stand in one array: one is {batch[0].dtype} "
                    f"of shape {batch[0].shape}, another {row.dtype} of shape {row.shape}; bring them to one "
                    "shape and dtype before, with map()")
    return stack([np.stack(batch) for batch in batches])


@dataclass(frozen=True)
class Shuffle(Stage):
    """Mixes the rows in a buffer of at least `buffer` of them, of which the first half moves on each time.

    The key doesn't contain the rank: shuffled after batch(), the k-th batches of all ranks still belong
    together.
    """

    before: Stage
    buffer: int

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        waiting, rows, turn = [], 0, 0

        def mixed() -> Block:
            return join(waiting)[permutation(("buffer", epoch.seed, epoch.number, turn), rows)]

        for block in self.before.blocks(epoch):
            waiting.append(block)
            rows += len(block)
            if rows >= self.buffer:
                block, half = mixed(), rows // 2
                yield block[:half]
                waiting, rows, turn = [block[half:]], rows - half, turn + 1
        if rows:
            yield mixed()


@dataclass(frozen=True)
class Repeat(Stage):
    """`times` epochs of the stage before, each in its own order, as one; -1: without end."""

    before: Stage
    times: int

    @property
    def size(self) -> int:
        return self.before.size * max(1, self.times)

    @property
    def endless(self) -> bool:
        return self.times < 0 or self.before.endless

    @property
    def repeats(self) -> int:
        return -1 if self.endless else self.times * self.before.repeats

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        first = epoch.number * max(1, self.times)
        for number in count(first) if self.times < 0 else range(first, first + self.times):
            empty = True
            for block in self.before.blocks(replace(epoch, number=number)):
                yield block
                empty = False
            if empty:       # it will be so the next time, too
                return


@dataclass(frozen=True)
class Take(Stage):
    """The first `count` rows."""

    before: Stage
    count: int

    endless = False

    @property
    def size(self) -> int:
        return self.count if self.before.endless else min(self.count, self.before.size)

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        left = self.count
        for block in self.before.blocks(epoch):
            yield block[:left]
            left -= len(block)
            if left <= 0:
                return


@dataclass(frozen=True)
class Skip(Stage):
    """All but the first `count` rows."""

    before: Stage
    count: int

    @property
    def size(self) -> int:
        return self.before.size if self.endless else max(0, self.before.size - self.count)

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        left = self.count
        for block in self.before.blocks(epoch):
            if len(block) > left:
                yield block[left:]
            left = max(0, left - len(block))
