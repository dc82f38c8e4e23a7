"""What a transform is."""
import numpy as np


class Transform:
    """An op for `Dataset.map` given in one formula for a whole block of rows.

    A new one writes `rows(block)`: block is an array whose leading axis counts the rows. The result of a
    row may depend on that row alone, so that it is the same in whatever block it comes. A random one draws
    with `minispore.dataset.draws.uniform(rows, each)`. Called by itself, a transform takes one row and gives
    an array, as in MindSpore.

    `takes` is the number of columns `rows` takes, None for any; it may return a tuple of several.

    >>> class Double(Transform):
    ...     def rows(self, block):
    ...         return block * 2
    >>> Double()([1, 2]).tolist()
    [2, 4]
    """

    takes: int | None = 1

    def rows(self, *blocks: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        raise NotImplementedError

    def __call__(self, *row):
        result = self.rows(*(np.asarray(part)[None] for part in row))
        return tuple(part[0, ...] for part in result) if isinstance(result, tuple) else result[0, ...]
