"""The simulator's engine: roles, their streams, and the figures of what they did."""
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minispore import CollectiveError
from minispore.parallel.cost import CLUSTERS
from minispore.parallel.simulator import events
from minispore.parallel.simulator.efficiency import curve
from minispore.parallel.simulator.events import Begin, Compute, Hold, Receive, Role, Send, Wait
from minispore.parallel.simulator.timeline import timeline

A100 = CLUSTERS["a100"]

LENGTHS = st.integers(0, 8).map(float)


@st.composite
def programs(draw_):
    """A role's events: computing, and collectives that are waited for somewhere behind their begin."""
    out, open_ = [], []
    for i in range(draw_(st.integers(0, 12))):
        what = draw_(st.sampled_from(["compute", "begin", "wait"]))
        if what == "compute":
            out.append(Compute(f"c{i}", draw_(LENGTHS)))
        elif what == "begin":
            out.append(Begin(i, f"b{i}", draw_(LENGTHS)))
            open_.append(i)
        elif open_:
            out.append(Wait(open_.pop(draw_(st.integers(0, len(open_) - 1)))))
    return out + [Wait(i) for i in open_]


def total(program, kind):
    return sum(e.seconds for e in program if isinstance(e, kind))


def blocking(program):
    """The same, each collective waited for at once."""
    return [e for event in program if not isinstance(event, Wait)
            for e in ([event, Wait(event.key)] if isinstance(event, Begin) else [event])]


@given(programs())
def test_a_step_is_as_long_as_either_stream_and_no_longer_than_both(program):
    line = timeline([Role("all", program)], A100)
    computed, sent = total(program, Compute), total(program, Begin)
    assert max(computed, sent) <= line.seconds <= computed + sent
    assert line.compute == computed and line.communication == sent
    assert line.exposed == line.seconds - computed                  # of one role: nobody else is waited for
    assert line.seconds == 0 or line.idle == pytest.approx(line.exposed / line.seconds)


@given(programs())
def test_overlap_is_never_longer_than_waiting_at_once(program):
    apart, at_once = (timeline([Role("all", p)], A100) for p in (program, blocking(program)))
    assert apart.seconds <= at_once.seconds == total(program, Compute) + total(program, Begin)


@given(programs())
def test_what_costs_nothing_exposes_nothing(program):
    line = timeline([Role("all", [e._replace(seconds=0.0) if isinstance(e, Begin) else e for e in program])], A100)
    assert (line.seconds, line.exposed, line.idle) == (total(program, Compute), 0, 0)


@given(st.lists(st.tuples(programs(), st.integers(1, 3)), min_size=1, max_size=3))
def test_a_role_of_several_ranks_counts_as_often(roles):
    """Every figure is that of as many roles of one rank."""
    sending = [([e._replace(inside=8.0, between=3.0) if isinstance(e, Begin) else e for e in p], n) for p, n in roles]
    together = timeline([Role(f"{i}", p, n, held=i) for i, (p, n) in enumerate(sending)], A100)
    apart = timeline([Role(f"{i}.{k}", p, 1, held=i) for i, (p, n) in enumerate(sending) for k in range(n)], A100)
    assert together.ranks == apart.ranks and together.bytes == apart.bytes
    assert together.peak == apart.peak == len(roles) - 1            # of the fullest
    for figure in ("seconds", "compute", "idle", "exposed", "communication"):
        assert getattr(together, figure) == pytest.approx(getattr(apart, figure))


@given(programs())
def test_spans_of_a_stream_never_overlap_and_keep_their_order(program):
    line = timeline([Role("all", program)], A100)
    for stream, kind in (("compute", Compute), ("communication", Begin)):
        spans = [s for s in line.spans if s.stream == stream]
        assert [s.label for s in spans] == [e.label for e in program if isinstance(e, kind)]
        assert all(a.end <= b.begin for a, b in pairwise(spans))


@given(st.lists(st.lists(LENGTHS, min_size=3, max_size=3), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_a_collective_of_several_roles_begins_when_the_last_has_come(times, random):
    """And in which order the roles are given makes no difference."""
    names = [f"r{i}" for i in range(len(times))]
    roles = [Role(name, [Compute("before", before), Begin("x", "AllReduce", seconds, members=tuple(names)), Wait("x"),
                         Compute("after", after)]) for name, (before, seconds, after) in zip(names, times, strict=True)]
    met = max(before for before, _, _ in times) + max(seconds for _, seconds, _ in times)
    line = timeline(roles, A100)
    assert line.seconds == met + max(after for _, _, after in times)
    random.shuffle(roles)
    assert sorted(timeline(roles, A100).spans) == sorted(line.spans)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4))
def test_a_pipeline_takes_as_many_steps_as_micro_batches_and_stages(stages, batches_, seconds):
    """GPipe's formula: m + p - 1 turns."""
    def stage(i):
        for k in range(batches_):
            if i:
                yield Receive(str(i - 1), k)
            yield Compute("forward", float(seconds))
            if i < stages - 1:
                yield Send(str(i + 1), k, "activations", 0.0)
    line = timeline([Role(str(i), list(stage(i))) for i in range(stages)], A100)
    assert line.seconds == (batches_ + stages - 1) * seconds and line.exposed == 0
    assert line.idle == pytest.approx((stages - 1) / (batches_ + stages - 1))


def test_a_message_under_way_is_exposed_and_the_wait_before_is_not():
    sender = Role("a", [Compute("x", 5.0), Send("b", 0, "m", 2.0)])
    line = timeline([sender, Role("b", [Receive("a", 0), Compute("y", 1.0)])], A100)
    a, b = line.parts
    assert line.seconds == 8 and b.exposed == 2 and b.busy == 1
    assert a.exposed == 2           # the end of its own message: its port is the last to come to rest


@pytest.mark.parametrize(("roles", "says"), [
    ([Role("a", [Receive("b", 1)]), Role("b", [Receive("a", 2)])],
     "a waits for message 1 of b, which waits for message 2 of a; b waits for message 2 of a"),
    ([Role("a", [Receive("b", 1)]), Role("b", [])], "a waits for message 1 of b, which has ended"),
    ([Role("a", [Receive("c", 1)])], r"a waits for message 1 of c, which isn't there \(there are a\)"),
    ([Role("a", [Wait(3)])], "a waits for 3, which it never began"),
    ([Role("a", [Begin(1, "AllReduce", 1.0, members=("a", "b")), Wait(1)]),
      Role("b", [Begin(2, "AllGather", 1.0, members=("a", "b")), Wait(2)])],
     r"a waits in AllReduce \(1\) for b, which is in AllGather \(2\)"),
    ([Role("a", [Begin(1, "AllReduce", 1.0, members=("a", "b"))]), Role("b", [Wait(7)])], "b, which waits for 7"),
    ([Role("a", [Begin(1, "AllReduce", 1.0, members=("b",))]), Role("b", [])], "b, which has ended"),
    ([Role("a", [Begin(1, "AllReduce", 1.0, members=()), Send("b", 1, "x", 1.0)]), Role("b", [])],
     "b has ended and never received message 1 of a"),
])
def test_who_cannot_go_on_says_what_it_waits_for(roles, says):
    with pytest.raises(CollectiveError, match=says):
        events.play(roles)


def test_roles_need_names_of_their_own():
    with pytest.raises(ValueError, match="told apart by their names"):
        events.play([Role("a", []), Role("a", [])])


def test_who_calls_differently_is_not_matched_by_a_key_alone():
    """In whatever order the roles are looked at, and though both ports come to it at once."""
    first = [Begin("first", "Barrier", 1.0, members=("a", "b"))]
    both, alone = Role("a", [Begin(0, "AllReduce", 1.0, members=("a", "b")), Wait(0)]), Role("b", [Begin(0, "AllReduce", 1.0)])
    for roles in ([both, alone], [alone, both]):
        with pytest.raises(CollectiveError, match=r"a waits in AllReduce \(0\) for b, which has ended"):
            events.play([replace(role, events=[*first, *role.events]) for role in roles])
    swapped = Role("b", [Begin(0, "AllReduce", 1.0, members=("b", "a")), Wait(0)])
    assert timeline([both, swapped], A100).seconds == 1


@given(st.lists(LENGTHS, min_size=1, max_size=5), st.integers(0, 4))
def test_messages_to_oneself_are_from_others_that_do_the_same(sizes, gap):
    line = timeline([Role("all", [*(Send("all", 0, "x", s) for s in sizes), Compute("c", float(gap)),
                                  *(Receive("all", 0) for _ in sizes)], ranks=4)], A100)
    assert line.seconds == max(sum(sizes), gap) and line.exposed == line.seconds - gap


@given(st.lists(st.floats(0, 1e-3), min_size=1, max_size=30))
def test_spans_of_a_trace_end_where_the_next_begin(lengths):
    """In whole nanoseconds; a viewer drops what overlaps."""
    program = [e for i, s in enumerate(lengths) for e in (Compute(f"c{i}", s, takes=64), Begin(i, "b", s))]
    line = timeline([Role("a", program)], A100)
    rows = json.loads(json.dumps(line.trace(), allow_nan=False))["traceEvents"]
    assert {r["ph"] for r in rows} == {"M", "X", "C"} and all(type(r["pid"]) is int and r["pid"] > 0 for r in rows)
    names = {(r["pid"], r["tid"]): r["args"]["name"] for r in rows if r["name"] == "thread_name"}
    assert sorted(names.values()) == ["communication", "compute"]
    for thread in names:
        spans = [r for r in rows if r["ph"] == "X" and (r["pid"], r["tid"]) == thread]
        ends = [round(1e3 * (r["ts"] + r["dur"])) for r in spans]
        assert len(spans) == len(lengths) and all(a <= round(1e3 * b["ts"]) for a, b in zip(ends, spans[1:], strict=False))
        assert ends[-1] == pytest.approx(1e9 * line.seconds, abs=1.5) or names[thread] == "compute"
    counted = [(r["ts"], r["args"]["bytes"]) for r in rows if r["ph"] == "C"]
    assert counted == [(pytest.approx(1e6 * at, abs=1e-3), used) for at, used in line.parts[0].memory]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=4))
def test_efficiency_is_a_cards_work_a_second_over_that_on_the_fewest(lengths):
    lines = {2 ** k: timeline([Role("a", [Compute("c", s)])], A100) for k, s in enumerate(lengths)}
    alike, shared = curve(lines), curve(lines, dict.fromkeys(lines, 12.0))          # the same work a card; the same of all
    assert [p.cards for p in alike] == sorted(lines) and alike[0].efficiency == shared[0].efficiency == 1
    for a, b, s in zip(alike, shared, lengths, strict=True):
        assert b.efficiency == pytest.approx(a.efficiency / a.cards)
        assert a.efficiency * s == pytest.approx(lengths[0]) or min(s, lengths[0]) < 1e-9       # nothing takes no time


def test_memory_follows_what_is_taken_and_given_back():
    line = timeline([Role("a", [Compute("x", 1.0, takes=10), Begin(0, "AllReduce", 5.0, takes=4), Compute("y", 1.0, frees=10),
                                Wait(0, frees=4), Hold(7), Hold(0)], held=100)], A100)
    assert line.parts[0].memory == ((0.0, 100), (0.0, 110), (1.0, 114), (2.0, 104), (6.0, 100), (6.0, 107)) and line.peak == 114
