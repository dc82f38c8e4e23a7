"""Timeline: what every rank did when, from the records of a job: calls as bars, messages as arrows from rank to rank.

trace.py beside the record makes the same for ui.perfetto.dev, which is better for long jobs.
"""
from collections import Counter
from html import escape
from math import floor, log10

from minispore.communication.trace import trace
from minispore.lab.draw.svg import HATCH, Picture, arrow, bent, colour, ink_on, line, picture, rect, tag, text, width_of
from minispore.lab.words import plural, size_of

WIDTH, LEFT, RIGHT, TOP = 880, 84, 26, 66
BAR, BETWEEN = 24, 6                # heights of a bar, and between bars of one rank that overlap
LANE = 34                           # free room below a rank's bars, for arrows
MOST_RANKS, MOST_ARROWS = 16, 600
UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))


def timeline(records, window: tuple[float, float] | None = None) -> Picture:
    """A lane a rank: its calls as bars, and the messages between the ranks as arrows from where they were sent to where they had
    been received.

    Args:
        records: list of Record, one a rank, as run_ranks' Result, get_record() or load_folder give them.
        window: (from, to) microseconds from the first event: show these only.

    A call that isn't complete is hatched and lasts to the end. A picture holds 600 messages at most; of more, take a window.

    >>> from minispore.communication.record import Record
    >>> timeline([Record(0, 2), Record(1, 2)])
    Picture: Timeline of 2 ranks. Nothing was recorded.
    """
    records = checked(records, "draw.timeline", MOST_RANKS)
    found = trace(records)["traceEvents"]
    bars = [e for e in found if e["ph"] == "X"]
    if not bars:
        return picture(WIDTH, 96, [text(24, 34, "nothing was recorded", 15, fill="var(--soft)"), text(
            24, 62, "ranks leave a record when they communicate", 13, fill="var(--soft)")],
            f"Timeline of {plural(len(records), 'rank')}", "Nothing was recorded.")
    low, high = window or (0.0, max(e["ts"] + e["dur"] for e in bars) or 1.0)
    if not low < high:
        raise ValueError(f"draw.timeline: window={window!r} must be (from, to) in microseconds, from before to")
    shown = [e for e in bars if e["ts"] <= high and e["ts"] + e["dur"] >= low]
    calls = [e for e in shown if e["cat"] == "call"]
    pairs = list(zip(*([e for e in found if e["ph"] == end] for end in "sf"), strict=True))
    pairs = [(s, f) for s, f in pairs if s["ts"] <= high and f["ts"] >= low]
    if len(pairs) > MOST_ARROWS:
        raise ValueError(f"draw.timeline: {len(pairs):,} messages are too many for one picture; at most {MOST_ARROWS} can be "
                         f"told apart. Give a window=(from, to) in microseconds, between 0 and {high:,.0f}, or look at the "
                         "whole with "
                         "minispore.communication.trace.save(records, path) in ui.perfetto.dev")

    def x(ts):
        return LEFT + (min(max(ts, low), high) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
    rows = {r.rank: sorted({e["tid"] for e in calls if e["pid"] == r.rank}) or [0] for r in records}
    ops = sorted({e["name"] for e in calls})            # the same colours in the next picture
    names, top = legend(calls, ops)
    tops, y = {}, top
    for rank, tids in rows.items():
        tops[rank] = y
        y += len(tids) * (BAR + BETWEEN) - BETWEEN + LANE
    bottom = y - LANE + 14
    unit = next((u for u in UNITS if high - low >= 2 * u[0]), UNITS[-1])
    body = [*axis(low, high, x, top - 14, bottom, unit), *names]
    for rank, tids in rows.items():
        middle = tops[rank] + (len(tids) * (BAR + BETWEEN) - BETWEEN) / 2
        body += [text(LEFT - 14, middle, f"rank {rank}", 12.5, "end", font_weight=600),
                 line(LEFT, middle, WIDTH - RIGHT, middle, "var(--edge)")]
    thin = len(pairs) > 60
    body += [flow(s, f, x, tops, rows, thin) for s, f in pairs]         # behind the bars, so that their names can be read
    for e in calls:
        body.append(bar(e, x, tops[e["pid"]] + rows[e["pid"]].index(e["tid"]) * (BAR + BETWEEN), ops.index(e["name"])))
    return picture(WIDTH, bottom + 44, body, f"Timeline of {plural(len(records), 'rank')}",
                   words(calls, pairs, low, high), HATCH)


def checked(records, who: str, most: int) -> list:
    """The records by rank, or an error that says what is wanted."""
    records = list(records) if isinstance(records, (list, tuple)) else [records]
    if not records or not all(hasattr(r, "events") and hasattr(r, "rank") for r in records):
        raise TypeError(f"{who}: give the list of the ranks' Records (job.records of a run, or load_folder(log_dir)), not "
                        f"{records!r:.80}")
    if len(records) > most:
        raise ValueError(f"{who}: {len(records)} ranks are too many for one picture; give the records of at most {most}")
    return sorted(records, key=lambda r: r.rank)


def bar(e: dict, x, y: float, which: int) -> str:
    """A call. Its name stands inside if it fits."""
    left, right = x(e["ts"]), x(e["ts"] + e["dur"])
    wide, args = max(right - left, 2.5), e["args"]
    about = (f"{e['name']} {args['sequence']} of {args['group']}: {args['count']} × {args['dtype']}, {e['dur']:.0f} µs"
             + ("" if args["complete"] else ", not complete"))
    parts = [tag("title", escape(about)),
             rect(left, y, wide, BAR, colour(which), "var(--panel)", rx=4, stroke_width=1)]
    if not args["complete"]:
        parts.append(rect(left, y, wide, BAR, "url(#ID-hatch)", rx=4))
    names = [f"{e['name']} · {size_of(args['bytes'])}", e["name"]] if args["bytes"] else [e["name"]]
    name = next((n for n in names if width_of(n, 11.5) < wide - 10), "")
    if name:
        parts.append(text(left + wide / 2, y + BAR / 2, name, 11.5, "middle", ink_on(which), font_weight=600))
    return tag("g", "".join(parts), class_="call" if args["complete"] else "call open")


def flow(start: dict, end: dict, x, tops: dict, rows: dict, thin: bool) -> str:
    """A message: from the lower or upper edge of the sender's bars to the nearer edge of the receiver's."""
    down = end["pid"] > start["pid"]

    def edge(rank, below):
        return tops[rank] + (len(rows[rank]) * (BAR + BETWEEN) - BETWEEN + 1 if below else -1)
    y0, y1 = edge(start["pid"], down), edge(end["pid"], not down)
    return arrow(bent(x(start["ts"]), y0, x(end["ts"]), y1), "var(--ink)", 0.8 if thin else 1.2, 4.5 if thin else 6.5,
                 opacity=0.45 if thin else 0.75, data_from=start["pid"], data_to=end["pid"])


def axis(low: float, high: float, x, top: float, bottom: float, unit, left: float = LEFT) -> list[str]:
    """Time, from the first event on."""
    scale, name = unit
    step = 10 ** floor(log10((high - low) / scale / 5))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / scale / (step * m) <= 8)
    first = -(-low / scale // step) + 0.0               # never -0
    parts = [line(left, bottom, WIDTH - RIGHT, bottom, "var(--line)")]
    at = first * step
    while at * scale <= high:
        here = x(at * scale)
        parts += [line(here, top, here, bottom, "var(--faint)"), line(here, bottom, here, bottom + 5),
                  text(here, bottom + 17, f"{at:g}", 11.5, "middle", "var(--soft)")]
        at = round(at + step, 9)
    return [*parts, text(left - 14, bottom + 17, name, 11.5, "end", "var(--soft)")]


def legend(calls: list[dict], ops: list[str]) -> tuple[list[str], float]:
    """The ops and their colours, in as many rows as they need, and where the ranks begin below."""
    many = Counter(e["name"] for e in calls)
    parts, x, y = [], LEFT, 20
    for i, op in enumerate(ops):
        words_ = f"{op} × {many[op]}"
        wide = 20 + width_of(words_, 12.5)
        if x + wide > WIDTH - RIGHT:
            x, y = LEFT, y + 22
        parts += [rect(x, y, 14, 14, colour(i), rx=3), text(x + 20, y + 7, words_, 12.5)]
        x += 24 + wide
    return parts, TOP + y - 20


def words(calls, pairs, low: float, high: float) -> str:
    many = Counter(e["name"] for e in calls)
    what = ", ".join(f"{n} {op}" for op, n in many.items()) or "no calls"
    left = [e for e in calls if not e["args"]["complete"]]
    text_ = f"{what} and {plural(len(pairs), 'message')} in {(high - low) / 1e3:.3g} ms."
    return text_ + (f" {plural(len(left), 'call')} not complete: ranks {', '.join(str(e['pid']) for e in left)}." if left else "")
