"""The link that watched algorithms talk to: symbols in place of numbers, and messages that are matched, not sent.

A symbol is a Python int with a digit of 16 bits for each element of each rank. watch.py steps the ranks.
"""
from dataclasses import dataclass, field

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication.algorithms.link import Within
from minispore.lab.words import plural

BITS = 16


def unit(rank: int, element: int, length: int) -> int:
    """The symbol of one element of one rank."""
    return 1 << BITS * (rank * length + element)


def digits(symbol, ranks: int, length: int, where: str) -> np.ndarray:
    """int (ranks, length): how often each element of each rank is in the symbol. None, never written, holds nothing."""
    if symbol is None:
        return np.zeros((ranks, length), int)
    if not isinstance(symbol, (int, np.integer)) or symbol < 0 or int(symbol) >> BITS * ranks * length:
        raise ValueError(f"{where} is {symbol!r}, no sum of what ranks brought. Watched algorithms may move what they find, and "
                         "add by accumulate(dst, src)")
    data = int(symbol).to_bytes(BITS // 8 * ranks * length, "little")
    return np.frombuffer(data, "<u2").reshape(ranks, length).astype(int)


def accumulate(dst: np.ndarray, src: np.ndarray) -> None:
    """dst = dst + src, of symbols."""
    if len(dst) != len(src):
        raise ValueError(f"accumulate(dst, src): dst has {len(dst)} elements, src {len(src)}; they must be of one length")
    for name, array in (("dst", dst), ("src", src)):
        if any(s is None for s in array):
            raise ValueError(f"accumulate(dst, src): {name} holds elements that were never written. Wait for the message first: "
                             "yield [link.receive(src, …)]")
    dst += src


@dataclass(eq=False)
class Posted:
    """One end of a message: what send and receive return."""
    rank: int
    peer: int
    array: np.ndarray
    sends: bool
    kept: list = field(default_factory=list)
    done: bool = False

    def __str__(self):
        verb = "send" if self.sends else "receive"
        return f"to {verb} {plural(len(self.array), 'element')} {'to' if self.sends else 'from'} rank {self.peer}"


@dataclass(frozen=True, repr=False)
class Message:
    """One message. sent, received: the places of its elements in the sender's and in the receiver's array, None where it is a
    buffer of the algorithm's own. counts: int (count, ranks), whose contributions are in it; elements: which element of the
    array each one is, -1 where nothing tells."""
    source: int
    target: int
    count: int
    sent: tuple[int, ...] | None
    received: tuple[int, ...] | None
    counts: np.ndarray | None = None
    elements: tuple[int, ...] = ()
    ends: tuple = ()

    def seen(self, ranks: int, length: int) -> "Message":
        """With what is in it now, and without the arrays."""
        found = [digits(s, ranks, length, f"what rank {self.source} sends to rank {self.target}") for s in self.ends[0].array]
        where = [np.nonzero(d.any(0))[0] for d in found]
        counts = np.array([d.sum(1) for d in found], int).reshape(len(found), ranks)
        return Message(self.source, self.target, self.count, self.sent, self.received, counts,
                       tuple(int(w[0]) if len(w) == 1 else -1 for w in where))

    @property
    def places(self) -> tuple[int, ...]:
        """Which elements of the array it carries, as well as can be told."""
        return self.sent if self.sent is not None else self.elements if -1 not in self.elements else self.received or ()

    def __repr__(self):
        return f"rank {self.source} → rank {self.target}: {plural(self.count, 'element')} {spans(self.places)}".rstrip()


class SymbolicLink:
    """As algorithms/link.py says."""

    def __init__(self, exchange: "Exchange", rank: int, nodes):
        self.exchange, self.rank, self.size, self.nodes = exchange, rank, exchange.ranks, nodes

    def send(self, x: np.ndarray, to: int) -> Posted:
        return self.exchange.post(Posted(self.rank, to, x, True))

    def receive(self, x: np.ndarray, source: int) -> Posted:
        return self.exchange.post(Posted(self.rank, source, x, False))

    def within(self, places) -> Within:
        return Within(self, places)


class Exchange:
    """All that is posted and not complete. ended, waiting, moved are watch.rounds' notes."""

    def __init__(self, ranks: int, arrays: list[np.ndarray]):
        self.ranks, self.arrays = ranks, arrays
        self.posted: list[Posted] = []
        self.ended: set[int] = set()
        self.waiting: list[list[Posted]] = []
        self.moved = False

    def post(self, end: Posted) -> Posted:
        verb = f"link.{'send' if end.sends else 'receive'}"
        if not isinstance(end.array, np.ndarray) or end.array.ndim != 1:
            raise TypeError(f"{verb}: {end.array!r} is no flat array; give an array or a slice of one")
        if not isinstance(end.peer, (int, np.integer)) or not 0 <= end.peer < self.ranks:
            raise ValueError(f"{verb}: rank {end.peer!r} is none of the {self.ranks} ranks 0 … {self.ranks - 1}. At the ends of "
                             "a ring, take the remainder: % link.size")
        if end.array.dtype != object and end.array.dtype != np.uint8:       # uint8: a barrier's token
            raise TypeError(f"{verb}: the buffer is of {end.array.dtype}, the array of another dtype. Make it with the array's: "
                            "np.empty(n, x.dtype)")
        end.peer, end.kept = int(end.peer), list(end.array) if end.sends else []
        self.posted.append(end)
        return end

    def match(self) -> list[Message]:
        """The sends that have their receives: the k-th send from s to t belongs to the k-th receive there."""
        waiting: dict[tuple[int, int], list[Posted]] = {}
        for end in self.posted:
            if not end.sends:
                waiting.setdefault((end.peer, end.rank), []).append(end)
        found = []
        for end in self.posted:
            if end.sends and (receives := waiting.get((end.rank, end.peer))):
                other = receives.pop(0)
                if len(end.array) != len(other.array):
                    raise CollectiveError(f"rank {end.rank} sends {plural(len(end.array), 'element')} to rank {end.peer}, which "
                                          f"receives {plural(len(other.array), 'element')} there. Both must mean the same chunk")
                if list(end.array) != end.kept:
                    raise CollectiveError(f"rank {end.rank} changed the array that it was sending to rank {end.peer}. Wait "
                                          "first: yield [link.send(…)]")
                found.append(Message(end.rank, end.peer, len(end.array), self.places(end), self.places(other),
                                     ends=(end, other)))
        return found

    def places(self, end: Posted) -> tuple[int, ...] | None:
        """Where in its rank's array a view lies; None if it is a view of another one."""
        whole, view = self.arrays[end.rank], end.array
        if not np.shares_memory(whole, view):
            return () if not len(view) else None
        first = (view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]) // whole.itemsize
        return tuple(first + i * (view.strides[0] // whole.itemsize) for i in range(len(view)))

    def deliver(self, messages: list[Message]) -> None:
        for m in messages:
            send, receive = m.ends
            receive.array[:] = send.kept             # as it was: the array may be receiving too
            send.done = receive.done = True
            self.posted.remove(send)
            self.posted.remove(receive)

    def left(self) -> str:
        """What was posted and never completed, in words."""
        return "; ".join(f"rank {end.rank} began {end}, and rank {end.peer} never {'received' if end.sends else 'sent'} it"
                         for end in self.posted)

    def deadlock(self, steps: int) -> str:
        """Who waits for whom, when nobody can go on."""
        open_ends = {r: [m for m in ends if not m.done] for r, ends in enumerate(self.waiting) if r not in self.ended}
        lines = [f"rank {r} waits {' and '.join(map(str, ends))}" for r, ends in open_ends.items()]
        lines += [f"rank {r} has ended" for r in sorted(self.ended)]
        circle = cycle({r: sorted({m.peer for m in ends}) for r, ends in open_ends.items()})
        return (f"nobody can go on after {steps} step{'s' * (steps != 1)}:\n  " + "\n  ".join(lines)
                + (f"\nThey wait in a circle: {' → '.join(map(str, circle))}" if circle else ""))


def cycle(waits: dict[int, list[int]]) -> list[int]:
    """Ranks that wait for one another in a circle, the first one repeated at the end; [] if there are none.

    >>> cycle({0: [1], 1: [2], 2: [1]})
    [1, 2, 1]
    """
    clear: set[int] = set()

    def search(rank, path):
        if rank in path:
            return [*path[path.index(rank):], rank]
        if rank in clear:
            return []
        for other in waits.get(rank, []):
            if found := search(other, [*path, rank]):
                return found
        clear.add(rank)
        return []
    return next((found for rank in sorted(waits) if (found := search(rank, []))), [])


def check_yielded(messages) -> list[Posted]:
    """The list that an algorithm yielded, or TypeError."""
    if isinstance(messages, (list, tuple)) and all(isinstance(m, Posted) for m in messages):
        return list(messages)
    raise TypeError(f"an algorithm yields the list of messages it waits for, not {messages!r}: "
                    "yield [link.send(…), link.receive(…)]")


def spans(places) -> str:
    """Runs of consecutive places, as slices.

    >>> spans((0, 1, 2, 6, 7))
    '0:3, 6:8'
    """
    runs: list[list[int]] = []
    for i in places:
        if runs and runs[-1][1] == i:
            runs[-1][1] = i + 1
        else:
            runs.append([i, i + 1])
    return ", ".join(f"{a}:{b}" for a, b in runs)
