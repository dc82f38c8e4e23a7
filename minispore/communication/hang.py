"""Hang: what the records of a killed or running job say about who waits for whom."""
import os
import sys
from collections import Counter
from dataclasses import dataclass

from minispore.communication import board
from minispore.communication.record import Event, Record
from minispore.communication.ring import HOST, PROCESS, this_host
from minispore.communication.trace import last_moment, shifts

PLAIN = ("Send", "Receive")


def report(records: list[Record]) -> str:
    """A line a rank, then what follows from them."""
    last, calls = last_moment(records), {r.rank: r.collectives() for r in records}
    lines = [f"rank {r.rank}: {state(r)}; {_last(calls[r.rank], last - shift)}"
             for r, shift in zip(records, shifts(records), strict=True)]
    found = [*waits(records), *endings(records)]
    return "\n".join([*lines, "", *(found or ["No rank waits, as far as the records say."])])


def waits(records: list[Record]) -> list[str]:
    """Who waits where, and for whom; nothing if nobody does."""
    calls = {r.rank: r.collectives() for r in records}
    return [*collectives(records, calls), *messages(records, calls)]


def state(record: Record) -> str:
    if record.state in board.ENDINGS:
        return board.ENDINGS[record.state]
    return "is gone without having said so" if gone(record) else "had not ended"


def gone(record: Record) -> bool:
    """Whether its process no longer exists. Only its own machine can tell; on Windows to ask would be to interrupt it."""
    process = int(record.header[PROCESS])
    if record.state in board.ENDINGS or not process or record.header[HOST] != this_host() or sys.platform == "win32":
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:             # it is somebody else's
        return False
    return False


def describe(e: Event) -> str:
    """A call, in words."""
    what = f"{e.op}({e.detail})" if e.detail else e.op
    other = f" with rank {e.peers[0]}" if e.op in PLAIN else f" number {e.sequence}"
    return f"{what}{other} of {e.group}, {e.count} × {e.dtype}" + (f", at {e.line}" if e.line else "")


def _last(calls: list[Event], now: float) -> str:
    """The last communication; beside it the oldest one that isn't complete, if that is another."""
    if not calls:
        return "no communication begun"
    shown = [calls[-1], *[e for e in calls[:-1] if not e.end][:1]]
    how = [f"{describe(e)}: " + ("complete" if e.end else f"not complete, under way for {now - e.begin:.3f} s") for e in shown]
    return f"last began {how[0]}" + (f"; earlier began {how[1]}" if how[1:] else "")


@dataclass(frozen=True)
class Meeting:
    """A collective that isn't complete. at: {rank: its call there}; waiting: those calls that aren't complete; missing: ranks of
    the group that haven't come."""
    at: dict[int, Event]
    waiting: dict[int, Event]
    missing: list[int]


def meetings(calls: dict[int, list[Event]]) -> list[Meeting]:
    """The collectives in which somebody waits. calls: {rank: its calls}."""
    there: dict[tuple, dict[int, Event]] = {}
    newest: dict[tuple, int] = {}                       # (rank, group) -> its last number there
    for rank, events in calls.items():
        for e in events:
            if e.op not in PLAIN:
                group = e.group, tuple(sorted({rank, *e.peers}))
                there.setdefault((*group, e.sequence), {})[rank] = e
                newest[rank, group] = max(e.sequence, newest.get((rank, group), 0))
    found = []
    for (name, ranks, number), at in sorted(there.items()):
        if waiting := {rank: e for rank, e in at.items() if not e.end}:
            missing = [r for r in ranks if newest.get((r, (name, ranks)), 0) < number]
            found.append(Meeting(at, waiting, missing))
    return found


def kind(e: Event) -> tuple:
    """What must agree between the calls of a collective."""
    return e.op, e.dtype, e.count, e.detail


def collectives(records: list[Record], calls: dict[int, list[Event]]) -> list[str]:
    """For each collective that isn't complete: who waits there, who is missing, who does something else there."""
    by_rank, lines = {r.rank: r for r in records}, []
    for meeting in meetings(calls):
        waiting = meeting.waiting.values()
        sample = next((e for e in waiting if e.line), next(iter(waiting)))
        lines.append(f"{_ranks(meeting.waiting)} in {describe(sample)}.")
        if meeting.missing:
            why = [f"rank {r} left no record" if r not in by_rank else f"rank {r} {state(by_rank[r])}" for r in meeting.missing]
            lines.append(f"  missing there: {'; '.join(why)}.")
        kinds: dict[tuple, list[int]] = {}
        for rank, e in meeting.at.items():
            kinds.setdefault(kind(e), []).append(rank)
        if len(kinds) > 1:
            lines += [f"  in different operations there: {_ranks(who, False)} in {describe(meeting.at[who[0]])}."
                      for who in kinds.values()]
    return lines


def messages(records: list[Record], calls: dict[int, list[Event]]) -> list[str]:
    """Receives for which nobody has begun to send, and what nobody has begun to receive."""
    lost = {r.rank for r in records if r.first()}
    sent, taken, lines = Counter(), Counter(), []
    events = [e for some in calls.values() for e in some if e.op in PLAIN and e.peers[0] in calls
              and not lost & {e.rank, e.peers[0]}]      # where the oldest are gone, no count is right
    for e in events:
        (sent if e.op == "Send" else taken)[_wire(e)] += 1
    for op, mine, others in (("Receive", taken, sent), ("Send", sent, taken)):
        for wire in mine - others:
            e = [e for e in events if e.op == op and _wire(e) == wire][-1]
            if op == "Receive":
                lines.append(f"rank {e.rank} waits in {describe(e)}: rank {e.peers[0]} began no such Send.")
            else:
                lines.append(f"rank {e.rank} made {describe(e)}: rank {e.peers[0]} began no such Receive.")
            lines += [f"  it began {describe(f)}: tag, count and dtype must agree." for f in events
                      if f.op != op and (f.rank, f.peers[0]) == (e.peers[0], e.rank) and _wire(f) in others - mine][:1]
    return lines


def _wire(e: Event) -> tuple:
    """What must agree for a message to be received: ranks, group, tag, kind of data."""
    pair = (e.rank, e.peers[0]) if e.op == "Send" else (e.peers[0], e.rank)
    return (*pair, e.group, e.sequence, e.dtype, e.count)


def endings(records: list[Record]) -> list[str]:
    lines = [f"rank {r.rank} has failed." for r in records if r.state == board.FAILED]
    lines += [f"rank {r.rank} is gone without having said so: it was killed, or crashed." for r in records if gone(r)]
    if absent := sorted(set(range(max(r.size for r in records))) - {r.rank for r in records}):
        lines.append(f"{_ranks(absent, False)} left no record here.")
    return lines


def _ranks(ranks, waits: bool = True) -> str:
    ranks = sorted(ranks)
    word = "rank" if len(ranks) == 1 else "ranks"
    verb = (" waits" if len(ranks) == 1 else " wait") if waits else ""
    return f"{word} {', '.join(map(str, ranks))}{verb}"
