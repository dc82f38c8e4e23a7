"""The tables of algorithms/shared.py, carried out in plain numpy: what any number of ranks would do in the memory they share."""
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minispore.communication.algorithms import shared
from minispore.communication.algorithms.shared import OUT, X, direct, staged
from minispore.communication.board import Board
from minispore.communication.ring import Ring
from minispore.communication.room import Node
from minispore.communication.segment import DIRECTORY, Heap, Segment

OPS = ["AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter", "Barrier"]
EXACT = {"ReduceScatter", "AlltoAll", "Scatter"}         # X is cut into one part for each rank


def arrays(op, p, k, root):
    """X and OUT of each rank, and what each OUT must become (None: whatever)."""
    count = 0 if op == "Barrier" else p * k if op in EXACT else k
    x = [np.arange(count) * p + r for r in range(p)]
    total = np.sum(x, 0)
    parts = [slice(r * k, r * k + k) for r in range(p)]
    want = {"AllReduce": [total] * p, "ReduceScatter": [total[c] for c in parts], "AllGather": [np.concatenate(x)] * p,
            "Broadcast": [x[root]] * p, "Reduce": [total if r == root else None for r in range(p)],
            "AlltoAll": [np.concatenate([y[c] for y in x]) for c in parts],
            "Gather": [np.concatenate(x) if r == root else None for r in range(p)], "Scatter": [x[root][c] for c in parts],
            "Barrier": [total] * p}[op]
    out = [np.full(k if op == "Reduce" else 0, -1) if w is None else np.full(len(w), -1) for w in want]
    return count, x, out, want


def piece(array, segment, length):
    return array[segment * length:segment * length + length]


@st.composite
def cases(draw):
    p = draw(st.sampled_from([*range(2, 10), 16, 33]))
    k = draw(st.one_of(st.sampled_from([0, 1, p - 1, p, 16 * p, 16 * p + 1]), st.integers(0, 300)))
    return draw(st.sampled_from(OPS)), p, k, draw(st.integers(0, p - 1))


@settings(max_examples=150)
@given(cases())
def test_direct_takes_write_each_result_once(case):
    op, p, k, root = case
    count, x, out, want = arrays(op, p, k, root)
    head = shared.plan(op, 0, p, root, count, 8)[1]
    length, written = int(head[2]), [np.zeros(len(o), int) for o in out]
    x_first, x_last, out_first, out_last = head[3:7]
    for me in range(p):
        for t in direct(op, me, p, root):
            got = sum(piece(x[s], t.segment, length) for s in range(t.first, t.last))
            for d in range(t.to_first, t.to_last):
                piece(out[d], t.to, length)[...] = got
                piece(written[d], t.to, length)[...] += 1
                assert d == me or out_first <= d < out_last
            assert all(s == me or x_first <= s < x_last for s in range(t.first, t.last))
    for o, w, n in zip(out, want, written, strict=True):
        assert w is None or ((o == w).all() and (n == 1).all())


@settings(max_examples=150)
@given(cases(), st.booleans(), st.sampled_from([1, 3, 64]))
def test_staged_rounds_take_only_what_was_shown(case, few, stage):
    """stage: elements that fit one."""
    op, p, k, root = case
    if few:
        stage = 10**6
    count, x, out, want = arrays(op, p, k, root)
    part = count // p if op in EXACT else -(-count // p)
    plans = [staged(op, me, p, root, count, part, few) for me in range(p)]
    assert len({len(plan) for plan in plans}) == 1 and (not few or len(plans[0]) <= 1)
    for rounds in zip(*plans, strict=True):
        length, abreast = rounds[0].length, rounds[0].abreast
        width = max(1, stage // abreast)
        for low in range(0, max(length, 1), width):
            shown = {}
            for me, r in enumerate(rounds):
                assert (r.length, r.abreast) == (length, abreast) and r.shown in (0, abreast)
                for segment in range(r.first, r.first + r.shown):
                    if abreast == 1 or segment != me:           # what is for one rank is not shown by it
                        shown[me, segment] = piece((x, out)[r.array][me], segment, length)[low:low + width].copy()
            before = [o.copy() for o in out]
            for me, r in enumerate(rounds):
                for t in r.takes:
                    assert (t.to_first, t.to_last) == (me, me + 1)
                    own = piece((x, before)[r.array][me], t.segment, length)[low:low + width]
                    got = sum(own if s == me else shown[s, t.segment] for s in range(t.first, t.last))
                    piece(out[me], t.to, length)[low:low + width] = got
    for o, w in zip(out, want, strict=True):
        assert w is None or (o == w).all()


@pytest.mark.parametrize("op", OPS)
def test_a_plan_has_a_row_for_everything(op):
    """Its few numbers say where the takes and the rounds lie."""
    for count in (12, 12_000):
        table = shared.plan(op, 1, 3, 2, count, 4)
        few, takes, _, *_, rounds = table[1][[0, 1, 2, 8]]
        assert few == (4 * count <= shared.FEW) and takes == len(direct(op, 1, 3, 2))
        at = 2 + takes
        for _ in range(rounds):
            assert table[at, 0] in (X, OUT)
            at += 1 + table[at, 5]
        assert at == len(table)


@pytest.mark.skipif(sys.platform != "linux", reason="heaps lie in Linux' shared memory")
@settings(max_examples=30)
@given(steps=st.lists(st.tuples(st.booleans(), st.sampled_from([1, 128, 129, 1000, 5000, 70_000])), max_size=60))
def test_a_heap_gives_no_byte_twice_and_takes_all_back(tmp_path_factory, steps):
    segment = Segment(str(tmp_path_factory.mktemp("heap") / "x"), 1 << 20)
    heap, arrays = Heap(segment), []
    for number, (keep, nbytes) in enumerate(steps):
        if not keep and arrays:
            del arrays[0]
        elif heap.used() + nbytes < segment.size // 2:
            arrays.append(heap.empty(nbytes))
            arrays[-1][:] = number
    assert all(len(set(a.tolist())) == 1 for a in arrays)       # nobody else wrote there
    assert heap.used() >= DIRECTORY + sum(map(len, arrays))
    arrays.clear()
    assert heap.used() == DIRECTORY and heap.empty(segment.size - DIRECTORY) is not None
    assert heap.empty(segment.size) is None


@pytest.mark.skipif(sys.platform != "linux", reason="heaps lie in Linux' shared memory")
def test_a_heap_of_ever_new_sizes_takes_no_more_memory(tmp_path):
    heap = Heap(Segment(str(tmp_path / "x"), 1 << 26))
    for nbytes in range(100_000, 400_000, 1000):
        assert heap.empty(nbytes) is not None                   # and is dropped at once
    assert heap.taken < 3 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="rooms lie in Linux' shared memory")
def test_a_group_made_again_meets_in_a_new_room(tmp_path):
    """One rank may be in the new group while another hasn't left the old one."""
    segments = [Segment(str(tmp_path / str(r)), 1 << 22) for r in range(2)]
    nodes = [Node(r, [0, 1], segments, Board(np.zeros(2 * Board.BYTES, np.uint8), r)) for r in range(2)]
    old = [node.room(7, (0, 1), Ring(node.rank, 2)) for node in nodes]
    assert all(room.open() for room in old)
    nodes[0].leave(7)
    assert nodes[0].left == [old[0]]                                # rank 1 may still look there
    new = nodes[0].room(7, (0, 1), Ring(0, 2))
    assert not new.open() and new.missing == {1}
    nodes[1].leave(7)
    assert nodes[1].left == []                                      # rank 0 had left before
    assert nodes[1].room(7, (0, 1), Ring(1, 2)).open() and new.open()
    nodes[0].sweep()
    assert nodes[0].left == []
