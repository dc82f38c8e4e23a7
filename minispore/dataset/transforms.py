"""Transforms for `Dataset.map` that work on many rows at once, as `mindspore.dataset.transforms`."""
import numpy as np

from minispore.common.dtype import to_dtype


class Transform:
    """An op for `Dataset.map` given in one formula for a whole block of rows.

    A new one writes `rows(block)`: block is an array whose leading axis counts the rows. The result of a
    row may depend on that row alone, so that it is the same in whatever block it comes. Called by itself,
    a transform takes one row and gives an array, as in MindSpore.
    """

    def rows(self, block: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def __call__(self, row) -> np.ndarray:
        return self.rows(np.asarray(row)[None])[0, ...]


class TypeCast(Transform):
    """Convert to `data_type`; the shape stays (MindSpore: `mindspore.dataset.transforms.TypeCast`).

    TypeError if `data_type` is no dtype.

    >>> TypeCast("int32")(np.uint32(7))
    array(7, dtype=int32)
    """

    def __init__(self, data_type):
        self.dtype = to_dtype(data_type)

    def rows(self, block: np.ndarray) -> np.ndarray:
        return block.astype(self.dtype)
