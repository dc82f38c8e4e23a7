"""Samplers: each against what it promises, over shards and epochs; for all sources alike; messages."""
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minispore.dataset as ds
from minispore.common.state import current


class Rows:
    """A Python source: row i is (i, its class)."""

    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return i, self.labels[i]


def table(labels, **options):
    return ds.NumpySlicesDataset({"x": np.arange(len(labels)), "label": np.asarray(labels)}, **options)


def generator(labels, **options):
    return ds.GeneratorDataset(Rows(labels), ["x", "label"], **options)


SOURCES = [table, generator]


def xs(data, epoch=0):
    return [int(row["x"]) for row, _ in data.batches(epoch)]


def sampled(sampler, n=20, epoch=0, source=table):
    data = source(list(range(n)), sampler=sampler)
    rows = xs(data, epoch)
    assert len(rows) == data.get_dataset_size()
    return rows


# ---- each sampler --------------------------------------------------------------------------------

@pytest.mark.parametrize("source", SOURCES)
def test_sequential(source):
    assert sampled(ds.SequentialSampler(), 4, source=source) == [0, 1, 2, 3]
    assert sampled(ds.SequentialSampler(2), 4, source=source) == [2, 3]
    assert sampled(ds.SequentialSampler(1, 2), 4, source=source) == [1, 2]
    assert sampled(ds.SequentialSampler(4), 4, source=source) == []


@pytest.mark.parametrize("source", SOURCES)
def test_random(source):
    once, again, other = (sampled(ds.RandomSampler(), epoch=e, source=source) for e in (0, 0, 1))
    assert once == again != other and sorted(once) == sorted(other) == list(range(20))
    assert sampled(ds.RandomSampler(num_samples=5), source=source) == once[:5]
    assert once == xs(table(range(20), shuffle=True))           # as shuffle=True
    drawn = sampled(ds.RandomSampler(replacement=True, num_samples=2000), source=source)
    counts = Counter(drawn)
    assert len(drawn) == 2000 and set(counts) == set(range(20)) and 50 < min(counts.values()) < max(counts.values()) < 150
    assert len(sampled(ds.RandomSampler(True))) == 20
    current().seed = 4
    assert sampled(ds.RandomSampler()) != once


def test_subsets():
    assert sampled(ds.SubsetSampler([3, 1, 1])) == [3, 1, 1] == sampled([3, 1, 1]) == sampled(np.array([3, 1, 1]))
    assert sampled(ds.SubsetSampler([3, 1, 2], 2)) == [3, 1] and sampled(7) == [7] == sampled(ds.SubsetSampler(7))
    random = [sampled(ds.SubsetRandomSampler(range(5, 15)), epoch=e) for e in (0, 0, 1)]
    assert random[0] == random[1] != random[2] and sorted(random[0]) == sorted(random[2]) == list(range(5, 15))


def test_weighted():
    weights = [0, 1, 3, 0, 4]
    counts = Counter(sampled(ds.WeightedRandomSampler(weights, 8000), 5))
    assert set(counts) == {1, 2, 4}
    assert all(abs(counts[i] - 1000 * weights[i]) < 150 for i in counts)
    once = [sampled(ds.WeightedRandomSampler(weights, replacement=False), 5, epoch) for epoch in range(400)]
    assert all(sorted(rows) == [0, 1, 2, 3, 4] and set(rows[3:]) == {0, 3} for rows in once)     # weight 0 comes last
    assert abs(Counter(rows[0] for rows in once)[4] - 200) < 50                                # first with 4 / 8
    assert len(sampled(ds.WeightedRandomSampler(weights, 3, False), 5)) == 3


@pytest.mark.parametrize("source", SOURCES)
def test_pk(source):
    labels = [0, 1, 2] * 5 + [7]
    data = source(labels, sampler=ds.PKSampler(2))
    rows = xs(data)
    assert data.get_dataset_size() == 8 and [labels[i] for i in rows] == [0, 0, 1, 1, 2, 2, 7, 7]
    assert len(set(rows)) == 7 and rows != xs(data, 1)                  # the class of one row gives it twice
    mixed = {tuple(labels[i] for i in xs(source(labels, sampler=ds.PKSampler(2, shuffle=True)), e))[::2] for e in range(20)}
    assert len(mixed) > 5 and all(sorted(order) == [0, 1, 2, 7] for order in mixed)
    assert len(xs(source(labels, sampler=ds.PKSampler(2, num_samples=3)))) == 3
    named = source(list("aabb"), sampler=ds.PKSampler(1, class_column="label"))
    assert [i // 2 for i in xs(named)] == [0, 1]


@given(st.integers(1, 40), st.integers(1, 8), st.booleans(), st.integers(0, 2))
def test_distributed_is_what_shards_are(n_rows, n, shuffle, epoch):
    for r in range(n):
        by_arguments = list(table(range(n_rows), shuffle=shuffle, num_shards=n, shard_id=r).batches(epoch))
        for source in SOURCES:
            data = source(range(n_rows), sampler=ds.DistributedSampler(n, r, shuffle))
            by_sampler = list(data.batches(epoch))
            assert [(int(row["x"]), bool(v)) for row, v in by_sampler] == [(int(row["x"]), bool(v)) for row, v in by_arguments]


@given(st.integers(0, 30), st.integers(1, 6), st.data())
def test_with_an_offset_every_row_comes_once(n_rows, n, data):
    offset = data.draw(st.integers(0, n))
    shards = [sampled(ds.DistributedSampler(n, r, False, offset=offset), max(1, n_rows)) for r in range(n)]
    assert sorted(i for shard in shards for i in shard) == list(range(max(1, n_rows)))
    assert all((i + offset) % n == r for r in range(n) for i in shards[r])


# ---- one's own, children, use_sampler ------------------------------------------------------------

class Backwards(ds.Sampler):
    resets = 0

    def __iter__(self):
        yield from range(self.dataset_size - 1, -1, -1)

    def reset(self):
        self.resets += 1


@pytest.mark.parametrize("source", SOURCES)
def test_samplers_of_ones_own(source):
    mine = Backwards()
    assert sampled(mine, 4, source=source) == [3, 2, 1, 0] and mine.resets == 2     # the epoch, and its size
    assert sampled(Backwards(2), 4, source=source) == [3, 2]
    assert sampled(range(4, 2, -1), source=source) == [4, 3]
    once_only = source(list(range(9)), sampler=iter([5, 3]))
    assert xs(once_only) == xs(once_only, 1) == [5, 3] and once_only.get_dataset_size() == 2
    assert xs(source(list(range(9)), sampler={2: 0, 1: 0}, num_samples=1)) == [2]


def test_a_child_chooses_first():
    def chain(parent, child):
        parent.add_child(child)
        return parent
    assert sampled(chain(ds.SequentialSampler(1, 9), ds.SequentialSampler(3, 4))) == [4, 5, 6]
    assert sampled(chain(ds.SubsetSampler([2, 0]), ds.SubsetSampler([7, 8, 9]))) == [9, 7]
    shards = [sampled(chain(ds.DistributedSampler(2, r, False), ds.SubsetSampler([7, 8, 9]))) for r in (0, 1)]
    assert shards == [[7, 9], [8, 7]]
    labels = [0, 0, 0, 1, 1, 1]
    rows = xs(table(labels, sampler=chain(ds.PKSampler(1), ds.SubsetSampler([1, 5]))))
    assert rows == [1, 5]
    both = chain(ds.RandomSampler(num_samples=5), ds.SequentialSampler(num_samples=3))
    assert both.get_num_samples() == 3 and both.get_child().get_num_samples() == 3
    assert ds.RandomSampler().get_num_samples() is None


def test_use_sampler_after_split():
    train, _ = table(list(range(10)), shuffle=False).split([6, 4], randomize=False)
    shards = [xs(train.use_sampler(ds.DistributedSampler(2, r, shuffle=False))) for r in (0, 1)]
    assert shards == [[0, 2, 4], [1, 3, 5]]


MESSAGES = [
    *[(lambda options=options: table([0, 1], sampler=ds.RandomSampler(), **options), ValueError,
       f"Conflicting arguments.*{next(iter(options))}=.*leave these out")
      for options in ({"shuffle": False}, {"num_shards": 2, "shard_id": 0}, {"num_samples": 1})],
    (lambda: table([0, 1], sampler=[0], num_shards=2, shard_id=0), ValueError, "Conflicting.*num_shards=2, shard_id=0"),
    (lambda: table([0, 1], sampler="all"), TypeError, "sampler must be a Sampler.*got 'all'"),
    (lambda: table([0, 1], sampler=True), TypeError, "sampler must be a Sampler.*got True"),
    (lambda: table([0, 1], sampler=[0.5]), TypeError, "SubsetSampler: the numbers of rows must be integers.*got 0.5"),
    (lambda: table([0, 1], sampler=[True]), TypeError, "must be integers.*got True"),
    (lambda: sampled([5, 20]), ValueError, r"SubsetSampler: index 20 at position 1.*20 rows.*\[0, 19\]"),
    (lambda: sampled(iter([-1])), ValueError, "IterSampler: index -1 at position 0"),
    (lambda: sampled(ds.Sampler()), NotImplementedError, "Sampler must define __iter__"),
    (lambda: sampled(ds.SequentialSampler(21)), ValueError, "start_index=21.*20 rows"),
    (lambda: ds.SequentialSampler(-1), ValueError, "start_index must be at least 0, got -1"),
    (lambda: ds.RandomSampler(3), TypeError, "replacement must be True or False, got 3"),
    (lambda: ds.RandomSampler(num_samples=-2), ValueError, "num_samples must be at least 0, got -2"),
    (lambda: ds.DistributedSampler(2, 2), ValueError, r"shard_id must lie in \[0, 1\].*got 2"),
    (lambda: ds.DistributedSampler(2, 0, offset=3), ValueError, r"offset must lie in \[-1, 2\].*got 3"),
    (lambda: ds.WeightedRandomSampler([]), ValueError, "weights must be a list of numbers"),
    (lambda: ds.WeightedRandomSampler([0, 0]), ValueError, r"got \[0, 0\]"),
    (lambda: ds.WeightedRandomSampler([1, -1]), ValueError, r"got \[1, -1\]"),
    (lambda: sampled(ds.WeightedRandomSampler([1, 1])), ValueError, "2 weights, the data have 20 rows"),
    (lambda: sampled(ds.WeightedRandomSampler([1, 1], 3, False), 2), ValueError, "num_samples=3.*without replacement.*2"),
    (lambda: ds.PKSampler(0), ValueError, "num_val must be at least 1, got 0"),
    (lambda: ds.PKSampler(2, 3), NotImplementedError, "num_class=3"),
    (lambda: xs(table([0, 1], sampler=ds.PKSampler(1, class_column="y"))), ValueError,
     r"PKSampler: there is no column 'y'.*\['x', 'label'\].*class_column"),
    (lambda: xs(table([[0], [1]], sampler=ds.PKSampler(1))), ValueError, r"column 'label'.*shape \(1,\).*one integer"),
    (lambda: ds.RandomSampler().add_child(3), TypeError, "add_child takes a sampler, got 3"),
    (lambda: table([0, 1]).batch(2).use_sampler([1]), TypeError, "use_sampler: only a source"),
]


@pytest.mark.parametrize("ask, kind, words", MESSAGES, ids=[words[:40] for _, _, words in MESSAGES])
def test_messages(ask, kind, words):
    with pytest.raises(kind, match=f"(?s){words}"):
        ask()


def test_a_second_child_is_refused():
    sampler = ds.RandomSampler()
    sampler.add_child(ds.SequentialSampler())
    with pytest.raises(RuntimeError, match="already has a child"):
        sampler.add_child(ds.SequentialSampler())


class Endless(ds.Sampler):
    """0 1 2 0 1 2 …"""

    def __iter__(self):
        while True:
            yield from range(self.dataset_size)


def endless():
    while True:
        yield 1


def test_of_an_endless_sampler_num_samples_are_taken():
    assert sampled(Endless(5), 3) == [0, 1, 2, 0, 1]
    assert xs(table([5, 6, 7], sampler=endless(), num_samples=2)) == [1, 1]


def test_a_sampler_may_leave_its_bases_init_out():
    class Mine(ds.Sampler):
        def __init__(self, rows):
            self.rows = rows

        def __iter__(self):
            return iter(self.rows)
    assert sampled(Mine([2, 0]), 3) == [2, 0]
