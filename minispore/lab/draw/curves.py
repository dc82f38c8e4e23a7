"""Curves: numbers against numbers, by matplotlib, in the look of the other drawings."""
import io
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isfinite

import numpy as np

from minispore.lab.draw.svg import COLOURS, NEUTRAL, Picture, picture, shortened

WIDTH, HEIGHT, EDGE = 880, 420, 16
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
ROOM = 360                  # pixels that the name of a curve may take
BOLD = 11 * 100 / 72 * 1.1  # of its letters, and a tenth more, since they are bold
FEW = 24                    # points up to which each is marked
# Colours that matplotlib writes, and what they become: a colour of the page, light or dark.
STAND_INS = {**{f"#0000{i + 1:02x}": f"var(--c{i})" for i in range(len(COLOURS))},
             **{f"#0001{i + 1:02x}": f"var(--{name})" for i, name in enumerate(NEUTRAL)}}
INK, SOFT, LINE = (next(c for c, v in STAND_INS.items() if v == f"var(--{name})") for name in ("ink", "soft", "line"))
OURS = list(STAND_INS)[:len(COLOURS)]


def curves(series: Mapping[str, Sequence[float]], x: Sequence[float], xlabel: str = "", ylabel: str = "", log: bool = False,
           ) -> Picture:
    """A curve for each name in `series`, each as long as x. log: both axes are logarithmic. Values that aren't finite, or that a
    logarithm can't show, are left out.

    >>> curves({"ring": [1.0, 2.0], "tree": [2.0, 1.0]}, x=[1, 10], xlabel="bytes", ylabel="s")
    Picture: s against bytes. ring: 1 at 1, 2 at 10; tree: 2 at 1, 1 at 10.
    """
    x = np.asarray(x, float)
    if not series:
        raise ValueError("draw.curves: there is no series; give {name: values, …}")
    values = {}
    for name, y in series.items():
        y = np.asarray(y, float)
        if y.shape != x.shape or x.ndim != 1 or not len(x):
            raise ValueError(f"draw.curves: series {name!r} has shape {y.shape}, x has {x.shape}; give as many values as x has, "
                             "1 or more, in one row")
        values[str(name)] = np.where(np.isfinite(y) & ((y > 0) | (not log)), y, np.nan)
    if not np.isfinite(x).all():
        raise ValueError(f"draw.curves: x is {x.tolist()}; give finite values")
    if log and (x <= 0).any():
        raise ValueError(f"draw.curves: x={x.min():g} has no logarithm; leave log=True out, or that value")
    if not any(np.isfinite(y).any() for y in values.values()):
        raise ValueError(f"draw.curves: of {', '.join(values)} no value can be shown; none is finite{' and above 0' * log}")
    svg = plot(values, x, xlabel, ylabel, log)
    desc = "; ".join(f"{name}: " + ", ".join(f"{said(y[i])} at {said(x[i])}" for i in sorted({0, len(x) - 1}))
                     for name, y in values.items())
    return picture(WIDTH, HEIGHT, [svg], f"{ylabel or 'values'} against {xlabel or 'x'}", f"{desc}.")


def said(value: float) -> str:
    """A number in at most three digits and their zeros; whole ones in full.

    >>> said(0.0012345), said(80563.2), said(2.0 ** 20)
    ('0.00123', '80,600', '1,048,576')
    """
    if not isfinite(value):
        return "nothing"
    if value == round(value):
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def plot(values: dict[str, np.ndarray], x: np.ndarray, xlabel: str, ylabel: str, log: bool) -> str:
    """What matplotlib draws, as an element to be put into a picture."""
    import matplotlib
    from matplotlib.figure import Figure
    settings = {"svg.fonttype": "none", "svg.hashsalt": "minispore", "font.family": "sans-serif", "font.size": 11,
                "axes.edgecolor": LINE, "axes.labelcolor": SOFT, "xtick.color": SOFT, "ytick.color": SOFT, "text.color": INK,
                "axes.spines.top": False, "axes.spines.right": False, "grid.color": LINE, "grid.alpha": 0.45,
                "axes.formatter.useoffset": False}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
        figure.patch.set_visible(False)
        axes = figure.add_axes((0.09, 0.145, 0.70, 0.79))        # fit() moves its sides
        axes.patch.set_visible(False)
        axes.grid(True, which="major")
        for i, (name, y) in enumerate(values.items()):
            axes.plot(x, y, color=OURS[i % len(OURS)], linewidth=2.2, marker=MARKS[i % len(MARKS)] if len(x) <= FEW else None,
                      markersize=5.5, linestyle=("-", "--", "-.", ":")[i // len(OURS) % 4], label=name)
        if log:
            axes.set_xscale("log", base=2 if all(np.log2(x) % 1 == 0) else 10)
            axes.set_yscale("log")
            if len(x) <= 10:
                axes.set_xticks(x, [said(v) for v in x])
                axes.set_xticks([], minor=True)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        label_ends(axes, values, x)
        fit(axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    inside = re.search(r"<svg[^>]*>(.*)</svg>", out.getvalue(), re.S)[1]
    inside = re.sub(r"<metadata>.*?</metadata>", "", inside, flags=re.S).replace("xlink:href", "href")
    inside = re.sub(r"font: (\w+ )?([\d.]+px) [^;\"]*", weight_and_size, inside)        # the family is the picture's
    inside = re.sub(r"\bfont-family: [^;\"]*; ?", "", inside)
    inside = re.sub("#0000[0-9a-f]{2}|#0001[0-9a-f]{2}", lambda m: STAND_INS.get(m[0], m[0]), inside)
    scale = 100 / 72                                        # matplotlib's points are 1/72 inch
    return f'<g transform="scale({scale:.4f})">{inside}</g>'


def weight_and_size(found: re.Match) -> str:
    return f"font-size: {found[2]}" + (f"; font-weight: {found[1]}" if found[1] else "")


def label_ends(axes, values: dict[str, np.ndarray], x: np.ndarray) -> None:
    """Each curve's name behind its last point, moved apart where they would touch; so nobody has to match colours to a legend."""
    axes.autoscale_view()                                   # else the places are those of axes from 0 to 1
    box = axes.get_window_extent()
    places = []
    for i, (name, y) in enumerate(values.items()):
        there = np.flatnonzero(np.isfinite(y))
        if len(there):
            at = axes.transData.transform((x[there[-1]], y[there[-1]]))
            places.append([float(np.clip((at[1] - box.y0) / box.height, 0, 1)), name, OURS[i % len(OURS)]])
    places.sort(key=lambda place: place[0])
    gap = 0.055
    for lower, place in pairwise(places):
        place[0] = max(place[0], lower[0] + gap)
    over = max(0.0, places[-1][0] - 1.0) if places else 0.0
    for height, name, ink in places:
        axes.annotate(shortened(name, ROOM, BOLD), (1.015, height - over), xycoords="axes fraction", color=ink, va="center",
                      fontsize=11, fontweight="bold", annotation_clip=False)


def fit(axes) -> None:
    """Make the axes so narrow that all that stands beside them is in the picture."""
    seen, place = axes.get_tightbbox(), axes.get_position()
    left, right = place.x0 + (EDGE - seen.x0) / WIDTH, place.x1 - (seen.x1 - (WIDTH - EDGE)) / WIDTH
    axes.set_position((left, place.y0, max(right - left, 0.3), place.height))
