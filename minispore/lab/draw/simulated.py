"""Simulated: a program in virtual time: what is computed, what is on its way, where that isn't hidden, and the memory in use."""
from collections.abc import Mapping, Sequence
from functools import reduce
from html import escape

from minispore.lab.draw.curves import curves
from minispore.lab.draw.svg import HATCH, Picture, colour, ink_on, line, picture, rect, shortened, tag, text, width_of
from minispore.lab.draw.timeline import RIGHT, UNITS, WIDTH, axis
from minispore.parallel.simulator.efficiency import Point
from minispore.parallel.simulator.events import Span
from minispore.parallel.simulator.timeline import Part, Timeline, duration, size

LEFT, TOP = 124, 66
BAR, BETWEEN, MEMORY, LANE = 24, 8, 56, 42          # heights: of a stream, between, of the memory's curve, between roles
MOST_ROLES = 16
NARROW = 1.5                                        # pixels: what is narrower goes with its neighbour
BOLD = 12.1                                         # pixels of letters of 11 that are bold, as they are wide
FIRST = 1                                           # colour of the first collective; 0 is computing


def simulated(result: Timeline) -> Picture:
    """Of each role of a simulated step: the compute stream, hatched where it stands still for communication that isn't hidden;
    the port; and the memory in use.

    >>> from minispore.parallel.cost import cluster_of
    >>> from minispore.parallel.simulator.events import Compute, Role
    >>> from minispore.parallel.simulator.timeline import timeline
    >>> simulated(timeline([Role("rank 0", [Compute("dense", 1.0)])], cluster_of("cpu")))
    Picture: A step on cpu in virtual time. rank 0: computes 1 s of 1 s, 0 µs exposed, memory at most 0 bytes.
    """
    if not isinstance(result, Timeline):
        raise TypeError(f"draw.simulated: give what minispore.parallel.simulator.simulate returns, not {result!r:.80}")
    if len(result.parts) > MOST_ROLES:
        raise ValueError(f"draw.simulated: {len(result.parts)} roles are too many for one picture of at most {MOST_ROLES}; "
                         ".save(path) writes the whole for ui.perfetto.dev")
    high = result.seconds * 1e6 or 1.0              # the axis' numbers are microseconds
    unit = next((u for u in UNITS if high >= 2 * u[0]), UNITS[-1])

    def x(seconds):
        return LEFT + seconds * 1e6 / high * (WIDTH - LEFT - RIGHT)
    kinds = list(dict.fromkeys(s.kind or s.label for s in result.spans if s.stream == "communication"))
    body, top = legend(kinds)
    y = top
    for part in result.parts:
        mine = [s for s in result.spans if s.role == part.name]
        body += [text(LEFT, y + 6, part.name, 12.5, font_weight=600), *streams(mine, kinds, x, y + 18, result.seconds),
                 *memory(part, x, y + 18 + 2 * (BAR + BETWEEN), result)]
        y += 18 + 2 * (BAR + BETWEEN) + MEMORY + LANE
    bottom = y - LANE + 20
    desc = "; ".join(f"{p.name}: computes {duration(p.busy)} of {duration(result.seconds)}, {duration(p.exposed)} exposed, "
                     f"memory at most {size(p.peak)}" for p in result.parts)
    return picture(WIDTH, bottom + 40, [*axis(0.0, high, lambda us: x(us / 1e6), top + 10, bottom, unit, LEFT), *body],
                   f"A step on {result.cluster.name} in virtual time", f"{desc}.", HATCH)


def streams(spans: list[Span], kinds: list[str], x, y: float, seconds: float) -> list[str]:
    """The two streams of a role, one below the other."""
    port = [s for s in spans if s.stream == "communication"]
    computed = [s for s in spans if s.stream == "compute"]
    parts = [text(LEFT - 14, y + BAR / 2, "compute", 11.5, "end", "var(--soft)"),
             text(LEFT - 14, y + BAR + BETWEEN + BAR / 2, "communication", 11.5, "end", "var(--soft)"),
             *(line(LEFT, y + BAR / 2 + k * (BAR + BETWEEN), WIDTH - RIGHT, y + BAR / 2 + k * (BAR + BETWEEN), "var(--edge)")
               for k in range(2))]
    for begin, end in gaps(computed, seconds):
        for s in port:
            left, right = x(max(begin, s.begin)), x(min(end, s.end))
            if right - left > 0.2:
                parts.append(tag("g", tag("title", escape(f"stands still: {s.kind or s.label} isn't hidden"))
                                 + "".join(still(left, y, right - left, BAR)), class_="exposed"))
    cells = [s.label for s in computed if s.kind != "begin"]
    outermost = f"{reduce(common, cells)}." if cells else ""
    for s in together(computed, x):
        parts.append(bar(s, x, y, 0, [s.label.removeprefix(outermost)]))
    for s in port:
        name = s.kind or s.label
        parts.append(bar(s, x, y + BAR + BETWEEN, FIRST + kinds.index(name), [f"{name} · {size(s.inside + s.between)}", name]))
    return parts


def gaps(computed: list[Span], seconds: float) -> list[tuple[float, float]]:
    """When nothing is computed."""
    ends = [0.0, *(s.end for s in computed)]
    return [(a, b) for a, b in zip(ends, [*(s.begin for s in computed), seconds], strict=True) if b > a]


def together(spans: list[Span], x) -> list[Span]:
    """Neighbours of one cell as one, and those too narrow to be seen with the one before."""
    out: list[Span] = []
    for s in spans:
        before = out[-1] if out and s.begin == out[-1].end else None
        if before and (s.label == before.label or min(x(t.end) - x(t.begin) for t in (s, before)) < NARROW):
            same = s.label if s.label == before.label else common(before.label, s.label)
            out[-1] = before._replace(end=s.end, label=same)
        else:
            out.append(s)
    return out


def common(one: str, other: str) -> str:
    """The innermost cell that two are in; of ops outside cells nothing."""
    a, b = one.split("."), other.split(".")
    n = next((i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))
    return ".".join(a[:n])


def bar(s: Span, x, y: float, which: int, names: list[str]) -> str:
    """A span. The first of its names that fits stands inside, or the beginning and end of the last."""
    left, wide = x(s.begin), max(x(s.end) - x(s.begin), 0.6)
    parts = [tag("title", escape(f"{names[0] or 'several cells'}: {duration(s.end - s.begin)} from {duration(s.begin)} on")),
             rect(left, y, wide, BAR, colour(which), "var(--panel)", rx=min(3, wide / 3), stroke_width=0.6)]
    name = next((n for n in names if width_of(n, BOLD) < wide - 8), shortened(names[-1], wide - 8, BOLD))
    if name and (name in names or len(name) > 6):
        parts.append(text(left + wide / 2, y + BAR / 2, name, 11, "middle", ink_on(which), font_weight=600))
    return tag("g", "".join(parts), class_=s.stream)


def memory(part: Part, x, y: float, result: Timeline) -> list[str]:
    """Memory in use as a curve; its top is the most that is used."""
    top = part.peak or 1
    path, last = "", None
    for moment, used in part.memory:
        here, height = x(moment), y + MEMORY - used / top * (MEMORY - 14)
        if last is not None and here - last[0] < 0.25 and moment < result.seconds and height >= last[1]:
            continue                                # a dip that can't be seen
        path += f"M{here:.1f} {height:.1f}" if last is None else f"H{here:.1f}V{height:.1f}"
        last = here, height
    end = x(result.seconds)
    area = f"{path}H{end:.1f}V{y + MEMORY:.1f}H{LEFT}Z"
    share = part.peak / result.cluster.device.memory
    said = f"at most {size(part.peak)}, {share:.1%} of a card" + (": it doesn't fit" if share > 1 else "")
    return [tag("path", d=area, fill=colour(2), fill_opacity=0.3),
            tag("path", d=f"{path}H{end:.1f}", fill="none", stroke=colour(2), class_="memory"),
            text(LEFT - 14, y + MEMORY - 8, "memory", 11.5, "end", "var(--soft)"),
            text(WIDTH - RIGHT, y + 4, said, 11.5, "end", "var(--bad)" if share > 1 else "var(--ink)")]


def legend(kinds: list[str]) -> tuple[list[str], float]:
    """What the colours mean, in as many rows as that needs, and where the roles begin below."""
    parts, x, y = [], LEFT, 20
    for i, words in enumerate(["computes", *kinds, "stands still: communication isn't hidden"]):
        wide = 20 + width_of(words, 12.5)
        if x + wide > WIDTH - RIGHT:
            x, y = LEFT, y + 22
        parts += [rect(x, y, 14, 14, colour(i), rx=3)] if i <= len(kinds) else still(x, y, 14, 14)
        parts.append(text(x + 20, y + 7, words, 12.5))
        x += 24 + wide
    return parts, TOP + y - 20


def still(x: float, y: float, wide: float, tall: float) -> list[str]:
    """Standing still: hatched, on a colour of its own."""
    return [rect(x, y, wide, tall, "var(--strong)", rx=2), rect(x, y, wide, tall, "url(#ID-hatch)", rx=2)]


def scaling(series: Mapping[str, Sequence[Point]]) -> Picture:
    """How many times the work of the fewest cards is done, against the number of cards: {name: points of simulator}, all
    of the same cards.

    >>> scaling({"LeNet": [Point(1, 1.0, 0.0, 1.0), Point(8, 1.25, 0.25, 0.8)]})
    Picture: times the work against cards. ideal: 1 at 1, 8 at 8; LeNet: 1 at 1, 6.4 at 8.
    """
    cards = [p.cards for p in next(iter(series.values()), [])]
    first = cards[0] if cards else 1
    rows = {name: [p.cards / first * p.efficiency for p in points] for name, points in series.items()}
    return curves({"ideal": [n / first for n in cards], **rows}, cards, "cards", "times the work", log=True)
