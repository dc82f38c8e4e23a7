"""E5: what a reduce-scatter on a ring must do."""
import numpy as np

from minispore.communication.algorithms.link import split
from minispore.grade import plain, points
from minispore.lab.on_ranks import add, on_ranks

_ALGORITHMS = "minispore.communication.algorithms."
TAKEN_AWAY = [_ALGORITHMS + name for name in (
    "ring:ring_reduce_scatter", "ring:ring_all_reduce", "pairwise:pairwise_reduce_scatter",
    "recursive:recursive_halving_reduce_scatter", "recursive:recursive_doubling_all_reduce", "recursive:rabenseifner_all_reduce",
    "hierarchical:hierarchical_reduce_scatter", "hierarchical:hierarchical_all_reduce", "tree:tree_all_reduce",
    "tree:tree_reduce", "tree:rabenseifner_reduce")]


def arrays(p, length, dtype=np.float64):
    """A whole array for each rank; rank r's begins with powers of ten, so that a wrong sum shows who is missing in it."""
    if p <= 4 and length <= 8:
        return [(10 ** r * np.arange(1, length + 1)).astype(dtype) for r in range(p)]
    return [np.random.default_rng(r).integers(-50, 50, length).astype(dtype) for r in range(p)]


def scattered(answer, whole, accumulate=add):
    """Each rank's own chunk after the answer has run on arrays, and the records."""
    p = len(whole)
    flat = [x.copy() for x in whole]
    chunks = [split(x, p) for x in flat]
    records = on_ranks(p, lambda link: answer.reduce_scatter(link, list(chunks[link.rank]), accumulate))
    return [plain(chunks[r][r]) for r in range(p)], records


def check_sum(answer, p, length):
    whole = arrays(p, length)
    came, _ = scattered(answer, whole)
    for r, expected in enumerate(split(np.sum(whole, 0), p)):
        same = came[r].shape == expected.shape and np.array_equal(came[r], expected)
        assert same, (f"{p} ranks, {length} values each: chunk {r} on rank {r} should be {show(expected)}, it is {show(came[r])}"
                      + untouched(came[r], split(whole[r], p)[r]))


def untouched(came, before):
    if len(before) and np.array_equal(came, before):
        return ": what it was before. Change the array itself (accumulate does), not the list `chunks`"
    return ""


def show(x):
    return f"[{', '.join(f'{v:g}' for v in x[:6])}{', …' if len(x) > 6 else ''}]"


@points(1, hint=1)
def test_two_ranks(answer):
    """two ranks: one step each way"""
    check_sum(answer, 2, 2)
    check_sum(answer, 2, 8)


@points(3, hint=2)
def test_sum_on_any_number_of_ranks(answer):
    """the sum on 1, 2, 3, 4 and 7 ranks"""
    for p in (3, 4, 1, 2, 7):
        check_sum(answer, p, p)
        check_sum(answer, p, 2 * p)


@points(2, hint=3)
def test_chunks_of_any_length(answer):
    """chunks that differ in length, some of them empty"""
    for p, length in ((3, 4), (3, 5), (4, 7), (4, 2), (7, 3), (7, 97), (2, 0)):
        check_sum(answer, p, length)


@points(1, hint=3)
def test_any_reduction(answer):
    """another accumulate than a sum, and another dtype"""
    for name, reduction, dtype in (("maximum", np.maximum, np.int32), ("multiply", np.multiply, np.float32)):
        whole = [np.random.default_rng(r).integers(1, 5, 9).astype(dtype) for r in range(4)]
        came, _ = scattered(answer, whole, lambda dst, src, reduction=reduction: reduction(dst, src, out=dst))
        for r, expected in enumerate(split(reduction.reduce(whole), 4)):
            assert came[r].dtype == dtype, f"{name} of {dtype.__name__} on 4 ranks: rank {r} has {came[r].dtype} in the end"
            assert np.array_equal(came[r], expected), (
                f"accumulate is {name} here, on 4 ranks: chunk {r} should be {show(expected)}, it is {show(came[r])}; "
                f"leave what is "
                "done with two arrays to accumulate(dst, src)")


@points(2, hint=4)
def test_messages_go_to_the_right_neighbour(answer):
    """each rank sends size - 1 messages, all to its right neighbour"""
    for p in (3, 4, 7):
        _, records = scattered(answer, arrays(p, 2 * p))
        for r, record in enumerate(records):
            to = sorted({m.peers[0] for m in record.messages()})
            assert to == [(r + 1) % p], f"{p} ranks: rank {r} should send to rank {(r + 1) % p} only, it sends to {to}"
            count = len(record.messages())
            assert count == p - 1, f"{p} ranks: rank {r} should send {p - 1} messages, it sends {count}"


@points(1, hint=4)
def test_bytes(answer):
    """no byte is sent that isn't needed"""
    for p in (3, 4, 7):
        _, records = scattered(answer, arrays(p, 8 * p))
        for r, record in enumerate(records):
            sent, expected = sum(m.bytes for m in record.messages()), (p - 1) * 8 * 8
            assert sent == expected, (f"{p} ranks, chunks of 64 bytes: rank {r} should send {expected} bytes, "
                                      f"that is {p - 1} chunks; "
                                      f"it sends {sent}")
