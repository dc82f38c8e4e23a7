"""Stages against a plain Python re-implementation; zip, concat, split, filter, batches by functions; messages."""
import gc
import threading
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minispore as ms
import minispore.dataset as ds
from minispore import nn
from minispore.common.state import current
from minispore.dataset.transforms import TypeCast
from minispore.dataset.vision import Rescale
from minispore.lab import run_ranks


@pytest.fixture(autouse=True)
def no_thread_left():
    yield
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("minispore-")]


def numbers(n, shuffle=False, **options):
    return ds.NumpySlicesDataset({"x": np.arange(n), "y": np.arange(n) ** 2}, shuffle=shuffle, **options)


def rows_of(dataset, epoch=0):
    return [{name: array.tolist() for name, array in row.items()} for row, _ in dataset.batches(epoch)]


def values(dataset, column="x"):
    return [row[column] for row in rows_of(dataset)]


# ---- any composition of stages does what a few lines of Python do --------------------------------

def batched(rows, size):
    return [{name: [row[name] for row in rows[i:i + size]] for name in rows[0]} for i in range(0, len(rows), size)]


def twice_x(rows):
    return [{**row, "x": (np.array(row["x"]) * 2).tolist()} for row in rows]


def even(x):
    return bool(np.sum(x) % 2 == 0)


PLAIN = {       # name: (the method on a dataset, the same on a list of rows)
    "map": (lambda d, n: d.map(lambda x: x * 2, "x"), lambda rows, n: twice_x(rows)),
    "filter": (lambda d, n: d.filter(even, "x"), lambda rows, n: [row for row in rows if even(row["x"])]),
    "take": (lambda d, n: d.take(n), lambda rows, n: rows[:n]),
    "skip": (lambda d, n: d.skip(n), lambda rows, n: rows[n:]),
    "repeat": (lambda d, n: d.repeat(1 + n % 2), lambda rows, n: rows * (1 + n % 2)),
    "rename": (lambda d, n: d.rename("y", "z").rename("z", "y"), lambda rows, n: rows),
    "project": (lambda d, n: d.project(["y", "x"]), lambda rows, n: rows),
    "concat": (lambda d, n: d + d.take(n), lambda rows, n: rows + rows[:n]),
    "zip": (lambda d, n: ds.zip((d, d.skip(n).rename(["x", "y"], ["u", "v"]))).map(lambda x, u: x + u, ["x", "u"], "x")
            .project(["x", "y"]),
            lambda rows, n: [{**a, "x": (np.array(a["x"]) + b["x"]).tolist()}
                             for a, b in zip(rows, rows[n:], strict=False)]),
    "batch": (lambda d, n: d.batch(n), lambda rows, n: batched(rows, n)),
}


@given(st.integers(1, 40), st.lists(st.tuples(st.sampled_from(sorted(PLAIN)), st.integers(1, 6)), max_size=5),
       st.integers(1, 3))
def test_a_pipeline_equals_a_few_lines_of_python(n_rows, steps, workers):
    ds.config.set_num_parallel_workers(workers)
    data, expected, is_batched = numbers(n_rows), [{"x": i, "y": i * i} for i in range(n_rows)], False
    for step, n in steps:
        if is_batched and step in ("batch", "zip"):     # unequal batches can't be joined
            continue
        is_batched = is_batched or step == "batch"
        data, expected = PLAIN[step][0](data, n), PLAIN[step][1](expected, n)
    assert rows_of(data) == expected == rows_of(data)
    assert data.get_dataset_size() == len(expected)


@given(st.integers(1, 60), st.lists(st.sampled_from(["map", "filter", "take", "concat"]), max_size=3), st.integers(0, 3))
def test_the_same_epoch_number_gives_the_same_rows(n_rows, steps, epoch):
    data = numbers(n_rows, shuffle=True)
    for step in steps:
        data = PLAIN[step][0](data, 7)
    assert rows_of(data, epoch) == rows_of(data, epoch)


# ---- filter --------------------------------------------------------------------------------------

def test_filter_counts_once_and_unequal_shards_show_in_the_size():
    calls = []
    data = numbers(20).filter(lambda x: calls.append(int(x)) or x % 3 == 0, "x")
    assert data.get_dataset_size() == data.get_dataset_size() == 7 and len(calls) == 20
    assert data.batch(2).get_dataset_size() == 4
    shards = [numbers(20, num_shards=2, shard_id=r).filter(lambda x: x % 4 == 0, "x") for r in (0, 1)]
    assert [shard.get_dataset_size() for shard in shards] == [5, 0]
    assert values(shards[1]) == [] and values(numbers(6).filter(lambda x, y: x + y > 10)) == [3, 4, 5]


def test_filter_with_nothing_left_batches_to_nothing():
    nothing = numbers(50).filter(lambda x: False, "x")
    assert rows_of(nothing.batch(4)) == [] and nothing.batch(4).get_dataset_size() == 0
    with pytest.raises(ValueError, match="no valid data.*only 0 rows"):
        rows_of(nothing.batch(4, drop_remainder=True))


def test_a_training_on_unequal_shards_is_refused():
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        data = ds.NumpySlicesDataset((np.ones((20, 3)), np.arange(20, dtype=np.int32) // 2 % 2), ["x", "y"], shuffle=False,
                                     num_shards=ms.get_group_size(), shard_id=ms.get_rank())
        net = nn.Dense(3, 2)
        model = ms.Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1))
        kept = data.filter(lambda y: y == 0, "y").batch(2)
        model.train(1, kept.take(2) if ms.get_rank() else kept)
    with pytest.raises(RuntimeError, match=r"(?s)steps"):
        run_ranks(program, 2)


# ---- zip and concat ------------------------------------------------------------------------------

def test_zip_ends_with_the_shortest_and_keeps_valid_marks():
    a, b = numbers(5, num_shards=2, shard_id=1), numbers(9).rename(["x", "y"], ["u", "v"])
    both = a.zip(b)
    assert both.get_col_names() == ["x", "y", "u", "v"] and both.get_dataset_size() == 3
    assert [(int(row["x"]), int(row["u"]), bool(valid)) for row, valid in both.batches(0)] == [
        (1, 0, True), (3, 1, True), (0, 2, False)]
    endless = ds.zip((numbers(3).repeat(), b))
    assert endless.get_dataset_size() == 9 and values(endless) == [0, 1, 2] * 3
    assert numbers(3).repeat().zip(b.repeat()).take(4).get_dataset_size() == 4


def test_zip_of_sources_shuffles_alike():
    images, labels = numbers(30, shuffle=True).project("x"), numbers(30, shuffle=True).project("y")
    assert all(row["x"] ** 2 == row["y"] for row in rows_of(images.zip(labels)))


def test_concat():
    a, b = numbers(2), numbers(3).project(["y", "x"])
    assert values(a + b) == values(a.concat([b])) == [0, 1, 0, 1, 2]
    assert (a + b).get_col_names() == ["x", "y"] and (a + b).get_dataset_size() == 5
    assert values(a.concat([b, a])) == [0, 1, 0, 1, 2, 0, 1]
    assert values((a + b).batch(3)) == [[0, 1, 0], [1, 2]]
    assert values((a + b.repeat()).take(6)) == [0, 1, 0, 1, 2, 0]


# ---- split ---------------------------------------------------------------------------------------

@given(st.integers(2, 60), st.integers(1, 8), st.booleans(), st.booleans(), st.integers(0, 3))
def test_parts_are_disjoint_the_same_on_all_ranks_and_in_all_epochs(n_rows, shards, randomize, shuffle, epoch):
    sizes = [n_rows - n_rows // 3, n_rows // 3] if n_rows // 3 else [n_rows]
    seen = [set() for _ in sizes]
    for shard in range(shards):
        data = numbers(n_rows, num_shards=shards, shard_id=shard, shuffle=shuffle).map(lambda x: x, "x")
        parts = data.split(sizes, randomize)
        for part, found, size in zip(parts, seen, sizes, strict=True):
            rows = list(part.batches(epoch))
            assert len(rows) == part.get_dataset_size() == ceil(size / shards)
            found |= {int(row["x"]) for row, valid in rows if valid}
    assert [len(found) for found in seen] == sizes
    assert set.union(*seen) == set(range(n_rows))
    if not randomize:
        assert seen[0] == set(range(sizes[0]))
    again = numbers(n_rows, shuffle=shuffle).split(sizes, randomize)[0]
    assert {row["x"] for row in rows_of(again, epoch + 1)} == seen[0]


def test_split_shuffles_each_epoch_and_follows_the_seed():
    train, test = numbers(50, shuffle=True).split([0.8, 0.2])
    assert (train.get_dataset_size(), test.get_dataset_size()) == (40, 10)
    first, second = ([row["x"] for row in rows_of(train, epoch)] for epoch in (0, 1))
    assert first != second and sorted(first) == sorted(second)
    current().seed = 5
    assert set(values(numbers(50).split([0.8, 0.2])[0])) != set(first)


def test_split_after_other_stages_divides_the_rows_of_epoch_0():
    data = numbers(40, shuffle=True).filter(lambda x: x % 2 == 0, "x").take(15)
    a, b = data.split([10, 5])
    assert (a.get_dataset_size(), b.get_dataset_size()) == (10, 5)
    assert sorted(values(a) + values(b)) == sorted(values(data))
    assert rows_of(a, 3) == rows_of(a, 0)
    limited, rest = numbers(40, num_samples=10).split([4, 6], randomize=False)
    assert values(limited) == [0, 1, 2, 3] and values(rest) == [4, 5, 6, 7, 8, 9]
    batches, others = numbers(8).batch(2).split([0.5, 0.5], randomize=False)
    assert values(batches) == [[0, 1], [2, 3]] and values(others) == [[4, 5], [6, 7]]


@pytest.mark.parametrize("sizes, total, expected", [
    ([0.5, 0.5], 5, [3, 2]), ([0.3, 0.3, 0.4], 10, [3, 3, 4]), ([0.35, 0.65], 10, [4, 6]), ([0.1, 0.9], 5, None),
    ([0.25] * 4, 6, [1, 1, 2, 2]), ([0.15] * 6 + [0.1], 10, [1, 1, 1, 2, 2, 2, 1]), ([1.0], 4, [4]), ([1 / 3] * 3, 2, None)])
def test_fractions_round_as_in_mindspore(sizes, total, expected):
    if expected is None:
        with pytest.raises(RuntimeError, match=r"percentage 0.\d+ is too small: of \d rows"):
            numbers(total).split(sizes)
    else:
        assert [part.get_dataset_size() for part in numbers(total).split(sizes)] == expected


# ---- batches -------------------------------------------------------------------------------------

def test_per_batch_map():
    seen = []

    def pad_x(xs, ys, info):
        seen.append((info.get_epoch_num(), info.get_batch_num(), type(xs), xs[0].shape))
        longest = max(map(len, xs))
        return [np.pad(x, (0, longest - len(x))) for x in xs], np.stack(ys) * 10
    data = numbers(5).map(np.arange, "x").batch(2, per_batch_map=pad_x, input_columns=["x", "y"])
    assert rows_of(data) == [{"x": [[0], [0]], "y": [0, 10]}, {"x": [[0, 1, 0], [0, 1, 2]], "y": [40, 90]},
                             {"x": [[0, 1, 2, 3]], "y": [160]}]
    assert seen == [(0, 0, list, (0,)), (0, 1, list, (2,)), (0, 2, list, (4,))]
    assert data.get_dataset_size() == 3 and data.get_batch_size() == 2
    rows_of(data, epoch=4)
    assert seen[-1][:2] == (4, 2)


def test_per_batch_map_columns():
    def total(xs, info):
        return np.sum(xs)
    assert rows_of(numbers(4).batch(2, per_batch_map=total, input_columns="x", output_columns="sum")) == [
        {"sum": 1, "y": [0, 1]}, {"sum": 5, "y": [4, 9]}]
    two = numbers(4).batch(4, True, 2, per_batch_map=lambda x, y, info: (x, y, info.get_batch_num()),
                           output_columns=["x", "y", "number"])
    assert rows_of(two) == [{"x": [0, 1, 2, 3], "y": [0, 1, 4, 9], "number": 0}]


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4))
def test_per_batch_map_in_k_workers(n_rows, size, workers):
    data = numbers(n_rows).batch(size, num_parallel_workers=workers, per_batch_map=lambda x, i: np.stack(x) + i.get_batch_num(),
                                 input_columns="x")
    assert values(data) == [[x + k for x in range(k * size, min(n_rows, (k + 1) * size))] for k in range(ceil(n_rows / size))]


def test_padded_batch():
    ragged = numbers(4).map(lambda x: np.arange(x), "x")
    assert values(ragged.padded_batch(2)) == [[[0], [0]], [[0, 1, 0], [0, 1, 2]]]
    assert values(ragged.padded_batch(4, pad_info={"x": ([5], -1)}))[0][2] == [0, 1, -1, -1, -1]
    assert values(ragged.padded_batch(3, True, pad_info={"x": (None, 7)})) == [[[7, 7], [0, 7], [0, 1]]]
    images = numbers(2).map(lambda x: np.ones((x + 1, 3 - x)), "x").padded_batch(2)
    assert values(images) == [[[[1, 1, 1], [0, 0, 0]], [[1, 1, 0], [1, 1, 0]]]]


# ---- columns and what a dataset tells about itself -----------------------------------------------

def test_columns():
    data = numbers(3)
    assert data.project("y").get_col_names() == ["y"] and rows_of(data.project(["y", "x"]))[2] == {"y": 4, "x": 2}
    assert data.rename(["x", "y"], ["y", "x"]).get_col_names() == ["y", "x"]
    assert values(data.rename(["x", "y"], ["y", "x"])) == [0, 1, 4]
    ordered = data.map(lambda x: (x, x + 1), "x", ["a", "b"], column_order=["b", "y"])
    assert rows_of(ordered)[1] == {"b": 2, "y": 1} and ordered.get_col_names() == ["b", "y"]


def test_shapes_types_and_classes():
    data = numbers(5).map(lambda x: np.zeros((2, x), np.float32), "x")
    assert data.output_shapes() == [[2, 0], []] and data.output_types() == [np.float32, np.int64]
    assert data.output_shapes(estimate=True) == [[2, None], []]
    assert numbers(5).batch(2).output_shapes() == [[2], [2]]
    assert numbers(3).num_classes() is None and numbers(3).get_class_indexing() == {}
    digits = ds.MnistDataset(ds.sources.DIGITS).map(lambda x: x, "image").batch(4)
    assert digits.num_classes() == 10 and digits.get_class_indexing()["7"] == 7


def test_reset_begins_with_epoch_0_again():
    data = numbers(30, shuffle=True)
    first, second = ([int(x.asnumpy()) for x, _ in data] for _ in range(2))
    data.reset()
    assert [int(x.asnumpy()) for x, _ in data] == first != second


def test_apply():
    assert values(numbers(6).apply(lambda data: data.batch(4).take(1))) == [[0, 1, 2, 3]]


def pad(info):
    return lambda: rows_of(numbers(4).map(np.arange, "x").padded_batch(4, pad_info=info))


MESSAGES = [
    (lambda: numbers(4).filter(3), TypeError, "predicate must be a function, got 3"),
    (lambda: numbers(4).filter(abs, "z"), ValueError, r"filter: input_columns asks for \['z'\]"),
    (lambda: rows_of(numbers(4).filter(lambda x: x / 0, "x")), RuntimeError, "ZeroDivision|filter: <lambda> on row 0"),
    (lambda: rows_of(numbers(4).filter(lambda x: "no", "x")), TypeError, r"row 0 of column 'x'.*<U2.*return True or False"),
    (lambda: rows_of(numbers(4).filter(lambda x: [1, 2], "x")), TypeError, r"shape \(2,\).*return True or False"),
    (lambda: rows_of(ds.NumpySlicesDataset(["pear"], "x").map(TypeCast("int32"), "x")), ValueError,
     "map on column 'x': TypeCast: .*'pear'"),
    (lambda: rows_of(ds.NumpySlicesDataset(["pear"], "x").map(Rescale(2, 0), "x")), TypeError,
     "map on column 'x': Rescale: .*ufunc"),
    (lambda: numbers(4).repeat().filter(abs, "x").get_dataset_size(), ValueError, "endless.*filter first"),
    (lambda: numbers(4).zip(numbers(4)), ValueError, r"column 'x' is in more than one.*rename\(\)"),
    (lambda: numbers(4).zip(3), TypeError, "tuple of datasets"),
    (lambda: ds.zip((numbers(4),)), ValueError, "two datasets or more, got 1"),
    (lambda: ds.zip(numbers(4)), TypeError, "tuple of datasets"),
    (lambda: numbers(4) + 3, TypeError, "concat: datasets must be a Dataset.*got 3"),
    (lambda: numbers(4) + numbers(4).project("x"), ValueError, r"columns \['x'\] differ from \['x', 'y'\]"),
    (lambda: numbers(4).split([1, 2]), RuntimeError, "Sum of split sizes 3 is not equal to dataset size 4"),
    (lambda: numbers(4).split([]), RuntimeError, "sizes must be a list"),
    (lambda: numbers(4).split(3), RuntimeError, "sizes must be a list.*got 3"),
    (lambda: numbers(4).split([0.5, 0.6]), ValueError, r"add up to 1, got \[0.5, 0.6\]"),
    (lambda: numbers(4).split([1, 0.5]), ValueError, "all positive integers, or all fractions"),
    (lambda: numbers(4).split([5, -1]), ValueError, "all positive integers"),
    (lambda: numbers(4).repeat().split([2, 2]), RuntimeError, "endless.*split first"),
    (lambda: numbers(4).split([2, 2], 1), TypeError, "randomize must be True or False"),
    (lambda: numbers(4).project("z"), ValueError, r"project: columns asks for \['z'\]"),
    (lambda: numbers(4).rename("z", "x"), ValueError, r"rename: input_columns asks for \['z'\]"),
    (lambda: numbers(4).rename(["x", "y"], "z"), ValueError, "2 input_columns.*1 output_columns"),
    (lambda: numbers(4).rename("x", "y"), ValueError, "names a column twice"),
    (lambda: numbers(4).map(abs, "x", column_order=["z"]), ValueError, r"project: columns asks for \['z'\]"),
    (lambda: numbers(4).map(abs, "x", callbacks=[3]), TypeError, "no argument callbacks"),
    (lambda: numbers(4).map(abs, "x", python_multiprocessing=1), TypeError, "python_multiprocessing must be True"),
    (lambda: numbers(4).batch(2, input_columns="x"), ValueError, "input_columns='x'.*give per_batch_map too"),
    (lambda: numbers(4).batch(2, per_batch_map=3), TypeError, "per_batch_map must be a function, got 3"),
    (lambda: numbers(4).batch(2, per_batch_map=print, input_columns="z"), ValueError, "batch: input_columns"),
    (lambda: rows_of(numbers(9).batch(2, per_batch_map=lambda x, y, i: (x, 1 // (i.get_batch_num() - 2)))), RuntimeError,
     r"per_batch_map: <lambda> on batch 2 of columns \['x', 'y'\] failed: ZeroDivisionError"),
    (lambda: rows_of(numbers(4).batch(2, per_batch_map=lambda x, y, i: x)), ValueError,
     r"1 arrays for output_columns \['x', 'y'\]"),
    (lambda: rows_of(numbers(4).batch(2, per_batch_map=lambda x, i: [[1], [1, 2]], input_columns="x")), ValueError,
     "rows of different shapes"),
    (lambda: rows_of(numbers(4).batch(2, per_batch_map=lambda x, i: None, input_columns="x")), TypeError, "no array of numbers"),
    (pad(3), TypeError, "pad_info must be a dict.*got 3"),
    (pad({"z": ([1], 0)}), ValueError, r"pad_info asks for \['z'\]"),
    (pad({"x": ("a", 0)}), TypeError, r"pad_info\['x'\] must be \(shape, fill value\)"),
    (pad({"x": ([2], 0)}), RuntimeError, r"column 'x'.*as large as \(3,\) don't fit.*\(2,\)"),
    (pad({"x": ([2, 2], 0)}), RuntimeError, r"column 'x'.*2 dims are wanted"),
    (lambda: numbers(4).skip(4).output_shapes(), RuntimeError, "no rows"),
    (lambda: numbers(4).apply(lambda data: 3), TypeError, "must return a Dataset, it returned 3"),
]


@pytest.mark.parametrize("ask, kind, words", MESSAGES, ids=[words[:40] for _, _, words in MESSAGES])
def test_messages(ask, kind, words):
    with pytest.raises(kind, match=f"(?s){words}"):
        ask()
