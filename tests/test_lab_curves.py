"""Curves of numbers against numbers, and gradients by trying out."""
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import SVG, checked, texts

from minispore.lab import draw
from minispore.lab.differences import finite_differences

NAMES = [f"curve {i}" for i in range(12)]


def points(shown, place):
    """What is drawn for the series at this place: (x, y) of each corner, in matplotlib's points."""
    lines = [g for g in checked(shown).iter(f"{SVG}g") if re.fullmatch(r"line2d_\d+", g.get("id", ""))]
    drawn = [g[0].get("d") for g in lines if g[0].tag == f"{SVG}path" and f"var(--c{place})" in g[0].get("style", "")]
    return [tuple(map(float, p)) for p in re.findall(r"[ML] ([\d.]+) ([\d.]+)", drawn[0])]


def test_heights_are_in_proportion():
    (_, a), (_, b), (_, c) = points(draw.curves({"a": [0, 1, 4]}, [0, 1, 2]), 0)
    assert (a - c) == pytest.approx(4 * (a - b), rel=1e-4)


def test_logarithmic_axes_are_in_proportion_of_factors():
    drawn = points(draw.curves({"a": [1, 100, 1000]}, [1, 10, 1000], log=True), 0)
    (ax, ay), (bx, by), (cx, cy) = drawn
    assert (cx - ax) == pytest.approx(3 * (bx - ax), rel=1e-4) and (ay - cy) == pytest.approx(1.5 * (ay - by), rel=1e-4)


def test_what_a_logarithm_cannot_show_is_left_out():
    shown = draw.curves({"a": [0, 10, 100], "b": [1, np.inf, np.nan]}, [1, 2, 4], log=True)
    assert len(points(shown, 0)) == 2 and "a: nothing at 1, 100 at 4; b: 1 at 1, nothing at 4" in shown.alt


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("many", [1, 2, 7, 12])
def test_each_curve_is_named_at_its_end(many, log):
    shown = draw.curves({name: [1.0, 2.0, 2.0] for name in NAMES[:many]}, [1, 2, 3], "bytes", "seconds", log)
    said = texts(checked(shown))
    assert {*NAMES[:many], "bytes", "seconds"} <= set(said)
    assert shown.alt.startswith("seconds against bytes. curve 0: 1 at 1, 2 at 3")


@pytest.mark.parametrize("log", [False, True])
def test_a_name_stands_as_high_as_its_curve_ends(log):
    shown = draw.curves({"low": [300, 250, 200], "high": [100, 300, 900]}, [1, 2, 3], log=log)
    at = {"".join(t.itertext()): float(t.get("y")) for t in checked(shown).iter(f"{SVG}text") if t.get("y")}
    for i, name in enumerate(("low", "high")):
        assert abs(at[name] - points(shown, i)[-1][1]) < 8


def test_long_names_find_room():
    shown = draw.curves({"summed, in buckets of 4 MB": [1, 2], "made by the backward pass": [2, 1]}, [1, 2])
    assert {"summed, in buckets of 4 MB", "made by the backward pass"} <= set(texts(checked(shown)))
    assert any("…" in t for t in texts(checked(draw.curves({"a long name " * 10: [1, 2]}, [1, 2]))))


def test_names_are_shown_as_they_are():
    assert {"IDEAL <&>", "x < y"} <= set(texts(checked(draw.curves({"IDEAL <&>": [1, 2]}, [1, 2], "x < y"))))


def test_the_same_curves_are_the_same_text():
    again = [draw.curves({"a": [1, 2, 3]}, [1, 2, 3]).svg for _ in range(2)]
    assert again[0] == again[1] != draw.curves({"a": [1, 2, 4]}, [1, 2, 3]).svg


def test_the_font_is_the_pictures():
    shown = draw.curves({"a": [1, 2]}, [1, 2], "x", "y").svg
    assert "font-family" not in shown.partition("</style>")[2]


@pytest.mark.parametrize("series, x, log, says", [
    ({}, [1], False, "there is no series"), ({"a": [1, 2]}, [1], False, r"'a' has shape \(2,\), x has \(1,\)"),
    ({"a": []}, [], False, "1 or more"), ({"a": [[1]]}, [[1]], False, "in one row"), ({"a": 1.0}, 1.0, False, "in one row"),
    ({"a": [1, 2]}, [0, 1], True, "x=0 has no logarithm"), ({"a": [1, 2]}, [np.nan, 1], False, r"x is \[nan, 1.0\]"),
    ({"a": [0, -1], "b": [np.nan, 0]}, [1, 2], True, "of a, b no value can be shown; none is finite and above 0"),
    ({"a": [np.nan]}, [1], False, "of a no value can be shown; none is finite$")])
def test_what_cannot_be_drawn_is_told(series, x, log, says):
    with pytest.raises(ValueError, match=says):
        draw.curves(series, x, log=log)


# ---- finite differences ----------------------------------------------------------------------------------

@settings(max_examples=30)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6), st.integers(0, 3))
def test_slopes_of_powers(values, power):
    x = np.array(values)
    slope, = finite_differences(lambda x: (x ** power).sum(), x)
    assert np.allclose(slope, power * x ** max(power - 1, 0), atol=1e-4)


def test_the_arrays_stay_as_they_were_and_scalars_are_arrays():
    x, y = np.ones((2, 3)), np.array(2.0)
    to_x, to_y = finite_differences(lambda x, y: (x * y).sum(), x, y)
    assert np.allclose(to_x, 2) and to_x.shape == (2, 3) and to_y.shape == () and np.isclose(to_y, 6)
    assert (x == 1).all() and y == 2


def test_only_numbers_with_room_for_small_steps_are_taken():
    with pytest.raises(TypeError, match="array 1 is int64; give float64 arrays, e.g. a.astype"):
        finite_differences(lambda x, n: x.sum(), np.ones(2), np.arange(2))
