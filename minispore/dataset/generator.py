"""GeneratorDataset: data that a Python object or function of one's own gives."""
from collections.abc import Iterator

import numpy as np

from minispore.common.dtype import to_dtype
from minispore.dataset import checks
from minispore.dataset.core import Dataset
from minispore.dataset.reading import Items, Stream
from minispore.dataset.samplers import select
from minispore.dataset.sources import source as source_of


class GeneratorDataset(Dataset):
    """Rows from Python (MindSpore: `mindspore.dataset.GeneratorDataset`), made only when they are needed.

    Args:
        source: one of
            - an object with `__getitem__` and `__len__`: row i is source[i];
            - a function that takes nothing and returns an iterator, e.g. a generator function;
            - an iterable, begun anew each epoch.
            A row is a tuple with a value (number, string, array) for each column; with one column also the value.
        column_names: a name or a list.
        column_types: a dtype, or a list of one or None for each column, which its values must have.
        num_samples: rows to take at most, on each shard.
        num_parallel_workers: so many rows are asked for at a time where rows have numbers; their order stays.
        shuffle: another random order each epoch. True if left out where rows have numbers; elsewhere it
            can't be (use `.shuffle(buffer_size)`).
        sampler: which rows an epoch has, where rows have numbers; it excludes shuffle and shards.
        num_shards, shard_id: this rank's share, as of any source. An iterator's row i belongs to shard
            i % num_shards, and every rank makes all rows; the last row of later shards is a first row again,
            not valid, if they don't come out even.
        python_multiprocessing: the workers are processes, so source must be picklable. In MindSpore True is the
            default and the processes are forked; here it is False, since a rank can't be forked safely.

    An iterator's length is its `__len__` if it has one; else get_dataset_size() makes all rows once to count
    them, on every rank. An error in `source` is raised where its row is asked for and names row and source.

    >>> def squares():
    ...     for i in range(4):
    ...         yield i, i * i
    >>> data = GeneratorDataset(squares, ["x", "y"])
    >>> [int(y.asnumpy()) for x, y in data], data.get_dataset_size()
    ([0, 1, 4, 9], 4)
    """

    def __init__(self, source, column_names=None, column_types=None, schema=None, num_samples=None,
                 num_parallel_workers=1, shuffle=None, sampler=None, num_shards=None, shard_id=None,
                 python_multiprocessing=False, max_rowsize=None, batch_sampler=None, collate_fn=None):
        for name, value in (("schema", schema), ("batch_sampler", batch_sampler), ("collate_fn", collate_fn)):
            if value is not None:
                raise NotImplementedError(f"GeneratorDataset: {name} isn't there in minispore; use column_names, sampler, "
                                          "batch() and its per_batch_map")
        if column_names is None:
            raise ValueError("GeneratorDataset: column_names is missing; give a name for each value of a row")
        names = checks.names("column_names", column_names)
        types = _types(column_types, names)
        checks.flag("python_multiprocessing", python_multiprocessing)
        if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
            stage = source_of(Items(source, names, types), num_samples, num_parallel_workers, shuffle, sampler, num_shards,
                              shard_id, processes=python_multiprocessing)
        else:
            for name, value in (("shuffle", shuffle), ("sampler", sampler)):
                if value is not None and value is not False:
                    raise ValueError(f"GeneratorDataset: {name}={value!r} needs rows that have numbers, but "
                                     f"{_begin(source)[1]} only gives them one after the other; give source __getitem__ and "
                                     "__len__, or mix with .shuffle(buffer_size)")
            shard = select(None, num_samples, False, num_shards, shard_id)
            begin, _ = _begin(source)
            length = len(source) if hasattr(source, "__len__") else None
            stage = Stream(begin, names, types, length, shard.num_samples, shard.num_shards, shard.shard_id)
        super().__init__(stage)


def _begin(source):
    """The function that begins an epoch of a source without row numbers, and its name."""
    if isinstance(source, Iterator) and hasattr(source, "gi_frame"):
        raise TypeError("GeneratorDataset: source is a generator that runs only once; give the function that makes it "
                        f"({source.__name__} instead of {source.__name__}()), so that each epoch can begin anew")
    if hasattr(source, "__iter__") and not isinstance(source, type):
        return source.__iter__, f"a {type(source).__name__}"
    if callable(source):
        return source, getattr(source, "__name__", type(source).__name__)
    raise TypeError("GeneratorDataset: source must be an object with __getitem__ and __len__, an iterable or a function "
                    f"that returns an iterator, got {source!r}")


def _types(column_types, names: tuple[str, ...]) -> tuple[np.dtype | None, ...] | None:
    if column_types is None:
        return None
    given = column_types if isinstance(column_types, (list, tuple)) else [column_types]
    if len(given) != len(names):
        raise ValueError(f"GeneratorDataset: column_types has {len(given)} dtypes for the {len(names)} columns {list(names)}; "
                         "give one (or None) for each")
    return tuple(None if one is None else np.dtype(to_dtype(one)) for one in given)
