"""The engine: programs in virtual time.

Ranks that do the same at the same times are one *role*: all ranks of a program that is cut evenly, or a pipeline's stage. A role
has two streams. What is computed runs one behind the other; collectives and messages go out by the port, one behind the other
too, and wait for nobody but those that take part. So the order in which roles are looked at changes nothing.
"""
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from minispore.common.errors import CollectiveError


class Hold(NamedTuple):
    """So many bytes of memory are taken or, if negative, given back, in no time."""
    change: int


class Compute(NamedTuple):
    """The compute stream works. takes, frees: bytes of memory, at its begin and at its end."""
    label: str
    seconds: float
    takes: int = 0
    frees: int = 0
    kind: str = ""


class Begin(NamedTuple):
    """A collective is given to the port, and runs once the ports of all `members` (roles; none: just this one) have come to it.

    key: what Wait calls it by, and what it is called by all members. inside, between: bytes that a rank sends within its node
    and to other nodes.
    """
    key: Hashable
    label: str
    seconds: float
    inside: float = 0
    between: float = 0
    members: tuple[str, ...] = ()
    takes: int = 0
    kind: str = ""


class Wait(NamedTuple):
    """The compute stream stands still until that collective is complete."""
    key: Hashable
    frees: int = 0


class Send(NamedTuple):
    """A message to a role, maybe one's own, is given to the port. It is copied, so the sender goes on."""
    to: str
    key: Hashable
    label: str
    seconds: float
    inside: float = 0
    between: float = 0
    kind: str = "Send"


class Receive(NamedTuple):
    """The compute stream stands still until the next message of this key is there."""
    source: str
    key: Hashable


@dataclass(frozen=True)
class Role:
    """What some ranks do. ranks: how many; held: bytes that each keeps all the time, as its parameters."""
    name: str
    events: Sequence
    ranks: int = 1
    held: int = 0


class Span(NamedTuple):
    """Something that a stream ("compute" or "communication") of a role has done."""
    role: str
    stream: str
    label: str
    kind: str
    begin: float
    end: float
    inside: float = 0
    between: float = 0


@dataclass
class Lane:
    """A role while it runs: how far it has come, and what it has done."""
    role: Role
    at: int = 0                                             # its next event
    clock: float = 0.0                                      # of the compute stream
    free: float = 0.0                                       # when the port is
    queue: deque = field(default_factory=deque)             # (event, when it was given to the port)
    complete: dict = field(default_factory=dict)            # key: when the collective is
    spans: list[Span] = field(default_factory=list)
    stalls: list[tuple] = field(default_factory=list)       # (begin, end, of the message waited for or None: of the port)
    memory: list[tuple[float, int]] = field(default_factory=list)

    def take(self, change: int) -> None:
        if change:
            self.memory.append((self.clock, self.memory[-1][1] + change if self.memory else self.role.held + change))

    def until(self, moment: float, message: tuple | None = None) -> None:
        """Stand still."""
        if moment > self.clock:
            self.stalls.append((self.clock, moment, message))
            self.clock = moment


def play(roles: Sequence[Role]) -> list[Lane]:
    """Run the roles' programs to their ends. CollectiveError says who waits for what, if they can't get there.

    >>> first = Role("a", [Compute("forward", 2.0), Send("b", 0, "x", 1.0)])
    >>> second = Role("b", [Receive("a", 0), Compute("forward", 2.0)])
    >>> [(lane.clock, lane.stalls) for lane in play([first, second])]
    [(2.0, []), (5.0, [(0.0, 3.0, (2.0, 3.0))])]
    """
    lanes = {role.name: Lane(role) for role in roles}
    if len(lanes) < len(roles):
        raise ValueError(f"roles are told apart by their names; these are {', '.join(role.name for role in roles)}")
    mail: dict[tuple, deque] = defaultdict(deque)           # (from, to, key): when messages leave and arrive
    while any([advance(lane, mail) | serve(lane, lanes, mail) for lane in lanes.values()]):
        pass
    if stuck := [lane for lane in lanes.values() if lane.at < len(lane.role.events) or lane.queue]:
        raise CollectiveError("deadlock in virtual time: " + "; ".join(awaited(lane, lanes) for lane in stuck))
    if lost := [key for key, messages in mail.items() if messages]:
        source, to, key = lost[0]
        raise CollectiveError(f"{to} has ended and never received message {key} of {source}; every Send needs a Receive of its "
                              "key")
    return list(lanes.values())


def advance(lane: Lane, mail) -> bool:
    """Let a role go on until it waits; whether it went anywhere."""
    events, start = lane.role.events, lane.at
    while lane.at < len(events):
        event = events[lane.at]
        match event:
            case Hold():
                lane.take(event.change)
            case Compute():
                lane.take(event.takes)
                begin, lane.clock = lane.clock, lane.clock + event.seconds
                lane.spans.append(Span(lane.role.name, "compute", event.label, event.kind, begin, lane.clock))
                lane.take(-event.frees)
            case Wait():
                if event.key not in lane.complete:
                    break
                lane.until(lane.complete[event.key])
                lane.take(-event.frees)
            case Receive():
                messages = mail[event.source, lane.role.name, event.key]
                if not messages:
                    break
                message = messages.popleft()
                lane.until(message[1], message)
            case _:
                if isinstance(event, Begin):
                    lane.take(event.takes)
                lane.queue.append((event, lane.clock))
        lane.at += 1
    return lane.at > start


def serve(lane: Lane, lanes: dict[str, Lane], mail) -> bool:
    """Let what a port holds go out, as far as it can; whether anything did."""
    served = False
    while lane.queue:
        event = lane.queue[0][0]
        together = [lane]
        if isinstance(event, Begin) and event.members:
            together = [lanes[name] for name in event.members if name in lanes and comes(lanes[name], event)]
            if len(together) < len(event.members) or lane not in together:
                break
        begin = max(max(other.free, other.queue[0][1]) for other in together)
        end = begin + max(other.queue[0][0].seconds for other in together)
        for other in together:
            its, _ = other.queue.popleft()
            other.free = end
            other.spans.append(Span(other.role.name, "communication", its.label, its.kind, begin, end, its.inside, its.between))
            if isinstance(its, Begin):
                other.complete[its.key] = end
            else:
                mail[other.role.name, its.to, its.key].append((begin, end))
        served = True
    return served


def comes(lane: Lane, event: Begin) -> bool:
    """Whether the port has come to that collective: of this key, and of the same members."""
    first = lane.queue[0][0] if lane.queue else None
    return isinstance(first, Begin) and first.key == event.key and set(first.members) == set(event.members)


def awaited(lane: Lane, lanes: dict[str, Lane]) -> str:
    """What a role waits for, in words."""
    name, event = lane.role.name, lane.role.events[lane.at] if lane.at < len(lane.role.events) else None
    if isinstance(event, Receive):
        return f"{name} waits for message {event.key} of {event.source}, which {doing(event.source, lanes)}"
    if not lane.queue or (isinstance(event, Wait) and all(begun.key != event.key for begun, _ in lane.queue)):
        return f"{name} waits for {event.key}, which it never began"
    event = lane.queue[0][0]
    others = [f"{m}, which {doing(m, lanes)}" for m in event.members if m != name and not (m in lanes and comes(lanes[m], event))]
    return f"{name} waits in {event.label} ({event.key}) for {' and '.join(others) or 'itself: it is none of the members'}"


def doing(name: str, lanes: dict[str, Lane]) -> str:
    if name not in lanes:
        return f"isn't there (there are {', '.join(lanes)})"
    lane = lanes[name]
    event = lane.role.events[lane.at] if lane.at < len(lane.role.events) else None
    if isinstance(event, Receive):
        return f"waits for message {event.key} of {event.source}"
    if lane.queue:
        return f"is in {lane.queue[0][0].label} ({lane.queue[0][0].key})"
    return "has ended" if event is None else f"waits for {event.key}"
