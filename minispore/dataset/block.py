"""What flows through a dataset's pipeline: blocks of rows.

Many rows travel together, so that numpy works on long arrays; what a row *means* doesn't depend on how
many of them share a block. After `batch(B)` the rows of a block are batches.
"""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_EPOCH_PLACES = 1 << 40     # more than the rows of an epoch


@dataclass(frozen=True)
class Epoch:
    """One pass over a dataset. All that is random in a pipeline is a function of these numbers.

    `branch` tells apart what runs side by side (zip) or one after the other (concat): transforms draw other
    numbers in each branch. Sources don't look at it, so that zipped ones shuffle alike.
    """

    seed: int
    number: int
    branch: tuple[int, ...] = ()

    def places(self, places: np.ndarray) -> np.ndarray:
        """The places of rows within this epoch as places among all epochs' rows (int64)."""
        return self.number * _EPOCH_PLACES + places


@dataclass(frozen=True)
class Block:
    """Some rows: for each column an array whose leading axis counts them.

    `valid` is (rows,), or (rows, batch) once batched: False marks a row that is there a second time, to
    make all shards equally long; an evaluation leaves it out. `places`, of the same shape, int64, says which
    row of the data's common order each is, whatever shard it is in: what is drawn for it depends on that.
    A column whose rows differ in shape is an array of objects, each of them an array.

    >>> block = Block({"x": np.arange(6).reshape(3, 2)}, np.ones(3, bool), np.arange(3))
    >>> len(block), block[1:].columns["x"].tolist()
    (3, [[2, 3], [4, 5]])
    """

    columns: dict[str, np.ndarray]
    valid: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.valid)

    def __getitem__(self, rows) -> "Block":
        """The rows of a slice or of an array of indices."""
        return Block({name: array[rows] for name, array in self.columns.items()}, self.valid[rows],
                     self.places[rows])

    def row(self, i: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Row i: each column's array (0-d for a scalar) and its valid mark(s)."""
        return {name: row_of(array, i) for name, array in self.columns.items()}, row_of(self.valid, i)


def row_of(column: np.ndarray, i: int) -> np.ndarray:
    """Row i of a column, always an array, also where rows are scalars or differ in shape."""
    return column[i] if column.dtype == object else column[i, ...]


def stack(rows: Sequence[np.ndarray]) -> np.ndarray:
    """A column from its rows: an array of objects where their shapes or dtypes differ.

    >>> stack([np.zeros(2), np.ones(2)]).shape, stack([np.zeros(2), np.ones(3)]).dtype
    ((2, 2), dtype('O'))
    """
    if all(alike(row, rows[0]) for row in rows):
        return np.stack(rows)
    column = np.empty(len(rows), object)
    column[:] = rows
    return column


def join(blocks: Sequence[Block]) -> Block:
    """Blocks one after the other as one block; a single one isn't copied."""
    if len(blocks) == 1:
        return blocks[0]
    columns = {name: _concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    return Block(columns, _concatenate([block.valid for block in blocks]),
                 _concatenate([block.places for block in blocks]))


def _concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    if all(part.dtype != object and alike(part[0], parts[0][0]) for part in parts):
        return np.concatenate(parts)
    return stack([row_of(part, i) for part in parts for i in range(len(part))])


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Can these two rows stand in one array? (Strings of different lengths can.)"""
    return a.shape == b.shape and (a.dtype == b.dtype or a.dtype.kind == b.dtype.kind == "U")
