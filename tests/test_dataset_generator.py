"""GeneratorDataset: the three kinds of sources, their shards, lengths and errors."""
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minispore.dataset as ds


class Squares:
    """A source with row numbers."""

    def __init__(self, n):
        self.n, self.asked = n, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        self.asked.append(i)
        return np.int64(i), np.full(2, i * i, np.float32)


class Counting:
    """An iterable that is its own iterator, begun anew by iter(), as MindSpore's documents show it."""

    def __init__(self, n):
        self.n, self.i = n, 0

    def __iter__(self):
        self.i = 0
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i - 1, (self.i - 1) ** 2


def generated(n):
    def rows():
        for i in range(n):
            yield i, np.full(2, i * i, np.float32)
    return rows


def items(data, epoch=0):
    return [(int(row["x"]), bool(valid)) for row, valid in data.batches(epoch)]


def of(source, **options):
    return ds.GeneratorDataset(source, ["x", "y"], **options)


@given(st.integers(1, 50), st.integers(1, 9), st.integers(0, 60), st.booleans())
def test_shards_of_all_kinds_are_those_of_a_table(n_rows, n, limit, shuffle):
    table = {"x": np.arange(n_rows), "y": np.arange(n_rows)}
    for r in range(n):
        shard = {"num_shards": n, "shard_id": r, "num_samples": limit or None}
        expected = items(ds.NumpySlicesDataset(table, shuffle=False, **shard))
        for source in (Squares(n_rows), generated(n_rows), Counting(n_rows)):
            data = of(source, shuffle=False, **shard)
            assert items(data) == items(data, 1) == expected
            assert data.get_dataset_size() == len(expected) == min(limit or n_rows, ceil(n_rows / n))
        shuffled = of(Squares(n_rows), shuffle=shuffle, **shard)
        assert items(shuffled, 3) == items(ds.NumpySlicesDataset(table, shuffle=shuffle, **shard), 3)


def test_rows_are_what_the_source_gives():
    for source in (Squares(3), generated(3)):
        x, y = list(of(source, shuffle=False))[2]
        assert x.shape == () and x.dtype == np.int64 and y.dtype == np.float32 and y.asnumpy().tolist() == [4, 4]
    assert [row["t"].tolist() for row, _ in ds.GeneratorDataset(lambda: iter(["a", "bcd"]), "t").batches(0)] == ["a", "bcd"]
    lists = ds.GeneratorDataset([[1, 2], [3, 4]], "x", shuffle=False)           # one column: a list is an array
    assert [row["x"].tolist() for row, _ in lists.batches(0)] == [[1, 2], [3, 4]]
    pairs = ds.GeneratorDataset([[1, 2], [3, 4]], ["x", "y"], shuffle=False)
    assert [row["y"].tolist() for row, _ in pairs.batches(0)] == [2, 4]
    ragged = ds.GeneratorDataset(lambda: (np.zeros(i) for i in range(3)), ["x"])
    assert [row["x"].shape for row, _ in ragged.batches(0)] == [(0,), (1,), (2,)]


def test_shuffle_is_the_default_with_row_numbers_and_order_without():
    assert items(of(Squares(40))) != items(of(Squares(40), shuffle=False)) == items(of(generated(40)))
    assert sorted(items(of(Squares(40)))) == items(of(generated(40)))
    assert sorted(items(of(generated(40)).shuffle(40))) == items(of(generated(40))) != items(of(generated(40)).shuffle(40))


def test_rows_are_made_only_when_needed_and_only_those_of_the_shard():
    source = Squares(5000)
    data = of(source, shuffle=False, num_shards=2, shard_id=1)
    assert data.get_dataset_size() == 2500 and source.asked == []
    assert items(data.take(3)) == [(1, True), (3, True), (5, True)]
    assert len(source.asked) <= 3 * 32 and all(i % 2 for i in source.asked)     # not more than a block ahead
    made = []

    def endless():
        while True:
            made.append(1)
            yield len(made)
    assert len(list(ds.GeneratorDataset(endless, "x").take(3).batches(0))) == 3 and len(made) < 200


def test_length_by_len_or_by_counting_once():
    class Sized(Counting):
        def __len__(self):
            raise AssertionError("asked")

    begun = []

    def rows():
        begun.append(1)
        yield from generated(7)()
    data = of(rows)
    assert data.get_dataset_size() == data.batch(2, True).get_dataset_size() * 2 + 1 == 7 and len(begun) == 1

    class Known(Counting):
        def __len__(self):
            return self.n
    known = Known(7)
    assert of(known).get_dataset_size() == 7 and known.i == 0
    with pytest.raises(AssertionError, match="asked"):
        of(Sized(3))


def test_column_types():
    types = [np.int64, np.float32]
    assert of(Squares(2), column_types=types).output_types() == types
    assert len(items(of(generated(2), column_types=[None, np.float32]))) == 2
    assert ds.GeneratorDataset([1.0, 2.0], "x", np.float64).output_types() == [np.float64]


def test_a_training_pipeline_from_a_generator():
    data = of(Squares(10), shuffle=False).map(lambda y: y + 1, "y").batch(4).repeat(2)
    assert [len(x) for x, _ in data.create_tuple_iterator(output_numpy=True)] == [4, 4, 2] * 2
    parts = of(Squares(10)).split([0.5, 0.5])
    assert sorted(x for part in parts for x, _ in items(part)) == list(range(10))


def bad(i):
    class Source(Squares):
        def __getitem__(self, row):
            if row == i:
                raise KeyError("gone")
            return super().__getitem__(row)
    return Source(50)


def failing():
    yield from generated(5)()
    raise OSError("disk")


MESSAGES = [
    (lambda: ds.GeneratorDataset(Squares(3)), ValueError, "column_names is missing"),
    (lambda: of(3), TypeError, "source must be an object with __getitem__ and __len__.*got 3"),
    (lambda: of(generated(3)()), TypeError, r"generator that runs only once.*rows instead of rows\(\)"),
    (lambda: of(generated(3), shuffle=True), ValueError, r"shuffle=True needs rows that have numbers.*shuffle\(buffer_size\)"),
    (lambda: of(Counting(3), sampler=ds.RandomSampler()), ValueError, "sampler=.*but a Counting only gives"),
    (lambda: of(Squares(3), schema="s.json"), NotImplementedError, "schema isn't there.*use column_names"),
    (lambda: of(Squares(3), batch_sampler=[[1]]), NotImplementedError, "batch_sampler isn't there"),
    (lambda: of(Squares(3), num_shards=2), RuntimeError, "num_shards was given without shard_id"),
    (lambda: of(generated(3), num_shards=2, shard_id=2), ValueError, r"shard_id must lie in \[0, 1\]"),
    (lambda: of(Squares(3), column_types=[np.int64]), ValueError, r"1 dtypes for the 2 columns"),
    (lambda: of(Squares(3), column_types=[np.int64, "pear"]), TypeError, "pear"),
    (lambda: of(Squares(3), python_multiprocessing=2), TypeError, "python_multiprocessing must be True or False"),
    (lambda: items(of(Squares(3), column_types=[np.int32, np.float32], shuffle=False)), TypeError,
     "row 0 of a Squares, column 'x': column_types asks for int32, but it is int64"),
    (lambda: items(of(bad(37), shuffle=False)), RuntimeError, "row 37 of a Source failed: KeyError: 'gone'"),
    (lambda: items(of(bad(37), shuffle=False, num_parallel_workers=3)), RuntimeError, "row 37 of a Source failed: KeyError"),
    (lambda: items(of(failing)), RuntimeError, r"row 5 of failing\(\) failed: OSError: disk"),
    (lambda: of(failing).get_dataset_size(), RuntimeError, r"row 5 of failing\(\) failed"),
    (lambda: items(ds.GeneratorDataset(Squares(3), "x")), ValueError, r"row \d of a Squares has 2 values for the 1 columns"),
    (lambda: items(ds.GeneratorDataset([None], "x")), TypeError, r"row 0 of a list, column 'x': None \(NoneType\)"),
    (lambda: items(ds.GeneratorDataset([[[1], [1, 2]]], "x")), TypeError, "items differ in shape"),
]


@pytest.mark.parametrize("ask, kind, words", MESSAGES, ids=[words[:40] for _, _, words in MESSAGES])
def test_messages(ask, kind, words):
    with pytest.raises(kind, match=f"(?s){words}"):
        ask()


def test_rows_before_an_error_come():
    seen = []
    with pytest.raises(RuntimeError, match="row 37 "):
        seen.extend(int(row["x"]) for row, _ in of(bad(37), shuffle=False).batches(0))
    assert seen == list(range(32))          # the blocks before it
