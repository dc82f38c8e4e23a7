"""What comes out of a pipeline: rows as tuples or dicts, of Tensors or numpy arrays, epoch after epoch."""
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from minispore.common.state import current
from minispore.dataset import checks, config
from minispore.dataset.block import Epoch
from minispore.dataset.prefetch import Prefetcher
from minispore.dataset.stages import Stage


class Flow:
    """The end of a pipeline: what is known of its rows, and ways through them."""

    def __init__(self, stage: Stage):
        self.stage = stage
        self._epochs = count()

    # ---- what it is -----------------------------------------------------------------------------

    def get_dataset_size(self) -> int:
        """Rows, or batches, an epoch has on this rank; of an endless one, until it starts again.

        After filter(), and if the source is a generator, all rows are made once to count them.
        """
        return self.stage.size

    def get_batch_size(self) -> int:
        """The size batch() was given last, 1 without."""
        return self.stage.batch_size

    def get_col_names(self) -> list[str]:
        return list(self.stage.columns)

    def get_repeat_count(self) -> int:
        """How many epochs of the source one epoch is; -1 if it never ends."""
        return self.stage.repeats

    def output_shapes(self, estimate: bool = False) -> list[list]:
        """The shape of a row (or batch) of each column: the first row's; with `estimate` of all, None where it varies."""
        rows = self._first_rows("output_shapes", None if estimate else 1)
        shapes = [list(column.shape) for column in next(rows)]
        for row in rows:
            for shape, column in zip(shapes, row, strict=True):
                if len(shape) != column.ndim:
                    raise RuntimeError(f"output_shapes: rows of {len(shape)} and of {column.ndim} dims; there is no common shape")
                shape[:] = [old if old == new else None for old, new in zip(shape, column.shape, strict=True)]
        return shapes

    def output_types(self) -> list[np.dtype]:
        """The dtype of each column, in the first row."""
        return [column.dtype for column in next(self._first_rows("output_types", 1))]

    def num_classes(self) -> int | None:
        """The number of classes of a source that has classes, else None."""
        classes = self.stage.classes
        return None if classes is None else len(classes)

    def get_class_indexing(self) -> dict[str, int]:
        """The number of each class by its name; empty if the source has none."""
        return dict(self.stage.classes or {})

    def reset(self) -> None:
        """The next iteration is epoch 0 again."""
        self._epochs = count()

    def _first_rows(self, what: str, number: int | None) -> Iterator[list[np.ndarray]]:
        rows = self.batches(0)
        first = next(rows, None)
        if first is None:
            raise RuntimeError(f"{what}: the dataset has no rows; there is no shape or type to tell")
        yield list(first[0].values())
        if number is None:
            yield from (list(row.values()) for row, _ in rows)

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
        convert = self._converter(output_numpy, do_copy)
        return EpochIterator(self, num_epochs, lambda row: tuple(convert({name: row[name] for name in names})))

    def create_dict_iterator(self, num_epochs: int = -1, output_numpy: bool = False,
                             do_copy: bool = False) -> "EpochIterator":
        """As `create_tuple_iterator`, but each row is a dict from column names."""
        convert = self._converter(output_numpy, do_copy)
        return EpochIterator(self, num_epochs, lambda row: dict(zip(row, convert(row), strict=True)))

    def _converter(self, output_numpy: bool, do_copy: bool) -> Callable[[dict], list]:
        """What makes of a row's arrays what the script asked for."""
        checks.flag("output_numpy", output_numpy), checks.flag("do_copy", do_copy)

        def convert(row: dict[str, np.ndarray]) -> list:
            if do_copy:
                row = {name: array.copy() for name, array in row.items()}
            return list(row.values()) if output_numpy else self.tensors("", row)
        return convert

    def tensors(self, who: str, row: dict[str, np.ndarray]) -> list:
        """A row's (or batch's) columns as Tensors on the same memory. In semi-auto and auto mode each knows of which logical
        tensor it is this rank's piece. who: whom an error names.
        """
        from minispore.common.tensor import Tensor
        for name, array in row.items():
            if array.dtype.kind not in "biuf":
                remedy = "with dataset.project([…])" if who else "with columns=[...] or ask for output_numpy=True"
                raise TypeError(f"{who and f'{who}: '}column {name!r} holds {array.dtype}, which a Tensor can't; "
                                f"leave it out {remedy}")
        compiler = current().compiler
        layouts = [None] * len(row) if compiler is None else \
            compiler.fed({name: array.shape for name, array in row.items()}, self.stage.share)
        return list(map(Tensor.from_numpy, row.values(), layouts))

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
