"""Dataset: what a script sees of a pipeline. It adds stages; the stages do the work."""
from collections.abc import Callable
from dataclasses import replace

from minispore.dataset import checks, config, padding
from minispore.dataset.combining import Columns, Concat, Zip, split
from minispore.dataset.iterators import Flow
from minispore.dataset.mapping import BatchMap, Filter, Map
from minispore.dataset.reading import Source
from minispore.dataset.samplers import select
from minispore.dataset.stages import Batch, Repeat, Shuffle, Skip, Take
from minispore.dataset.transforms.choice import ops_of

# What concerns only how MindSpore gets its speed.
_IGNORED = {"max_rowsize", "cache", "offload"}


class Dataset(Flow):
    """A pipeline of data (MindSpore: `mindspore.dataset.Dataset`).

    Methods never change a dataset, they return a new one. Iterating gives tuples of Tensors, a row or a
    batch each time; each iteration over the same object is a new epoch with another order. The batch after
    the current one is made meanwhile in a thread.

    >>> from minispore.dataset import NumpySlicesDataset
    >>> data = NumpySlicesDataset([1, 2, 3, 4, 5], "x", shuffle=False).map(lambda x: x * x, "x").batch(2)
    >>> [x.asnumpy().tolist() for x, in data]
    [[1, 4], [9, 16], [25]]
    """

    def map(self, operations, input_columns=None, output_columns=None, column_order=None, num_parallel_workers=None,
            python_multiprocessing=False, **options) -> "Dataset":
        """Apply an op or a list of ops, one after the other, to the columns of each row.

        Args:
            operations: transforms, or Python functions of one row that take a numpy array for each input
                column and return an array or a tuple of arrays. After batch() a row is a batch.
            input_columns: what the first op gets, a name or a list; the first column if left out.
            output_columns: the names of what the last op returns, the input columns' if left out.
            column_order: the columns to keep, in this order; all if left out.
            num_parallel_workers: work on so many pieces at a time; the result is the same.
            python_multiprocessing: the workers are processes, not threads; see `dataset.workers`.

        TypeError for an op that can't be called, ValueError for unknown columns. An error within an op is
        raised where the row is asked for and names op, column and row.
        """
        workers = _workers("map", num_parallel_workers, options)
        ops = ops_of("map", operations if isinstance(operations, (list, tuple)) else (operations,))
        inputs, outputs = self._in_and_out("map", input_columns, output_columns, self.stage.columns[:1])
        mapped = Dataset(Map(self.stage, ops, inputs, outputs, workers,
                             checks.flag("python_multiprocessing", python_multiprocessing)))
        return mapped if column_order is None else mapped.project(column_order)

    def filter(self, predicate, input_columns=None, num_parallel_workers=None) -> "Dataset":
        """Keep the rows for which `predicate`, a function of the input columns' arrays, is true.

        `input_columns` are all columns if left out. To know how many rows are left, get_dataset_size() makes
        them all once; shards may then differ in length, which a training refuses (give it take()).
        """
        if not callable(predicate):
            raise TypeError(f"filter: predicate must be a function, got {predicate!r}")
        names = self.stage.columns
        if input_columns is not None:
            names = checks.names("filter: input_columns", input_columns, names)
        return Dataset(Filter(self.stage, predicate, names, _workers("filter", num_parallel_workers, {})))

    def batch(self, batch_size: int, drop_remainder: bool = False, num_parallel_workers=None, *, per_batch_map=None,
              input_columns=None, output_columns=None, python_multiprocessing=False, **options) -> "Dataset":
        """`batch_size` rows become one; of a last, shorter batch nothing is seen with `drop_remainder`.

        Args:
            per_batch_map: a function (column, …, BatchInfo) of lists of rows that returns for each output
                column an array or a list of arrays, several as a tuple. Rows may differ in shape before.
            input_columns: what it gets, all columns if left out.
            output_columns: the names of what it returns, the input columns' if left out.
            num_parallel_workers: threads that call it.

        Rows that differ in shape or dtype raise ValueError while iterating, and so does an epoch that with
        `drop_remainder` has no batch at all ("There is no valid data").
        """
        workers = _workers("batch", num_parallel_workers, options)
        checks.flag("python_multiprocessing", python_multiprocessing)       # per_batch_map's workers are always threads
        size = checks.integer("batch_size", batch_size, 1, "give the rows of a batch, e.g. batch(32)")
        checks.flag("drop_remainder", drop_remainder)
        if per_batch_map is None:
            for name, value in (("input_columns", input_columns), ("output_columns", output_columns)):
                if value is not None:
                    raise ValueError(f"batch: {name}={value!r} says what per_batch_map works on, but there is none; "
                                     "give per_batch_map too, or leave it out")
            return Dataset(Batch(self.stage, size, drop_remainder))
        if not callable(per_batch_map):
            raise TypeError(f"batch: per_batch_map must be a function, got {per_batch_map!r}")
        inputs, outputs = self._in_and_out("batch", input_columns, output_columns, self.stage.columns)
        return Dataset(BatchMap(self.stage, size, drop_remainder, per_batch_map, inputs, outputs, workers))

    def padded_batch(self, batch_size: int, drop_remainder: bool = False, num_parallel_workers=None,
                     pad_info=None) -> "Dataset":
        """batch() of rows that differ in shape: each is filled up at the end of its dims.

        Args:
            pad_info: a dict from column names to (shape, fill value); the shape's None stands for the largest
                size in the batch. Columns not named are filled up to this with 0.

        >>> from minispore.dataset import NumpySlicesDataset
        >>> data = NumpySlicesDataset([1, 2], "x", shuffle=False).map(lambda x: [7] * int(x), "x")
        >>> [x.asnumpy().tolist() for x, in data.padded_batch(2, pad_info={"x": ([None], -1)})]
        [[[7, -1], [7, 7]]]
        """
        names = self.stage.columns
        pad = padding.Pad(names, padding.checked(pad_info, names))
        return self.batch(batch_size, drop_remainder, num_parallel_workers, per_batch_map=pad)

    def project(self, columns) -> "Dataset":
        """Only these columns, a name or a list, in this order."""
        names = checks.names("project: columns", columns, self.stage.columns)
        return Dataset(Columns(self.stage, names, names))

    def rename(self, input_columns, output_columns) -> "Dataset":
        """Other names for some columns: a name for a name, or a list for a list."""
        names = self.stage.columns
        old = checks.names("rename: input_columns", input_columns, names)
        new = checks.names("rename: output_columns", output_columns)
        if len(old) != len(new):
            raise ValueError(f"rename: {len(old)} input_columns {list(old)}, but {len(new)} output_columns {list(new)}; "
                             "give one for each")
        renamed = dict(zip(old, new, strict=True))
        after = [renamed.get(name, name) for name in names]
        return Dataset(Columns(self.stage, names, checks.names("rename: the columns afterwards", after)))

    def zip(self, datasets) -> "Dataset":
        """This dataset's columns and those of another one (or a tuple of others) side by side, while all have rows."""
        return zip_((self, *(datasets if isinstance(datasets, (tuple, list)) else (datasets,))))

    def concat(self, datasets) -> "Dataset":
        """This dataset's rows and then those of another one (or a list of others); also `a + b`."""
        others = tuple(datasets) if isinstance(datasets, (tuple, list)) else (datasets,)
        for other in others:
            if not isinstance(other, Dataset):
                raise TypeError(f"concat: datasets must be a Dataset or a list of them, got {other!r}")
            if set(other.stage.columns) != set(self.stage.columns):
                raise ValueError(f"concat: the columns {other.get_col_names()} differ from {self.get_col_names()}; "
                                 "make them alike with rename() and project()")
        return Dataset(Concat((self.stage, *(other.stage for other in others))))

    __add__ = concat

    def split(self, sizes, randomize: bool = True) -> "list[Dataset]":
        """Parts without a row in common, e.g. a training and a validation set.

        Args:
            sizes: numbers of rows that add up to all of them, or fractions that add up to 1. They count the
                rows of all shards together.
            randomize: divide at random, by the dataset's seed; else in the data's own order.

        The parts are the same on all ranks and in all epochs. If the stages so far give the source's rows one
        for one, each part goes on to shuffle and to shard them. If not (after filter, take, batch, …), the rows
        of epoch 0 are divided as they are, and with them the random changes made to them.

        RuntimeError for sizes that don't add up or are too small, ValueError for others than the said.
        """
        parts = split(self.stage, sizes, checks.flag("randomize", randomize), config.get_seed())
        return [Dataset(part) for part in parts]

    def use_sampler(self, new_sampler) -> "Dataset":
        """The same source with another sampler, also one of shards. TypeError if there are stages after the source."""
        if not isinstance(self.stage, Source):
            raise TypeError("use_sampler: only a source whose rows have numbers takes a sampler; call it before map(), "
                            "batch() and so on")
        return Dataset(replace(self.stage, sampler=select(new_sampler, None, None, None, None)))

    def apply(self, apply_func: "Callable[[Dataset], Dataset]") -> "Dataset":
        """apply_func(self), a function that adds stages; TypeError if it returns no Dataset."""
        result = apply_func(self)
        if not isinstance(result, Dataset):
            raise TypeError(f"apply: apply_func must return a Dataset, it returned {result!r}")
        return result

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

    def _in_and_out(self, method: str, inputs, outputs, default: tuple[str, ...]) -> tuple[tuple, tuple]:
        """The columns a function takes and gives, checked."""
        columns = self.stage.columns
        inputs = default if inputs is None else checks.names(f"{method}: input_columns", inputs, columns)
        outputs = inputs if outputs is None else checks.names(f"{method}: output_columns", outputs)
        taken = [name for name in outputs if name in columns and name not in inputs]
        if taken:
            raise ValueError(f"{method}: output_columns {list(outputs)} would hide the other column {taken}; "
                             "choose a new name or make it an input column too")
        return inputs, outputs


def zip_(datasets) -> Dataset:
    """`ds.zip`: the columns of several datasets side by side, as long as all of them have rows.

    TypeError if `datasets` is no tuple of datasets, ValueError if two of them have a column of the same name.
    """
    if not isinstance(datasets, (tuple, list)) or not all(isinstance(data, Dataset) for data in datasets):
        raise TypeError(f"zip: datasets must be a tuple of datasets, got {datasets!r}")
    if len(datasets) < 2:
        raise ValueError(f"zip: give two datasets or more, got {len(datasets)}")
    names = [name for data in datasets for name in data.stage.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"zip: the column {twice[0]!r} is in more than one dataset, their columns are "
                         f"{[data.get_col_names() for data in datasets]}; rename() one of them")
    return Dataset(Zip(tuple(data.stage for data in datasets)))


def _workers(method: str, num_parallel_workers, options: dict) -> int:
    """The number of workers; TypeError for arguments that aren't MindSpore's."""
    unknown = sorted(options.keys() - _IGNORED)
    if unknown:
        raise TypeError(f"{method}() has no argument {', '.join(unknown)} in minispore; leave it out")
    return workers_of(num_parallel_workers)


def workers_of(num_parallel_workers) -> int:
    """num_parallel_workers, or config's if left out."""
    if num_parallel_workers is None:
        return config.get_num_parallel_workers()
    return checks.integer("num_parallel_workers", num_parallel_workers, 1, "or leave it out")
