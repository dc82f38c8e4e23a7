"""Links: who sent how many bytes to whom, from the records of a job: as arrows, whose width says how much, and as a table."""
from collections import Counter

from minispore.lab.draw.svg import (
    Curve,
    Picture,
    arrow,
    bent,
    colour,
    edge_of,
    ink_on,
    on_circle,
    picture,
    rect,
    tag,
    text,
    width_of,
)
from minispore.lab.draw.timeline import checked
from minispore.lab.words import plural, size_of

WIDTH, TOP, IN_CIRCLE, MOST_RANKS = 880, 64, 8, 16


def links(records) -> Picture:
    """Bytes that each rank sent to each other one, in all messages of all calls.

    records: list of Record, one a rank. Up to 8 ranks are drawn as a circle with the table beside it, more as a table.

    >>> from minispore.communication.record import Record
    >>> links([Record(0, 2), Record(1, 2)])
    Picture: Who sent how much to whom. 2 ranks, no messages.
    """
    records = checked(records, "draw.links", MOST_RANKS)
    ranks, sent, many = [r.rank for r in records], Counter(), Counter()
    for r in records:
        for m in r.messages():
            sent[m.rank, m.peers[0]] += m.bytes
            many[m.rank, m.peers[0]] += 1
    ranks = sorted({*ranks, *(r for pair in many for r in pair)})
    p, most = len(ranks), max(sent.values(), default=0)
    room = WIDTH / 2 + 10 if p <= IN_CIRCLE else WIDTH - 130
    cell = min(58.0, (room - 90) / p)
    beside = min(WIDTH * 0.765 + 20 - p * cell / 2, WIDTH - 22 - p * cell)          # in the middle of the right half
    left, top = (beside if p <= IN_CIRCLE else (WIDTH - p * cell) / 2 + 20), TOP + 36
    tall = max(top + p * cell + 30, 300 if p <= IN_CIRCLE else 0)
    head = f"{plural(sum(many.values()), 'message')}, {size_of(sum(sent.values()))} over {plural(len(many), 'link')}"
    body = [text(22, 32, head if many else "no messages", 17, font_weight=600)]
    if p <= IN_CIRCLE:
        body += circle(ranks, sent, most, tall)
    body += table(ranks, sent, most, left, top, cell)
    desc = "; ".join(f"rank {a} to rank {b}: {size_of(n)} in {plural(many[a, b], 'message')}"
                     for (a, b), n in sorted(sent.items()))
    return picture(WIDTH, tall, body, "Who sent how much to whom",
                   f"{plural(p, 'rank')}, {desc or 'no messages'}.")


def circle(ranks: list[int], sent: Counter, most: int, tall: float) -> list[str]:
    """The ranks as a circle, an arrow a link."""
    radius = min(150.0, (tall - TOP - 70) / 2)
    centres = dict(zip(ranks, on_circle(len(ranks), WIDTH * 0.235, TOP + 26 + radius, radius, radius), strict=True))
    parts = []
    for (a, b), n in sorted(sent.items()):
        if a == b:
            continue
        (x0, y0), (x1, y1) = centres[a], centres[b]
        both = (b, a) in sent
        c = bent(x0, y0, x1, y1, 12 if both else 0).c
        curve = Curve(edge_of(x0, y0, 30, 30, *c, 5), c, edge_of(x1, y1, 30, 30, *c, 5))
        width = 1.2 + 3.8 * n / most if most else 1.2
        parts.append(arrow(curve, "var(--soft)", width, 8 + width, data_from=a, data_to=b))
    for r, (x, y) in centres.items():
        parts += [tag("circle", cx=float(x), cy=float(y), r=16.0, fill=colour(r)),
                  text(x, y, r, 14, "middle", ink_on(r), font_weight=700)]
    return parts


def table(ranks: list[int], sent: Counter, most: int, left: float, top: float, cell: float) -> list[str]:
    """Rows send, columns receive."""
    size = 12.0 if cell > 40 else 10.0
    parts = [text(left + cell * len(ranks) / 2, top - 34, "to rank", 12, "middle", "var(--soft)"),
             text(left - 30, top - 14, "from", 12, "end", "var(--soft)")]
    for i, a in enumerate(ranks):
        parts += [text(left + (i + 0.5) * cell, top - 14, a, 12.5, "middle", font_weight=600),
                  text(left - 14, top + (i + 0.5) * cell, a, 12.5, "end", font_weight=600)]
        for j, b in enumerate(ranks):
            n, x, y = sent.get((a, b)), left + j * cell, top + i * cell
            parts.append(rect(x + 1, y + 1, cell - 2, cell - 2, "var(--faint)", rx=4))
            if n is None:
                parts.append(text(x + cell / 2, y + cell / 2, "·", size + 2, "middle", "var(--line)"))
                continue
            strong = 0.15 + 0.4 * n / most if most else 0.15
            parts += [rect(x + 1, y + 1, cell - 2, cell - 2, "var(--c0)", rx=4, fill_opacity=strong),
                      amount(n, x + cell / 2, y + cell / 2, size, cell)]
    return parts


def amount(nbytes: int, x: float, y: float, size: float, room: float) -> str:
    """Bytes in one line, or the unit below the number where there is less room."""
    words = size_of(nbytes)
    if width_of(words, size) < room - 6:
        return text(x, y, words, size, "middle", font_weight=600, class_="amount")
    many, unit = words.split()
    lines = text(x, y - 0.6 * size, many, size, "middle", font_weight=600) + text(x, y + 0.6 * size, unit, size, "middle")
    return tag("g", lines, class_="amount")
