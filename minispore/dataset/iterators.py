"""How a script goes through a dataset: as tuples or dicts, of Tensors or numpy arrays, epoch after epoch."""
from collections.abc import Callable, Iterator

import numpy as np

from minispore.dataset import checks


class EpochIterator(Iterator):
    """Goes through a dataset; when an epoch ends, the next loop over it is the next epoch."""

    def __init__(self, dataset, num_epochs: int, convert: Callable[[dict], object]):
        if num_epochs != -1:
            checks.integer("num_epochs", num_epochs, 1, "or -1 for as many as one likes")
        self._dataset, self._convert = dataset, convert
        self._epochs_left = num_epochs
        self._rows = None       # of the epoch under way

    def __next__(self):
        if self._rows is None:
            self._rows = self._next_epoch()
        row = next(self._rows, None)
        if row is None:
            self._rows = None
            raise StopIteration
        return self._convert(row[0])

    def _next_epoch(self):
        if self._epochs_left == 0:
            raise RuntimeError("this iterator's num_epochs are over; create it with a larger num_epochs or "
                               "with -1, or loop over the dataset itself, each time a new epoch")
        if self._epochs_left > 0:
            self._epochs_left -= 1
        return self._dataset.batches(next(self._dataset._epochs))


def converter(output_numpy: bool, do_copy: bool) -> Callable[[str, np.ndarray], object]:
    """What makes of a column's array what the script asked for."""
    checks.flag("output_numpy", output_numpy), checks.flag("do_copy", do_copy)
    if output_numpy:
        return lambda name, array: array.copy() if do_copy else array

    from minispore.common.tensor import Tensor

    def to_tensor(name: str, array: np.ndarray) -> Tensor:
        if array.dtype.kind not in "biuf":
            raise TypeError(f"column {name!r} holds {array.dtype}, which a Tensor can't; "
                            "leave it out with columns=[...] or ask for output_numpy=True")
        return Tensor.from_numpy(array.copy() if do_copy else array)
    return to_tensor
