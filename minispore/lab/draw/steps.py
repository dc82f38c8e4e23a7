"""Steps: a watched algorithm between two of its steps: whose contributions every element holds, and what is under way.

Up to 8 ranks stand in a circle, more in a column. How an array looks is in cells.py.
"""
from html import escape

import numpy as np

from minispore.lab.draw.cells import Look, array, cargo, look_of
from minispore.lab.draw.svg import (
    HATCH,
    Curve,
    Picture,
    arrow,
    bent,
    colour,
    edge_of,
    hatched,
    ink_on,
    on_circle,
    picture,
    rect,
    tag,
    text,
    width_of,
)
from minispore.lab.words import plural

WIDTH, TOP = 880, 62
IN_CIRCLE, MOST_RANKS = 8, 16
ROOM = {1: 420, 2: 280, 3: 240, 4: 220, 5: 210, 6: 180, 7: 150, 8: 150}     # pixels for an array, by ranks in the circle
HIGH = {3: 130, 4: 165, 5: 185, 6: 200, 7: 230, 8: 260}                     # half the circle's height
CHANNEL = 170               # pixels for arrows on either side of a column


def steps(watched, step: int = 0) -> Picture:
    """What `watch` saw before step number `step` (from 0), with the messages of that step; any later number: how it ends.

    Each rank is a box with its array. A cell has one stripe a rank, coloured where that rank's contribution is in; what is as it
    should be in the end has a tick; what was put into a wrong place is framed in red; what counts twice says 2×. Arrows are
    messages, on them what they carry.

    >>> from minispore.lab import watch
    >>> from minispore.communication.algorithms import ring_all_reduce
    >>> steps(watch(ring_all_reduce, ranks=2, length=4), 1)
    Picture: ring_all_reduce, step 2 of 2, all-gather. 2 ranks, 4 elements; 4 of 8 are complete. rank 0 → ...
    """
    if not isinstance(step, (int, np.integer)) or step < 0:
        raise ValueError(f"draw.steps: step={step!r} must be a whole number; 0 is before the first step, {watched.steps} the end")
    if watched.ranks > MOST_RANKS:
        raise ValueError(f"draw.steps: {watched.ranks} ranks are too many for one picture; watch at most {MOST_RANKS}. The "
                         "numbers of more are in watched.frames")
    step = min(int(step), watched.steps)
    frame, last = watched.frames[step], step == watched.steps
    draw = circle if watched.ranks <= IN_CIRCLE else column
    body, height = draw(watched, frame, last)
    what = f"after {plural(watched.steps, 'step')}" if last else f"step {step + 1} of {watched.steps}, {watched.names[step]}"
    done, wanted = int((frame.complete & watched.matters).sum()), int(watched.matters.sum())
    desc = (f"{plural(watched.ranks, 'rank')}, {plural(watched.length, 'element')}; {done} of {wanted} are complete."
            + "".join(f" {m}." for m in frame.messages))
    return picture(WIDTH, height, [*caption(watched, step), *legend(watched.ranks), *body], f"{watched.algorithm}, {what}", desc,
                   HATCH)


def caption(watched, step: int) -> list[str]:
    """What is shown, and a row of dots for where we are."""
    if step < watched.steps:
        words, more, fill = f"step {step + 1} of {watched.steps}", watched.names[step], "var(--soft)"
    else:
        bad = len(watched.wrong)
        words, fill = f"after {plural(watched.steps, 'step')}", "var(--bad)" if bad else "var(--good)"
        more = (f"{plural(bad, 'element')} wrong") if bad else "complete"
    title = tag("tspan", words) + tag("tspan", f" · {escape(more)}", fill=fill)
    dots = [tag("circle", cx=26.0 + 13 * i, cy=52.0, r=4.0, fill="var(--ink)" if i == step else "var(--line)")
            for i in range(watched.steps + 1)] if watched.steps <= 40 else []
    return [tag("text", title, x=22.0, y=34.0, font_size=17.0, font_weight=600, fill="var(--ink)"), *dots]


def legend(ranks: int) -> list[str]:
    """One sample a rank, in the corner."""
    size = 24 if ranks <= 10 else 20
    x, y, parts = WIDTH - 20 - size * ranks, 28, []
    parts.append(text(x - 10, y, "contribution of rank", 12, "end", "var(--soft)"))
    for r in range(ranks):
        parts.append(rect(x + r * size, y - 9, size - 3, 18, colour(r), rx=3))
        if hatched(r):
            parts.append(rect(x + r * size, y - 9, size - 3, 18, "url(#ID-hatch)", rx=3))
        parts.append(text(x + r * size + (size - 3) / 2, y, r, 11, "middle", ink_on(r), font_weight=700))
    return parts


def name_tag(r: int, x: float, y: float) -> str:
    return tag("circle", cx=float(x), cy=float(y), r=5.0, fill=colour(r)) + text(x + 10, y, f"rank {r}", 12.5, font_weight=600)


# ---- in a circle -----------------------------------------------------------------------------------------

def circle(watched, frame, last: bool) -> tuple[list[str], float]:
    """The boxes and arrows, and the height they take."""
    p = watched.ranks
    look = look_of(watched, ROOM[p], max(48.0, 6.0 * p))
    names = sum(width_of(name, 11) + 8 for name in look.sections.values())
    box = max(look.width + 20, 92, names + 12), look.tall + (54 if look.columns else 0) + (18 if look.sections else 0)
    if not look.columns:
        box = 92, 28
    centres, height = places(p, *box)
    body = [message(m, frame, centres, box, p) for m in frame.messages]
    body += [rank_box(watched, frame, r, centre, box, look, last) for r, centre in enumerate(centres)]
    body += [on_arrow(m, frame, centres, box, look, p) for m in frame.messages if look.columns]
    return body, height


def places(p: int, wide: float, tall: float) -> tuple[list[tuple[float, float]], float]:
    """The middle of each rank's box, and the picture's height."""
    if p <= 2:
        y = TOP + tall / 2 + (50 if p == 2 else 14)
        return [(WIDTH * at, y) for at in ((0.5,) if p == 1 else (0.23, 0.77))], y + tall / 2 + (60 if p == 2 else 26)
    rx, ry = WIDTH / 2 - wide / 2 - 26, HIGH[p] + (tall - 102) * 0.6
    points = on_circle(p, WIDTH / 2, 0, rx, ry)
    low = min(y for _, y in points)
    points = [(x, y - low + TOP + tall / 2 + 14) for x, y in points]
    return points, max(y for _, y in points) + tall / 2 + 26


def rank_box(watched, frame, r: int, centre, box, look: Look, last: bool) -> str:
    (cx, cy), (wide, tall) = centre, box
    x0, y0 = cx - wide / 2, cy - tall / 2
    parts = [rect(x0, y0, wide, tall, "var(--panel)", "var(--line)", rx=9, stroke_width=1.2), name_tag(r, x0 + 17, y0 + 14)]
    left, top = x0 + (wide - look.width) / 2 + 0.75, y0 + 26 + (18 if look.sections else 0)
    if look.columns:
        parts.append(array(watched, frame, r, left, top, look, last))
    right = x0 + wide
    for k, name in reversed(look.sections.items()):         # where its array begins, or further left if it needs the room
        right = min(left + look.x(k), right - 8 - width_of(name, 11))
        parts.append(text(right, top - 9, name, 11, fill="var(--soft)"))
    return tag("g", "".join(parts), class_="rank")


def path_of(m, frame, centres, box, ranks: int) -> Curve:
    """From box to box: apart from its like in the other direction, and past the boxes in between, by the inside."""
    (x0, y0), (x1, y1) = centres[m.source], centres[m.target]
    both = any((o.source, o.target) == (m.target, m.source) for o in frame.messages)
    bend = (34 if ranks == 2 else 13) if both else 0
    far = (m.target - m.source) % ranks not in (1, ranks - 1)
    cx, cy = bent(x0, y0, x1, y1, bend).c
    if far and ranks > 5:
        mx, my = sum(x for x, _ in centres) / ranks, sum(y for _, y in centres) / ranks
        cx, cy = cx + 0.45 * (mx - cx), cy + 0.45 * (my - cy)
    return Curve(edge_of(x0, y0, *box, cx, cy), (cx, cy), edge_of(x1, y1, *box, cx, cy))


def message(m, frame, centres, box, ranks: int) -> str:
    return arrow(path_of(m, frame, centres, box, ranks), "var(--soft)", 2.0, data_from=m.source, data_to=m.target)


def on_arrow(m, frame, centres, box, look: Look, ranks: int) -> str:
    """Near the sender where arrows cross in the middle."""
    neighbours = (m.target - m.source) % ranks in (1, ranks - 1)
    return cargo(m, *path_of(m, frame, centres, box, ranks).at(0.46 if neighbours else 0.27), look, ranks)


# ---- in a column -----------------------------------------------------------------------------------------

def column(watched, frame, last: bool) -> tuple[list[str], float]:
    """One row a rank; messages go down on the right, and up on the left."""
    p = watched.ranks
    left, room = CHANNEL + 80, WIDTH - 2 * CHANNEL - 100
    look = look_of(watched, room, 3.0 * p)
    pitch, body = look.tall + 26, []
    for m in frame.messages:
        down = m.target > m.source
        x = left + look.width + 8 if down else left - 80
        y0, y1 = (TOP + 20 + pitch * r + look.tall / 2 for r in (m.source, m.target))
        reach = (30 + (CHANNEL - 60) * min(1, (abs(m.target - m.source) - 1) / (p - 1))) * (1 if down else -1)
        y0, y1 = y0 + (6 if down else -6), y1 - (6 if down else -6)
        curve = Curve((x, y0), (x + 2 * reach, (y0 + y1) / 2), (x, y1))
        body.append(arrow(curve, "var(--soft)", 1.6, data_from=m.source, data_to=m.target))
        body.append(cargo(m, *curve.at(0.5), look, p))
    for r in range(p):
        top = TOP + 20 + pitch * r
        body.append(tag("g", name_tag(r, left - 66, top + look.tall / 2) + array(watched, frame, r, left, top, look, last),
                        class_="rank"))
    return body, TOP + 20 + pitch * p + 14
