"""The heat map of a found plan: its numbers are the plan's, equal layers are one row, and it can be read."""
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import SVG, checked, corners, of_class, span, texts, words
from search_graphs import small_task, task_of, training, zeros

from minispore import nn, ops
from minispore.lab import draw
from minispore.lab.draw.plan import COLUMNS, LEFT, ROOM
from minispore.parallel import compile
from minispore.parallel.search import Found, search
from minispore.parallel.search.explain import line, more
from minispore.parallel.simulator.timeline import duration, size


@cache
def found(mode="ilp", layers=3, wide=512, **options) -> Found:
    """The plan of a network of equal layers behind another one. If they are wide, it splits them."""
    some = [layer for _ in range(layers) for layer in (nn.Dense(wide, wide), nn.ReLU())]
    net = nn.SequentialCell(nn.Dense(64, wide), nn.ReLU(), *some)
    return compile(training(net), zeros(8, 64), zeros(8, wide), device_num=4, parallel_mode="auto_parallel", search_mode=mode,
                   cluster="a100", **options).plan


def drawn(plan, *most):
    """The picture's tree, in which nothing leaves its cell or the room it has."""
    root = checked(draw.plan(plan, *most))
    for row in of_class(root, "row"):
        cells = [g for name in COLUMNS for g in of_class(row, name)]
        for cell in cells:
            x0, x1, y0, y1 = corners(cell[0])
            for t in cell.iter(f"{SVG}text"):
                left, right, top, bottom = span(t)
                assert left >= x0 and right <= x1 and top >= y0 and bottom <= y1, words(t)
        inside = [t for cell in cells for t in cell.iter(f"{SVG}text")]
        for t in [t for t in row.iter(f"{SVG}text") if t not in inside]:
            left, right, _, _ = span(t)
            assert left >= LEFT and right <= LEFT + ROOM + 10, words(t)
    for tile in of_class(root, "total"):
        x0, x1, _, _ = corners(tile[0])
        assert all(span(t)[0] >= x0 and span(t)[1] <= x1 for t in tile.iter(f"{SVG}text"))
        bars = list(tile.iter(f"{SVG}rect"))[1:]
        assert all(x0 <= corners(bar)[0] and corners(bar)[1] <= x1 for bar in bars)
    return root


# ---- the rows ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", ["ilp", "sharding_propagation"])
@pytest.mark.parametrize("most", [None, 0, 1, 5])
def test_rows_sum_up_to_the_plan(mode, most):
    plan = found(mode)
    compute, moves = plan.task.parts(plan.plan)
    rows = plan.rows(most)
    assert sum(row.computing for row in rows) == pytest.approx(sum(compute.values()))
    assert sum(row.moving for row in rows) == pytest.approx(sum(moves.values()))
    assert sum(row.memory for row in rows) == plan.task.peak(plan.plan)[0]
    assert sum(row.count for row in rows) == len(plan.task.graph.nodes)
    assert sum(row.strategy is not None for row in rows) == (len(rows) - 1 if most is None else most)
    assert [row.op for row in rows[most or len(rows):]] == (["all others", "inputs and parameters"] if most else [])


@pytest.mark.parametrize("n", range(12))
def test_rows_sum_up_for_any_graph(n):
    plan = search(small_task(n)[0], "ilp")
    rows = plan.rows()
    assert sum(row.computing + row.moving for row in rows) == pytest.approx(plan.seconds)
    assert all(row.extra >= -1e-6 * plan.seconds for row in rows) or plan.plan is plan.data_parallel


@pytest.mark.parametrize("mode", ["dynamic_programming", "sharding_propagation"])
def test_a_row_is_true_of_each_of_its_ops(mode):
    plan, groups = found(mode, 6), {}
    for node in plan.task.graph.nodes:
        groups.setdefault(plan.situation(node), []).append(node)
    assert max(map(len, groups.values())) >= 4
    for nodes in groups.values():
        alone = [plan.with_next_best(plan.row([node]), node)._replace(scope="", memory=0) for node in nodes]
        assert [one.op for one in alone] == [alone[0].op] * len(alone)
        for one in alone[1:]:
            assert one.extra == pytest.approx(alone[0].extra, abs=1e-12)
            assert one._replace(extra=0.0) == alone[0]._replace(extra=0.0)
        row = plan.with_next_best(plan.row(nodes), nodes[0])
        assert row.count == len(nodes) and row.extra == pytest.approx(sum(one.extra for one in alone), abs=1e-12)
        assert row.collectives.total() == sum(one.collectives.total() for one in alone)


@settings(max_examples=8)
@given(st.integers(3, 14))
def test_more_equal_layers_need_no_more_rows(layers):
    few, many = found("sharding_propagation", 3).rows(), found("sharding_propagation", layers).rows()
    assert [row.op for row in sorted(few)] == [row.op for row in sorted(many)]
    relu, = (row for row in many if row.op == "ReLU" and row.count > 1)
    assert relu.count >= layers - 1 and relu.scope.endswith("_backbone.*")


def test_the_text_has_the_same_rows():
    plan = found()
    assert plan.show(5).split("\n")[3:] == [line(row) for row in plan.rows(5)]
    assert len(repr(plan)) < 100 and repr(plan).startswith("Found: ilp on 4 × a100")


# ---- the map -----------------------------------------------------------------------------------------------

def test_the_numbers_in_the_map_are_the_plans():
    plan = found(wide=2048)
    root, rows = drawn(plan, 100), plan.rows(100)
    drawn_rows = of_class(root, "row")
    assert len(drawn_rows) == len(rows)
    for g, row in zip(drawn_rows, rows, strict=True):
        assert g.find(f"{SVG}title").text == line(row)
        for name, value, said in (("computing", row.computing, duration), ("moving", row.moving, duration),
                                  ("memory", row.memory, size)):
            assert texts(g, name)[0] == (said(value) if value else "·")
        assert texts(g, "extra")[:1] == ([] if row.strategy is None else ["·"] if row.other is None else [more(row.extra)])
    assert {duration(plan.seconds), "0.00% at most", size(plan.memory)} <= set(texts(root, "total"))
    assert f"{plan.task.seconds(plan.data_parallel) / plan.seconds:.2f} × as long" in texts(root, "total")
    assert sum("AllReduce" in t for t in texts(root, "row")) == sum(bool(row.collectives["all_reduce"]) for row in rows) > 0


def test_the_dearest_cells_are_the_deepest():
    plan = found()
    deep = {}
    for row, g in zip(plan.rows(100), of_class(drawn(plan, 100), "row"), strict=True):
        for name in ("computing", "moving"):
            fills = [float(e.get("fill-opacity")) for e in of_class(g, name)[0] if e.get("fill-opacity")]
            if fills and row.strategy is not None:
                deep[getattr(row, name)], = fills
    ordered = [deep[seconds] for seconds in sorted(deep)]
    assert ordered == sorted(ordered) and ordered[-1] == 0.5 and ordered[0] >= 0.05


def test_plans_of_all_kinds_can_be_drawn():
    tight = found(memory=found().memory + 1000)
    assert f"of {size(tight.limit)}, the limit" in texts(drawn(tight), "total")
    unproved = found("recursive_programming")
    assert {"unknown", "no bound is proved", "no limit; a card has 80 GB"} <= set(texts(drawn(unproved), "total"))
    product = ops.MatMul().shard(((2, 1), (1, 1)))
    asked = search(task_of(lambda x: product(x, x), [zeros(8, 8)], 2), "ilp")
    assert {"left out", "strategies are set"} <= set(texts(drawn(asked), "total"))
    for network, many in ((ops.exp, 2), (lambda x: x, 1)):            # one op, none
        root = drawn(search(task_of(network, [zeros(8, 4)], 2), "ilp"))
        assert len(of_class(root, "row")) == many
    assert texts(drawn(found(), 0), "row")[0].startswith("all others × ")


def test_where_the_next_best_is_better_it_is_marked():
    plan = found("sharding_propagation")
    better = [row for row in plan.rows(20) if row.extra < 0]
    root = drawn(plan, 20)
    marked = [t for g in of_class(root, "extra") if any(e.get("stroke") for e in g) for t in texts(g)[:1]]
    assert marked == [more(row.extra) for row in better] and all(t.startswith("−") for t in marked) and marked


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(exclude_characters="\r"), max_size=300), st.integers(2, 6))
def test_names_of_any_kind_and_length_have_room(name, dims):
    task = task_of(lambda x: ops.add(ops.exp(x), x), [zeros(*(2,) * dims)], 4)
    for node in task.graph.nodes:
        node.scope = name
    task.graph.nodes[-1].scope = f"<{name}> & \"so\""
    drawn(search(task, "recursive_programming"))


def test_a_notebook_shows_the_map_and_nothing_else_loads_drawings():
    plan = found()
    assert plan._repr_svg_() == draw.plan(plan).svg
    program = compile(ops.exp, zeros(8, 4), device_num=2, parallel_mode="auto_parallel", cluster="cpu")
    assert draw.plan(program) == draw.plan(program.plan)
    alone = "import sys, minispore, minispore.parallel.search; assert not any(m.startswith('minispore.lab') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", alone], check=True)


def test_what_is_no_plan():
    with pytest.raises(TypeError, match="NoneType is no plan that was searched"):
        draw.plan(compile(ops.exp, zeros(8, 4), device_num=2))
    with pytest.raises(ValueError, match=r"most=-1 rows; give a whole number, 0 or more"):
        draw.plan(found(), -1)
