"""Explore: sliders and buttons around a function that draws. The picture is an output of its own, so that its first state stays
in the file, and shows on a page without a kernel. What to draw is in draw/."""
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from minispore.lab.draw.svg import Picture, picture, shortened, text

INSTALL = "The controls need ipywidgets: pip install ipywidgets, then restart the kernel. This is the first picture only"
MOST_BUTTONS = 5


@dataclass(eq=False)
class Control:
    """What one argument may be. labels, values: of the choices, one each; at: the place of the one chosen; widget: None without
    ipywidgets."""
    labels: list[str]
    values: list
    at: int = 0
    widget: object = None

    def watch(self, moved: Callable) -> None:
        """Call moved(place) whenever the reader moves the widget."""
        if hasattr(self.widget, "index"):
            self.widget.observe(lambda change: moved(change["new"]), "index")
        else:
            self.widget.observe(lambda change: moved(self.values.index(change["new"])), "value")

    def move(self, at: int) -> None:
        """Move the widget to a place."""
        if hasattr(self.widget, "index"):
            self.widget.index = at
        else:
            self.widget.value = self.values[at]


@dataclass(eq=False)
class Explorer:
    """What `explore` returns. controls: by the arguments' names; picture: what is shown now."""
    function: Callable
    controls: dict[str, Control]
    picture: object = None
    _shown: object = None

    @property
    def values(self) -> dict:
        """The arguments the function is called with now."""
        return {name: control.values[control.at] for name, control in self.controls.items()}

    @property
    def called(self) -> str:
        """The same in words: "step=2, ranks=4"."""
        return ", ".join(f"{name}={control.labels[control.at]}" for name, control in self.controls.items())

    def draw(self) -> object:
        """Call the function; an error becomes a picture too."""
        try:
            self.picture = self.function(**self.values)
        except Exception as e:          # whatever a learner's function raises is told where the picture would be
            self.picture = error_picture(e, self.called)
        return self.picture

    def set(self, **choice) -> "Explorer":
        """Choose values, as the widgets do: set(step=2, ranks=4)."""
        for name, value in choice.items():
            if name not in self.controls:
                raise ValueError(f"explore: there is no control {name!r}; there are {', '.join(self.controls)}")
            control = self.controls[name]
            found = [i for i, v in enumerate(control.values) if v is value or control.labels[i] == str(value)]
            if not found:
                raise ValueError(f"explore: {name} has no {value!r}; it takes {', '.join(control.labels)}")
            if control.widget is not None:
                control.move(found[0])
            else:
                self.change(name, found[0])
        return self

    def change(self, name: str, at: int) -> None:
        """A control has moved: draw again, and put it in place of what was there."""
        if self.controls[name].at != at:
            self.controls[name].at = at
            drawn = self.draw()
            if self._shown is not None:
                self._shown.update(drawn)

    def _ipython_display_(self):
        """Nothing more: all is shown already."""

    def __repr__(self):
        return f"Explorer of {getattr(self.function, '__name__', 'a function')}: {self.called}"


def explore(function: Callable, **controls) -> Explorer:
    """Show what a function draws, with a control for each of its arguments above it.

    Args:
        function: called with one keyword argument a control; it returns a Picture, or anything that a notebook can show.
        controls: (low, high) or (low, high, step): a slider over whole numbers, beginning at low; a list: its values to choose
            from; a dict: the same with labels as keys; True or False: a box to tick.

    An error of the function is shown where the picture would be. Without ipywidgets the first picture is shown.

    >>> from minispore.lab import draw, watch
    >>> from minispore.communication.algorithms import ring_all_reduce, tree_all_reduce
    >>> shown = explore(lambda step, algorithm: draw.steps(watch(algorithm), step), step=(0, 6),
    ...                 algorithm={"ring": ring_all_reduce, "tree": tree_all_reduce})
    >>> shown.set(algorithm="tree", step=1).picture
    Picture: tree_all_reduce, step 2 of 4, reduce. 4 ranks, 8 elements; 0 of 32 are complete. rank 1 → rank 0: 8 elements 0:8.
    """
    explorer = Explorer(function, {name: control_of(name, spec) for name, spec in controls.items()})
    explorer.draw()
    show(explorer, controls)
    return explorer


def control_of(name: str, spec) -> Control:
    """What the reader may choose from."""
    if isinstance(spec, bool):
        return Control(["False", "True"], [False, True], int(spec))
    if isinstance(spec, tuple):
        if len(spec) not in (2, 3) or not all(isinstance(n, int) for n in spec) or spec[0] > spec[1] or min(spec[2:] or (1,)) < 1:
            raise ValueError(f"explore: {name}={spec!r} is no range; give (low, high) or (low, high, step) in whole numbers, low "
                             "not above high, or a list of values")
        values = list(range(spec[0], spec[1] + 1, *spec[2:]))
        return Control(list(map(str, values)), values)
    if isinstance(spec, (list, dict, range)) and len(spec):
        return Control(list(map(str, spec)), list(spec.values() if isinstance(spec, dict) else spec))
    raise TypeError(f"explore: {name}={spec!r}; a control is (low, high), a list of values, a dict of labels and values, or True "
                    "or False")


def show(explorer: Explorer, specs: dict) -> None:
    """Put the controls and the picture into the cell's output, as far as there is a notebook and there are widgets."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return
    if get_ipython() is None:
        return
    try:
        import ipywidgets
    except ImportError:
        print(INSTALL)
    else:
        for name, spec in specs.items():
            control = explorer.controls[name]
            control.widget = widget_of(ipywidgets, name, spec, control)
            control.watch(lambda at, name=name: explorer.change(name, at))
        display(ipywidgets.VBox([control.widget for control in explorer.controls.values()]))
    explorer._shown = display(explorer.picture, display_id=True)


def widget_of(ipywidgets, name: str, spec, control: Control):
    """The ipywidget of a control."""
    labels, at = control.labels, control.at
    common = {"description": name.replace("_", " "), "style": {"description_width": "90px"}}
    if isinstance(spec, bool):
        return ipywidgets.Checkbox(value=spec, indent=True, **common)
    if isinstance(spec, tuple):
        return ipywidgets.SelectionSlider(options=labels, index=at, layout={"width": "480px"}, **common) if len(spec) == 3 else \
            ipywidgets.IntSlider(value=control.values[at], min=spec[0], max=spec[1], layout={"width": "480px"}, **common)
    few = len(labels) <= MOST_BUTTONS and max(map(len, labels)) <= 24
    if few:
        buttons = ipywidgets.ToggleButtons(options=labels, index=at, description=common["description"],
                                           style={**common["style"], "button_width": "auto"})
        return buttons.add_class("jupyter-widgets").add_class("widget-inline-hbox")         # beside its name, as others are
    return ipywidgets.Dropdown(options=labels, index=at, layout={"width": "480px"}, **common)


def error_picture(error: Exception, called: str) -> Picture:
    """The error, where the picture would be. called: with what the function was called."""
    name = type(error).__name__
    lines = [part for row in (str(error) or "no message").splitlines() for part in textwrap.wrap(row, 92) or [""]][:20]
    given = f"with {called or 'no arguments'}"
    body = [text(24, 32, name, 16, fill="var(--bad)", font_weight=600),
            text(24, 56, shortened(given, 830, 12.5), 12.5, fill="var(--soft)")]
    body += [text(24, 88 + 20 * i, row, 13, xml_space="preserve") for i, row in enumerate(lines)]
    return picture(880, 108 + 20 * len(lines), body, f"{name} {given}", " ".join(lines))
