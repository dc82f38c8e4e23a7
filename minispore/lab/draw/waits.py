"""Waits: who waits for whom in a job that is stuck, or runs, from its records. hang.py, beside the record, says it in words."""
from itertools import pairwise
from math import pi, sin

from minispore.communication.hang import PLAIN, Meeting, kind, meetings, state
from minispore.lab.draw.svg import (
    Curve,
    Picture,
    arrow,
    bent,
    colour,
    edge_of,
    on_circle,
    picture,
    rect,
    shortened,
    tag,
    text,
    width_of,
)
from minispore.lab.draw.timeline import checked
from minispore.lab.symbolic_link import cycle
from minispore.lab.words import plural

WIDTH, TOP, MOST_RANKS = 880, 70, 16


def waits(records) -> Picture:
    """Ranks in a circle; an arrow from each rank that waits to each one it waits for. Those that wait for one another in a circle
    are in a strong colour; ranks that don't wait are pale.

    records: list of Record, one a rank; of a job that has failed, is stuck, or still runs.

    >>> from minispore.communication.record import Record
    >>> waits([Record(0, 2), Record(1, 2)])
    Picture: Who waits for whom. No rank waits. rank 0: had not ended; rank 1: had not ended.
    """
    records = checked(records, "draw.waits", MOST_RANKS)
    ranks = sorted({r.rank for r in records} | set(range(max(r.size for r in records))))
    if len(ranks) > MOST_RANKS:
        raise ValueError(f"draw.waits: {len(ranks)} ranks are too many for one picture, at most {MOST_RANKS} can be told apart; "
                         "hang.report(records) says it in words")
    said, edges = waiting(records)
    ring = cycle({r: sorted(to) for r, to in edges.items()})
    in_ring = set(pairwise(ring))
    by_rank = {r.rank: r for r in records}
    lines = {r: said.get(r) or [state(by_rank[r]) if r in by_rank else "left no record"] for r in ranks}
    wide = min(widest(len(ranks)), max(104.0, *(24 + width_of(row, 11.5, r in edges and i > 0)
                                              for r, rows in lines.items() for i, row in enumerate(rows))))
    tall = 34 + 17 * max(map(len, lines.values()))
    centres, height = places(ranks, wide, tall)
    body = []
    for a, b in sorted((a, b) for a, to in edges.items() for b in to):
        strong = (a, b) in in_ring
        (x0, y0), (x1, y1) = centres[a], centres[b]
        both = a in edges.get(b, ())
        c = bent(x0, y0, x1, y1, 16 if both else 0).c
        curve = Curve(edge_of(x0, y0, wide, tall, *c, 4), c, edge_of(x1, y1, wide, tall, *c, 6))
        body.append(arrow(curve, "var(--strong)" if strong else "var(--soft)", 3.0 if strong else 1.8, 12 if strong else 9,
                          data_from=a, data_to=b, data_ring="yes" if strong else None))
    body += [box(r, centres[r], wide, tall, lines[r], r in edges, r in ring) for r in ranks]
    if ring:
        head, fill = "they wait in a circle: " + " → ".join(map(str, ring)), "var(--strong)"
    else:
        head = f"{plural(len(edges), 'rank')} {'waits' if len(edges) == 1 else 'wait'}" if edges else "no rank waits"
        fill = "var(--ink)"
    whom = {r: f", waits for {', '.join(map(str, sorted(to)))}" for r, to in edges.items()}
    desc = "; ".join(f"rank {r}: {', '.join(lines[r])}{whom.get(r, '')}" for r in ranks)
    return picture(WIDTH, height, [text(22, 32, head, 17, fill=fill, font_weight=600), *body], "Who waits for whom",
                   f"{head[0].upper()}{head[1:]}. {desc}.")


def waiting(records) -> tuple[dict[int, list[str]], dict[int, set[int]]]:
    """What each waiting rank says about itself, and whom it waits for: {rank: lines}, {rank: ranks}."""
    calls = {r.rank: r.collectives() for r in records}
    said, edges = {}, {}
    for rank, events in calls.items():
        for e in events:
            if not e.end:
                name = f"{e.op}({e.detail})" if e.detail else e.op
                where = f"with rank {e.peers[0]}" if e.op in PLAIN else f"number {e.sequence}"
                said.setdefault(rank, []).extend([f"{name} {where}", *([e.line] if e.line else [])])
                if e.op in PLAIN:
                    edges.setdefault(rank, set()).add(e.peers[0])
    receives = {r.rank: [e for e in r.events if e.op == "receive" and not e.end] for r in records}
    for meeting in meetings(calls):
        for rank, e in meeting.waiting.items():
            edges.setdefault(rank, set()).update(waited_for(e, meeting, receives.get(rank, [])))
    return {r: lines[:4] for r, lines in said.items()}, {r: to for r, to in edges.items() if to}


def waited_for(e, meeting: Meeting, receives: list) -> set[int]:
    """The ranks that have to do something before this call can end: come, do the same, or send what this rank still receives."""
    others = {r for r, other in meeting.waiting.items() if kind(other) != kind(e)}
    return set(meeting.missing) - {e.rank} or others or {m.peers[0] for m in receives
                                                         if (m.group, m.sequence) == (e.group, e.sequence)}


def widest(p: int) -> float:
    """How wide a box may be: of p in a circle, the one at the top and the next one are side by side, with an arrow between."""
    step = sin(2 * pi / p) if p > 2 else 1
    return min(230.0, ((WIDTH / 2 - 26) * step - 28) / (1 + step / 2))


def places(ranks: list[int], wide: float, tall: float) -> tuple[dict, float]:
    """The middle of each rank's box, and the picture's height."""
    p = len(ranks)
    rx = WIDTH / 2 - wide / 2 - 26
    ry = 0 if p <= 2 else max(tall + 26, {3: 105, 4: 125, 5: 135}.get(p, (tall + 18) * p / 4.6))
    for (ax, ay), (bx, by) in pairwise(on_circle(p, 0, 0, rx, 1)):
        if abs(ax - bx) < wide + 4 and p > 2:           # one below the other
            ry = max(ry, (tall + 12) / abs(ay - by))
    points = on_circle(p, WIDTH / 2, 0, rx if p != 2 else rx * 0.72, ry)
    if p == 1:
        points = [(WIDTH / 2, 0.0)]
    low = min(y for _, y in points)
    spread = max(y for _, y in points) - low
    extra = 26 if p == 2 else 0
    centres = {r: (x, y - low + TOP + tall / 2 + extra) for r, (x, y) in zip(ranks, points, strict=True)}
    return centres, TOP + spread + tall + 28 + 2 * extra


def box(r: int, centre, wide: float, tall: float, lines: list[str], waits_: bool, in_ring: bool) -> str:
    x, y = centre[0] - wide / 2, centre[1] - tall / 2
    edge = "var(--strong)" if in_ring else "var(--soft)" if waits_ else "var(--line)"
    parts = [rect(x, y, wide, tall, "var(--panel)", edge, rx=9, stroke_width=2.2 if in_ring else 1.3,
                  stroke_dasharray=None if waits_ else "4 4"),
             tag("circle", cx=x + 17, cy=y + 17, r=5.0, fill=colour(r)), text(x + 27, y + 17, f"rank {r}", 13, font_weight=600)]
    for i, row in enumerate(lines):
        mono = waits_ and i > 0
        parts.append(text(x + 12, y + 38 + 17 * i, shortened(row, wide - 24, 11.5, mono), 11.5,
                          fill="var(--ink)" if waits_ and not i else "var(--soft)", class_="mono" if mono else None))
    return tag("g", "".join(parts), class_="rank", opacity=None if waits_ else 0.72)
