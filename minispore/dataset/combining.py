"""Stages that choose, name and join: columns, whole datasets side by side or one after the other, parts."""
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from minispore.common.random import permutation
from minispore.dataset.block import Block, Epoch
from minispore.dataset.reading import Part, Source
from minispore.dataset.samplers import DistributedSampler
from minispore.dataset.stages import Stage

_SOURCE_PLACES = 1 << 36    # more than the rows of one source


@dataclass(frozen=True)
class Columns(Stage):
    """Some columns, under the same or other names: `names[i]` is what was `old[i]`."""

    before: Stage
    old: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @property
    def source(self) -> Stage:
        return self.before

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        for block in self.before.blocks(epoch):
            columns = {name: block.columns[old] for name, old in zip(self.names, self.old, strict=True)}
            yield replace(block, columns=columns)


@dataclass(frozen=True)
class Zip(Stage):
    """The columns of several datasets side by side, as long as each has a row.

    A row is valid if it is so in all of them (in the first, where they are batched differently).
    """

    parts: tuple[Stage, ...]

    @property
    def before(self) -> Stage:
        return self.parts[0]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.columns)

    @property
    def endless(self) -> bool:
        return all(part.endless for part in self.parts)

    @property
    def share(self) -> tuple[int, int]:
        return _common_share("zip", self.parts)

    @property
    def size(self) -> int:
        return min(part.size for part in self.parts if self.endless or not part.endless)

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        flows = [part.blocks(_branch(epoch, i)) for i, part in enumerate(self.parts)]
        waiting = [None] * len(flows)
        while True:
            for i, flow in enumerate(flows):
                if waiting[i] is None and (block := next(flow, None)) is not None:
                    waiting[i] = block
                if waiting[i] is None:
                    return
            rows = min(map(len, waiting))
            yield _beside([block[:rows] for block in waiting])
            waiting = [block[rows:] if len(block) > rows else None for block in waiting]


def _beside(blocks: list[Block]) -> Block:
    first, *others = blocks
    columns, valid = dict(first.columns), first.valid
    for block in others:
        columns |= block.columns
        if block.valid.shape == valid.shape and block.valid.dtype == valid.dtype == bool:
            valid = valid & block.valid
    return Block(columns, valid, first.places)


@dataclass(frozen=True)
class Concat(Stage):
    """The rows of several datasets, one after the other."""

    parts: tuple[Stage, ...]

    @property
    def before(self) -> Stage:
        return self.parts[0]

    @property
    def endless(self) -> bool:
        return any(part.endless for part in self.parts)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def sources(self) -> int:
        return sum(part.sources for part in self.parts)

    @property
    def share(self) -> tuple[int, int]:
        return _common_share("concat", self.parts)

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        sources = 0
        for i, part in enumerate(self.parts):
            for block in part.blocks(_branch(epoch, i)):
                columns = {name: block.columns[name] for name in self.columns}
                yield Block(columns, block.valid, block.places + sources * _SOURCE_PLACES)
            sources += part.sources


def _common_share(what: str, parts: tuple[Stage, ...]) -> tuple[int, int]:
    """The share of all parts; only who asks for it needs them to agree."""
    shares = [part.share for part in parts]
    if len(set(shares)) > 1:
        listed = ", ".join(f"dataset {i}: shard {shard} of {n}" for i, (shard, n) in enumerate(shares))
        raise ValueError(f"{what}: the datasets are sharded differently ({listed}), so their rows don't make up one logical "
                         "batch; give all of them the same num_shards and shard_id")
    return shares[0]


def _branch(epoch: Epoch, i: int) -> Epoch:
    return replace(epoch, branch=(*epoch.branch, i)) if i else epoch


@dataclass(frozen=True)
class Fixed(Stage):
    """Those rows of epoch 0 that `chosen` marks, in each epoch the same."""

    before: Stage
    chosen: np.ndarray

    endless = False

    @cached_property
    def size(self) -> int:
        return int(self.chosen.sum())

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        first = 0
        for block in self.before.blocks(replace(epoch, number=0)):
            chosen = self.chosen[first:first + len(block)]
            first += len(block)
            if chosen.any():
                yield block[chosen]
            if first >= len(self.chosen):
                return


def split(stage: Stage, sizes, randomize: bool, seed: int) -> list[Stage]:
    """Parts that have no row in common, in any epoch and on any shard.

    If the rows come one for one from a source that isn't limited, its rows are divided, and shuffling and
    sharding go on within each part. Else it is the rows of epoch 0 that are divided.
    """
    source = stage
    while source.source is not None:
        source = source.source
    total = len(source.reader) if _plain(source) else stage.size
    if stage.endless:
        raise RuntimeError("split: an endless dataset can't be divided; split first and repeat() then")
    counts = _counts(sizes, total)
    order = permutation(("split", seed), total) if randomize else np.arange(total)
    ends = np.cumsum([0, *counts])
    parts = [order[begin:end] for begin, end in pairwise(ends)]
    if _plain(source):
        return [_rebuilt(stage, replace(source, reader=Part(source.reader, part))) for part in parts]
    marks = [np.isin(np.arange(total), part) for part in parts]
    return [Fixed(stage, mark) for mark in marks]


def _plain(stage: Stage) -> bool:
    """Does an epoch consist of all rows of a source?"""
    return isinstance(stage, Source) and isinstance(stage.sampler, DistributedSampler) \
        and stage.sampler.get_num_samples() is None and stage.sampler.child_sampler is None


def _rebuilt(stage: Stage, source: Source) -> Stage:
    """The same stages on another source."""
    return source if stage.source is None else replace(stage, before=_rebuilt(stage.source, source))


def _counts(sizes, total: int) -> list[int]:
    """Numbers of rows that add up to `total`, from numbers or fractions."""
    if not isinstance(sizes, (list, tuple)) or not sizes:
        raise RuntimeError(f"split: sizes must be a list of numbers of rows or of fractions, got {sizes!r}; "
                           "e.g. [0.9, 0.1]")
    if all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        if sum(sizes) != total:
            raise RuntimeError(f"split: Sum of split sizes {sum(sizes)} is not equal to dataset size {total}; "
                               f"sizes {list(sizes)} must add up to it, or be fractions of 1")
        return list(sizes)
    if not all(isinstance(size, float) and 0 < size <= 1 for size in sizes) or abs(sum(sizes) - 1) > 1e-9:
        raise ValueError(f"split: sizes must be all positive integers, or all fractions in (0, 1] that add up to 1, "
                         f"got {list(sizes)}")
    counts = [round(size * total) for size in sizes]
    if 0 in counts or len(counts) > total:
        raise RuntimeError(f"split: Split percentage {sizes[counts.index(min(counts))]} is too small: of {total} rows it is "
                           "none; give larger fractions, fewer parts or more data")
    over = sum(counts) - total      # by rounding; as in MindSpore the first part that can makes up for it
    taker = next((i for i, count in enumerate(counts) if count > over), None)
    if taker is not None:
        counts[taker] -= over
    else:
        for _ in range(over):
            counts[counts.index(max(counts))] -= 1
    return counts
