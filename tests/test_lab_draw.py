"""Drawings of watched algorithms, of slices, caches and graphs: what is in them, and that they can be read."""
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pictures import SVG, checked, of_class, texts

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.communication.algorithms import ALGORITHMS, linear_gather, pairwise_all_to_all, ring_all_reduce
from minispore.graph.compile import trace_call
from minispore.lab import draw, watch
from minispore.lab.draw.layers import place
from minispore.lab.draw.svg import Picture, picture, shortened, tag, text, width_of
from minispore.lab.words import size_of
from minispore.parallel.layout import TensorLayout
from minispore.parallel.simulate import PASSES

EVERY = [by for by_name in ALGORITHMS.values() for by in by_name.values()]


# ---- all pictures ----------------------------------------------------------------------------------------

def test_text_is_shown_as_it_is():
    shown = picture(300, 80, [text(10, 20, "#ID-x <IDEAL> & \"so\""), tag("rect", fill="url(#ID-hatch)")], "an ID <", "of ID-x &",
                    '<pattern id="ID-hatch"/>')
    root = checked(shown)
    assert texts(root) == ['#ID-x <IDEAL> & "so"'] and shown.alt == "an ID <. of ID-x &"


def test_what_xml_cannot_hold_is_left_out():
    shown = picture(300, 80, [text(10, 20, "\x1b[31mred\x00\ud800")], "a\x07", "b\x1b")
    assert texts(ElementTree.fromstring(shown.svg)) == ["[31mred"]


def test_names_in_a_picture_are_its_own():
    a, b = (draw.steps(watch(ring_all_reduce, n, 4)).svg for n in (2, 3))
    ids = [{e.get("id") for e in ElementTree.fromstring(svg).iter() if e.get("id")} for svg in (a, b)]
    assert all(len(names) == 3 for names in ids) and not ids[0] & ids[1]
    assert a == draw.steps(watch(ring_all_reduce, 2, 4)).svg


def test_a_picture_is_saved_as_svg(tmp_path):
    shown = Picture("<svg>…</svg>", "…")
    assert shown.save(str(tmp_path / "a.svg")).read_text("utf-8") == "<svg>…</svg>" == shown._repr_svg_()
    with pytest.raises(ValueError, match=r"a\.png doesn't end in \.svg"):
        shown.save(tmp_path / "a.png")


@given(st.integers(0, 1 << 50))
def test_sizes_are_short_and_right(n):
    number, unit = size_of(n).split()
    said = float(number.replace(",", "")) * {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[unit]
    assert "e" not in number and abs(said - n) <= 0.005 * n


@settings(max_examples=40)
@given(st.text(st.characters(codec="latin-1"), max_size=40), st.floats(0, 400))
def test_shortened_text_has_room(what, room):
    short = shortened(what, room, 12)
    assert short == what if width_of(what, 12) <= room else "…" in short and len(short) <= max(len(what), 1)
    assert width_of(short, 12) <= max(room, width_of("…", 12))


# ---- steps -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", range(1, 8))
def test_arrows_are_the_messages_of_the_step(n):
    watched = watch(ring_all_reduce, n, 8)
    drawn = []
    for step in range(watched.steps + 1):
        root = checked(draw.steps(watched, step))
        arrows = [(int(a.get("data-from")), int(a.get("data-to"))) for a in of_class(root, "arrow")]
        assert sorted(arrows) == sorted((m.source, m.target) for m in watched.frames[step].messages)
        assert len(of_class(root, "rank")) == n and len(of_class(root, "cargo")) == len(arrows)
        drawn += arrows
    assert len(drawn) == 2 * n * (n - 1)


@pytest.mark.parametrize("n", [3, 8, 9])
def test_stripes_are_the_contributions(n):
    watched = watch(ring_all_reduce, n, n)
    for step in (0, 1, n, watched.steps):
        root = checked(draw.steps(watched, step))
        ranks = [[{int(e.get("fill")[7:-1]) for e in cell.iter() if e.get("fill", "").startswith("var(--c")}
                  for cell in of_class(rank, "cell")] for rank in of_class(root, "rank")]
        assert ranks == [[{s % 8 for s in np.flatnonzero(count)} for count in counts] for counts in watched.frames[step].counts]


def test_ranks_beyond_the_colours_are_hatched():
    assert draw.steps(watch(ring_all_reduce, 8, 8)).svg.count("-hatch)") == 0
    assert draw.steps(watch(ring_all_reduce, 9, 9)).svg.count("-hatch)") == 9 + 2      # cells of rank 8, its message, the legend
    assert draw.slices((9,), (9,), 9).svg.count("-hatch)") == 2 and "-hatch)" not in draw.slices((8,), (8,), 8).svg


def test_ticks_are_what_is_complete():
    watched = watch(ring_all_reduce, 4, 8)
    ticks = [len(of_class(checked(draw.steps(watched, step)), "tick")) for step in range(watched.steps + 1)]
    assert ticks == [0, 0, 0, 4, 8, 12, 16]            # of chunks
    assert "8 of 32 are complete" in draw.steps(watched, 3).alt


def adds_twice(link, x, accumulate):
    """Each rank adds its neighbour's array twice, and puts it into a wrong place."""
    buffer = np.empty_like(x)
    yield [link.send(x, (link.rank + 1) % link.size), link.receive(buffer, (link.rank - 1) % link.size)]
    accumulate(x, buffer)
    accumulate(x, buffer[::-1].copy())


def test_what_went_wrong_is_marked():
    root = checked(draw.steps(watch(adds_twice, 3, 3), 9))
    assert len(of_class(root, "misplaced")) == 6 and len(of_class(root, "twice")) == 9 and not of_class(root, "tick")
    assert "after 1 step · 9 elements wrong" in texts(root)


def test_names_of_any_function_can_be_shown():
    def nameless(link, x, accumulate):
        other = np.empty_like(x)
        return ([link.send(x, 1 - link.rank), link.receive(other, 1 - link.rank)] for _ in range(1))
    assert "step 1 of 1 · <genexpr>" in texts(checked(draw.steps(watch(nameless, 2, 2))))


@settings(max_examples=60)
@given(st.sampled_from(EVERY), st.integers(1, 10), st.integers(0, 4), st.integers(0, 12))
def test_every_algorithm_can_be_drawn(algorithm, n, per_rank, step):
    watched = watch(algorithm, n, n * per_rank, root=n - 1, node_size=2)
    checked(draw.steps(watched, min(step, watched.steps)))


@pytest.mark.parametrize("algorithm, n, length", [(pairwise_all_to_all, 1, 1), (pairwise_all_to_all, 8, 8), (linear_gather, 1, 1),
                                                  (ring_all_reduce, 16, 100), (ring_all_reduce, 4, 1000)])
def test_little_room_is_enough(algorithm, n, length):
    checked(draw.steps(watch(algorithm, n, length), 0))


@pytest.mark.parametrize("step", [-1, 1.0, "0"])
def test_steps_that_cannot_be(step):
    with pytest.raises(ValueError, match="0 is before the first step, 6 the end"):
        draw.steps(watch(ring_all_reduce, 4, 8), step)


def test_too_many_ranks_for_one_picture():
    with pytest.raises(ValueError, match=r"17 ranks are too many for one picture; watch at most 16"):
        draw.steps(watch(ring_all_reduce, 17, 17))


# ---- slices ----------------------------------------------------------------------------------------------

@given(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7]), min_size=1, max_size=2), st.integers(1, 600), st.sampled_from([1, 2, 3]))
@settings(max_examples=40)
def test_pieces_cover_the_tensor(counts, each, copies):
    n = int(np.prod(counts)) * copies
    assume(n <= 64)
    root = checked(draw.slices(tuple(c * each for c in counts), tuple(counts), n))
    pieces = of_class(root, "piece")
    assert len(pieces) == n // copies and len(of_class(root, "device")) == n
    areas = [float(p.get("width")) * float(p.get("height")) for p in pieces]
    assert max(areas) - min(areas) <= 0.02 * max(areas) + 4         # numbers have two digits behind the point


@pytest.mark.parametrize("n", [1, 3, 5, 7])
def test_each_device_has_its_rows(n):
    shown = draw.slices((2 * n, 3), (n, 1), n)
    assert shown.alt.endswith("; ".join(f"rank {r}: [{2 * r}:{2 * r + 2}, 0:3]" for r in range(n)) + ".")
    assert f"{n} piece{'s' * (n > 1)} of (2, 3)" in texts(checked(shown))


def test_named_layouts_and_partial_ones_are_drawn():
    named = ms.Layout((2, 2), ("x", "y"))("y", "None")
    assert "rank 0: [0:4, 0:4]; rank 1: [4:8, 0:4]; rank 2: [0:4, 0:4]" in draw.slices((8, 4), named, 4).alt
    partial = draw.slices((8,), TensorLayout(((),), (0,)), 2)
    assert "each of 2 devices has a part of every value; their sum is the value" in " ".join(texts(checked(partial)))


@pytest.mark.parametrize("shape, layout, n, says", [
    ((8, 8), (2,), 4, "give one split count, 1 or more, for each dim"), ((8,), (0,), 4, "1 or more"),
    ((8,), (1.5,), 4, "one split count"), ((8, 8), (3, 1), 4, "it doesn't fit on 4, whose prime factors"),
    ((6,), (4,), 4, "doesn't divide"), ((2, 2, 2), (2, 2, 2), 8, "splits 3 dims"), ((8,), (1,), 0, "device_num=0"),
    ((8,), (1,), 65, "from 1 to 64"), ((8,), (1,), "4", "whole number")])
def test_slices_that_cannot_be(shape, layout, n, says):
    with pytest.raises(ValueError, match=says):
        draw.slices(shape, layout, n)


# ---- caches ----------------------------------------------------------------------------------------------

def test_a_cache_has_a_bar_a_touch_and_marks_what_is_held():
    shown = draw.cache([0, 2, 0, 1], {"a": (1, 2), "b": (2, 1)}, cache=2, step=4)
    root = checked(shown)
    bars = [r for r in root.iter(f"{SVG}rect") if r.get("height") in ("22", "6")]
    assert [b.get("height") for b in bars] == ["22", "22", "6", "22"]
    assert len([r for r in root.iter(f"{SVG}rect") if r.get("fill-opacity") == "0.45"]) == 2
    assert {"a  1 × 2", "b  2 × 1", "a[0, 1] is loaded; 3 loads so far"} <= set(texts(root))


@pytest.mark.parametrize("step", [-1, 5])
def test_touches_that_are_not_there(step):
    with pytest.raises(ValueError, match=r"of 4 touches; give 0 … 4"):
        draw.cache([0, 2, 0, 1], {"a": (1, 3)}, cache=2, step=step)


# ---- graphs ----------------------------------------------------------------------------------------------

class Mlp(nn.Cell):
    def __init__(self, n):
        super().__init__()
        self.up = ms.Parameter(Tensor(np.ones((8, 2 * n), np.float32)), name="up")
        self.down = ms.Parameter(Tensor(np.ones((2 * n, 8), np.float32)), name="down")
        self.first, self.second = ops.MatMul().shard(((1, 1), (1, n))), ops.MatMul().shard(((1, n), (n, 1)))

    def construct(self, x):
        return self.second(ops.relu(self.first(x, self.up)), self.down)


@pytest.mark.parametrize("after", PASSES)
@pytest.mark.parametrize("n", [1, 3, 4])
def test_a_program_is_drawn_after_each_pass(n, after):
    program = ms.compile(Mlp(n), Tensor(np.ones((4, 8), np.float32)), device_num=n)
    shown = draw.graph(program, after)
    root = checked(shown)
    assert of_class(root, "edge") and {"x0", "up", "down"} <= set(texts(root, "value"))
    marked = [] if n == 1 or after in ("trace", "simplify", "complete") else ["AllReduce"]
    assert texts(root, "collective")[::2] == marked and ("no collectives" in shown.alt) == (not marked)


@given(st.lists(st.sets(st.integers(0, 11)), max_size=12), st.lists(st.floats(20, 200), min_size=12, max_size=12))
@settings(max_examples=60)
def test_boxes_stand_below_what_they_read_and_beside_one_another(reads, widths):
    ins = {box: sorted(r for r in some if r < box) for box, some in enumerate(reads)}
    placed = place(ins, dict(enumerate(widths)), 10.0)
    assert all(placed.at[s][1] < placed.at[box][1] for box, some in ins.items() for s in some)
    spans = [(level, x - widths[box] / 2, x + widths[box] / 2) for box, (x, level) in placed.at.items()]
    for (level, left, right), (other, a, b) in combinations(spans, 2):
        assert level != other or right <= a + 1e-6 or b <= left + 1e-6
    assert all(left >= -1e-6 and right <= placed.width + 1e-6 and level < placed.levels for level, left, right in spans)


def test_a_graph_has_a_box_for_each_op():
    root = checked(draw.graph(trace_call(lambda x, y: ops.tanh(x) * y + x, Tensor([1.0]), Tensor([2.0]))))
    assert sorted(texts(root, "op")) == sorted(["Tanh", "Mul", "Add", "(1,)", "(1,)", "(1,)"])
    assert len(of_class(root, "edge")) == 6 and "A graph: 3 ops" in texts(root)


def test_graphs_that_cannot_be_drawn():
    def long(x):
        for _ in range(90):
            x = ops.tanh(x)
        return x
    with pytest.raises(ValueError, match=r"92 boxes are too many for one picture, 80 at most"):
        draw.graph(trace_call(long, Tensor([1.0])))
    with pytest.raises(TypeError, match="list is no graph"):
        draw.graph([])
    with pytest.raises(ValueError, match="'fuse' is no pass; there are trace, simplify"):
        draw.graph(ms.compile(Mlp(1), Tensor(np.ones((4, 8), np.float32)), device_num=1), "fuse")
