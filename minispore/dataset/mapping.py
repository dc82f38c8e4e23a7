"""Functions applied to rows: `map`, `filter` and `batch(per_batch_map=)`.

Transforms work on all rows of a block at once, other functions row by row. What is drawn at random within
belongs to the row's place (see `draws`). The work on a block is an object of its own, without the data behind
it, so that it can go to a worker, also in another process.
"""
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minispore.dataset.block import Block, Epoch, row_of, stack
from minispore.dataset.config import get_seed
from minispore.dataset.draws import drawing
from minispore.dataset.stages import ROWS_AT_ONCE, Batch, Stage, group_column
from minispore.dataset.transforms import Compose, Transform
from minispore.dataset.workers import ordered

Piece = tuple[Block, int]       # some rows and the number of the first, counted from the epoch's begin


@dataclass(frozen=True)
class Map(Stage):
    """The ops one after the other: from the columns `inputs` to the columns `outputs`, all others stay."""

    before: Stage
    ops: tuple[Callable, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    workers: int = 1
    processes: bool = False

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return _columns(self.before.columns, self.inputs, self.outputs)

    @property
    def maps(self) -> int:
        return self.before.maps + 1

    @property
    def source(self) -> Stage:
        return self.before

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        ops = flat(self.ops)
        work = Ops("map", ops, self.inputs, self.outputs, self.columns, key_of(self, epoch))
        step = None if all(isinstance(op, Transform) for op in ops) else max(1, ROWS_AT_ONCE // self.workers)
        return ordered(work, _pieces(self.before.blocks(epoch), step), self.workers, self.processes)


@dataclass(frozen=True)
class Filter(Stage):
    """Only the rows for which the predicate is true."""

    before: Stage
    predicate: Callable
    inputs: tuple[str, ...]
    workers: int = 1

    @property
    def maps(self) -> int:
        return self.before.maps + 1

    @cached_property
    def size(self) -> int:
        """Known only when all rows have been made once: those of epoch 0."""
        if self.endless:
            raise ValueError("filter: how many rows are left of an endless dataset can't be counted; "
                             "filter first and repeat() then")
        return sum(map(len, self.blocks(Epoch(get_seed(), 0))))

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        work = Predicate("filter", (self.predicate,), self.inputs, key=key_of(self, epoch))
        pieces = _pieces(self.before.blocks(epoch), max(1, ROWS_AT_ONCE // self.workers))
        for block in ordered(work, pieces, self.workers):
            if len(block):
                yield block


@dataclass(frozen=True)
class BatchInfo:
    """What a per_batch_map learns about its batch (MindSpore: `mindspore.dataset.BatchInfo`)."""

    epoch: int
    batch: int

    def get_epoch_num(self) -> int:
        """The epoch's number, from 0 on."""
        return self.epoch

    def get_batch_num(self) -> int:
        """The batch's number within the epoch, from 0 on."""
        return self.batch


@dataclass(frozen=True)
class BatchMap(Batch):
    """Batches made by a function, from lists of their rows."""

    function: Callable
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    workers: int = 1

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return _columns(self.before.columns, self.inputs, self.outputs)

    @property
    def maps(self) -> int:
        return self.before.maps + 1

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        work = Merge("batch: per_batch_map", (self.function,), self.inputs, self.outputs, self.columns,
                     key_of(self, epoch), epoch.number, self.count)
        return ordered(work, _pieces(self.groups(epoch), self.count), self.workers)


def _columns(before: tuple[str, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> tuple[str, ...]:
    """As many outputs as inputs take their places; else, as in MindSpore, the outputs come first."""
    if len(inputs) == len(outputs):
        renamed = dict(zip(inputs, outputs, strict=True))
        return tuple(renamed.get(name, name) for name in before)
    return outputs + tuple(name for name in before if name not in inputs)


def key_of(stage: Stage, epoch: Epoch) -> tuple:
    """What the random numbers of a stage depend on, beside the row (whose place contains the epoch)."""
    return ("transform", epoch.seed, epoch.branch, stage.maps)


def flat(ops: tuple[Callable, ...]) -> tuple[Callable, ...]:
    """The ops with those of each Compose in its place."""
    return tuple(inner for op in ops for inner in (flat(op.transforms) if isinstance(op, Compose) else (op,)))


def _pieces(blocks: Iterator[Block], step: int | None) -> Iterator[Piece]:
    """The blocks cut into pieces of `step` rows at most; whole ones if None."""
    first = 0
    for block in blocks:
        for start in range(0, len(block), step or len(block)):
            yield block[start:start + step] if step else block, first + start
        first += len(block)


@dataclass(frozen=True)
class Work:
    """Functions to be called with the columns `inputs` of some rows, and the words for their errors."""

    what: str
    ops: tuple[Callable, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    key: tuple = ()

    def call(self, number: int, row: list, places: np.ndarray, i: int):
        """Op `number` with one row's arrays; `i` is the row's number."""
        try:
            with drawing((*self.key, number), places):
                return self.ops[number](*row)
        except Exception as error:
            raise RuntimeError(f"{self.where(number, row, i)} failed: {type(error).__name__}: {error}") from error

    def where(self, number: int, row: list, i: int) -> str:
        columns = ", ".join(f"{name!r} {array.dtype}{array.shape}" for name, array in zip(self.inputs, row, strict=False))
        return f"{self.what}: {_name(self.ops[number])} on row {i} of column {columns}"

    def put(self, block: Block, values: list[np.ndarray]) -> Block:
        """The block with `values` as its columns `outputs`."""
        if len(values) != len(self.outputs):
            raise ValueError(f"{self.what}: {_name(self.ops[-1])} returned {len(values)} arrays for output_columns "
                             f"{list(self.outputs)}; return one array a column, or name all of them")
        known = {**block.columns, **dict(zip(self.outputs, values, strict=True))}
        return Block({name: known[name] for name in self.columns}, block.valid, block.places)


class Ops(Work):
    """The work of a Map."""

    def __call__(self, piece: Piece) -> Block:
        block, first = piece
        values = [block.columns[name] for name in self.inputs]
        for number, op in enumerate(self.ops):
            if isinstance(op, Transform):
                values = self._whole(number, op, values, block.places)
            else:
                values = self._each(number, values, block.places, first)
        return self.put(block, values)

    def _whole(self, number: int, op: Transform, values: list[np.ndarray], places: np.ndarray) -> list[np.ndarray]:
        if op.takes is not None and len(values) != op.takes:
            takes = "takes one column" if op.takes == 1 else f"takes {op.takes} columns"
            raise ValueError(f"{self.what}: {_name(op)} {takes}, but input_columns are {list(self.inputs)}; "
                             "call map once for each column")
        key = (*self.key, number)
        try:
            if all(column.dtype != object for column in values):
                with drawing(key, places):
                    return _list(op.rows(*values))
            results = []
            for i in range(len(places)):
                with drawing(key, np.atleast_1d(row_of(places, i))):
                    results.append(_list(op.rows(*(row_of(column, i)[None] for column in values))))
            return [stack([part[0, ...] for part in parts]) for parts in zip(*results, strict=True)]
        except (TypeError, ValueError) as error:
            name = "" if str(error).startswith(_name(op)) else f"{_name(op)}: "
            kind = TypeError if isinstance(error, TypeError) else ValueError        # numpy's own kinds take other arguments
            raise kind(f"{self.what} on column {', '.join(map(repr, self.inputs))}: {name}{error}") from None

    def _each(self, number: int, values: list[np.ndarray], places: np.ndarray, first: int) -> list[np.ndarray]:
        """A Python function gets arrays, a row of each column, and returns an array or a tuple of arrays."""
        results: list[list[np.ndarray]] = []
        for i in range(len(values[0])):
            row = [row_of(column, i) for column in values]
            given = self.call(number, row, np.atleast_1d(row_of(places, i)), first + i)
            try:
                result = [np.asarray(part) for part in _list(given)]
            except ValueError:
                result = [np.empty(0, object)]
            if any(part.dtype == object for part in result):
                raise TypeError(f"{self.where(number, row, first + i)} returned something that is no array of "
                                "numbers; return a numpy array or a tuple of them")
            results.append(result)
            if len(result) != len(results[0]):
                raise ValueError(f"{self.where(number, row, first + i)} returned {len(result)} arrays, before "
                                 f"{len(results[0])}; return equally many for every row")
        return [stack(rows) for rows in zip(*results, strict=True)]


class Predicate(Work):
    """The work of a Filter."""

    def __call__(self, piece: Piece) -> Block:
        block, first = piece
        keep = np.zeros(len(block), bool)
        for i in range(len(block)):
            row = [row_of(block.columns[name], i) for name in self.inputs]
            answer = np.asarray(self.call(0, row, np.atleast_1d(row_of(block.places, i)), first + i))
            if answer.size != 1 or answer.dtype.kind not in "biu":
                raise TypeError(f"{self.where(0, row, first + i)} returned {answer.dtype} of shape {answer.shape}; "
                                "return True or False, e.g. bool((row > 0).all())")
            keep[i] = answer.item()
        return block if keep.all() else block[keep]


@dataclass(frozen=True)
class Merge(Work):
    """The work of a BatchMap: one batch."""

    epoch: int = 0
    size: int = 1

    def __call__(self, piece: Piece) -> Block:
        block, first = piece
        batch = first // self.size
        lists = [[row_of(block.columns[name], i) for i in range(len(block))] for name in self.inputs]
        where = f"{self.what}: {_name(self.ops[0])} on batch {batch} of columns {list(self.inputs)}"
        try:
            with drawing((*self.key, 0), block.places[:1]):
                given = self.ops[0](*lists, BatchInfo(self.epoch, batch))
        except Exception as error:
            raise RuntimeError(f"{where} failed: {type(error).__name__}: {error}") from error
        try:
            values = [np.asarray(part)[None] for part in _list(given)]
        except ValueError:
            raise ValueError(f"{where} returned rows of different shapes; bring those of a batch to one shape") from None
        if any(value.dtype == object for value in values):
            raise TypeError(f"{where} returned something that is no array of numbers; return for each column "
                            "an array or a list of arrays, several as a tuple")
        others = {name: group_column(f"column {name!r}", array, len(block)) for name, array in block.columns.items()
                  if name not in self.inputs}
        return self.put(Block(others, block.valid[None], block.places[None]), values)


def _list(result) -> list:
    return list(result) if isinstance(result, tuple) else [result]


def _name(op: Callable) -> str:
    return getattr(op, "__name__", None) or type(op).__name__
