"""The record: every collective and every message of a rank, in order.

One record serves drawings, graders, measured costs and error reports. It is bounded: the oldest events go first.
"""
import json
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path

CAPACITY = 200_000          # events kept a rank; a LeNet step on 4 ranks makes 13


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


@dataclass
class Record:
    """The events of one rank."""
    rank: int
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=CAPACITY))

    def collectives(self) -> list[Event]:
        """The calls: AllReduce, Broadcast, Send, …"""
        return [e for e in self.events if e.op not in ("send", "receive")]

    def messages(self) -> list[Event]:
        """What this rank sent: one event a message."""
        return [e for e in self.events if e.op == "send"]

    def links(self) -> set[tuple[int, int]]:
        """(from, to) of every message this rank sent."""
        return {(e.rank, e.peers[0]) for e in self.messages()}

    def seconds(self) -> float:
        """Time this rank spent in communication that has ended."""
        return sum(e.end - e.begin for e in self.collectives() if e.end)

    def clear(self) -> None:
        self.events.clear()

    def save(self, path) -> None:
        """Write as JSON, one event a line."""
        Path(path).write_text("".join(json.dumps(asdict(e)) + "\n" for e in self.events))

    @classmethod
    def load(cls, path) -> "Record":
        """Read what `save` wrote."""
        events = [json.loads(line) for line in Path(path).read_text().splitlines()]
        record = cls(events[0]["rank"] if events else 0)
        record.events.extend(Event(**{**e, "peers": tuple(e["peers"])}) for e in events)
        return record

    def table(self) -> str:
        """The events as text, times in milliseconds from the first."""
        if not self.events:
            return "no communication recorded"
        start = self.events[0].begin
        rows = [f"{'ms':>9} {'took':>8}  {'op':<14}{'group':<20}{'#':>5} {'peers':<12}{'count':>9} dtype    algorithm"]
        for e in self.events:
            took = f"{(e.end - e.begin) * 1e3:8.3f}" if e.end else "     ..."
            peers = ",".join(map(str, e.peers)) if len(e.peers) < 5 else f"{len(e.peers)} ranks"
            rows.append(f"{(e.begin - start) * 1e3:9.3f} {took}  {e.op:<14}{e.group:<20}{e.sequence:>5} {peers:<12}"
                        f"{e.count:>9} {e.dtype:<8} {e.algorithm}")
        return "\n".join(rows)
