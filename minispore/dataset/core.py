"""Dataset: what a script sees of a pipeline. It adds stages and starts epochs; the stages do the work."""
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from minispore.dataset import checks, config
from minispore.dataset.block import Epoch
from minispore.dataset.mapping import Map
from minispore.dataset.prefetch import Prefetcher
from minispore.dataset.stages import Batch, Repeat, Shuffle, Skip, Stage, Take
from minispore.dataset.transforms import Transform

# What concerns only how MindSpore gets its speed.
_IGNORED = {"python_multiprocessing", "max_rowsize", "cache", "offload"}


class Dataset:
    """A pipeline of data (MindSpore: `mindspore.dataset.Dataset`).

    Methods never change a dataset, they return a new one. Iterating gives tuples of Tensors, a row or a
    batch each time; each iteration over the same object is a new epoch with another order. The batch after
    the current one is made meanwhile in a thread.

    >>> from minispore.dataset import NumpySlicesDataset
    >>> data = NumpySlicesDataset([1, 2, 3, 4, 5], "x", shuffle=False).map(lambda x: x * x, "x").batch(2)
    >>> [x.asnumpy().tolist() for x, in data]
    [[1, 4], [9, 16], [25]]
    """

    def __init__(self, stage: Stage):
        self.stage = stage
        self._epochs = count()

    # ---- more stages ----------------------------------------------------------------------------

    def map(self, operations, input_columns=None, output_columns=None, num_parallel_workers=None,
            **options) -> "Dataset":
        """Apply an op or a list of ops, one after the other, to the columns of each row.

        Args:
            operations: transforms, or Python functions of one row that take a numpy array for each input
                column and return an array or a tuple of arrays. After batch() a row is a batch.
            input_columns: what the first op gets, a name or a list; the first column if left out.
            output_columns: the names of what the last op returns, the input columns' if left out.

        TypeError for an op that can't be called, ValueError for unknown columns. An error within an op is
        raised where the row is asked for and names op, column and row.
        """
        self._check_options("map", num_parallel_workers, options)
        ops = tuple(operations) if isinstance(operations, (list, tuple)) else (operations,)
        if not ops:
            raise ValueError("map: operations is an empty list; give at least one op")
        for op in ops:
            if isinstance(op, type) and issubclass(op, Transform):
                raise TypeError(f"map: operations must be objects, got the class {op.__name__}; "
                                f"write {op.__name__}(...)")
            if not callable(op):
                raise TypeError(f"map: operations must be callable with a row, got {op!r}; "
                                "give a transform or a function")
        columns = self.stage.columns
        inputs = columns[:1]
        if input_columns is not None:
            inputs = checks.names("map: input_columns", input_columns, columns)
        outputs = inputs if output_columns is None else checks.names("map: output_columns", output_columns)
        taken = [name for name in outputs if name in columns and name not in inputs]
        if taken:
            raise ValueError(f"map: output_columns {list(outputs)} would hide the other column {taken}; "
                             "choose a new name or make it an input column too")
        return Dataset(Map(self.stage, ops, inputs, outputs))

    def batch(self, batch_size: int, drop_remainder: bool = False, num_parallel_workers=None,
              **options) -> "Dataset":
        """`batch_size` rows become one; of a last, shorter batch nothing is seen with `drop_remainder`.

        Rows that differ in shape or dtype raise ValueError while iterating, and so does an epoch that with
        `drop_remainder` has no batch at all ("There is no valid data").
        """
        self._check_options("batch", num_parallel_workers, options)
        size = checks.integer("batch_size", batch_size, 1, "give the rows of a batch, e.g. batch(32)")
        return Dataset(Batch(self.stage, size, checks.flag("drop_remainder", drop_remainder)))

    def shuffle(self, buffer_size: int) -> "Dataset":
        """Mix this rank's rows in a buffer of `buffer_size` (2 or more); all of them if it holds them all."""
        size = checks.integer("buffer_size", buffer_size, 2, "the dataset's size mixes best")
        return Dataset(Shuffle(self.stage, size))

    def repeat(self, count: int | None = None) -> "Dataset":
        """`count` epochs, each in its own order, as one; without end if None or -1."""
        if count is None or count == -1:
            return Dataset(Repeat(self.stage, -1))
        return Dataset(Repeat(self.stage, checks.integer("count", count, 1, "or -1 to repeat without end")))

    def take(self, count: int = -1) -> "Dataset":
        """The first `count` rows (or batches) of an epoch, all if -1."""
        if count == -1:
            return Dataset(self.stage)
        return Dataset(Take(self.stage, checks.integer("count", count, 1, "or -1 to take all")))

    def skip(self, count: int) -> "Dataset":
        """All but the first `count` rows (or batches) of an epoch."""
        return Dataset(Skip(self.stage, checks.integer("count", count, 0, "0 skips nothing")))

    # ---- what it is -----------------------------------------------------------------------------

    def get_dataset_size(self) -> int:
        """Rows, or batches, an epoch has on this rank; of an endless one, until it starts again."""
        return self.stage.size

    def get_batch_size(self) -> int:
        """The size batch() was given last, 1 without."""
        return self.stage.batch_size

    def get_col_names(self) -> list[str]:
        return list(self.stage.columns)

    def get_repeat_count(self) -> int:
        """How many epochs of the source one epoch is; -1 if it never ends."""
        return self.stage.repeats

    # ---- iterating ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[tuple]:
        return self.create_tuple_iterator(num_epochs=1)

    def create_tuple_iterator(self, columns=None, num_epochs: int = -1, output_numpy: bool = False,
                              do_copy: bool = False) -> "EpochIterator":
        """An iterator over (column, …), Tensors or numpy arrays, which can be looped over `num_epochs` times.

        Args:
            columns: a name or a list of names; all columns if left out.
            num_epochs: -1 for as often as one likes.
            do_copy: give each array a memory of its own. Without, it is a part of a larger one, made for
                this epoch alone; it may be kept all the same.
        """
        names = self.stage.columns
        if columns is not None:
            names = checks.names("columns", columns, names)
        convert = _converter(output_numpy, do_copy)
        return EpochIterator(self, num_epochs, lambda row: tuple(convert(name, row[name]) for name in names))

    def create_dict_iterator(self, num_epochs: int = -1, output_numpy: bool = False,
                             do_copy: bool = False) -> "EpochIterator":
        """As `create_tuple_iterator`, but each row is a dict from column names."""
        convert = _converter(output_numpy, do_copy)
        return EpochIterator(self, num_epochs,
                             lambda row: {name: convert(name, array) for name, array in row.items()})

    def batches(self, epoch: int) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        """minispore's own iterator, for Model: the rows of epoch number `epoch`, made one block ahead.

        Each is (arrays by column, valid). valid (a bool array, (batch,) once batched) is False for rows that
        only fill this shard up to the length of the others: an evaluation must not count them twice. Every
        call with the same epoch gives the same rows, so a resumed run names the epoch it stopped in.
        """
        return self._rows(Epoch(config.get_seed(), epoch))

    def _rows(self, epoch: Epoch):
        for block in Prefetcher(self.stage.blocks(epoch)):
            for i in range(len(block)):
                yield block.row(i)

    def _check_options(self, method: str, num_parallel_workers, options: dict) -> None:
        if num_parallel_workers is not None:
            checks.integer("num_parallel_workers", num_parallel_workers, 1, "or leave it out")
        unknown = sorted(options.keys() - _IGNORED)
        if unknown:
            raise TypeError(f"{method}() has no argument {', '.join(unknown)} in minispore; leave it out")


class EpochIterator(Iterator):
    """Goes through a dataset; when an epoch ends, the next loop over it is the next epoch."""

    def __init__(self, dataset: Dataset, num_epochs: int, convert: Callable[[dict], object]):
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


def _converter(output_numpy: bool, do_copy: bool) -> Callable[[str, np.ndarray], object]:
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
