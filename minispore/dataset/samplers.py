"""Samplers: which rows of a source an epoch consists of, and in which order.

A sampler is data, a function of (number of rows, epoch): so it gives the same on every rank and whenever it is
asked, and one kind of source serves them all. The names are MindSpore's. A sampler may have a child
(`add_child`): then it chooses among what its child has chosen.
"""
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from minispore.common.random import permutation, uniform
from minispore.common.state import current
from minispore.dataset import checks
from minispore.dataset.block import Epoch

Labels = Callable[[str], np.ndarray]        # the values of the named column, for all rows to choose from


@dataclass(frozen=True)
class Choice:
    """Rows in their order: their numbers, valid marks and places in the order common to all shards; each (rows,)."""

    rows: np.ndarray
    valid: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some) -> "Choice":
        return Choice(self.rows[some], self.valid[some], self.places[some])

    @staticmethod
    def of(rows) -> "Choice":
        """These rows, all of them valid, in this order on every rank."""
        rows = np.asarray(rows, np.int64)
        return Choice(rows, np.ones(len(rows), bool), np.arange(len(rows)))


class BuiltinSampler:
    """What all samplers have in common. num_samples: rows to take at most; all if None or 0."""

    num_samples = child_sampler = None          # of a subclass that leaves super().__init__() out

    def __init__(self, num_samples: int | None = None):
        self.num_samples = checks.integer("num_samples", num_samples or 0, 0, "0 or leaving it out takes all rows") or None
        self.child_sampler = None

    def add_child(self, sampler: "BuiltinSampler") -> None:
        """Choose from what `sampler` chooses. RuntimeError if there is a child already."""
        if self.child_sampler is not None:
            raise RuntimeError("Cannot add child sampler, this sampler already has a child; "
                               "add it to that child (get_child())")
        if not isinstance(sampler, BuiltinSampler):
            raise TypeError(f"add_child takes a sampler, got {sampler!r}")
        self.child_sampler = sampler

    def get_child(self) -> "BuiltinSampler | None":
        return self.child_sampler

    def get_num_samples(self) -> int | None:
        """num_samples, or the child's if that is less."""
        child = self.child_sampler.get_num_samples() if self.child_sampler else None
        return min((n for n in (self.num_samples, child) if n is not None), default=None)

    @property
    def share(self) -> tuple[int, int]:
        """(which shard it chooses, of how many)."""
        return (0, 1) if self.child_sampler is None else self.child_sampler.share

    def choose(self, total: int, epoch: Epoch, labels: Labels) -> Choice:
        """The rows of an epoch out of 0 … total-1."""
        if self.child_sampler is None:
            return self._checked(self.pick(total, epoch, labels), total)[:self.num_samples]
        among = self.child_sampler.choose(total, epoch, labels)
        chosen = self._checked(self.pick(len(among), epoch, lambda name: labels(name)[among.rows]), len(among))
        return Choice(among.rows[chosen.rows], among.valid[chosen.rows] & chosen.valid, chosen.places)[:self.num_samples]

    def pick(self, total: int, epoch: Epoch, labels: Labels) -> Choice:
        """What this sampler itself chooses out of `total` rows; a new sampler writes this."""
        raise NotImplementedError

    def _checked(self, choice: Choice, total: int) -> Choice:
        outside = (choice.rows < 0) | (choice.rows >= total)
        if outside.any():
            raise ValueError(f"{type(self).__name__}: index {choice.rows[outside][0]} at position {np.argmax(outside)} lies "
                             f"outside the data, which have {total} rows; give indices in [0, {total - 1}]")
        return choice


class SequentialSampler(BuiltinSampler):
    """The rows from `start_index` on, in their own order (MindSpore: `mindspore.dataset.SequentialSampler`).

    >>> from minispore.dataset import NumpySlicesDataset
    >>> data = NumpySlicesDataset([5, 6, 7, 8], "x", sampler=SequentialSampler(1, 2))
    >>> [int(x.asnumpy()) for x, in data]
    [6, 7]
    """

    def __init__(self, start_index: int | None = None, num_samples: int | None = None):
        super().__init__(num_samples)
        self.start_index = checks.integer("start_index", start_index or 0, 0, "it is the first row taken")

    def pick(self, total, epoch, labels):
        if self.start_index > total:
            raise ValueError(f"SequentialSampler: start_index={self.start_index}, but the data have {total} rows; "
                             "begin at one of these")
        return Choice.of(np.arange(self.start_index, total))


class DistributedSampler(BuiltinSampler):
    """Shard `shard_id` of `num_shards` equally long ones: of the common order the places shard_id, shard_id + n, …

    The order is a permutation of *all* rows keyed by (seed, epoch), or their own order without `shuffle`; it
    is continued from its beginning until the shards are equally long, and what is so taken a second time is
    not valid. So the k-th batches of n shards are together the k-th batch, n times as big, of a single one.

    Args:
        num_samples: rows to take at most, in each shard.
        offset: -1: as said. 0 … num_shards: row i goes to shard (i + offset) % num_shards, once; shards may
            then differ in length by one.
    """

    def __init__(self, num_shards: int, shard_id: int, shuffle: bool = True, num_samples: int | None = None,
                 offset: int = -1):
        super().__init__(num_samples)
        self.num_shards = checks.integer("num_shards", num_shards, 1, "e.g. get_group_size()")
        self.shard_id = checks.integer("shard_id", shard_id, 0,
                                       f"it must lie in [0, {num_shards - 1}], e.g. get_rank()")
        if shard_id >= num_shards:
            raise ValueError(f"shard_id must lie in [0, {num_shards - 1}] for num_shards={num_shards}, got {shard_id}; "
                             "use e.g. get_rank()")
        self.shuffle = checks.flag("shuffle", shuffle)
        self.offset = checks.integer("offset", offset, -1, "-1 makes all shards equally long")
        if offset > num_shards:
            raise ValueError(f"offset must lie in [-1, {num_shards}] for num_shards={num_shards}, got {offset}")

    @property
    def share(self):
        shard, shards = super().share           # of a child's shard it takes every n-th row once more
        return shard + shards * self.shard_id, shards * self.num_shards

    def pick(self, total, epoch, labels):
        n = self.num_shards if current().stand_in is None else 1        # simulated cards may be more than there are rows
        if self.offset < 0:
            places = self.shard_id + n * np.arange(-(-total // n))
        else:
            places = np.arange((self.shard_id - self.offset) % n, total, n)
        rows = places % max(1, total)
        if self.shuffle:
            rows = _order(epoch, total)[rows]
        return Choice(rows, places < total, places)


class RandomSampler(BuiltinSampler):
    """All rows in another random order each epoch (MindSpore: `mindspore.dataset.RandomSampler`).

    With `replacement` each place gets any of the rows, so that some come more than once and some not at all.
    `shuffle` is accepted as in MindSpore and without meaning here: the order is always that of all rows.
    """

    def __init__(self, replacement: bool = False, num_samples: int | None = None, shuffle=None):
        super().__init__(num_samples)
        self.replacement = checks.flag("replacement", replacement)

    def pick(self, total, epoch, labels):
        if not self.replacement:
            return Choice.of(_order(epoch, total))
        n = total if self.num_samples is None else self.num_samples
        return Choice.of(np.floor(_draw("replacement", epoch, n) * total))


class SubsetSampler(BuiltinSampler):
    """The rows numbered `indices`, in this order (MindSpore: `mindspore.dataset.SubsetSampler`)."""

    def __init__(self, indices, num_samples: int | None = None):
        super().__init__(num_samples)
        self.indices = indices_of(type(self).__name__, [indices] if isinstance(indices, int) else indices)

    def pick(self, total, epoch, labels):
        return Choice.of(self.indices)


class SubsetRandomSampler(SubsetSampler):
    """The rows numbered `indices`, in another random order each epoch."""

    def pick(self, total, epoch, labels):
        return Choice.of(self.indices[_order(epoch, len(self.indices))])


class WeightedRandomSampler(BuiltinSampler):
    """Rows drawn with probabilities in proportion to `weights` (MindSpore: `mindspore.dataset.WeightedRandomSampler`).

    Args:
        weights: a number ≥ 0 for each row, not all of them 0.
        num_samples: how many to draw; as many as there are rows if left out.
        replacement: may a row come twice? If not, rows of weight 0 come last.
    """

    def __init__(self, weights, num_samples: int | None = None, replacement: bool = True):
        super().__init__(num_samples)
        self.weights = np.asarray(weights, np.float64)
        if self.weights.ndim != 1 or not len(self.weights) or not np.isfinite(self.weights).all() \
                or (self.weights < 0).any() or not self.weights.any():
            raise ValueError(f"weights must be a list of numbers ≥ 0, at least one of them above, got {weights!r:.80}")
        self.replacement = checks.flag("replacement", replacement)

    def pick(self, total, epoch, labels):
        if len(self.weights) != total:
            raise ValueError(f"WeightedRandomSampler has {len(self.weights)} weights, the data have {total} rows; "
                             "give a weight for each")
        n = total if self.num_samples is None else self.num_samples
        if self.replacement:
            up_to = np.cumsum(self.weights) / self.weights.sum()
            rows = np.searchsorted(up_to, _draw("weighted", epoch, n), side="right")
            return Choice.of(np.minimum(rows, np.flatnonzero(self.weights)[-1]))    # up_to may end below 1
        if n > total:
            raise ValueError(f"WeightedRandomSampler: num_samples={n} rows without replacement can't come out of "
                             f"{total}; ask for fewer or set replacement=True")
        # Efraimidis and Spirakis, 2006: waiting times, exponential with these rates, in their order
        with np.errstate(divide="ignore", invalid="ignore"):
            waiting = -np.log1p(-_draw("weighted", epoch, total)) / self.weights
        return Choice.of(np.argsort(np.where(self.weights > 0, waiting, np.inf), kind="stable"))


class PKSampler(BuiltinSampler):
    """`num_val` rows of each class (MindSpore: `mindspore.dataset.PKSampler`), class after class.

    A class of fewer rows gives some of them again.

    Args:
        num_class: must be None, as in MindSpore: all classes are taken.
        shuffle: take the classes in random order; which of their rows come is always random.
        class_column: the column that holds the class of each row, an integer or a string.
    """

    def __init__(self, num_val: int, num_class: int | None = None, shuffle: bool = False, class_column: str = "label",
                 num_samples: int | None = None):
        super().__init__(num_samples)
        self.num_val = checks.integer("num_val", num_val, 1, "it is the number of rows of each class")
        if num_class is not None:
            raise NotImplementedError(f"PKSampler: num_class={num_class!r} can't be chosen, as in MindSpore: it takes all "
                                      "classes; leave it out")
        self.shuffle, self.class_column = checks.flag("shuffle", shuffle), class_column

    def pick(self, total, epoch, labels):
        found = labels(self.class_column)
        if found.ndim != 1 or len(found) != total:
            raise ValueError(f"PKSampler: column {self.class_column!r} holds {found.dtype} of shape {found.shape[1:]}; "
                             "a class must be one integer or string")
        order = _order(epoch, total)                    # a random order of all rows has each class in random order
        shuffled, classes = found[order], np.unique(found)
        if self.shuffle:
            classes = classes[_order(epoch, len(classes))]
        return Choice.of(np.concatenate([np.resize(order[shuffled == one], self.num_val) for one in classes]))


class Sampler(BuiltinSampler):
    """A sampler of one's own: a subclass gives row numbers in `__iter__`, knowing `self.dataset_size`.

    `__iter__` is called once an epoch on every rank. Whoever makes it random answers for ranks and epochs himself.

    >>> from minispore.dataset import NumpySlicesDataset
    >>> class Backwards(Sampler):
    ...     def __iter__(self):
    ...         return iter(range(self.dataset_size - 1, -1, -1))
    >>> [int(x.asnumpy()) for x, in NumpySlicesDataset([5, 6, 7], sampler=Backwards())]
    [7, 6, 5]
    """

    dataset_size = 0

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} must define __iter__, which gives the numbers of the rows")

    def reset(self) -> None:
        """Called before each epoch."""

    def pick(self, total, epoch, labels):
        self.dataset_size = total
        self.reset()
        return Choice.of(indices_of(type(self).__name__, islice(self, self.num_samples)))        # it may be endless


class IterSampler(BuiltinSampler):
    """The row numbers that an iterable gives, asked anew each epoch."""

    def __init__(self, indices: Iterable, num_samples: int | None = None):
        super().__init__(num_samples)
        # An iterator could be used only once.
        self.indices = list(islice(indices, self.num_samples)) if iter(indices) is indices else indices

    def pick(self, total, epoch, labels):
        return Choice.of(indices_of(type(self.indices).__name__, islice(self.indices, self.num_samples)))


def select(sampler, num_samples, shuffle, num_shards, shard_id) -> BuiltinSampler:
    """The sampler that a source's arguments ask for. Errors if they contradict each other."""
    given = {"shuffle": shuffle, "num_shards": num_shards, "shard_id": shard_id}
    if sampler is None:
        return _of_shards(num_samples, shuffle, num_shards, shard_id)
    if isinstance(sampler, BuiltinSampler):
        given["num_samples"] = num_samples
    conflicts = {name: value for name, value in given.items() if value is not None}
    if conflicts:
        what = ", ".join(f"{name}={value!r}" for name, value in conflicts.items())
        raise ValueError(f"Conflicting arguments during sampler assignments: sampler and {what} were given, but a sampler "
                         "decides alone about rows, order and shards; leave these out, or the sampler (a shard is "
                         "sampler=DistributedSampler(num_shards, shard_id))")
    if isinstance(sampler, BuiltinSampler):
        return sampler
    if isinstance(sampler, (int, np.integer)) and not isinstance(sampler, bool):
        return SubsetSampler([sampler], num_samples)
    if isinstance(sampler, (list, tuple, np.ndarray)):
        return SubsetSampler(sampler, num_samples)
    if isinstance(sampler, Iterable) and not isinstance(sampler, (str, bytes)):
        return IterSampler(sampler, num_samples)
    raise TypeError(f"sampler must be a Sampler, a list of row numbers or an iterable of them, got {sampler!r} "
                    f"({type(sampler).__name__})")


def _of_shards(num_samples, shuffle, num_shards, shard_id) -> DistributedSampler:
    if (num_shards is None) != (shard_id is None):
        given, missing = ("num_shards", "shard_id") if shard_id is None else ("shard_id", "num_shards")
        raise RuntimeError(f"{given} was given without {missing}; a shard needs both, "
                           "e.g. num_shards=get_group_size(), shard_id=get_rank()")
    shards, shard = (1, 0) if num_shards is None else (num_shards, shard_id)
    return DistributedSampler(shards, shard, shuffle is None or shuffle, num_samples)


def indices_of(who: str, values: Iterable) -> np.ndarray:
    """Row numbers as an int64 array (n,); TypeError that names the first that is none."""
    values = values if isinstance(values, np.ndarray) else list(values)
    array = np.asarray(values) if len(values) else np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        wrong = next((v for v in values if not isinstance(v, (int, np.integer)) or isinstance(v, bool)), values)
        raise TypeError(f"{who}: the numbers of rows must be integers in one list, got {wrong!r:.60}")
    return array.astype(np.int64)


def _order(epoch: Epoch, n: int) -> np.ndarray:
    return permutation(("shuffle", epoch.seed, epoch.number), n)


def _draw(what: str, epoch: Epoch, n: int) -> np.ndarray:
    return uniform((what, epoch.seed, epoch.number), (n,))
