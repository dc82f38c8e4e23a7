"""Watched algorithms: who holds which sum after each step, what goes wrong, and what is said of it."""
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minispore.common.errors import CollectiveError
from minispore.communication.algorithms import ALGORITHMS, ring_all_gather, ring_all_reduce, ring_reduce_scatter, tree_broadcast
from minispore.communication.algorithms.link import split
from minispore.lab import watch
from minispore.lab.symbolic_link import accumulate, cycle, digits, spans, unit

EVERY = [(op, by) for op, by_name in ALGORITHMS.items() for by in by_name]
RANKS = st.integers(1, 7)


def chunks(n, length):
    """{element: number of its chunk}"""
    return {i: c for c, part in enumerate(split(np.arange(length), n)) for i in part}


@settings(max_examples=40)
@given(RANKS, st.integers(0, 16))
def test_a_ring_passes_each_chunks_sum_from_rank_to_rank(n, length):
    """Chunk c comes to rank r in step r - c - 2, with one more contribution each step; whole sums then go round once more."""
    frames = watch(ring_all_reduce, n, length).frames
    last = n - 1
    for i, c in chunks(n, length).items():
        for r in range(n):
            for s, frame in enumerate(frames[:n]):
                many = (r - c - 2) % n + 2 if n > 1 and (r - c - 2) % n < s else 1
                assert frame.counts[r, i].tolist() == [int((r - q) % n < many) for q in range(n)]
            for s, frame in enumerate(frames[last:]):
                assert frame.complete[r, i] == ((r - c) % n <= s)


@settings(max_examples=120)
@given(st.sampled_from(EVERY), RANKS, st.integers(0, 5), st.integers(0, 3), st.data())
def test_every_algorithm_ends_with_what_it_should(key, n, per_rank, node_size, data):
    op, by = key
    root = data.draw(st.integers(0, n - 1))
    watched = watch(ALGORITHMS[op][by], n, n * per_rank, root=root, node_size=node_size)
    assert watched.op == op and not watched.wrong and len(watched.frames) == watched.steps + 1 == len(watched.names) + 1
    assert not watched.frames[-1].messages and not watched.frames[-1].misplaced.any()


@settings(max_examples=40)
@given(st.sampled_from(sorted(ALGORITHMS["AllReduce"])), RANKS, st.integers(0, 12))
def test_in_the_end_every_rank_has_every_contribution_once(by, n, length):
    watched = watch(ALGORITHMS["AllReduce"][by], n, length)
    assert (watched.frames[-1].counts == 1).all() and watched.frames[-1].complete.all() and watched.matters.all()


@given(RANKS, st.integers(0, 12))
@settings(max_examples=30)
def test_at_first_every_rank_has_its_own(n, length):
    counts = watch(ring_all_reduce, n, length).frames[0].counts
    assert counts.shape == (n, length, n) and all((counts[r, :, s] == (r == s)).all() for r in range(n) for s in range(n))


@settings(max_examples=40)
@given(st.sampled_from(EVERY), RANKS, st.integers(0, 4))
def test_what_a_message_brings_is_what_the_sender_had(key, n, per_rank):
    watched = watch(ALGORITHMS[key[0]][key[1]], n, n * per_rank)
    for before in watched.frames[:-1]:
        for m in before.messages:
            if m.sent:
                assert np.array_equal(m.counts, before.counts[m.source, list(m.sent)])
            assert m.count == len(m.counts) == len(m.elements) and m.source != m.target


@settings(max_examples=30)
@given(RANKS, st.integers(0, 14))
def test_rank_r_keeps_the_sum_of_chunk_r(n, length):
    watched = watch(ring_reduce_scatter, n, length)
    of = chunks(n, length)
    assert all(watched.matters[r, i] == (of[i] == r) for r in range(n) for i in range(length)) and not watched.wrong


@pytest.mark.parametrize("n", range(1, 8))
def test_messages_and_steps_of_a_ring(n):
    watched = watch(ring_all_reduce, n, 2 * n)
    assert len(watched.messages) == 2 * n * (n - 1) and all(m.count == 2 for m in watched.messages)
    assert watched.names == ("reduce-scatter",) * (n - 1) + ("all-gather",) * (n - 1)
    assert all(m.target == (m.source + 1) % n for m in watched.messages)


@pytest.mark.parametrize("n, root", [(5, 3), (7, 0), (1, 0)])
def test_a_broadcast_reaches_twice_as_many_each_step(n, root):
    watched = watch(tree_broadcast, n, 3, root=root)
    reached = [int((frame.counts[:, 0, root] == 1).sum()) for frame in watched.frames]
    assert reached == [min(1 << s, n) for s in range(watched.steps + 1)]


def test_the_repr_counts():
    watched = watch(ring_all_reduce, 3, 6)
    assert repr(watched) == "ring_all_reduce on 3 ranks, 6 elements: 4 steps, 12 messages, complete"
    assert repr(watched.frames[0].messages[0]).startswith("rank 0 → rank ")


# ---- algorithms of a reader's own ------------------------------------------------------------------------

def forgets_to_add(link, x, accumulate):
    buffer = np.empty_like(x)
    yield [link.send(x, (link.rank + 1) % link.size), link.receive(buffer, (link.rank - 1) % link.size)]


def test_arrays_can_be_exchanged_in_place():
    def swap(link, x, accumulate):
        yield [link.send(x, 1 - link.rank), link.receive(x, 1 - link.rank)]
    assert watch(swap, 2, 3).frames[1].counts.tolist() == [[[0, 1]] * 3, [[1, 0]] * 3]


def test_what_is_wrong_in_the_end_is_listed():
    watched = watch(forgets_to_add, 3, 2)
    assert watched.wrong == [(r, i) for r in range(3) for i in range(2)] and repr(watched).endswith("6 elements wrong")


def all_wait(link, x, accumulate):
    yield [link.receive(x, (link.rank - 1) % link.size)]


def only_some(link, x, accumulate):
    if link.rank == 0:
        link.send(x, 1)
    yield []


def of_two_lengths(link, x, accumulate):
    yield [link.send(x, 1)] if link.rank == 0 else [link.receive(x[:-1], 0)]


def writes_while_it_sends(link, x, accumulate):
    if link.rank:
        yield [link.receive(x, 0)]
    else:
        sent = link.send(x, 1)
        x[0] = x[1]
        yield [sent]


def never_ends(link, x, accumulate):
    while True:
        yield []


def breaks(link, x, accumulate):
    yield []
    x[len(x)] = 0


def returns(link, x, accumulate):
    return [link]


def yields_a_number(link, x, accumulate):
    yield 3


def sends_beyond(link, x, accumulate):
    yield [link.send(x, link.rank + 1)]


def sends_a_matrix(link, x, accumulate):
    yield [link.send(x.reshape(1, -1), 0)]


def sends_floats(link, x, accumulate):
    yield [link.receive(np.empty(len(x)), 0)]


def adds_what_never_came(link, x, accumulate):
    accumulate(x, np.empty(len(x), object))
    yield []


def adds_other_lengths(link, x, accumulate):
    accumulate(x, x[1:])
    yield []


def takes_away(link, x, accumulate):
    x -= 2 * x
    yield [link.send(x, 1 - link.rank), link.receive(x.copy(), 1 - link.rank)]


@pytest.mark.parametrize("algorithm, error, says", [
    (all_wait, CollectiveError, r"nobody can go on after 0 steps:\n  rank 0 waits to receive 2 elements from rank 1\n"
                                r"  rank 1 .*\nThey wait in a circle: 0 → 1 → 0"),
    (only_some, CollectiveError, "ended, but rank 0 began to send 2 elements to rank 1, and rank 1 never received"),
    (of_two_lengths, CollectiveError, "rank 0 sends 2 elements to rank 1, which receives 1 element there. Both must"),
    (writes_while_it_sends, CollectiveError, "rank 0 changed the array that it was sending to rank 1. Wait first"),
    (never_ends, CollectiveError, "not done after 10,000 rounds"), (breaks, IndexError, "out of bounds"),
    (returns, TypeError, "returns returned a list, no generator. It must `yield`"),
    (yields_a_number, TypeError, "yields the list of messages it waits for, not 3"),
    (sends_beyond, ValueError, "rank 2 is none of the 2 ranks 0 … 1. At the ends of a ring, take the remainder"),
    (sends_a_matrix, TypeError, "is no flat array"), (sends_floats, TypeError, "the buffer is of float64"),
    (adds_what_never_came, ValueError, "src holds elements that were never written. Wait for the message first"),
    (adds_other_lengths, ValueError, "dst has 2 elements, src 1; they must be of one length"),
    (takes_away, ValueError, "no sum of what ranks brought")])
def test_what_goes_wrong_is_told(algorithm, error, says):
    with pytest.raises(error, match=says):
        watch(algorithm, 2, 2)


def test_an_error_names_its_rank():
    with pytest.raises(IndexError) as e:
        watch(breaks, 2, 2)
    assert e.value.__notes__ == ["on rank 0 of 2, watched"]


def test_a_rank_that_has_ended_is_named_in_a_deadlock():
    def lonely(link, x, accumulate):
        if link.rank:
            yield [link.receive(x, 0)]
    with pytest.raises(CollectiveError, match=r"rank 1 waits to receive 1 element from rank 0\n  rank 0 has ended$"):
        watch(lonely, 2, 1)


# ---- what is asked for -----------------------------------------------------------------------------------

@pytest.mark.parametrize("asked, error, says", [
    (dict(ranks=0), ValueError, "ranks=0 must be a whole number from 1 to 64"), (dict(ranks=65), ValueError, "ranks=65"),
    (dict(ranks=2.0), ValueError, "ranks=2.0"), (dict(length=-1), ValueError, "length=-1 must be a whole number of elements"),
    (dict(length=1.5), ValueError, "length=1.5"), (dict(root=4), ValueError, r"root=4 must be one of the ranks 0 … 3"),
    (dict(root=-1), ValueError, "root=-1"), (dict(op="Sum"), ValueError, "'Sum' is no op; there are AllReduce, "),
    (dict(algorithm=3), TypeError, "3 is no function; give a generator function such as ring_all_reduce"),
    (dict(algorithm=lambda link, y, z: iter(())), ValueError, r"what <lambda>\(link, y, z\) does its parameters don't tell"),
    (dict(node_size=-1), ValueError, "node_size=-1 must be a whole number of ranks"),
    (dict(algorithm=ALGORITHMS["AlltoAll"]["pairwise"], ranks=3, length=8), ValueError, "Take a length of 6 or 9")])
def test_what_cannot_be_watched_is_told(asked, error, says):
    with pytest.raises(error, match=says):
        watch(**{"algorithm": ring_all_reduce, **asked})


def test_an_op_is_known_by_parameters_or_told():
    def gathers(link, chunks):
        yield from ring_all_gather(link, chunks)

    def by_another_name(link, pieces):
        yield from ring_all_gather(link, pieces)
    assert watch(gathers, 3, 5).op == "AllGather" and not watch(by_another_name, 3, 5, op="AllGather").wrong


# ---- symbols ---------------------------------------------------------------------------------------------

@given(RANKS, st.integers(1, 5), st.data())
def test_symbols_count_contributions(n, length, data):
    times = np.array(data.draw(st.lists(st.lists(st.integers(0, 40), min_size=length, max_size=length), min_size=n, max_size=n)))
    symbol = sum(int(times[r, i]) * unit(r, i, length) for r in range(n) for i in range(length))
    assert np.array_equal(digits(symbol, n, length, "here"), times)


def test_sums_of_symbols_stay_in_place():
    dst, src = np.array([1, 2], object), np.array([10, 20], object)
    accumulate(dst, src)
    assert dst.tolist() == [11, 22] and src.tolist() == [10, 20]


@given(st.sets(st.integers(0, 30)))
def test_spans_name_all_places(places):
    said = [tuple(map(int, run.split(":"))) for run in spans(sorted(places)).split(", ") if run]
    assert {i for a, b in said for i in range(a, b)} == places and all(a < b for a, b in said)


def test_each_rank_is_searched_once_however_many_ways_lead_there():
    assert cycle({r: list(range(r)) for r in range(60)}) == []


@given(st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=3), max_size=7))
def test_a_circle_is_found_if_there_is_one(waits):
    found = cycle(waits)
    assert all(b in waits.get(a, ()) for a, b in pairwise(found)) and (not found or found[0] == found[-1])
    clear, left = set(), {*waits, *(r for to in waits.values() for r in to)}
    while ready := {r for r in left if set(waits.get(r, ())) <= clear}:
        clear, left = clear | ready, left - ready
    assert bool(found) == bool(left)
