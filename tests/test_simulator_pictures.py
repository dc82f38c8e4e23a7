"""Pictures of simulated steps."""
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import checked, of_class, texts
from test_simulator import A100, lenet

from minispore.lab import draw
from minispore.lab.draw.simulated import LEFT, RIGHT, WIDTH
from minispore.parallel.simulator import Point, scaling, simulate
from minispore.parallel.simulator.events import Begin, Compute, Receive, Role, Send, Wait
from minispore.parallel.simulator.timeline import duration, timeline


def test_a_picture_shows_streams_memory_and_what_is_exposed():
    line = simulate(lenet(8), "cpu")
    root = checked(draw.simulated(line))
    assert of_class(root, "compute") and of_class(root, "exposed") and of_class(root, "memory")
    assert len(of_class(root, "communication")) == sum(s.stream == "communication" for s in line.spans)
    assert {"each of 8 ranks", "compute", "communication", "memory"} <= set(texts(root))
    assert f"computes {duration(line.compute)} of {duration(line.seconds)}" in draw.simulated(line).alt


def test_a_pipeline_has_lanes_for_each_stage():
    roles = [Role("stage 0", [Compute("forward", 1.0), Send("stage 1", 0, "x", 0.5)]),
             Role("stage 1", [Receive("stage 0", 0), Compute("forward", 1.0)], held=200 * 10 ** 9)]
    root = checked(draw.simulated(timeline(roles, A100)))
    assert {"stage 0", "stage 1"} <= set(texts(root)) and len(of_class(root, "compute")) == 2
    assert any("it doesn't fit" in t for t in texts(root))
    with pytest.raises(ValueError, match="17 roles are too many"):
        draw.simulated(timeline([Role(str(i), []) for i in range(17)], A100))
    with pytest.raises(TypeError, match="give what"):
        draw.simulated(roles)
    checked(draw.simulated(timeline([Role("nothing", [])], A100)))


def test_the_scaling_curve_stands_beside_the_ideal():
    shown = draw.scaling({"LeNet": scaling(lenet, (1, 4), A100)})
    assert "ideal" in texts(checked(shown)) and "ideal: 1 at 1, 4 at 4" in shown.alt


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=8))
def test_it_is_hatched_where_nothing_is_computed_and_the_port_is_busy(steps):
    """From one end of the step to the other: of so many seconds, as wide as they are on the axis."""
    program = [e for i, (computes, s) in enumerate(steps)
               for e in ([Compute("c", float(s))] if computes else [Begin(i, "AllReduce", float(s)), Wait(i)])]
    line = timeline([Role("rank 0", program)], A100)
    hatched = sum(float(r.get("width")) for g in of_class(checked(draw.simulated(line)), "exposed") for r in list(g)[-1:])
    assert hatched == pytest.approx(line.exposed / line.seconds * (WIDTH - LEFT - RIGHT), abs=0.1 * len(steps))


def test_the_ideal_begins_at_the_fewest_cards():
    points = [Point(2, 1.0, 0.0, 1.0), Point(8, 1.0, 0.0, 0.5)]
    assert "ideal: 1 at 2, 4 at 8; net: 1 at 2, 2 at 8" in draw.scaling({"net": points}).alt
