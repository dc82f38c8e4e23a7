"""Datasets: order and shards, stages, iterators, the thread that works ahead, transforms, messages."""
import contextvars
import gc
import subprocess
import sys
import threading
import time
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore.dataset as ds
from minispore.common.state import RankState, current, enter
from minispore.dataset import core, prefetch, stages
from minispore.dataset.sources import DIGITS
from minispore.dataset.transforms import Transform, TypeCast
from minispore.dataset.vision import HWC2CHW, Normalize, Rescale


@pytest.fixture(autouse=True)
def no_thread_left():
    """No test leaves a thread behind."""
    yield
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "minispore-prefetch"]


def numbers(n, **options):
    """The rows 0 … n-1, each with its square beside it."""
    return ds.NumpySlicesDataset({"x": np.arange(n), "y": np.arange(n) ** 2}, **options)


def values(dataset, column="x"):
    return [row[column].tolist() for row in dataset.create_dict_iterator(num_epochs=1, output_numpy=True)]


def shards_of(n_rows, n, **options):
    return [numbers(n_rows, num_shards=n, shard_id=r, **options) for r in range(n)]


# ---- order and shards ---------------------------------------------------------------------------

@given(st.integers(1, 60), st.integers(1, 12), st.booleans(), st.integers(0, 3))
def test_valid_rows_of_all_shards_are_the_data(n_rows, n, shuffle, epoch):
    seen = []
    for shard in shards_of(n_rows, n, shuffle=shuffle):
        rows = list(shard.batches(epoch))
        assert len(rows) == shard.get_dataset_size() == ceil(n_rows / n)
        seen += [int(row["x"]) for row, valid in rows if valid]
    assert sorted(seen) == list(range(n_rows))


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 9), st.booleans(), st.integers(0, 3))
def test_kth_batches_of_n_shards_are_one_ranks_batch_n_times_as_big(n_rows, n, size, drop, epoch):
    whole = [row["x"].tolist() for row, _ in numbers(n_rows).batch(n * size).batches(epoch)]
    if drop and ceil(n_rows / n) < size:
        return
    parts = [list(shard.batch(size, drop).batches(epoch)) for shard in shards_of(n_rows, n)]
    assert len({len(part) for part in parts}) == 1              # equally many steps on all ranks
    for k, together in enumerate(zip(*parts, strict=True)):
        valid_rows = np.concatenate([row["x"][valid] for row, valid in together])
        if len(together[0][1]) == size:
            assert sorted(valid_rows) == sorted(whole[k])


def test_shards_are_strided_and_wrap_around():
    parts = [[(int(row["x"]), bool(valid)) for row, valid in shard.batches(0)]
             for shard in shards_of(5, 3, shuffle=False)]
    assert parts == [[(0, True), (3, True)], [(1, True), (4, True)], [(2, True), (0, False)]]
    more_shards_than_rows = [values(shard)[0] for shard in shards_of(2, 5, shuffle=False)]
    assert more_shards_than_rows == [0, 1, 0, 1, 0]


def test_epochs_differ_and_same_seed_means_same_order():
    data, again = numbers(50), numbers(50)
    first, second = values(data), values(data)
    assert first != second and sorted(first) == sorted(second) == list(range(50))
    assert [values(again), values(again)] == [first, second]
    current().seed = 3
    by_seed = values(numbers(50))
    assert by_seed != first
    ds.config.set_seed(0)                       # the dataset's own seed goes before, 0 as any other
    assert values(numbers(50)) == first
    ds.config.set_seed(3)
    assert values(numbers(50)) == by_seed


def test_shuffle_is_the_default_and_can_be_left_out():
    assert values(numbers(50)) != list(range(50))
    assert values(numbers(50, shuffle=True)) == values(numbers(50))
    assert values(numbers(50, shuffle=False)) == list(range(50))


def test_batches_of_an_epoch_are_the_same_each_time():
    data = numbers(20).batch(6)
    once, twice = list(data.batches(7)), list(data.batches(7))
    assert all((a[0]["x"] == b[0]["x"]).all() for a, b in zip(once, twice, strict=True))
    assert once[0][1].dtype == bool and [len(valid) for _, valid in once] == [6, 6, 6, 2]


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 50))
def test_num_samples_limits_each_shard(n_rows, n, limit):
    for shard, whole in zip(shards_of(n_rows, n, num_samples=limit), shards_of(n_rows, n), strict=True):
        rows = values(shard)
        assert len(rows) == shard.get_dataset_size() == min(limit or n_rows, ceil(n_rows / n))
        assert rows == values(whole)[:len(rows)]


def test_ranks_are_apart_as_threads():
    """The seed is the rank's, and the thread that works ahead sees the rank that started it."""
    orders = {}

    def rank(r):
        enter(RankState(launched_rank=r, launched_size=2))
        ds.config.set_seed(r)
        seen = set()
        rows = values(numbers(40).map(lambda x: (seen.add(current().rank), x)[1], "x"))
        orders[r] = rows, seen
    threads = [threading.Thread(target=contextvars.Context().run, args=(rank, r)) for r in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert orders[0][0] != orders[1][0]
    assert [orders[r][1] for r in (0, 1)] == [{0}, {1}]


# ---- stages -------------------------------------------------------------------------------------

steps = st.lists(st.one_of(
    st.tuples(st.just("batch"), st.integers(1, 7)),
    st.tuples(st.just("repeat"), st.integers(1, 3)),
    st.tuples(st.just("take"), st.integers(1, 30)),
    st.tuples(st.just("skip"), st.integers(0, 10)),
    st.tuples(st.just("shuffle"), st.integers(2, 20))), max_size=4)


@settings(deadline=None)
@given(st.integers(1, 40), steps, st.integers(1, 16))
def test_size_is_the_length_of_the_iteration_whatever_the_blocks(n_rows, steps, block_rows):
    data = numbers(n_rows)
    for method, argument in steps:
        if method == "batch" and data.get_batch_size() > 1:
            continue            # a batch of unequal batches has no meaning
        data = getattr(data, method)(argument)
    rows = values(data)
    assert len(rows) == data.get_dataset_size()
    usual = stages.BLOCK_ROWS
    try:
        stages.BLOCK_ROWS = block_rows
        if "shuffle" not in dict(steps):        # its buffer holds whole blocks
            assert [row["x"].tolist() for row, _ in data.batches(0)] == rows
    finally:
        stages.BLOCK_ROWS = usual


@given(st.integers(1, 40), st.integers(1, 12))
def test_drop_remainder(n_rows, size):
    data = numbers(n_rows).batch(size, drop_remainder=True)
    assert data.get_dataset_size() == n_rows // size
    assert data.get_batch_size() == size
    if n_rows < size:
        with pytest.raises(ValueError, match=f"no valid data.*batch_size={size}.*only {n_rows} rows.*use"):
            values(data)
    else:
        assert [len(batch) for batch in values(data)] == [size] * (n_rows // size)


def test_take_skip_repeat_batch_values():
    data = numbers(6, shuffle=False)
    assert values(data.take(4).skip(1)) == [1, 2, 3]
    assert values(data.batch(4).take(1)) == [[0, 1, 2, 3]]
    assert values(data.batch(4).skip(1)) == [[4, 5]]
    assert values(data.repeat(2).batch(4)) == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
    assert values(data.batch(2).batch(3)) == [[[0, 1], [2, 3], [4, 5]]]
    assert values(data.skip(6)) == [] and values(data.take()) == list(range(6))
    assert data.repeat(2).repeat(3).get_repeat_count() == 6


def test_repeat_shuffles_each_time_anew_and_never_the_same_epoch_twice():
    data = numbers(30).repeat(2)
    rows = values(data) + values(data)
    epochs = [tuple(rows[i:i + 30]) for i in range(0, 120, 30)]
    assert len(set(epochs)) == 4 and all(sorted(epoch) == list(range(30)) for epoch in epochs)
    assert list(epochs[0]) == values(numbers(30))


def test_endless_repeat():
    data = numbers(4, shuffle=False).repeat()
    assert data.get_dataset_size() == 4 and data.get_repeat_count() == -1
    assert values(data.take(10)) == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1] and data.take(10).get_dataset_size() == 10
    assert values(data.skip(3).take(2)) == [3, 0]
    for i, (x, _) in enumerate(data):
        assert int(x.asnumpy()) == i % 4
        if i == 9:
            break
    assert values(numbers(4).skip(4).repeat()) == []        # nothing, without end, isn't waited for


@given(st.integers(1, 60), st.integers(2, 80), st.integers(1, 20))
def test_shuffle_stage_keeps_all_rows_and_follows_the_seed(n_rows, buffer, block_rows):
    usual = stages.BLOCK_ROWS
    try:
        stages.BLOCK_ROWS = block_rows
        data = numbers(n_rows, shuffle=False).shuffle(buffer)
        orders = [[int(row["x"]) for row, _ in data.batches(epoch)] for epoch in (0, 0, 1)]
    finally:
        stages.BLOCK_ROWS = usual
    assert sorted(orders[0]) == list(range(n_rows)) and orders[0] == orders[1]
    if n_rows > 20 and buffer > 10:
        assert orders[0] != orders[2] and orders[0] != list(range(n_rows))


def test_batches_shuffled_on_n_ranks_still_belong_together():
    parts = [values(shard.batch(3).shuffle(10)) for shard in shards_of(24, 2, shuffle=False)]
    for a, b in zip(*parts, strict=True):
        assert b == [x + 1 for x in a]


def test_batches_of_different_length_can_be_shuffled_and_mapped():
    data = numbers(7, shuffle=False).batch(3).shuffle(10).map(lambda x: x + 1, "x")
    assert sorted(values(data)) == [[1, 2, 3], [4, 5, 6], [7]]


def test_columns():
    data = numbers(3, shuffle=False)
    assert data.get_col_names() == ["x", "y"]
    assert data.map(lambda x: -x, "x", "z").get_col_names() == ["z", "y"]
    both = data.map(lambda x, y: (x, y, x + y), ["x", "y"], ["a", "b", "c"])
    assert both.get_col_names() == ["a", "b", "c"] and values(both, "c") == [0, 2, 6]
    total = data.map([lambda x, y: x + y, lambda s: s * 10], ["x", "y"], "s")
    assert total.get_col_names() == ["s"] and values(total, "s") == [0, 20, 60]
    assert data.map(lambda x: (x, x * 2), "x", ["a", "b"]).get_col_names() == ["a", "b", "y"]
    assert values(data.map(lambda x: x + 5)) == [5, 6, 7]       # the first column, if none is named


def test_a_function_gets_rows_or_batches_as_arrays():
    seen = []
    values(numbers(5, shuffle=False).map(lambda x: (seen.append((type(x), x.shape)), x)[1], "x"))
    values(numbers(5, shuffle=False).batch(2).map(lambda x: (seen.append((type(x), x.shape)), x)[1], "x"))
    assert seen == [(np.ndarray, ())] * 5 + [(np.ndarray, (2,))] * 2 + [(np.ndarray, (1,))]


def test_rows_may_differ_in_shape_until_batched():
    data = numbers(4, shuffle=False).map(lambda x: np.arange(x), "x")
    assert values(data) == [[], [0], [0, 1], [0, 1, 2]]
    assert values(data.map(TypeCast("float32"), "x"))[3] == [0.0, 1.0, 2.0]
    assert values(data.batch(1)) == [[[]], [[0]], [[0, 1]], [[0, 1, 2]]]
    with pytest.raises(ValueError, match=r"batch\(2\).*'x'.*int64 of shape \(0,\).*shape \(1,\).*map"):
        values(data.batch(2))
    with pytest.raises(ValueError, match=r"float64.*uint8"):
        values(numbers(2, shuffle=False).map(lambda x: np.uint8(1) if x else 0.5, "x").batch(2))
    pairs = numbers(8, shuffle=False).map(lambda x: np.zeros(x // 4), "x").batch(4)     # alike within a batch
    assert [len(row[0]) for row in values(pairs)] == [0, 1]


def test_methods_leave_a_dataset_as_it_was():
    data = numbers(4, shuffle=False)
    data.batch(2), data.take(1), data.map(lambda x: x * 0, "x")
    assert values(data) == [0, 1, 2, 3]


# ---- iterators ----------------------------------------------------------------------------------

def test_iterating_gives_tensors():
    from minispore.common.tensor import Tensor
    for x, y in numbers(3, shuffle=False).batch(3):
        assert type(x) is type(y) is Tensor and x.asnumpy().tolist() == [0, 1, 2]
    (x, y), *_ = numbers(3, shuffle=False)
    assert x.shape == y.shape == () and isinstance(x.asnumpy(), np.ndarray)


def test_tuple_and_dict_iterators():
    data = numbers(3, shuffle=False)
    assert [tuple(map(int, row)) for row in data.create_tuple_iterator(["y", "x"], output_numpy=True)] == [
        (0, 0), (1, 1), (4, 2)]
    assert [list(row) for row in data.create_dict_iterator()] == [["x", "y"]] * 3
    assert next(data.create_tuple_iterator("y", output_numpy=True))[0].shape == ()


def test_an_iterator_goes_on_with_the_next_epoch():
    data = numbers(20)
    rows = data.create_dict_iterator(num_epochs=2, output_numpy=True)
    epochs = [[int(row["x"]) for row in rows] for _ in range(2)]
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1])
    with pytest.raises(RuntimeError, match="num_epochs"):
        next(rows)


def test_do_copy_gives_memory_of_its_own():
    data = numbers(4).batch(2)
    assert all(row.base is None for (row, _) in data.create_tuple_iterator(output_numpy=True, do_copy=True))


def test_iterating_never_changes_the_users_array():
    array = np.arange(4)

    def spoil(x):
        x += 100
        return x
    values(ds.NumpySlicesDataset(array, "x", shuffle=False).map(spoil, "x"))
    assert array.tolist() == [0, 1, 2, 3]


# ---- the thread that works ahead ----------------------------------------------------------------

def ahead():
    return [thread for thread in threading.enumerate() if thread.name == "minispore-prefetch"]


def test_no_thread_before_iterating_and_none_after_break():
    data = numbers(5000).batch(4)
    rows = iter(data)
    assert not ahead()
    for _ in rows:
        assert len(ahead()) == 1
        break
    del rows, _
    assert not ahead()
    for _ in data:
        break
    assert not ahead()
    list(data)
    assert not ahead()


def test_the_next_item_is_made_while_this_one_is_used():
    made = []
    items = prefetch.Prefetcher(made.append(i) or i for i in range(5))
    assert next(items) == 0
    deadline = time.time() + 5
    while made != [0, 1] and time.time() < deadline:
        time.sleep(0.001)
    assert made == [0, 1]           # one ahead, not more
    assert list(items) == [1, 2, 3, 4]
    assert next(items, "end") == "end"


def test_an_error_surfaces_where_its_item_is_asked_for():
    def items():
        yield 1
        raise KeyError("lost")
    rows = prefetch.Prefetcher(items())
    assert next(rows) == 1
    with pytest.raises(KeyError, match="lost"):
        next(rows)
    assert not ahead()
    with pytest.raises(StopIteration):
        next(rows)


def test_an_iterator_half_way_through_doesnt_keep_the_program_from_ending():
    program = """if True:
        import time, minispore.dataset as ds
        rows = iter(ds.NumpySlicesDataset(list(range(9000))).map(lambda x: x).batch(2))
        next(rows)
        numbers = ds.NumpySlicesDataset(list(range(64)), shuffle=False)
        slow = iter(numbers.map(lambda x: x if x < 32 else time.sleep(60)))
        next(slow)
        print("done")
    """
    begin = time.time()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "") and time.time() - begin < 30


# ---- transforms ---------------------------------------------------------------------------------

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 6, 5, 3), np.uint8)
OPS = [Rescale(1 / 255, 0.25), Normalize((0.1, 0.2, 0.3), (0.3, 0.2, 0.1)), HWC2CHW()]


def test_golden_first_batch():
    golden = np.load(Path(__file__).parent / "golden" / "lenet.npz")
    data = ds.NumpySlicesDataset({"image": golden["train_x"][:4, ..., None]}, shuffle=False)
    data = data.map([Rescale(1.0 / 255.0, 0), Normalize((0.1307,), (0.3081,)), HWC2CHW()], "image").batch(2)
    image, = next(data.create_tuple_iterator(output_numpy=True))
    assert image.dtype == np.float32 and image.flags.c_contiguous
    assert (image == golden["first_batch_preprocessed_2"]).all()


@given(st.integers(1, 50), st.integers(1, 50))
def test_blocks_and_rows_give_the_same_bits(block_rows, size):
    usual = stages.BLOCK_ROWS
    try:
        stages.BLOCK_ROWS = block_rows
        data = ds.NumpySlicesDataset(IMAGES, "image", shuffle=False)
        blockwise = np.concatenate([row["image"] for row, _ in data.map(OPS, "image").batch(size).batches(0)])
    finally:
        stages.BLOCK_ROWS = usual
    singly = np.stack([OPS[2](OPS[1](OPS[0](image))) for image in IMAGES])
    assert blockwise.dtype == np.float32 and (blockwise == singly).all()
    after = [row["image"] for row, _ in data.batch(size).map(OPS, "image").batches(0)]
    assert (np.concatenate(after) == singly).all()
    functions = [lambda x, op=op: op(x) for op in OPS]
    by_row = [row["image"] for row, _ in data.map(functions, "image").batches(0)]
    assert (np.stack(by_row) == singly).all()


def test_transforms_one_by_one():
    image = IMAGES[0]
    assert Rescale(2, 1)(np.array([3, 4], np.uint8)).tolist() == [7, 9]
    assert Rescale(1, 0)(np.float64(2)).dtype == np.float32
    expected = (image.astype(np.float32) - np.float32([1, 2, 3])) / np.float32([4, 5, 6])
    assert (Normalize((1, 2, 3), (4, 5, 6))(image) == expected).all()           # uint8 is fine
    chw = Normalize((1, 2, 3), (4, 5, 6), is_hwc=False)(HWC2CHW()(image))
    assert (chw == expected.transpose(2, 0, 1)).all()
    assert Normalize((1,), (2,))(np.full((4, 5), 3)).tolist() == np.ones((4, 5)).tolist()
    assert HWC2CHW()(image).dtype == np.uint8
    assert TypeCast(np.int32)(np.uint32(5)).dtype == np.int32
    assert TypeCast("float16")(image).dtype == np.float16


def test_a_transform_of_ones_own():
    class Flip(Transform):
        def rows(self, block):
            return block[..., ::-1]
    data = ds.NumpySlicesDataset([[1, 2], [3, 4]], "x", shuffle=False)
    assert values(data.map(Flip(), "x")) == [[2, 1], [4, 3]]


# ---- sources ------------------------------------------------------------------------------------

def test_mnist_dataset():
    data = ds.MnistDataset(DIGITS)
    assert data.get_col_names() == ["image", "label"] and data.get_dataset_size() == 1797
    image, label = next(iter(data.batch(32)))
    assert image.shape == (32, 8, 8, 1) and image.dtype == np.uint8
    assert label.shape == (32,) and label.dtype == np.uint32
    train, test, both = (values(ds.MnistDataset(DIGITS, usage, shuffle=False), "label")
                         for usage in ("train", "test", "all"))
    assert both == train + test


def test_a_folder_with_one_part(tmp_path):
    for path in DIGITS.glob("train*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert ds.MnistDataset(str(tmp_path)).get_dataset_size() == 1437
    with pytest.raises(ValueError, match=r"lacks.*t10k-images-idx3-ubyte.*usage='test'.*train-images"):
        ds.MnistDataset(tmp_path, "test")


@pytest.mark.parametrize("data, names, expected", [
    ([1, 2, 3], None, {"column_0": [1, 2, 3]}),
    (np.array([[1, 2], [3, 4]]), ["x"], {"x": [[1, 2], [3, 4]]}),
    (([1, 2], np.array([0.5, 1.5])), None, {"column_0": [1, 2], "column_1": [0.5, 1.5]}),
    (([1, 2], [3, 4]), ["a", "b"], {"a": [1, 2], "b": [3, 4]}),
    ({"a": [1, 2], "b": ["one", "three"]}, None, {"a": [1, 2], "b": ["one", "three"]}),
])
def test_numpy_slices(data, names, expected):
    dataset = ds.NumpySlicesDataset(data, names, shuffle=False)
    assert {name: values(dataset, name) for name in dataset.get_col_names()} == expected


def test_config():
    assert (ds.config.get_seed(), ds.config.get_num_parallel_workers()) == (0, 1)
    current().seed = 5
    assert ds.config.get_seed() == 5
    ds.config.set_seed(6), ds.config.set_num_parallel_workers(4)
    assert (ds.config.get_seed(), ds.config.get_num_parallel_workers()) == (6, 4)
    assert current().dataset_seed == 6 and current().context["dataset_workers"] == 4


# ---- messages: what was asked, what was found, what to do ----------------------------------------

def boom(row):
    return 1 / (int(row) - 37)


X = {"x": np.arange(50), "y": np.arange(50)}
MESSAGES = [
    (lambda: numbers(4, num_shards=2), RuntimeError, "num_shards was given without shard_id.*get_rank"),
    (lambda: numbers(4, shard_id=0), RuntimeError, "shard_id was given without num_shards"),
    (lambda: numbers(4, num_shards=2, shard_id=2), ValueError, r"shard_id .* in \[0, 1\].*got 2.*get_rank"),
    (lambda: numbers(4, num_shards=2, shard_id=-1), ValueError, r"shard_id.*got -1.*\[0, 1\]"),
    (lambda: numbers(4, num_shards=0, shard_id=0), ValueError, "num_shards .* got 0.*get_group_size"),
    (lambda: numbers(4, num_shards="2", shard_id=0), TypeError, "num_shards must be an integer, got '2'"),
    (lambda: numbers(4, num_samples=-1), ValueError, "num_samples.*got -1"),
    (lambda: numbers(4, shuffle="yes"), TypeError, "shuffle must be True or False, got 'yes'"),
    (lambda: numbers(4, sampler=[1], shuffle=True), ValueError, "Conflicting arguments.*shuffle=True"),
    (lambda: numbers(4, num_parallel_workers=0), ValueError, "num_parallel_workers.*got 0"),
    (lambda: ds.MnistDataset("no/such"), ValueError, "no folder 'no/such'.*minispore data digits --out DIR"),
    (lambda: ds.MnistDataset(DIGITS.parent), ValueError, "lacks.*train-images.*__init__.py.*digits"),
    (lambda: ds.MnistDataset(DIGITS, "valid"), ValueError, "usage .* 'train', 'test' .* got 'valid'"),
    (lambda: ds.MnistDataset(7), TypeError, "dataset_dir must be a path, got 7"),
    (lambda: ds.NumpySlicesDataset([]), ValueError, "data is empty.*at least one row"),
    (lambda: ds.NumpySlicesDataset({}), ValueError, "data is empty"),
    (lambda: ds.NumpySlicesDataset(5), TypeError, "data must be a list.*got int"),
    (lambda: ds.NumpySlicesDataset([None]), TypeError, "'column_0' must be.*numbers.*object"),
    (lambda: ds.NumpySlicesDataset(([1, 2], [1])), ValueError, "equally long.*'column_0': 2, 'column_1': 1"),
    (lambda: ds.NumpySlicesDataset([[1], [2, 3]]), ValueError, "'column_0': its rows differ in shape"),
    (lambda: ds.NumpySlicesDataset([1], ["a", "b"]), ValueError, "2 names.*1 columns.*give one each"),
    (lambda: numbers(4).batch(0), ValueError, r"batch_size must be at least 1, got 0.*batch\(32\)"),
    (lambda: numbers(4).batch(2.0), TypeError, r"batch_size must be an integer, got 2.0 \(float\)"),
    (lambda: numbers(4).batch(True), TypeError, "batch_size must be an integer, got True"),
    (lambda: numbers(4).batch(2, 1), TypeError, "drop_remainder must be True or False, got 1"),
    (lambda: numbers(4).batch(2, per_batch=print), TypeError, "no argument per_batch in"),
    (lambda: list(numbers(4).batch(5, True)), ValueError, "There is no valid data.*=5.*4 rows.*use"),
    (lambda: numbers(4).shuffle(1), ValueError, "buffer_size must be at least 2, got 1"),
    (lambda: numbers(4).repeat(0), ValueError, "count must be at least 1, got 0.*-1 to repeat without end"),
    (lambda: numbers(4).take(0), ValueError, "count must be at least 1, got 0"),
    (lambda: numbers(4).skip(-1), ValueError, "count must be at least 0, got -1"),
    (lambda: numbers(4).map(abs, "z"), ValueError, r"input_columns asks for \['z'\].*\['x', 'y'\]"),
    (lambda: numbers(4).map(abs, 3), TypeError, "input_columns must be a column name.*got 3"),
    (lambda: numbers(4).map(abs, ["x", "x"]), ValueError, "names a column twice"),
    (lambda: numbers(4).map(abs, []), ValueError, "empty list"),
    (lambda: numbers(4).map(abs, "x", "y"), ValueError, r"would hide the other column \['y'\]"),
    (lambda: numbers(4).map("abs", "x"), TypeError, "must be callable with a row, got 'abs'"),
    (lambda: numbers(4).map([], "x"), ValueError, "empty list"),
    (lambda: numbers(4).map(HWC2CHW, "x"), TypeError, r"got the class HWC2CHW; write HWC2CHW\(...\)"),
    (lambda: numbers(4).create_tuple_iterator(["z"]), ValueError, r"columns asks for \['z'\].*\['x', 'y'\]"),
    (lambda: numbers(4).create_tuple_iterator(num_epochs=0), ValueError, "num_epochs .* at least 1, got 0"),
    (lambda: list(ds.NumpySlicesDataset(["a"])), TypeError, "'column_0' holds <U1.*output_numpy=True"),
    (lambda: values(numbers(50, shuffle=False).map(boom, "x")), RuntimeError,
     r"map: boom on row 37 of column 'x' int64\(\) failed: ZeroDivisionError"),
    (lambda: values(numbers(4).map(lambda x: None, "x")), TypeError, "row 0 of column 'x'.*numpy array"),
    (lambda: values(numbers(4).map(lambda x: (x, x), "x")), ValueError, r"lambda.*2 arrays.*\['x'\]"),
    (lambda: values(numbers(4).map(TypeCast("int8"), ["x", "y"])), ValueError, "TypeCast takes one.*'y'"),
    (lambda: values(numbers(4).map(HWC2CHW(), "x")), ValueError, r"column 'x': HWC2CHW takes.*shape \(\)"),
    (lambda: Normalize((1, 2), (1,)), ValueError, "mean has 2 values, std has 1"),
    (lambda: Normalize((1,), (0,)), ValueError, "std must be greater than 0"),
    (lambda: Normalize(0.5, 0.5), TypeError, "mean must be a tuple.*got 0.5"),
    (lambda: Normalize((1,) * 3, (1,) * 3)(np.zeros((28, 28, 1))), ValueError, "for 3 channels.*has 1"),
    (lambda: Normalize((1,), (1,))(np.zeros(5)), ValueError, r"takes images.*\(5,\)"),
    (lambda: Rescale("1", 0), TypeError, "rescale must be a number, got '1'"),
    (lambda: TypeCast("complex64"), TypeError, "complex64 is not supported"),
    (lambda: ds.config.set_seed(-1), ValueError, "seed must be at least 0, got -1"),
    (lambda: ds.config.set_seed(1.5), TypeError, "seed must be an integer, got 1.5"),
]


@pytest.mark.parametrize("ask, kind, words", MESSAGES, ids=[words[:40] for _, _, words in MESSAGES])
def test_messages(ask, kind, words):
    with pytest.raises(kind, match=f"(?s){words}"):
        ask()


def test_damaged_mnist_files_are_named(tmp_path):
    for path in DIGITS.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    labels.write_bytes((DIGITS / "t10k-labels-idx1-ubyte.gz").read_bytes())
    with pytest.raises(ValueError, match=r"train-images.*gz holds 1437 images.*train-labels.*360 labels"):
        ds.MnistDataset(tmp_path)
    labels.write_bytes(labels.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte.gz: its 50 bytes are no whole gzip file"):
        ds.MnistDataset(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"")         # goes before the .gz
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte: .*16 bytes.*0 bytes"):
        ds.MnistDataset(tmp_path)
    assert core.Dataset is ds.Dataset
