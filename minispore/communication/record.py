"""The record: every collective and every message of a rank, in order.

One record serves drawings, graders, measured costs and error reports. It is bounded: the oldest events go first (see ring.py).
"""
import json
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from minispore.communication import board
from minispore.communication.ring import (
    ALL,
    BEGIN,
    CAPACITY,
    CLOCK,
    END,
    EVENTS,
    FIRST,
    FORMAT,
    HOST,
    LINE,
    NUMBER,
    OP,
    OP_IDS,
    OPS,
    PEER,
    PROCESS,
    SEND,
    SPENT,
    STATE,
    Ring,
)


@dataclass(slots=True)
class Event:
    """A collective (op "AllReduce", …) or one message of it (op "send" or "receive").

    rank: who recorded it; group: its name; sequence: number of the collective in its group; peers: world ranks at the
    other end(s); bytes: of this rank's data; begin, end: seconds on the machine's monotonic clock (end 0: not yet).
    """
    rank: int
    group: str
    sequence: int
    op: str
    dtype: str
    count: int
    peers: tuple[int, ...]
    bytes: int
    begin: float
    end: float = 0.0
    algorithm: str = ""
    detail: str = ""            # reduction ("sum", …), root, or the tensor's name
    line: str = ""              # of the script, once it has waited there for long


class Record(Ring):
    """The events of one rank, read back from its ring."""

    def first(self) -> int:
        """Slot of the oldest event that is kept."""
        return max(self._header[FIRST], self._header[EVENTS] - self.capacity)

    def _kept(self) -> np.ndarray:
        """A copy of the rows, oldest first."""
        slots = np.arange(self.first(), self._header[EVENTS])
        rows = self.rows[slots % self.capacity]
        return rows[rows[:, NUMBER] == slots + 1]

    def _events(self, rows: np.ndarray) -> list[Event]:
        rank, texts, groups, events = self.rank, self.texts(), {}, []
        for group, sequence, op, dtype, count, peer, nbytes, begin, end, algorithm, detail, line, *_ in rows.tolist():
            if group not in groups:
                name, tab, ranks = texts[group].rpartition("\t")
                groups[group] = (name, _numbers(ranks)) if tab else (ranks, ())
            name, members = groups[group]
            peers = tuple(r for r in members if r != rank) if peer == ALL else (peer,)
            events.append(Event(rank, name, sequence, OPS[op], board.DTYPES[dtype], count, peers, nbytes, begin / 1e9, end / 1e9,
                                texts[algorithm], texts[detail], texts[line]))
        return events

    @property
    def events(self) -> list[Event]:
        """All that are kept, oldest first."""
        return self._events(self._kept())

    def collectives(self) -> list[Event]:
        """The calls: AllReduce, Broadcast, Send, …"""
        rows = self._kept()
        return self._events(rows[rows[:, OP] < SEND])

    def messages(self) -> list[Event]:
        """What this rank sent: one event a message."""
        rows = self._kept()
        return self._events(rows[rows[:, OP] == SEND])

    def links(self) -> set[tuple[int, int]]:
        """(from, to) of every message this rank sent."""
        rows = self._kept()
        return {(self.rank, to) for to in np.unique(rows[rows[:, OP] == SEND, PEER]).tolist()}

    def seconds(self) -> float:
        """Time this rank spent in communication that has ended, events no longer kept included."""
        return self._header[SPENT] / 1e9

    def save(self, path) -> None:
        """Write as JSON, one event a line."""
        Path(path).write_text("".join(json.dumps(asdict(e)) + "\n" for e in self.events))

    @classmethod
    def load(cls, path) -> "Record":
        """Read what `save` wrote, or the file of a ring; the rank may still be writing there."""
        with open(path, "rb") as f:
            ring = f.read(8) == FORMAT[0].to_bytes(8, "little")
        return super().load(path) if ring else cls._load_lines(path)

    @classmethod
    def _load_lines(cls, path) -> "Record":
        try:
            events = [Event(**json.loads(line)) for line in Path(path).read_text().splitlines()]
        except (TypeError, ValueError) as e:
            raise ValueError(f"{path} is no record: neither a ring nor one JSON event a line ({e})") from e
        ranks = {r for e in events for r in (e.rank, *e.peers)}
        record = cls(events[0].rank if events else 0, max(ranks, default=0) + 1, capacity=max(CAPACITY, len(events)))
        record.header[[CLOCK, PROCESS, HOST]] = 0
        record.header[STATE] = board.ENDED
        for e in events:
            all_others = e.op not in ("send", "receive", "Send", "Receive")
            slot = record.begin(OP_IDS[e.op], record.group(e.group, (e.rank, *e.peers) if all_others else ()), e.sequence,
                                board.DTYPES.index(e.dtype), e.count, ALL if all_others else e.peers[0], e.bytes,
                                record.intern(e.algorithm), record.intern(e.detail))
            record.rows[slot, [BEGIN, END]] = _nanoseconds(e.begin), _nanoseconds(e.end)
            record.rows[slot, LINE] = record.intern(e.line)
        calls = record.rows[(record.rows[:, OP] < SEND) & (record.rows[:, END] > 0)]
        record.header[SPENT] = (calls[:, END] - calls[:, BEGIN]).sum()
        return record

    def table(self) -> str:
        """The events as text, times in milliseconds from the first."""
        events = self.events
        if not events:
            return "no communication recorded"
        start = events[0].begin
        rows = [f"{'ms':>9} {'took':>8}  {'op':<14}{'group':<20}{'#':>5} {'peers':<12}{'count':>9} dtype    algorithm"]
        for e in events:
            took = f"{(e.end - e.begin) * 1e3:8.3f}" if e.end else "     ..."
            peers = ",".join(map(str, e.peers)) if len(e.peers) < 5 else f"{len(e.peers)} ranks"
            rows.append(f"{(e.begin - start) * 1e3:9.3f} {took}  {e.op:<14}{e.group:<20}{e.sequence:>5} {peers:<12}"
                        f"{e.count:>9} {e.dtype:<8} {e.algorithm}")
        return "\n".join(rows)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _nanoseconds(seconds: float) -> int:
    """Exactly those that the seconds were made of, if they were printed in full."""
    return round(Decimal(repr(float(seconds))).scaleb(9))


def load_folder(folder) -> list[Record]:
    """The records of a job, by rank: record_<rank>.ring, or where there are none record_<rank>.json."""
    for ending in ("ring", "json"):
        if found := list(Path(folder).glob(f"record_*.{ending}")):
            return sorted((Record.load(path) for path in found), key=lambda r: r.rank)
    raise FileNotFoundError(f"{folder} holds no record_<rank>.ring, the record that each rank of an msrun job leaves in its log "
                            "folder. Give the job's --log_dir, or the folder that MINISPORE_RECORD named")
