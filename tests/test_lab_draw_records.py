"""Drawings of records: numbers and arrows in them are those of the run."""
import re
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import SVG, checked, of_class, texts
from test_record import begun

from minispore import Tensor
from minispore.common.errors import CollectiveError
from minispore.communication import comm_func, communicator, create_group, get_rank, get_record, init
from minispore.communication.record import Record
from minispore.communication.selection import algorithm
from minispore.lab import draw, ranks

ALL = (draw.links, draw.timeline, draw.waits)


def ring(n, length=8, calls=1):
    """The records of AllReduces by a ring."""
    def program():
        init()
        for _ in range(calls):
            communicator().all_reduce(np.ones(length)).wait()
    with algorithm("ring"):
        return ranks(n).run(program).records


def arrows(root):
    return sorted((int(a.get("data-from")), int(a.get("data-to"))) for a in of_class(root, "arrow"))


def sent(records):
    return sorted((r.rank, m.peers[0]) for r in records for m in r.messages())


@pytest.mark.parametrize("draws", ALL)
@pytest.mark.parametrize("n", [1, 3, 5, 7, 9])
def test_any_number_of_ranks_can_be_drawn(n, draws):
    checked(draws(ring(n)))


@pytest.mark.parametrize("draws", ALL)
def test_the_same_records_are_the_same_text_in_any_order(draws):
    records = ring(3)
    assert draws(records).svg == draws(records[::-1]).svg


# ---- links -----------------------------------------------------------------------------------------------

def test_a_rings_24_messages_and_bytes_are_said():
    shown = draw.links(ring(4))
    root = checked(shown)
    assert "24 messages, 384 B over 4 links" in texts(root) and arrows(root) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert sorted(texts(root, "amount")) == ["96 B"] * 4
    assert "rank 3 to rank 0: 96 B in 6 messages" in shown.alt


@settings(max_examples=12)
@given(st.integers(1, 8), st.integers(0, 30))
def test_the_table_has_the_records_bytes(n, length):
    records = ring(n, length)
    root = checked(draw.links(records))
    total = sum(m.bytes for r in records for m in r.messages())
    assert sum(int(t.split()[0]) for t in texts(root, "amount")) == total
    assert arrows(root) == sorted(set(sent(records)))


def test_more_ranks_are_only_a_table():
    root = checked(draw.links(ring(9)))
    assert not arrows(root) and len(texts(root, "amount")) == 9


def test_widths_of_arrows_grow_with_bytes():
    def program():
        init()
        if get_rank() == 0:
            comm_func.send(Tensor(np.ones(1000)), 1)
            comm_func.send(Tensor(np.ones(10)), 2)
        elif get_rank() < 3:
            comm_func.recv(Tensor(np.ones(1000 if get_rank() == 1 else 10)), 0)
    root = checked(draw.links(ranks(3).run(program).records))
    wide = {(a.get("data-from"), a.get("data-to")): float(a[0].get("stroke-width")) for a in of_class(root, "arrow")}
    assert wide["0", "1"] == 5 > wide["0", "2"] > 1.2 and sorted(texts(root, "amount")) == ["7.81 KB", "80 B"]


# ---- timeline --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_a_timeline_has_a_bar_a_call_and_an_arrow_a_message(n):
    records = ring(n, calls=2)
    shown = draw.timeline(records)
    root = checked(shown)
    assert len(of_class(root, "call")) == 2 * n and arrows(root) == sent(records)
    assert {f"rank {r}" for r in range(n)} <= set(texts(root)) and f"AllReduce × {2 * n}" in texts(root)
    messages = 2 * 2 * n * (n - 1)
    assert f"{2 * n} AllReduce and {messages} message{'s' * (messages != 1)} in " in shown.alt


def test_bars_stand_where_their_time_was():
    records = ring(2, calls=3)
    root = checked(draw.timeline(records))
    begun = sorted(e.begin for r in records for e in r.collectives())
    lefts = sorted(float(call[1].get("x")) for call in of_class(root, "call"))
    last = max(e.end for r in records for e in r.collectives())
    expected = [84 + (b - begun[0]) / (last - begun[0]) * 770 for b in begun]
    assert np.allclose(lefts, expected, atol=0.02)


def test_a_window_shows_a_part():
    records = ring(2, calls=3)
    whole = max(e.end for r in records for e in r.events) - min(e.begin for r in records for e in r.events)
    first = checked(draw.timeline(records, window=(0, 1)))
    assert len(of_class(first, "call")) < 6 and "0" in texts(first) and "-0" not in texts(first)
    assert len(of_class(checked(draw.timeline(records, window=(0, whole * 1e6 + 1))), "call")) == 6
    assert not of_class(checked(draw.timeline(records, window=(whole * 1e6 + 10, whole * 1e6 + 20))), "call")


@pytest.mark.parametrize("window", [(2, 1), (1, 1), (0.0, 0.0)])
def test_windows_that_cannot_be(window):
    with pytest.raises(ValueError, match="in microseconds, from before to"):
        draw.timeline(ring(2), window)


def test_too_many_messages_ask_for_a_window():
    with pytest.raises(ValueError, match=r"720 messages are too many for one picture; at most 600.*Give a window"):
        draw.timeline(ring(4, calls=30))


def test_the_names_of_many_ops_find_room():
    def program():
        init()
        c, x = communicator(), np.ones(4)
        for op in (c.all_reduce, c.reduce_scatter, c.all_gather):
            op(x).wait()
        for op in (c.broadcast, c.reduce):
            op(x, 0).wait()
        c.barrier().wait()
        comm_func.gather_into_tensor(Tensor(x))
        comm_func.scatter_tensor(Tensor(x))
        comm_func.all_to_all_single_with_output_shape((4,), Tensor(x))
    records = ranks(2).run(program).records
    many = Counter(e.op for r in records for e in r.collectives())
    assert {t for t in texts(checked(draw.timeline(records))) if " × " in t} == {f"{op} × {n}" for op, n in many.items()}
    assert len(many) > 8


def test_names_of_groups_are_shown_as_they_are():
    def program():
        init()
        create_group("rows < 2 & ID", [0, 1])
        communicator("rows < 2 & ID").all_reduce(np.ones(3)).wait()
    root = checked(draw.timeline(ranks(2).run(program).records))
    assert of_class(root, "call")[0].find(f"{SVG}title").text.startswith("AllReduce 1 of rows < 2 & ID: 3 × float64, ")


def test_a_call_that_never_began_elsewhere_is_open():
    job = without_rank_0(2)
    shown = draw.timeline(job.records)
    assert len(of_class(checked(shown), "open")) == 1 and "1 call not complete: ranks 1." in shown.alt


def without_rank_0(n):
    """An AllReduce that all but rank 0 have begun when that one ends."""
    records = []

    def program():
        init()
        records.append(get_record())
        if get_rank():
            communicator().all_reduce(np.ones(3), name="transformer.layer.11.attention.projection.weight").wait()
        while sum(bool(record.collectives()) for record in records) < n - 1:
            time.sleep(0.001)
    return ranks(n, may_fail=True).run(program)


# ---- waits -----------------------------------------------------------------------------------------------

def receives_from_the_left():
    init()
    n = communicator().size
    comm_func.recv(Tensor(np.ones(2)), (get_rank() - 1) % n)
    comm_func.send(Tensor(np.ones(2)), (get_rank() + 1) % n)


@pytest.mark.parametrize("n", [2, 3, 5, 7])
def test_ranks_that_wait_in_a_circle_are_drawn_as_one(n):
    job = ranks(n, may_fail=True).run(receives_from_the_left)
    shown = draw.waits(job.records)
    root = checked(shown)
    assert isinstance(job.error, CollectiveError)
    assert arrows(root) == sorted((r, (r - 1) % n) for r in range(n))
    assert {a.get("data-ring") for a in of_class(root, "arrow")} == {"yes"} and "They wait in a circle: 0 → " in shown.alt


@pytest.mark.parametrize("n", [2, 3, 4, 6, 7, 8, 9, 12, 16])
def test_who_waits_for_a_rank_that_never_comes(n):
    shown = draw.waits(without_rank_0(n).records)
    root = checked(shown)
    assert arrows(root) == [(r, 0) for r in range(1, n)] and "in a circle" not in shown.alt
    assert re.search(r"\(transformer.layer.11.attention.projection.weight\) number 1(, \w+\.py:\d+)?, waits for 0", shown.alt)
    assert len(of_class(root, "rank")) == n and "has ended" in texts(root)
    assert float(root.get("height")) < 1000


def test_ranks_that_wait_in_two_places_have_tall_boxes():
    def program():
        init()
        if get_rank():
            handles = [communicator().all_reduce(np.ones(3), name=f"a_long_name.of_weight_{i}") for i in range(2)]
            handles[0].wait()
    checked(draw.waits(ranks(16, may_fail=True).run(program).records))


def test_ranks_in_different_operations_wait_for_one_another():
    """Nothing but the calls is in the records: no message has begun."""
    records = [Record(r, 3) for r in range(3)]
    for record, op in zip(records, ("AllReduce", "Barrier", "AllReduce"), strict=True):
        begun(record, 1, op)
    assert arrows(checked(draw.waits(records))) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_nobody_waits_in_the_end():
    assert "No rank waits. rank 0: has ended" in draw.waits(ring(2)).alt


def test_a_rank_without_a_record_is_said():
    assert "rank 1: left no record" in draw.waits([Record(0, 2)]).alt


# ---- what is no record -----------------------------------------------------------------------------------

@pytest.mark.parametrize("draws", ALL)
@pytest.mark.parametrize("records", [[], None, "records", [1, 2], 3])
def test_what_is_no_list_of_records_is_told(draws, records):
    with pytest.raises(TypeError, match=rf"draw\.{draws.__name__}: give the list of the ranks' Records \(job\.records of a run"):
        draws(records)


@pytest.mark.parametrize("draws", ALL)
def test_records_of_too_many_ranks_are_told(draws):
    with pytest.raises(ValueError, match=r"17 ranks are too many for one picture.*at most 16"):
        draws([Record(r, 17, capacity=1) for r in range(17)])


@pytest.mark.parametrize("draws", ALL)
def test_records_of_nothing_are_drawn(draws):
    checked(draws([Record(r, 3) for r in range(3)]))


def test_one_record_may_stand_alone():
    assert "1 rank" in draw.timeline(ring(1)[0]).alt
