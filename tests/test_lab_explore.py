"""Explore: controls that change the picture, with and without a kernel, with and without ipywidgets."""
import builtins

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from pictures import checked, texts
from traitlets.config import Config

from minispore.communication.algorithms import ring_all_reduce, tree_all_reduce
from minispore.lab import draw, explore, watch
from minispore.lab.draw.svg import Picture
from minispore.lab.explore import control_of

ALGORITHMS = {"ring": ring_all_reduce, "tree": tree_all_reduce}


def show(step, algorithm):
    return draw.steps(watch(algorithm, 3, 3), step)


@pytest.fixture
def notebook():
    """A shell of IPython; what it showed is in .outputs."""
    InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    with capture_output() as caught:
        yield caught
    InteractiveShell.clear_instance()


def test_the_first_picture_is_there_without_a_notebook(capsys):
    explorer = explore(show, step=(0, 4), algorithm=ALGORITHMS)
    assert explorer.picture.svg == show(0, ring_all_reduce).svg and capsys.readouterr().out == ""
    checked(explorer.picture)


def test_the_first_picture_is_kept_in_the_cell_as_svg(notebook):
    explore(show, step=(0, 4), algorithm=ALGORITHMS)
    bundles = [out.data for out in notebook.outputs]
    assert [b["image/svg+xml"] for b in bundles if "image/svg+xml" in b] == [show(0, ring_all_reduce).svg]
    assert sum("application/vnd.jupyter.widget-view+json" in b for b in bundles) == 1


def test_moving_a_control_changes_the_picture_in_its_place(notebook):
    explorer = explore(show, step=(0, 4), algorithm=ALGORITHMS)
    step, algorithm = (explorer.controls[name].widget for name in ("step", "algorithm"))
    step.value = 2
    algorithm.index = 1
    drawn = [show(0, ring_all_reduce), show(2, ring_all_reduce), show(2, tree_all_reduce)]
    assert explorer.picture.svg == drawn[-1].svg and explorer.values == {"step": 2, "algorithm": tree_all_reduce}
    outputs = [out for out in notebook.outputs if "image/svg+xml" in out.data]
    assert [out.data["image/svg+xml"] for out in outputs] == [p.svg for p in drawn]
    assert len({out.transient["display_id"] for out in outputs}) == 1 and [out.update for out in outputs] == [False, True, True]


def test_choosing_moves_the_controls(notebook):
    explorer = explore(show, step=(0, 4, 2), algorithm=ALGORITHMS).set(step=4, algorithm="tree")
    assert [explorer.controls[name].widget.index for name in ("step", "algorithm")] == [2, 1]
    assert explorer.picture.svg == show(4, tree_all_reduce).svg
    assert repr(explorer) == "Explorer of show: step=4, algorithm=tree"


def test_what_is_chosen_already_is_not_drawn_again():
    calls = []
    explore(lambda n: calls.append(n), n=(1, 3)).set(n=1).set(n=3).set(n=3)
    assert calls == [1, 3]


@pytest.mark.parametrize("spec, widget, first", [
    ((2, 5), "IntSlider", 2), ((2, 8, 3), "SelectionSlider", 2), ([1, 2, 3], "ToggleButtons", 1), (range(9), "Dropdown", 0),
    (["a long label of many letters", "b"], "Dropdown", "a long label of many letters"), ({"one": 1}, "ToggleButtons", 1),
    (True, "Checkbox", True), (False, "Checkbox", False)])
def test_each_kind_of_control_has_its_widget(notebook, spec, widget, first):
    seen = []
    explorer = explore(lambda some_value: seen.append(some_value), some_value=spec)
    made = explorer.controls["some_value"].widget
    assert type(made).__name__ == widget and made.description == "some value" and seen == [first]
    last = explorer.controls["some_value"].values[-1]
    explorer.set(some_value=last)
    assert explorer.values == {"some_value": last}


def test_a_box_is_ticked_and_unticked(notebook):
    explorer = explore(lambda on: Picture("<svg/>", str(on)), on=False)
    explorer.controls["on"].widget.value = True
    assert explorer.picture.alt == "True"
    assert explorer.set(on=False).picture.alt == "False" and explorer.controls["on"].widget.value is False


def test_without_widgets_the_first_picture_is_shown_and_how_to_get_them(notebook, monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *more):
        if name == "ipywidgets":
            raise ImportError(name)
        return real(name, *more)
    monkeypatch.setattr(builtins, "__import__", without)
    explorer = explore(show, step=(0, 4), algorithm=ALGORITHMS)
    assert "pip install ipywidgets" in capsys.readouterr().out and explorer.controls["step"].widget is None
    explorer.set(step=1)
    assert [out.data["image/svg+xml"] for out in notebook.outputs] == [show(s, ring_all_reduce).svg for s in (0, 1)]


def test_the_explorer_itself_shows_nothing_more(notebook):
    explorer = explore(show, step=(0, 4), algorithm=ALGORITHMS)
    before = len(notebook.outputs)
    InteractiveShell.instance().displayhook(explorer)
    assert len(notebook.outputs) == before


# ---- errors of the function ------------------------------------------------------------------------------

def test_an_error_is_shown_where_the_picture_would_be():
    def fails(step, ranks):
        if step:
            raise ValueError(f"no step {step} <of & {ranks}>\nsecond line")
        return Picture("<svg/>", "well")
    explorer = explore(fails, step=(0, 3), ranks={"few": 2})
    assert explorer.picture.alt == "well"
    root = checked(explorer.set(step=2).picture)
    assert texts(root) == ["ValueError", "with step=2, ranks=few", "no step 2 <of & 2>", "second line"]
    assert explorer.set(step=0).picture.alt == "well"


def test_errors_with_arrays_without_words_and_with_many():
    arrays = [np.zeros(3), np.ones(3)]
    assert explore(lambda a: 1 / 0, a=arrays).set(a="[1. 1. 1.]").picture.alt == \
        "ZeroDivisionError with a=[1. 1. 1.]. division by zero"

    def fails(n):
        raise ValueError(["", "word " * 400, "\x1b[31mred", "x" * 3000][n])
    for n, says in enumerate(["no message", "word", "[31mred", "xxx"]):
        root = checked(explore(fails, n=[n]).picture)
        assert says in texts(root)[2] and len(texts(root)) <= 22
    assert texts(checked(explore(lambda: [][1]).picture))[1] == "with no arguments"


def test_ctrl_c_is_no_picture():
    def interrupted(n):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        explore(interrupted, n=[1])


# ---- what is asked for -----------------------------------------------------------------------------------

@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 9))
def test_a_range_has_its_values(low, more, step):
    control = control_of("n", (low, low + more, step))
    assert control.values == list(range(low, low + more + 1, step)) and control.labels == [str(v) for v in control.values]


@pytest.mark.parametrize("spec", [(1,), (1, 2, 3, 4), (2, 1), (0, 4, 0), (0, 4, -1), (0.0, 1.0), ("a", "b"), ()])
def test_ranges_that_cannot_be(spec):
    with pytest.raises(ValueError, match=r"explore: n=\(.*\) is no range; give \(low, high\) or \(low, high, step\)"):
        explore(lambda n: None, n=spec)


@pytest.mark.parametrize("spec", [3, "abc", None, [], {}, {1, 2}, range(0), 1.5])
def test_what_is_no_control(spec):
    with pytest.raises(TypeError, match=r"a control is \(low, high\), a list of values, a dict of labels and values, or True"):
        explore(lambda n: None, n=spec)


def test_choices_that_are_not_there():
    explorer = explore(lambda n, by: None, n=(0, 3), by=ALGORITHMS)
    with pytest.raises(ValueError, match="there is no control 'm'; there are n, by"):
        explorer.set(m=1)
    with pytest.raises(ValueError, match="n has no 4; it takes 0, 1, 2, 3"):
        explorer.set(n=4)
    assert explorer.set(by=tree_all_reduce).values["by"] is tree_all_reduce
