"""E9: what buckets of gradients must be."""
import numpy as np

from minispore.communication import communicator, get_record, init
from minispore.grade import plain, points
from minispore.lab import run_ranks

TAKEN_AWAY = ["minispore.communication.buckets:buckets", "minispore.ops.communication:fused"]
SIZES = [([4], 8), ([4, 4], 8), ([4, 4, 4], 8), ([20], 8), ([20, 4], 8), ([4, 20, 4], 8), ([4, 4, 4, 20, 4], 8), ([8, 8, 8], 8),
         ([3, 3, 3, 3, 3, 3, 3], 10), ([5, 1, 5, 1, 5, 1], 7), ([1] * 30, 7), ([100, 1, 1, 1, 100, 100, 1], 50), ([], 8)]
SHAPES = {"conv.weight": (2, 1, 3, 3), "conv.bias": (2,), "dense.weight": (5, 4), "dense.bias": (5,), "scale": (),
          "out.weight": (3, 5), "out.bias": (3,)}
ORDER = list(SHAPES)[::-1]
MOST = 80           # bytes


def greedy(sizes, most):
    """The plan with the fewest buckets: each is filled until the next gradient doesn't fit."""
    plan, filled = [], 0
    for i, size in enumerate(sizes):
        if not plan or filled + size > most:
            plan.append([])
            filled = 0
        plan[-1].append(i)
        filled += size
    return plan


def planned(answer, sizes, most):
    """The answer's plan, as lists of whole numbers."""
    return [[int(i) for i in plain(bucket, "int64")] for bucket in answer.plan_buckets(list(sizes), most)]


def gradients_of(rank):
    """A rank's gradients; they come in another order on each."""
    rng = np.random.default_rng(rank)
    made = {name: rng.integers(-9, 9, shape).astype(np.float32) for name, shape in SHAPES.items()}
    names = list(made)
    return {name: made[name] for name in names[rank % len(names):] + names[:rank % len(names)]}


class Noted:
    """A communicator, or a handle of it, that notes what is done with it."""

    def __init__(self, inner, notes):
        self.inner, self.notes = inner, notes

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def all_reduce(self, *args, **kwargs):
        self.notes.append("begin")
        return Noted(self.inner.all_reduce(*args, **kwargs), self.notes)

    def wait(self):
        self.notes.append("wait")
        return self.inner.wait()


def reduced(answer, p, order=ORDER, gradients=gradients_of):
    """Per rank: (the sums, (count of elements of each AllReduce), notes)."""
    def program():
        init()
        notes = []
        out = answer.reduce_in_buckets(Noted(communicator(), notes), list(order), gradients(communicator().rank), MOST)
        calls = get_record().collectives()
        return {str(k): plain(v, "float32") for k, v in dict(out).items()}, [(e.op, e.count) for e in calls], notes
    return run_ranks(program, p)


@points(2, hint=1)
def test_each_gradient_once_and_in_order(answer):
    """each gradient once and in order: the buckets one behind the other are 0, 1, 2, …"""
    for sizes, most in SIZES:
        got = planned(answer, sizes, most)
        flat = [i for bucket in got for i in bucket]
        assert flat == list(range(len(sizes))), \
            f"plan_buckets({sizes}, {most}) should hold 0 … {len(sizes) - 1}, each once and in order; it is {got}"
        assert all(got), f"plan_buckets({sizes}, {most}) should hold no empty bucket; it is {got}"


@points(1, hint=2)
def test_no_bucket_is_too_large(answer):
    """no bucket is too large: at most `most` bytes, or a single gradient"""
    for sizes, most in SIZES:
        for bucket in planned(answer, sizes, most):
            total = sum(sizes[i] for i in bucket)
            assert total <= most or len(bucket) == 1, \
                f"plan_buckets({sizes}, {most}): bucket {bucket} holds {total} bytes; it may hold {most}, or one gradient alone"


@points(1, hint=2)
def test_as_few_as_can_be(answer):
    """as few buckets as can be"""
    for sizes, most in SIZES:
        got, best = planned(answer, sizes, most), greedy(sizes, most)
        assert len(got) <= len(best), \
            f"plan_buckets({sizes}, {most}) can do with {len(best)} buckets, {best}; it has {len(got)}, {got}"


@points(2, hint=3)
def test_sums(answer):
    """every gradient is summed, and has its shape; here all ranks' come in the given order"""
    def in_order(rank):
        made = gradients_of(rank)
        return {name: made[name] for name in ORDER}
    for p in (1, 2, 3, 4, 7):
        compare(p, reduced(answer, p, gradients=in_order), "")


@points(1, hint=3)
def test_same_bytes_fewer_messages(answer):
    """one AllReduce a bucket, and no value more than there are"""
    values = [int(np.prod(SHAPES[name], dtype=int)) for name in ORDER]
    expected = [sum(values[i] for i in bucket) for bucket in planned(answer, [4 * n for n in values], MOST)]
    for rank, (_, calls, _) in enumerate(reduced(answer, 2, gradients=lambda r: {n: gradients_of(r)[n] for n in ORDER})):
        assert {op for op, _ in calls} == {"AllReduce"}, \
            f"rank {rank} should communicate by AllReduce only; it did {', '.join(op for op, _ in calls) or 'nothing'}"
        assert [count for _, count in calls] == expected, \
            f"gradients of {values} values and most={MOST} bytes should go in AllReduces of {expected} values, as you planned; " \
            f"rank {rank} made {len(calls)}, of {[count for _, count in calls]}"


@points(2, hint=4)
def test_the_same_order_on_all_ranks(answer):
    """the same order on all ranks, though each rank's dict is in another one"""
    small = {"a": (2,), "b": (2,)}                  # of one size: nothing but the sums can show that they were mixed up
    def two(rank):
        made = {name: np.full(shape, 10 ** i * (rank + 1), np.float32) for i, (name, shape) in enumerate(small.items())}
        return dict(sorted(made.items(), reverse=rank == 1))
    for rank, (sums, *_) in enumerate(reduced(answer, 2, list(small), two)):
        assert set(sums) == {"a", "b"}, (f"2 ranks with gradients a and b: rank {rank} should return both sums, it has "
                                         f"{sorted(sums)}")
        assert (sums["a"] == 3).all() and (sums["b"] == 30).all(), \
            f"rank 0 has a=1, b=10 in this order, rank 1 b=20, a=2: the sums should be a=3, b=30; rank {rank} has " \
            f"a={sums['a'].flat[0]:g}, b={sums['b'].flat[0]:g}"
    for p in (2, 3, 4, 7):
        compare(p, reduced(answer, p), "when the dict's order differs between ranks, ")


@points(1, hint=5)
def test_all_begin_before_one_is_waited_for(answer):
    """all AllReduces begin before one is waited for"""
    for rank, (_, _, notes) in enumerate(reduced(answer, 2, gradients=lambda r: {n: gradients_of(r)[n] for n in ORDER})):
        begun = notes.index("wait") if "wait" in notes else len(notes)
        assert begun == notes.count("begin") and "wait" in notes, \
            f"rank {rank} should begin all AllReduces and wait then; it did {', '.join(notes)}"


def compare(p, results, when):
    """All ranks have all sums."""
    for rank, (sums, *_) in enumerate(results):
        assert set(sums) == set(SHAPES), f"{p} rank(s): rank {rank} should return sums of {sorted(SHAPES)}, it has {sorted(sums)}"
        for name, shape in SHAPES.items():
            want = sum(gradients_of(r)[name] for r in range(p))
            got = sums[name]
            assert got.shape == shape, f"{p} rank(s): the sum of {name} should have shape {shape}; rank {rank}'s has {got.shape}"
            assert (got == want).all(), \
                f"{p} rank(s): {when}the sum of {name} should begin with {want.flat[0]:g}; rank {rank}'s begins with " \
                f"{got.flat[0]:g}"
