"""Cells: how the array of a watched rank looks, and what a message carries. steps.py puts them in their places."""
from dataclasses import dataclass
from itertools import pairwise

from minispore.lab.draw.svg import colour, hatched, ink_on, rect, tag, text, tick, width_of
from minispore.lab.symbolic_link import spans
from minispore.lab.words import plural

GAP, NARROW = 5, 2          # pixels between chunks, and where there is little room
LEAST = 7.0                 # pixels of a cell
MOST_SHOWN = 12             # cells of a message


@dataclass(frozen=True)
class Look:
    """How the arrays of a run are drawn, the same in all frames. columns: (from, to) elements of each cell; starts: the columns
    at which a chunk begins; gap: pixels between chunks; wide: of a cell; tall: of an array; labels: {start: name of its chunk};
    unit: what they are; sections: {start: name of the array that begins there}."""
    columns: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]
    gap: int
    wide: float
    tall: float
    labels: dict[int, str]
    unit: str
    sections: dict[int, str]

    def x(self, k: int) -> float:
        """Left edge of column k, from the array's left edge; of len(columns): the right edge."""
        inner = [s for s in self.starts if 0 < s <= k and s < len(self.columns)]
        return k * self.wide + self.gap * len(inner) + 2 * self.gap * sum(s in self.sections for s in inner)

    @property
    def width(self) -> float:
        return self.x(len(self.columns))


def look_of(watched, room: float, tall: float) -> Look:
    """Cells of one element if they fit into `room` pixels, else of one chunk. Chunks are what messages carried as a whole."""
    total, cuts = watched.matters.shape[1], set()
    for m in watched.messages:
        for places in (m.sent, m.received):
            cuts |= {int(n) for run in spans(places or ()).split(", ") if run for n in run.split(":")}
    cuts |= {0, total} | {a for _, a, _ in watched.sections}
    ends = sorted(cuts)
    chunks = [(a, b) for a, b in pairwise(ends) if a < b]
    many = len(chunks) + 2 * (len(watched.sections) - 1)
    columns = [(i, i + 1) for i in range(total)] if total * 9 + many * GAP <= room else chunks
    gap = GAP if len(columns) * LEAST + many * GAP <= room else NARROW
    starts = tuple(k for k, (a, _) in enumerate(columns) if a in cuts)
    wide = min(30.0, max(LEAST, (room - many * gap) / max(len(columns), 1)))
    names, unit = named(watched, ends)
    labels = {k: names[columns[k][0]] for k in starts if columns[k][0] in names}
    sections = {k: name for k in starts for name, a, _ in watched.sections if columns[k][0] == a and name}
    return Look(tuple(columns), starts, gap, wide, tall, labels if len(chunks) > 1 else {}, unit, sections)


def named(watched, ends: list[int]) -> tuple[dict[int, str], str]:
    """The chunks' names by where they begin: their numbers if they are those of split(array, ranks), else their places."""
    names: dict[int, str] = {}
    for _, start, stop in watched.sections:
        inside = [a for a in ends if start <= a < stop]
        bounds = [start + (stop - start) * i // watched.ranks for i in range(watched.ranks + 1)]
        if len(inside) == 1 and len(watched.sections) > 1:
            continue
        if not set(inside) <= set(bounds):
            return {a: str(a) for a in ends}, "from"
        names |= {a: str(i) for i, (a, b) in enumerate(pairwise(bounds)) if a < b}
    return names, "chunk"


def stripes(counts, x: float, y: float, wide: float, tall: float) -> str:
    """A cell. The stripe of rank r is at the same height in every cell."""
    each = tall / len(counts)
    out = [rect(x, y, wide, tall, "var(--faint)", rx=2)]
    for r, n in enumerate(counts):
        if n:
            out.append(rect(x, y + r * each, wide, each, colour(r)))
            if hatched(r):
                out.append(rect(x, y + r * each, wide, each, "url(#ID-hatch)"))
        if n > 1:           # counted twice: say so
            out.append(text(x + wide / 2, y + (r + 0.5) * each, f"{n}×", min(each, 11, wide * 0.55), "middle", ink_on(r),
                            font_weight=700, class_="twice"))
    return "".join(out)


def array(watched, frame, r: int, left: float, top: float, look: Look, last: bool) -> str:
    """Rank r's array, what leaves it outlined; below, the chunks' names and ticks."""
    parts = []
    leaving = {i for m in frame.messages if m.source == r for i in m.sent or ()}
    for k, (a, b) in enumerate(look.columns):
        x = left + look.x(k)
        faded = last and not watched.matters[r, a]
        parts.append(tag("g", stripes(frame.counts[r, a], x, top, look.wide - 1.5, look.tall), class_="cell",
                         opacity=0.28 if faded else None))
        if frame.misplaced[r, a:b].any():
            parts.append(rect(x, top, look.wide - 1.5, look.tall, "none", "var(--bad)", rx=2, stroke_width=2.5,
                              class_="misplaced"))
    below = top + look.tall + 12
    for k, e in pairwise((*look.starts, len(look.columns))):
        a, b = look.columns[k][0], look.columns[e - 1][1]
        long = look.x(e - 1) - look.x(k) + look.wide - 1.5
        middle, done = left + look.x(k) + long / 2, frame.complete[r, a:b].all()
        if leaving & set(range(a, b)):
            parts.append(rect(left + look.x(k) - 1.5, top - 1.5, long + 3, look.tall + 3, "none", "var(--ink)", rx=3,
                              stroke_width=1.6, class_="leaving"))
        named = k in look.labels and not (done and long < 18)
        if named:
            parts.append(text(middle - (5 if done else 0), below, look.labels[k], 11, "middle", "var(--soft)"))
        if done:
            parts.append(tick(middle + (7 if named else 0), below, 8))
        elif frame.complete[r, a:b].any():
            parts += [tick(left + look.x(j) + look.wide / 2, below, 6) for j in range(k, e)
                      if frame.complete[r, slice(*look.columns[j])].all()]
    return "".join(parts)


def cargo(m, x: float, y: float, look: Look, ranks: int) -> str:
    """What a message carries, as small cells with their chunk's name beside them. Of many that are alike, one."""
    inside, cells = set(m.places), []
    for k, (a, b) in enumerate(look.columns):
        if here := sorted(inside & set(range(a, b))):
            cells.append((k, m.counts[m.places.index(here[0])]))
    cells = cells or [(None, c) for c in m.counts]
    alike = len(cells) > 4 and all((c == cells[0][1]).all() for _, c in cells)
    shown = cells[:1] if alike else cells[:MOST_SHOWN]
    wide = 26.0 if alike else 9.0 if len(shown) <= 4 else 6.0
    tall = max(22.0, 3.0 * ranks) if ranks <= 8 else 2.0 * ranks
    label = carries(m, cells, look, short=ranks > 5)
    total = wide * len(shown)
    side = width_of(label, 11) + 5 if label else 0
    left = x - (total + side) / 2
    parts = [rect(left - 5, y - tall / 2 - 4, total + side + 9, tall + 8, "var(--panel)", "var(--line)", rx=6)]
    for j, (_, counts) in enumerate(shown):
        parts.append(stripes(counts, left + j * wide, y - tall / 2, wide - 1, tall))
    if label:
        parts.append(text(left + total + 4, y, label, 11, fill="var(--soft)"))
    return tag("g", "".join(parts), class_="cargo")


def carries(m, cells, look: Look, short: bool) -> str:
    """What a message carries, in few letters: "chunk 2", "chunks 2–3"; "all" of an array that isn't cut."""
    chunks = sorted({max(s for s in look.starts if s <= k) for k, _ in cells if k is not None})
    names = [look.labels[k] for k in chunks if k in look.labels]
    if not names or len(names) == len(look.labels):
        return "all" if len(cells) > 1 and len(m.places) == sum(b - a for a, b in look.columns) else ""
    places = [look.starts.index(k) for k in chunks]
    if places != list(range(places[0], places[-1] + 1)):
        return ",".join(names) if len(names) < 4 else plural(len(names), "chunk")
    if look.unit == "from":
        return f"{look.columns[chunks[0]][0]}:{max(m.places) + 1}"
    which = names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}"
    return which if short else f"chunk{'s' * (len(names) > 1)} {which}"
