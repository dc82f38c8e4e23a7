"""`map`: ops applied to columns, row by row or, where an op can, to all rows of a block at once."""
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minispore.dataset.block import Block, Epoch, row_of, stack
from minispore.dataset.stages import Stage
from minispore.dataset.transforms import Transform

ROWS_AT_ONCE = 32       # where Python is called for each row: so a slow op doesn't delay the first batch


@dataclass(frozen=True)
class Map(Stage):
    """The ops one after the other: from the columns `inputs` to the columns `outputs`, all others stay."""

    before: Stage
    ops: tuple[Callable, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """As many outputs as inputs take their places; else, as in MindSpore, the outputs come first."""
        if len(self.inputs) == len(self.outputs):
            renamed = dict(zip(self.inputs, self.outputs, strict=True))
            return tuple(renamed.get(name, name) for name in self.before.columns)
        return self.outputs + tuple(name for name in self.before.columns if name not in self.inputs)

    def blocks(self, epoch: Epoch) -> Iterator[Block]:
        whole = all(isinstance(op, Transform) for op in self.ops)
        first = 0           # this block's first row, counted from the epoch's begin
        for block in self.before.blocks(epoch):
            step = len(block) if whole else ROWS_AT_ONCE
            for start in range(0, len(block), step):
                yield self._apply(block[start:start + step], first + start)
            first += len(block)

    def _apply(self, block: Block, first: int) -> Block:
        values = [block.columns[name] for name in self.inputs]
        for op in self.ops:
            values = self._whole(op, values) if isinstance(op, Transform) else self._each(op, values, first)
        if len(values) != len(self.outputs):
            raise ValueError(f"map: {_name(self.ops[-1])} returned {len(values)} arrays for output_columns "
                             f"{list(self.outputs)}; return one array a column, or name all of them")
        known = {**block.columns, **dict(zip(self.outputs, values, strict=True))}
        return Block({name: known[name] for name in self.columns}, block.valid)

    def _whole(self, op: Transform, values: list[np.ndarray]) -> list[np.ndarray]:
        if len(values) != 1:
            raise ValueError(f"map: {_name(op)} takes one column, but input_columns are {list(self.inputs)}; "
                             "call map once for each column")
        column, = values
        try:
            return [op.rows(column) if column.dtype != object else stack([op(row) for row in column])]
        except (TypeError, ValueError) as error:
            raise type(error)(f"map on column {self.inputs[0]!r}: {error}") from None

    def _each(self, op: Callable, values: list[np.ndarray], first: int) -> list[np.ndarray]:
        """A Python function gets arrays, a row of each column, and returns an array or a tuple of arrays."""
        results: list[list[np.ndarray]] = []
        for i in range(len(values[0])):
            row = [row_of(column, i) for column in values]
            try:
                result = op(*row)
                result = [np.asarray(part) for part in (result if isinstance(result, tuple) else (result,))]
            except Exception as error:
                where = self._where(op, row, first + i)
                raise RuntimeError(f"{where} failed: {type(error).__name__}: {error}") from error
            if any(part.dtype == object for part in result):
                raise TypeError(f"{self._where(op, row, first + i)} returned something that is no array of "
                                "numbers; return a numpy array or a tuple of them")
            results.append(result)
            if len(result) != len(results[0]):
                raise ValueError(f"{self._where(op, row, first + i)} returned {len(result)} arrays, before "
                                 f"{len(results[0])}; return equally many for every row")
        return [stack(rows) for rows in zip(*results, strict=True)]

    def _where(self, op: Callable, row: list[np.ndarray], number: int) -> str:
        columns = ", ".join(f"{name!r} {array.dtype}{array.shape}"
                            for name, array in zip(self.inputs, row, strict=False))
        return f"map: {_name(op)} on row {number} of column {columns}"


def _name(op: Callable) -> str:
    return getattr(op, "__name__", None) or type(op).__name__
