"""The stages of a pipeline: each a small immutable object that turns the blocks before it into others.

A stage is a pure function of the epoch: `blocks(epoch)` called twice gives the same rows, on any rank,
however far another iteration over it has come. A new kind of stage is one class here.
"""
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from minispore.common.random import permutation
from minispore.dataset.block import Block, Epoch, alike, join, stack

BLOCK_ROWS, BLOCK_BYTES = 1024, 1 << 20     # a source's block: long enough for numpy, short enough for caches
ROWS_AT_ONCE = 32       # where Python is called for each row: so that a slow one doesn't delay the first batch


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

    @property
    def maps(self) -> int:
        """How many stages up to here draw random numbers: it tells apart what they draw."""
        return self.before.maps

    @property
    def sources(self) -> int:
        """How many sources' rows follow one another in an epoch."""
        return self.before.sources

    @property
    def share(self) -> tuple[int, int]:
        """(which shard of the data these rows are, of how many): (0, 1) if they aren't sharded."""
        return self.before.share

    @property
    def classes(self) -> dict | None:
        """The number of each class, by its name, if the data have classes."""
        return self.before.classes

    @property
    def source(self) -> "Stage | None":
        """The stage whose rows these are one for one, in their order; None if this is where they begin."""
        return None

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        raise NotImplementedError


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
        for block in self.groups(epoch):
            yield _group(block, min(self.count, len(block)))

    def groups(self, epoch: Epoch) -> Iterator[Block]:
        """Blocks of whole batches' rows, not yet grouped: a multiple of `count` each, the last one fewer."""
        waiting, rows, full = [], 0, False
        for block in self.before.blocks(epoch):
            waiting.append(block)
            rows += len(block)
            if rows >= self.count:
                block, rest = join(waiting), rows % self.count
                yield block[:rows - rest]
                waiting, rows, full = [block[rows - rest:]] if rest else [], rest, True
        if rows and not self.drop_remainder:
            yield join(waiting)
        if self.drop_remainder and not full:
            raise ValueError(
                f"There is no valid data: batch(batch_size={self.count}, drop_remainder=True) was asked "
                f"for, but this rank has only {rows} rows an epoch, so no batch gets full; use a smaller "
                "batch_size, fewer shards, more data or drop_remainder=False")


def _group(block: Block, count: int) -> Block:
    """Consecutive rows in groups of `count`."""
    columns = {name: group_column(f"column {name!r}", array, count) for name, array in block.columns.items()}
    return Block(columns, group_column("valid", block.valid, count), group_column("places", block.places, count))


def group_column(name: str, rows: np.ndarray, count: int) -> np.ndarray:
    """A column with each `count` consecutive rows as one; `name` is what an error calls it."""
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
