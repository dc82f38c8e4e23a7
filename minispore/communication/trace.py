"""Trace: the records of a job as a drawing, for ui.perfetto.dev or chrome://tracing. A process a rank, a thread a group, its
messages on threads of their own, and an arrow from each message sent to where it was received."""
import json
from collections import defaultdict
from pathlib import Path

from minispore.communication.record import Event, Record
from minispore.communication.ring import CLOCK, HOST, SEEN

MESSAGES = ("send", "receive")
HAIR = 1e-3                 # microseconds: an arrow's end must lie inside what it points to


def shifts(records: list[Record]) -> list[float]:
    """Seconds to add to each record's times, to have them on the first one's clock. Those of one machine share a clock; else the
    wall's time must do."""
    first = records[0].header
    return [0.0 if r.header[HOST] == first[HOST] else int(r.header[CLOCK] - first[CLOCK]) / 1e9 for r in records]


def last_moment(records: list[Record]) -> float:
    """The last sign of life of any rank, on the first one's clock."""
    return max(max([r.header[SEEN] / 1e9, *(t for e in r.events for t in (e.begin, e.end))]) + shift
               for r, shift in zip(records, shifts(records), strict=True))


def trace(records: list[Record]) -> dict:
    """{"traceEvents": …}; times in microseconds from the first event that is kept. What isn't complete lasts to the end."""
    moved = [(e, shift) for r, shift in zip(records, shifts(records), strict=True) for e in r.events]
    start, last = min((e.begin + s for e, s in moved), default=0.0), last_moment(records)
    rows = [_name("process_name", r.rank, 0, f"rank {r.rank}") for r in records]
    lanes, drawn = {}, []
    for e, shift in moved:
        begin = (e.begin + shift - start) * 1e6
        end = ((e.end + shift if e.end else last) - start) * 1e6
        tid, new = _lane(lanes, e, begin, end)
        if new:
            rows.append(_name("thread_name", e.rank, tid, new))
        x = {"name": e.op, "cat": "message" if e.op in MESSAGES else "call", "ph": "X", "pid": e.rank, "tid": tid, "ts": begin,
             "dur": max(end - begin, 0.0), "args": {"group": e.group, "sequence": e.sequence, "op": e.op, "dtype": e.dtype,
             "count": e.count, "bytes": e.bytes, "peers": list(e.peers), "algorithm": e.algorithm, "detail": e.detail,
             "line": e.line, "complete": bool(e.end)}}
        drawn.append((e, x))
    return {"traceEvents": [*rows, *(x for _, x in drawn), *_arrows(drawn, any(r.first() for r in records))],
            "displayTimeUnit": "ms"}


def _lane(lanes: dict, e: Event, begin: float, end: float) -> tuple[int, str]:
    """The thread of an event, and its name if it is new. Bars that overlap need threads side by side."""
    kind = "messages" if e.op in MESSAGES else "calls"
    mine = lanes.setdefault(e.rank, {})
    free = mine.setdefault((e.group, kind), [])
    for lane in free:
        if lane[1] <= begin:
            lane[1] = end
            return lane[0], ""
    tid = 1 + sum(map(len, mine.values()))
    free.append([tid, end])
    return tid, (e.group if kind == "calls" else f"{e.group} messages") + (f" ({len(free)})" if len(free) > 1 else "")


def _arrows(drawn, lost: bool) -> list[dict]:
    """From the k-th send to the k-th receive of the same ranks in the same call."""
    ends = defaultdict(lambda: ([], []))
    for e, x in drawn:
        if e.op in MESSAGES:
            pair = (e.rank, *e.peers) if e.op == "send" else (*e.peers, e.rank)
            ends[e.group, e.sequence, pair][e.op == "receive"].append((e, x))
    rows = []
    for sends, receives in ends.values():
        if lost and len(sends) != len(receives):        # some are no longer kept: which belong together can't be said
            continue
        for (_, a), (e, b) in zip(sends, receives, strict=False):
            if not e.end:
                continue
            both = {"name": "message", "cat": "flow", "id": len(rows) // 2 + 1}
            rows.append(both | {"ph": "s", "pid": a["pid"], "tid": a["tid"], "ts": a["ts"]})
            at = max(b["ts"] + b["dur"] - HAIR, b["ts"])
            rows.append(both | {"ph": "f", "bp": "e", "pid": b["pid"], "tid": b["tid"], "ts": at})
    return rows


def _name(what: str, pid: int, tid: int, name: str) -> dict:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def save(records: list[Record], path) -> None:
    Path(path).write_text(json.dumps(trace(records)))
