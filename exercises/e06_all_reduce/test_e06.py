"""E6: what an all-reduce on a ring must do."""
import inspect

import numpy as np

from minispore import CollectiveError
from minispore.communication import communicator, get_record, init, selection
from minispore.grade import plain, points
from minispore.lab import run_ranks

TAKEN_AWAY = [f"minispore.communication.algorithms.{name}" for name in (
    "ring:ring_all_reduce", "ring:ring_all_gather", "link:split", "tree:tree_all_reduce",
    "recursive:recursive_doubling_all_reduce", "recursive:rabenseifner_all_reduce",
    "hierarchical:hierarchical_all_reduce")]
RANKS = (1, 2, 3, 4, 7)


def all_reduce_on(answer, arrays, op="sum"):
    """(array at the end, record) of each rank; arrays: what each begins with."""
    assert callable(answer.ring_all_reduce), f"ring_all_reduce should be a function, it is {answer.ring_all_reduce!r}"

    def steps(link, x, accumulate):
        made = answer.ring_all_reduce(link, x, accumulate)
        assert inspect.isgenerator(made), ("ring_all_reduce should be a generator: a function with `yield [link.send(…), "
                                           "link.receive(…)]` in it; it has no yield")
        yield from made

    def program():
        init()
        x = arrays[communicator().rank].copy()
        return communicator().all_reduce(x, op).wait(), get_record()
    p, n = len(arrays), len(arrays[0])
    with selection.algorithm("ring"), selection.use(ring_all_reduce=steps):
        try:
            return run_ranks(program, p)
        except CollectiveError as error:
            raise AssertionError(f"on {p} ranks, {n} values: the all-reduce should end, it doesn't: {error}") from None


def check(answer, p, n, op="sum"):
    """Whole numbers, so that any order of summation gives the same."""
    arrays = [np.random.default_rng([p, n, rank]).integers(-99, 0, n).astype("float64") for rank in range(p)]
    expected = {"sum": np.sum, "max": np.max}[op](arrays, axis=0)
    results = all_reduce_on(answer, arrays, op)
    for rank, (came, _) in enumerate(results):
        got = plain(came, "float64")
        wrong = np.flatnonzero(got != expected)
        assert not len(wrong), (
            f"on {p} ranks, {n} values, {op}: value {wrong[0]} on rank {rank} should be {expected[wrong[0]]:g}, the {op} of "
            f"{[f'{a[wrong[0]]:g}' for a in arrays]}; it is {got[wrong[0]]:g} ({len(wrong)} of {n} are wrong there)"
            .replace("'", ""))
    return [record for _, record in results]


@points(2, hint=1)
def test_sums_where_the_chunks_are_equal(answer):
    for p in RANKS:
        for rows in (1, 3):
            check(answer, p, rows * p)


@points(3, hint=2)
def test_any_length(answer):
    for p in RANKS:
        for n in sorted({0, 1, p - 1, p + 1, 2 * p + 1, 3 * p - 1}):
            check(answer, p, n)


@points(2, hint=3)
def test_the_largest_instead_of_the_sum(answer):
    for p in RANKS:
        check(answer, p, 2 * p + 1, "max")


@points(3, hint=4)
def test_messages_and_links(answer):
    for p in RANKS[1:]:
        for n in (3 * p, 3 * p + 1):
            messages = [m for record in check(answer, p, n) for m in record.messages()]
            on = f"on {p} ranks, {n} values:"
            assert len(messages) == 2 * p * (p - 1), (
                f"{on} there should be 2·{p}·{p - 1} = {2 * p * (p - 1)} messages, the record has {len(messages)}")
            links = {(m.rank, m.peers[0]) for m in messages}
            wrong = sorted(links - {(rank, (rank + 1) % p) for rank in range(p)})
            assert not wrong, (f"{on} each rank should send to its right neighbour alone, over {p} links in all; the record has "
                               f"{len(links)} links, among them one from rank {wrong[0][0]} to rank {wrong[0][1]}")
            sent = sum(m.count for m in messages)
            assert sent == 2 * (p - 1) * n, (
                f"{on} all messages together should hold 2·{p - 1}·{n} = {2 * (p - 1) * n} values, they hold {sent}")
