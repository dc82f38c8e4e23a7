"""Plan: what auto parallel's search has found, as a heat map: how each op is split, what that costs and holds, and what the next
best would add. The rows are those of parallel/search/explain.py, which writes them as text, too."""
from collections.abc import Iterable
from functools import reduce
from html import escape

from minispore.lab.draw.graph import MOVES
from minispore.lab.draw.simulated import common
from minispore.lab.draw.svg import Picture, picture, rect, shortened, tag, text, width_of
from minispore.parallel.search import Found
from minispore.parallel.search.explain import Row, line, more, split_as, times
from minispore.parallel.simulate import LocalProgram
from minispore.parallel.simulator.timeline import duration, size

WIDTH, LEFT, MOST = 880, 22, 20
TILE, BETWEEN = 62, 12                  # of the totals: height, pixels between
TOP, ROW, CELL = 202, 40, 36            # where the rows begin, and their heights
COLUMNS = {"computing": (416, 92, "var(--c0)"), "moving": (512, 92, "var(--strong)"),      # left, width, colour
           "memory": (608, 92, "var(--c2)"), "extra": (704, 154, "var(--c3)")}
HEADS = {"computing": "computing", "moving": "moving", "memory": "memory held", "extra": "next best adds"}
ROOM = 416 - LEFT - 12                  # pixels for a row's words
PALE, DARK = 0.05, 0.5                  # of a cell's colour: letters of the page's ink can be read on it, in both themes
BOLD = 1.08                             # how much wider bold letters are


def plan(found, most: int = MOST) -> Picture:
    """A found plan, the dearest ops first; what is alike in equal layers is one row.

    found: a Found, or the program that minispore.compile returns in auto_parallel. most: how many rows of ops; the others are
    one more, so that the columns' sums are the plan's.

    >>> from minispore import Tensor, compile, ops
    >>> x = Tensor([[1.0, 2.0]] * 4)
    >>> print(plan(compile(lambda x: ops.tanh(x), x, device_num=2, parallel_mode="auto_parallel", cluster="cpu")).alt[:57])
    The plan of recursive_programming for 2 × cpu (64 a node)
    """
    if isinstance(found, LocalProgram):
        found = found.plan
    if not isinstance(found, Found):
        raise TypeError(f"draw.plan: {type(found).__name__} is no plan that was searched; give what minispore.compile(…, "
                        'parallel_mode="auto_parallel") returns')
    if not isinstance(most, int) or most < 0:
        raise ValueError(f"draw.plan: most={most!r} rows; give a whole number, 0 or more")
    rows = found.rows(most)
    where = f"{found.plan.mesh.n} × {found.task.cluster}"
    totals = totals_of(found)
    bottom = TOP + len(rows) * ROW
    body = [text(LEFT, 32, shortened(f"The plan for {where}", WIDTH - 2 * LEFT, 17 * BOLD), 17, font_weight=600),
            text(LEFT, 54, f'search_mode="{found.mode}" found it in {duration(found.took)}', 12.5, fill="var(--soft)"),
            *tiles(totals), *heads(rows), *table(rows, found.seconds), *legend(bottom + 22)]
    said = "; ".join(f"{name}: {value}, {note}" for name, value, note, _ in totals)
    return picture(WIDTH, bottom + 82, body, f"The plan of {found.mode} for {where}",
                   f"{said[0].upper()}{said[1:]}. {'; '.join(map(line, rows))}.")


# ---- the totals --------------------------------------------------------------------------------------------

def totals_of(found: Found) -> list[tuple]:
    """(name, value, note, shares that its bar shows as (share, colour))."""
    compute, moves = (sum(part.values()) for part in found.parts)
    whole = found.seconds or 1.0
    out = [("a step", duration(found.seconds), f"{duration(compute)} + {duration(moves)} moving",
            [(compute / whole, "var(--c0)"), (moves / whole, "var(--strong)")])]
    if found.data_parallel is None:
        out.append(("pure data parallel", "left out", "strategies are set", []))
    else:
        other, memory = (of(found.data_parallel) for of in (found.task.seconds, found.task.memory))
        ratio = other / found.seconds if found.seconds else 1.0
        out.append(("pure data parallel", f"{ratio:.2f} × as long", f"{duration(other)}, {size(memory)} a rank",
                    [(found.seconds / (other or 1.0), "var(--soft)")]))
    if found.bound is None:
        out.append(("above the best", "unknown", "no bound is proved", []))
    else:
        out.append(("above the best", f"{found.gap:.2%} at most", f"no plan is below {duration(found.bound)}",
                    [(found.bound / whole, "var(--soft)")]))
    card = found.task.cluster.device.memory
    note = f"no limit; a card has {size(card)}" if found.limit is None else f"of {size(found.limit)}, the limit"
    return [*out, ("memory a rank", size(found.memory), note, [(found.memory / (found.limit or card), "var(--c2)")])]


def tiles(totals: list[tuple]) -> Iterable[str]:
    """The totals side by side, each with a bar."""
    wide = (WIDTH - 2 * LEFT + BETWEEN) / len(totals) - BETWEEN
    for i, (name, value, note, shares) in enumerate(totals):
        x, y = LEFT + i * (wide + BETWEEN), 74
        parts = [rect(x, y, wide, TILE + 6, "var(--faint)", rx=8), text(x + 12, y + 15, name, 11, fill="var(--soft)"),
                 text(x + 12, y + 33, shortened(value, wide - 24, 15 * BOLD), 15, font_weight=600),
                 text(x + 12, y + 50, shortened(note, wide - 24, 10.5), 10.5, fill="var(--soft)")]
        left = x + 12
        for share, fill in shares:
            long = min(share * (wide - 24), x + wide - 12 - left)
            parts.append(rect(left, y + 60, long, 3, fill))
            left += long
        yield tag("g", "".join(parts), class_="total")


# ---- the map -----------------------------------------------------------------------------------------------

def heads(rows: list[Row]) -> Iterable[str]:
    """What the columns are, and their sums."""
    y = TOP - 34
    yield text(LEFT, y, "op, in which cell, its result's shape", 12, font_weight=600)
    yield text(LEFT, y + 17, "how its inputs are split, and the collectives of its moves", 11, fill="var(--soft)")
    for name, (x, wide, _) in COLUMNS.items():
        total = sum(getattr(row, name) for row in rows)
        yield text(x + wide / 2, y, HEADS[name], 12, "middle", font_weight=600)
        yield text(x + wide / 2, y + 17, {"memory": f"{size(total)} in all", "extra": "and how it splits"}.get(
            name, f"{duration(total)} in all"), 11, "middle", "var(--soft)")


def table(rows: list[Row], seconds: float) -> Iterable[str]:
    """A row each. Computing and moving share one scale, whose end is what the dearest op takes; the others have their own."""
    dearest = max((max(row.computing, row.moving) for row in rows if row.strategy is not None), default=0.0) or 1.0
    largest, held = max((row.memory for row in rows), default=0) or 1, sum(row.memory for row in rows)
    most = max((abs(row.extra) for row in rows), default=0.0) or 1.0
    scopes = [row.scope for row in rows if row.strategy is not None]
    outermost = reduce(common, scopes) if scopes else ""
    for i, row in enumerate(rows):
        y = TOP + i * ROW
        parts = [tag("title", escape(line(row))), *label(row, y, outermost)]
        for name in ("computing", "moving"):
            spent = getattr(row, name)
            parts.append(cell(name, y, spent / dearest, duration(spent) if spent else "", share(spent, seconds)))
        parts.append(cell("memory", y, row.memory / largest, size(row.memory) if row.memory else "", share(row.memory, held)))
        if row.other is not None:
            parts.append(cell("extra", y, row.extra / most, more(row.extra), narrow(split_as(row.other))))
        elif row.strategy is not None:
            parts.append(cell("extra", y, 0.0, "", ""))
        yield tag("g", "".join(parts), class_="row")


def share(part: float, whole: float) -> str:
    """A share in percent, where it isn't next to nothing."""
    return f"{part / whole:.1%}" if part >= 0.0005 * whole > 0 else ""


def narrow(strategy: str) -> str:
    """A strategy without blanks, for where there is little room."""
    return strategy.replace(", ", ",").replace(") (", ")(")


def label(row: Row, y: float, outermost: str) -> Iterable[str]:
    """Two lines: which op, and how it is split with what follows from that. Cells are called as within the outermost one."""
    op, where = times(row), [row.scope[len(outermost):].lstrip("."), str(row.shape) if row.shape else ""]
    causes = shortened(", ".join(f"{n:,} {MOVES[kind]}" for kind, n in row.collectives.items()), ROOM - 90, 11 * BOLD)
    strategy = "" if row.strategy is None else split_as(row.strategy)
    yield from beside((op, 13, {"font_weight": 600}), (" ".join(filter(None, where)), 11.5, {"fill": "var(--soft)"}), y + 11)
    yield from beside((shortened(strategy, ROOM - width_of(causes, 11 * BOLD) - 12, 11, mono=True), 11, {"class_": "mono"}),
                      (causes, 11, {"fill": "var(--strong)", "font_weight": 600}), y + 27)


def beside(one: tuple, other: tuple, y: float) -> Iterable[str]:
    """Two texts side by side, as far as they are there and have room: (words, size of letters, how they look)."""
    left = LEFT
    for words, letters, how in (one, other):
        mono, wide = "class_" in how, letters * (BOLD if "font_weight" in how else 1.0)
        if words:
            words = shortened(words, max(LEFT + ROOM - left, 0), wide, mono)
            yield text(left, y, words, letters, **how)
            left += width_of(words, wide, mono) + 10


def cell(name: str, y: float, depth: float, said: str, below: str) -> str:
    """A cell of the map, as deep in colour as `depth`; below 0, where the next best is better than the plan, it has an edge."""
    x, wide, fill = COLUMNS[name]
    parts = [rect(x, y, wide, CELL, "var(--faint)", rx=5)]
    if not said:
        return tag("g", parts[0] + text(x + wide / 2, y + CELL / 2, "·", 14, "middle", "var(--line)"), class_=name)
    fill, edge = ("var(--good)", "var(--good)") if depth < 0 else (fill, None)
    deep = PALE + (DARK - PALE) * min(abs(depth), 1.0)
    parts += [rect(x, y, wide, CELL, fill, edge, 5, fill_opacity=deep),
              text(x + wide / 2, y + (11 if below else CELL / 2), said, 12.5, "middle", font_weight=600),
              text(x + wide / 2, y + 26, shortened(below, wide - 10, 10, mono=True), 10, "middle", class_="mono")]
    return tag("g", "".join(parts), class_=name)


def legend(y: float) -> Iterable[str]:
    """What the colours mean."""
    for i in range(6):
        yield rect(LEFT + i * 16, y - 6, 16, 12, "var(--c0)", fill_opacity=PALE + (DARK - PALE) * i / 5)
    yield text(LEFT + 106, y, "deeper: more of the step, or of the memory; computing and moving share one scale", 11,
               fill="var(--soft)")
    for i, words in enumerate((
            "memory held: by an op's results when most is held at once; a program also holds what is on its way and some gaps",
            "next best: the best other way to split an op, all others as they are, summed over those alike; − is better")):
        yield text(LEFT, y + 20 * (i + 1), words, 11, fill="var(--soft)")
