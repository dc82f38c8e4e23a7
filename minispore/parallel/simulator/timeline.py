"""Timeline: what a simulated program did when, and the figures that follow from it."""
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minispore.parallel.cost.cluster import Cluster
from minispore.parallel.simulator.events import Lane, Role, Span, play

INSIDE, BETWEEN = "inside a node", "between nodes"


@dataclass(frozen=True)
class Part:
    """One role's share. busy: seconds in which it computes; exposed: seconds in which it stands still while what it waits for is
    on its way; memory: (seconds, bytes in use from then on), from 0 on."""
    name: str
    ranks: int
    busy: float
    exposed: float
    memory: tuple[tuple[float, int], ...]

    @property
    def peak(self) -> int:
        return max(bytes for _, bytes in self.memory)


@dataclass(frozen=True)
class Timeline:
    """One run of a program in virtual time: spans, and a Part for each role."""
    cluster: Cluster
    seconds: float
    spans: tuple[Span, ...]
    parts: tuple[Part, ...]

    @property
    def ranks(self) -> int:
        return sum(part.ranks for part in self.parts)

    @property
    def compute(self) -> float:
        """Seconds in which a rank computes (the mean over the ranks, as all shares here)."""
        return sum(part.ranks * part.busy for part in self.parts) / self.ranks

    @property
    def idle(self) -> float:
        """The share of the step in which the compute stream stands still."""
        return max(1 - self.compute / self.seconds, 0.0) if self.seconds else 0.0

    @property
    def exposed(self) -> float:
        """Seconds of communication that no computing hides."""
        return sum(part.ranks * part.exposed for part in self.parts) / self.ranks

    @property
    def communication(self) -> float:
        """Seconds in which a rank's port is busy."""
        many = {part.name: part.ranks for part in self.parts}
        return sum(many[s.role] * (s.end - s.begin) for s in self.spans if s.stream == "communication") / self.ranks

    @property
    def bytes_by_collective(self) -> dict[str, dict[str, int]]:
        """What a rank sends: {collective: {link: bytes}}."""
        many, out = {part.name: part.ranks for part in self.parts}, defaultdict(lambda: {INSIDE: 0.0, BETWEEN: 0.0})
        for s in self.spans:
            if s.stream == "communication":
                out[s.kind][INSIDE] += s.inside * many[s.role] / self.ranks
                out[s.kind][BETWEEN] += s.between * many[s.role] / self.ranks
        return {kind: {link: round(n) for link, n in links.items()} for kind, links in out.items()}

    @property
    def bytes(self) -> dict[str, int]:
        """What a rank sends: {link: bytes}."""
        return {link: sum(row[link] for row in self.bytes_by_collective.values()) for link in (INSIDE, BETWEEN)}

    @property
    def peak(self) -> int:
        """Bytes that the fullest card needs."""
        return max(part.peak for part in self.parts)

    def summary(self) -> dict:
        """The figures, as JSON has them."""
        return {"cluster": self.cluster.name, "ranks": self.ranks, "seconds": self.seconds, "compute_seconds": self.compute,
                "idle": self.idle, "communication_seconds": self.communication, "exposed_seconds": self.exposed,
                "bytes": self.bytes, "bytes_by_collective": self.bytes_by_collective, "memory_peak": self.peak,
                "memory_card": self.cluster.device.memory}

    def show(self) -> str:
        """The figures as text."""
        f = self.summary()
        full = f["memory_peak"] / f["memory_card"]
        lines = [f"{self.ranks} {'rank' if self.ranks == 1 else 'ranks'} of {self.cluster}: {self.cluster.device.name}",
                 f"step            {duration(self.seconds)}",
                 f"idle            {self.idle:.1%} of it: nothing is computed",
                 f"communication   {duration(f['communication_seconds'])}, of which {duration(f['exposed_seconds'])} exposed, "
                 "not hidden by computing"]
        for link, sent in f["bytes"].items():
            which = ", ".join(f"{kind} {size(row[link])}" for kind, row in f["bytes_by_collective"].items() if row[link])
            lines.append(f"{link:<15} {size(sent)} a rank sends" + (f": {which}" if which else ""))
        lines.append(f"memory          {size(self.peak)} at most, {full:.1%} of a card's {size(f['memory_card'])}"
                     + (": it doesn't fit" if full > 1 else ""))
        return "\n".join(lines)

    __str__ = show

    def trace(self) -> dict:
        """For ui.perfetto.dev: a process a role, a thread a stream, memory as a counter.

        Times are microseconds of whole nanoseconds, as it reads them: so a span ends where the next begins, and none overlap. The
        process 0 is for it the one that idles.
        """
        rows, pids = [], {part.name: i for i, part in enumerate(self.parts, 1)}
        for name, pid in pids.items():
            rows.append(_name("process_name", pid, 0, name))
            rows += [_name("thread_name", pid, tid, stream) for stream, tid in STREAMS.items()]
        for s in self.spans:
            rows.append({"name": s.kind or s.label, "cat": s.stream, "ph": "X", "pid": pids[s.role], "tid": STREAMS[s.stream],
                         "ts": ns(s.begin) / 1e3, "dur": (ns(s.end) - ns(s.begin)) / 1e3,
                         "args": {"label": s.label, INSIDE: round(s.inside), BETWEEN: round(s.between)}})
        for part in self.parts:
            rows += [{"name": "memory", "ph": "C", "pid": pids[part.name], "ts": ns(t) / 1e3, "args": {"bytes": n}}
                     for t, n in part.memory]
        return {"traceEvents": rows, "displayTimeUnit": "ms"}

    def save(self, path) -> None:
        """Write `trace` to a file."""
        Path(path).write_text(json.dumps(self.trace()), encoding="utf-8")


STREAMS = {"compute": 1, "communication": 2}


def timeline(roles: Sequence[Role], cluster: Cluster) -> Timeline:
    """Run the roles' programs, and look at what came of it.

    >>> from minispore.parallel.cost import cluster_of
    >>> from minispore.parallel.simulator.events import Begin, Compute, Wait
    >>> hidden = [Begin(0, "AllReduce", 2.0), Compute("backward", 3.0), Wait(0), Compute("optimizer", 1.0)]
    >>> line = timeline([Role("all", hidden, ranks=4)], cluster_of("a100"))
    >>> line.seconds, line.idle, line.exposed
    (4.0, 0.0, 0.0)
    """
    lanes = play(roles)
    seconds = max((max(lane.clock, lane.free) for lane in lanes), default=0.0)
    return Timeline(cluster, seconds, tuple(s for lane in lanes for s in lane.spans), tuple(map(part_of, lanes)))


def part_of(lane: Lane) -> Part:
    busy = sum(s.end - s.begin for s in lane.spans if s.stream == "compute")
    port = [(s.begin, s.end) for s in lane.spans if s.stream == "communication"]
    stalls = [*lane.stalls, (lane.clock, max(lane.clock, lane.free), None)]
    exposed = sum(max(min(end, b) - max(begin, a), 0.0) for begin, end, message in stalls
                  for a, b in ([message] if message else port))
    return Part(lane.role.name, lane.role.ranks, busy, exposed, ((0.0, lane.role.held), *lane.memory))


def duration(seconds: float) -> str:
    """In a unit that suits it.

    >>> duration(0.0012345), duration(2e-5)
    ('1.23 ms', '20 µs')
    """
    scale, unit = next(((s, u) for s, u in ((1, "s"), (1e-3, "ms")) if seconds >= s), (1e-6, "µs"))
    return f"{seconds / scale:.3g} {unit}"


def size(bytes: float) -> str:
    """In a unit that suits it.

    >>> size(1_500_000), size(12)
    ('1.5 MB', '12 bytes')
    """
    scale, unit = next(((s, u) for s, u in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")) if bytes >= s), (1, "bytes"))
    return f"{bytes / scale:.3g} {unit}"


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _name(what: str, pid: int, tid: int, name: str) -> dict:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
