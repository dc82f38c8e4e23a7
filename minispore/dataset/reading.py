"""Where a pipeline begins: stages that read rows.

`Source` reads rows by their number, in the order a sampler gives; `Stream` takes them as they come.
"""
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Protocol

import numpy as np

from minispore.dataset import stages
from minispore.dataset.block import Block, Epoch, stack
from minispore.dataset.samplers import BuiltinSampler
from minispore.dataset.stages import ROWS_AT_ONCE, Stage
from minispore.dataset.workers import ordered


class Reader(Protocol):
    """Data whose rows have numbers."""

    columns: tuple[str, ...]
    classes: dict | None            # the number of each class, by its name
    rows_at_once: int               # how many are best read together

    def __len__(self) -> int: ...

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """These rows (n,) of each column, as arrays of their own."""

    def column(self, name: str) -> np.ndarray:
        """All rows of one column."""


@dataclass(frozen=True)
class Arrays:
    """Columns that are arrays in memory."""

    table: dict[str, np.ndarray]
    classes: dict | None = None

    def __len__(self) -> int:
        return len(next(iter(self.table.values())))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table)

    @property
    def rows_at_once(self) -> int:
        row_bytes = max(array.nbytes // len(self) for array in self.table.values())
        return max(1, min(stages.BLOCK_ROWS, stages.BLOCK_BYTES // max(1, row_bytes)))

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {name: array[rows] for name, array in self.table.items()}

    def column(self, name: str) -> np.ndarray:
        return self.table[name]


@dataclass(frozen=True)
class Items:
    """An object that gives row i as source[i]: a value, or a tuple with one for each column."""

    source: Sequence
    columns: tuple[str, ...]
    types: tuple[np.dtype, ...] | None = None
    classes: dict | None = None

    rows_at_once = ROWS_AT_ONCE

    def __len__(self) -> int:
        return len(self.source)

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return as_columns([self._row(int(i)) for i in rows], self.columns)

    def column(self, name: str) -> np.ndarray:
        return self.read(np.arange(len(self)))[name]

    def _row(self, i: int) -> list[np.ndarray]:
        where = f"GeneratorDataset: row {i} of {name_of(self.source)}"
        try:
            row = self.source[i]
        except Exception as error:
            raise RuntimeError(f"{where} failed: {type(error).__name__}: {error}") from error
        return as_row(row, self.columns, self.types, where)


@dataclass(frozen=True)
class Part:
    """Some rows of another reader: row i here is its row `numbers[i]`."""

    whole: Reader
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return self.whole.read(self.numbers[rows])

    def column(self, name: str) -> np.ndarray:
        return self.whole.column(name)[self.numbers]

    @property
    def columns(self):
        return self.whole.columns

    @property
    def classes(self):
        return self.whole.classes

    @property
    def rows_at_once(self):
        return self.whole.rows_at_once


@dataclass(frozen=True)
class Source(Stage):
    """The rows of a reader that a sampler chooses.

    >>> from minispore.dataset.samplers import DistributedSampler
    >>> table, shard = Arrays({"x": np.arange(5)}), DistributedSampler(2, 1, shuffle=False)
    >>> [(b.columns["x"].tolist(), b.valid.tolist()) for b in Source(table, shard).blocks(Epoch(0, 0))]
    [([1, 3, 0], [True, True, False])]
    """

    reader: Reader
    sampler: BuiltinSampler
    workers: int = 1
    processes: bool = False

    endless, batch_size, repeats, maps, sources, source = False, 1, 1, 0, 1, None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.reader.columns

    @property
    def classes(self) -> dict | None:
        return self.reader.classes

    @property
    def share(self) -> tuple[int, int]:
        return self.sampler.share

    @cached_property
    def size(self) -> int:
        return len(self._choice(Epoch(0, 0)))

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        choice = self._choice(epoch)
        step = self.reader.rows_at_once
        if step == ROWS_AT_ONCE:            # slow rows: share them out evenly
            step = max(1, step // self.workers)
        pieces = [choice[start:start + step] for start in range(0, len(choice), step)]
        read = ordered(self.reader.read, (piece.rows for piece in pieces), self.workers, self.processes)
        for piece, columns in zip(pieces, read, strict=True):
            yield Block(columns, piece.valid, epoch.places(piece.places))

    def _choice(self, epoch: Epoch):
        return self.sampler.choose(len(self.reader), epoch, self._labels)

    def _labels(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise ValueError(f"{type(self.sampler).__name__}: there is no column {name!r} with the classes, the columns are "
                             f"{list(self.columns)}; name one of them as class_column")
        return self.reader.column(name)


@dataclass(frozen=True)
class Stream(Stage):
    """The rows that `begin()` gives one after the other; of each `shards` of them, shard `shard` takes one.

    If they don't come out even, the last row of the later shards is one of the first rows again, not valid.
    """

    begin: Callable[[], Iterable]
    names: tuple[str, ...]          # of the columns
    types: tuple[np.dtype, ...] | None = None
    length: int | None = None       # of the rows in all shards, if known beforehand
    limit: int | None = None        # rows to take at most, a shard
    shards: int = 1
    shard: int = 0

    endless, batch_size, repeats, maps, sources, source, classes = False, 1, 1, 0, 1, None, None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @property
    def share(self) -> tuple[int, int]:
        return self.shard, self.shards

    @cached_property
    def size(self) -> int:
        """Where the length isn't known, all rows are made once to count them."""
        if self.length is None:
            return sum(1 for _ in self._mine())
        share = -(-self.length // self.shards)
        return share if self.limit is None else min(share, self.limit)

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        mine, name = self._mine(), name_of(self.begin)
        while rows := list(islice(mine, ROWS_AT_ONCE)):
            found = [as_row(row, self.columns, self.types, f"GeneratorDataset: row {number} of {name}")
                     for row, number, _, _ in rows]
            valid, places = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
            yield Block(as_columns(found, self.columns), valid, epoch.places(places))

    def _mine(self) -> Iterator[tuple]:
        return islice(self._shard(), self.limit)

    def _shard(self) -> Iterator[tuple]:
        """(row, its number, valid, place) of this shard's rows."""
        first, total = [], 0        # the first rows, to fill up with
        for row in self._rows():
            if total < self.shards:
                first.append(row)
            if total % self.shards == self.shard:
                yield row, total, True, total
            total += 1
        if total and total % self.shards and self.shard >= total % self.shards:
            place = total - total % self.shards + self.shard
            yield first[place % total], place % total, False, place

    def _rows(self) -> Iterator:
        number = 0
        try:
            for row in self.begin():
                yield row
                number += 1
        except Exception as error:
            raise RuntimeError(f"GeneratorDataset: row {number} of {name_of(self.begin)} failed: "
                               f"{type(error).__name__}: {error}") from error


def as_row(row, columns: tuple[str, ...], types: tuple | None, where: str) -> list[np.ndarray]:
    """What a source gave for a row, as an array for each column."""
    parts = row if isinstance(row, tuple) or (isinstance(row, list) and len(columns) > 1) else (row,)
    if len(parts) != len(columns):
        raise ValueError(f"{where} has {len(parts)} values for the {len(columns)} columns {list(columns)}; "
                         "give a tuple with one value for each column")
    try:
        arrays = [np.asarray(part) for part in parts]
    except ValueError:
        raise TypeError(f"{where} holds a list whose items differ in shape; give numpy arrays") from None
    for i, array in enumerate(arrays):
        if array.dtype == object:
            raise TypeError(f"{where}, column {columns[i]!r}: {parts[i]!r:.60} ({type(parts[i]).__name__}) is no array of "
                            "numbers or string; convert it to a numpy array")
        if types is not None and types[i] is not None and array.dtype != types[i]:
            raise TypeError(f"{where}, column {columns[i]!r}: column_types asks for {types[i]}, but it is {array.dtype}; "
                            f"give e.g. np.asarray(value, np.{types[i]}), or leave column_types out")
    return arrays


def as_columns(rows: list[list[np.ndarray]], columns: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: stack(values) for name, values in zip(columns, zip(*rows, strict=True), strict=True)}


def name_of(thing) -> str:
    """How messages call a function or an object.

    >>> name_of(len), name_of([1]), name_of([1].__iter__)
    ('len()', 'a list', 'a list')
    """
    if getattr(thing, "__name__", "__iter__") != "__iter__":
        return f"{thing.__name__}()"
    return f"a {type(getattr(thing, '__self__', thing)).__name__}"
