"""padded_batch: rows of different shapes filled up to one shape, batch by batch."""
from dataclasses import dataclass, field

import numpy as np

from minispore.dataset import checks


@dataclass(frozen=True)
class Pad:
    """A per_batch_map. `info`: for a column's name its (shape, fill value).

    A shape's None stands for the largest size in the batch, a shape None for this in all dims.
    """

    names: tuple[str, ...]
    info: dict = field(default_factory=dict)

    __name__ = "padded_batch"

    def __call__(self, *lists_and_info):
        return tuple(self._padded(name, rows) for name, rows in zip(self.names, lists_and_info, strict=False))

    def _padded(self, name: str, rows: list[np.ndarray]) -> np.ndarray:
        shape, value = self.info.get(name, (None, 0))
        ndim = rows[0].ndim if shape is None else len(shape)
        wrong = next((row for row in rows if row.ndim != ndim), None)
        if wrong is not None:
            raise ValueError(f"column {name!r}: a row has shape {wrong.shape}, but {ndim} dims are wanted "
                             f"(pad_info shape {shape}, first row {rows[0].shape}); bring all rows to {ndim} dims")
        largest = [max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True)]
        shape = [most if size is None else size for size, most in zip(shape or [None] * ndim, largest, strict=True)]
        if any(most > size for size, most in zip(shape, largest, strict=True)):
            raise ValueError(f"column {name!r}: rows as large as {tuple(largest)} don't fit into the shape {tuple(shape)} of "
                             "pad_info; give larger sizes, or None for the largest in the batch")
        out = np.full((len(rows), *shape), value, np.result_type(*rows))
        for i, row in enumerate(rows):
            out[(i, *map(slice, row.shape))] = row
        return out


def checked(pad_info, columns: tuple[str, ...]) -> dict:
    """pad_info, with the fill value there."""
    if pad_info is None:
        return {}
    if not isinstance(pad_info, dict):
        raise TypeError("padded_batch: pad_info must be a dict from column names to (shape, fill value), "
                        f"got {pad_info!r}")
    checks.names("padded_batch: pad_info", list(pad_info), columns)
    info = {}
    for name, value in pad_info.items():
        shape, fill = value if isinstance(value, tuple) and len(value) == 2 else (value, 0)
        if shape is not None and not (isinstance(shape, (list, tuple)) and all(
                size is None or (isinstance(size, int) and size > 0) for size in shape)):
            raise TypeError(f"padded_batch: pad_info[{name!r}] must be (shape, fill value), the shape a list of sizes and "
                            f"None, got {value!r}")
        info[name] = (shape, 0 if fill is None else fill)
    return info
