"""What a metric is, and how those of several ranks become one.

A metric that keeps what it counts in `Sum`s and `Rows` is right over shards: before `eval` the ranks' sums are added up
and their rows put back into the order of the whole dataset (`merge`), so every rank gets one rank's result.
"""
import pickle
from abc import ABC, abstractmethod
from functools import wraps

import numpy as np

from minispore.common.tensor import Tensor


class Sum:
    """A total over rows, a number or an array: the ranks' totals are added up. Integers stay exact.

    >>> total = Sum()
    >>> total += 3
    >>> total += 4
    >>> int(total.value)
    7
    """

    def __init__(self):
        self.value = None           # its shape isn't known before something is added

    def __iadd__(self, x) -> "Sum":
        x = np.asarray(x)
        x = x.astype(np.int64 if x.dtype.kind in "biu" else np.float64)
        if self.value is not None and x.shape != self.value.shape:
            raise ValueError(f"a metric got values of shape {x.shape} after ones of shape {self.value.shape}; all batches "
                             "on all ranks need the same number of classes")
        self.value = x if self.value is None else self.value + x
        return self

    def merge(self, values: list) -> None:
        """Become the sum of what the ranks have (None: nothing)."""
        self.value = None
        for value in values:
            if value is not None:
                self += value


class Rows:
    """Rows that are kept as they are: those of the ranks are put into the order of the whole dataset."""

    def __init__(self):
        self.parts = []

    def __iadd__(self, rows) -> "Rows":
        self.parts.append(np.asarray(rows))
        return self

    @property
    def value(self) -> np.ndarray | None:
        """All rows, (rows, …); None if there are none."""
        return np.concatenate(self.parts) if self.parts else None

    def merge(self, values: list) -> None:
        """Become the rows of all ranks. Row i of rank r of n is row i·n + r of the whole."""
        there = [(rank, rows) for rank, rows in enumerate(values) if rows is not None]
        if there:
            place = np.concatenate([np.arange(len(rows)) for _, rows in there])
            rank = np.concatenate([np.full(len(rows), rank) for rank, rows in there])
            self.parts = [np.concatenate([rows for _, rows in there])[np.lexsort((rank, place))]]


def rearrange_inputs(update):
    """Decorator of an `update`: it gets the inputs that `set_indexes` has chosen, in that order.

    >>> class Pair(Metric):
    ...     def clear(self): ...
    ...     @rearrange_inputs
    ...     def update(self, *inputs):
    ...         self.seen = inputs
    ...     def eval(self):
    ...         return self.seen
    >>> Pair().set_indexes([2, 0])("a", "b", "c")
    ('c', 'a')
    """
    @wraps(update)
    def rearranged(self, *inputs, **kwargs):
        if not self.indexes:
            return update(self, *inputs, **kwargs)
        if max(self.indexes) >= len(inputs):
            raise ValueError(f"{type(self).__name__}.update got {len(inputs)} inputs, set_indexes({self.indexes}) asks for "
                             f"number {max(self.indexes)}; they count from 0")
        return update(self, *(inputs[i] for i in self.indexes), **kwargs)
    return rearranged


class Metric(ABC):
    """Base: `clear` to begin, `update(*outputs)` for every batch, `eval` in the end (MindSpore: `train.Metric`).

    A subclass may keep its state in any way. With several ranks, each then has the value of its own shard, and Model
    warns of it. State in `Sum` and `Rows` attributes, made anew by `clear`, is merged over the ranks:

    >>> class Mean(Metric):
    ...     def clear(self):
    ...         self.total, self.count = Sum(), Sum()
    ...     def update(self, *inputs):
    ...         self.total += np.sum(inputs[0])
    ...         self.count += np.size(inputs[0])
    ...     def eval(self):
    ...         return float(self.total.value / self.count.value)
    >>> Mean()([1.0, 2.0, 6.0])
    3.0
    """

    def __init__(self):
        self._indexes = None

    @abstractmethod
    def clear(self) -> None:
        """Forget all batches."""

    @abstractmethod
    def update(self, *inputs) -> None:
        """Take one batch into account; Model gives only rows that count."""

    @abstractmethod
    def eval(self):
        """The value over all batches."""

    def __call__(self, *inputs):
        """The value of one batch."""
        self.clear()
        self.update(*inputs)
        return self.eval()

    @property
    def indexes(self) -> list[int] | None:
        """What set_indexes was given."""
        return getattr(self, "_indexes", None)      # a subclass may have left super().__init__() out

    def _convert_data(self, data) -> np.ndarray:
        """A Tensor, list or array as an array: what metrics written for MindSpore begin their update with."""
        if not isinstance(data, (Tensor, list, np.ndarray)):
            raise TypeError(f"{type(self).__name__}: an input is a {type(data).__name__}; it must be a Tensor, list or array")
        return array_of(data)

    def set_indexes(self, indexes) -> "Metric":
        """Choose which of the outputs `update` takes, e.g. [0, 2] for (predictions, first labels, second labels)."""
        if not isinstance(indexes, list) or any(not isinstance(i, int) or isinstance(i, bool) for i in indexes):
            raise ValueError(f"set_indexes: {indexes!r} must be a list of whole numbers, e.g. [0, 2]")
        self._indexes = indexes
        return self


class ShardedMetric(Metric):
    """Base of minispore's own metrics. A subclass makes Sums and Rows in `clear`, and `add` puts a batch into them.

    `update(*inputs, valid=None)`: Tensors, arrays or lists, as many as `takes` names. valid, a bool a row, marks the rows
    that count; all if left out.
    """

    takes = ("predictions", "labels")

    def __init__(self):
        super().__init__()
        self.clear()

    @rearrange_inputs
    def update(self, *inputs, valid=None) -> None:
        if len(inputs) != len(self.takes):
            raise ValueError(f"{type(self).__name__}: update got {len(inputs)} inputs, it takes {len(self.takes)}: "
                             f"{', '.join(self.takes)}. Choose them with set_indexes([…])")
        arrays = [array_of(x) for x in inputs]
        if valid is not None:
            keep = np.asarray(valid, bool)
            arrays = [a[keep] if a.shape[:1] == keep.shape else a for a in arrays]
        self.add(*arrays)

    def add(self, *arrays: np.ndarray) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines no add({', '.join(self.takes)})")

    def counted(self, state: Sum | Rows):
        """The value of a part of the state; an error if there were no batches."""
        value = state.value
        if value is None or (value.ndim == 0 and value == 0):
            raise RuntimeError(f"{type(self).__name__}: no samples seen; call update, or check that the dataset isn't empty")
        return value


def array_of(x) -> np.ndarray:
    return x._data() if isinstance(x, Tensor) else np.asarray(x)


def state_of(metric: Metric) -> dict[str, Sum | Rows]:
    """The attributes that are merged over the ranks; none for a metric that knows nothing of ranks."""
    return {name: part for name, part in vars(metric).items() if isinstance(part, (Sum, Rows))}


def merge(metrics: dict[str, Metric], world, ranks) -> None:
    """Give each rank of a communicator the state of `ranks`, which are those whose rows together are the whole, in order of
    their shards. Every rank calls it with metrics of the same names."""
    states = {name: {key: part.value for key, part in state_of(m).items()} for name, m in metrics.items()}
    everyone = exchange(states, world)
    for rank, other in enumerate(everyone):
        if {n: sorted(s) for n, s in other.items()} != {n: sorted(s) for n, s in states.items()}:
            raise RuntimeError(f"rank {world.rank} evaluates the metrics {sorted(states)}, rank {rank} {sorted(other)}; give "
                               "Model the same metrics on all ranks")
    for name, metric in metrics.items():
        for key, part in state_of(metric).items():
            part.merge([everyone[rank][name][key] for rank in ranks])


def exchange(x, world) -> list:
    """Every rank's x, in order of rank; of any size on each."""
    data = np.frombuffer(pickle.dumps(x), np.uint8)
    sizes = world.all_gather(np.array([data.size])).wait()
    padded = np.zeros(sizes.max(), np.uint8)
    padded[:data.size] = data
    whole = world.all_gather(padded).wait().reshape(world.size, -1)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(whole, sizes, strict=True)]
