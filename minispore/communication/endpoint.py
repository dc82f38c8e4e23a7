"""Endpoint: what one rank needs to communicate at all. Handle: one communication under way.

While a rank waits for one communication, all its others go on too, so handles can be waited for in any order.
"""
import os
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Protocol

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication import board
from minispore.communication.algorithms import Within
from minispore.communication.record import Record
from minispore.communication.ring import DTYPE_IDS, OP_IDS
from minispore.communication.room import Meeting, Node, Opening

CHECK_EVERY = 0.05          # seconds between two looks at the board while waiting


class Transport(Protocol):
    """Messages between ranks: the part that differs between threads and MPI (backends/)."""
    rank: int
    size: int
    board: board.Board
    locality: str               # "threads" or "messages"; see selection.LOCALITIES
    node: Node | None           # memory shared with the ranks beside this one, if there is any

    def isend(self, data: np.ndarray, dest: int, tag: int):
        """Begin to send a contiguous array; it mustn't change before the request is complete."""

    def irecv(self, buffer: np.ndarray, source: int, tag: int):
        """Begin to receive into a contiguous array."""

    def test(self, requests: list) -> bool:
        """Whether all are complete."""

    def idle(self, waited: float) -> None:
        """Nothing moved for `waited` seconds: let others work. May raise CollectiveError."""

    def unclaimed(self) -> list[tuple[int, int, int]]:
        """When all ranks have ended: messages to this one that it hasn't received, or one of them (source, tag, bytes)."""

    def end(self, failed: bool) -> None:
        """This rank communicates no more."""


class Endpoint:
    """One rank's transport, record and communications under way."""

    def __init__(self, transport: Transport, record: Record | None = None):
        self.transport, self.board = transport, transport.board
        self.rank, self.size = transport.rank, transport.size
        self.record = record or Record(self.rank, self.size)
        self.pending: list[Handle] = []
        self.timeout = float(os.environ.get("MINISPORE_TIMEOUT", 60))
        self.checks = os.environ.get("MINISPORE_CHECK", "1") != "0"

    def progress(self) -> bool:
        """Move everything that can move without waiting."""
        moved = False
        for handle in tuple(self.pending):
            moved |= handle.advance()
        return moved

    def wait(self, handle: "Handle") -> None:
        self.board.says = handle.says
        since, looked = perf_counter(), 0.0
        while not handle.done:
            if self.progress():
                since, looked = perf_counter(), 0.0
                continue
            waited = perf_counter() - since
            if waited - looked > CHECK_EVERY:
                looked = waited
                self.look(handle, waited)
            self.rest(handle, waited)

    def rest(self, handle: "Handle", waited: float) -> None:
        """Nothing moves: let others work until something may have happened."""
        if handle.shared():
            # Not asleep while messages are under way: MPI moves them only when it is called.
            handle.requests[0].test(2 if all(h.shared() for h in self.pending) else 1)
        else:
            self.transport.idle(waited)

    def moves(self) -> bool:
        """Whether something moves after all. On a busy machine this rank may have slept while another one sent what is awaited,
        and ended."""
        for _ in range(10):
            if self.progress():
                return True
            sleep(0.001)
        return False

    def look(self, handle: "Handle", waited: float) -> None:
        """Raise if what we wait for can't come, or not in time."""
        self.board.waits()
        self.record.waits(handle.slot)
        awaited, what = handle.awaited(), f"rank {self.rank} waits in {handle.says()}"
        gone = self.board.gone(awaited)
        other = None if gone else self.board.mismatch(handle.ranks)
        if (gone or other is not None or waited > self.timeout) and self.moves():
            return
        if gone:
            raise CollectiveError(f"{what} for rank {gone[0]}, which can't come any more. All ranks must make the same "
                                  f"number of calls in the same order:\n{self.board.table()}")
        if other is not None:
            raise CollectiveError(f"{what}, but rank {other} is in another operation there; op, dtype, count and root "
                                  f"must agree on all ranks:\n{self.board.table()}")
        if waited > self.timeout:
            raise CollectiveError(f"{what} for {self.timeout:g} s (MINISPORE_TIMEOUT) without a message from "
                                  f"{', '.join(f'rank {r}' for r in awaited)}:\n{self.board.table()}")


SHARED = Meeting, Opening       # requests that are no messages


class Handle:
    """A communication under way."""

    def __init__(self, endpoint: Endpoint, slot: int, ranks: tuple[int, ...], link: "Link", steps, result: Callable):
        self.endpoint, self.slot, self.ranks, self.link = endpoint, slot, ranks, link
        self.steps, self.result = steps, result
        self.requests: list | None = None
        self.done = False
        endpoint.pending.append(self)
        endpoint.board.says = self.says
        self.advance()

    def says(self) -> str:
        """What it is, in words."""
        e = self.endpoint.record.event(self.slot)
        where = (f"to rank {e.peers[0]}" if e.op == "Send" else f"from rank {e.peers[0]}" if e.op == "Receive" else
                 f"number {e.sequence}")
        others = [h for h in self.endpoint.pending if h is not self]
        return f"{e.op}({e.detail}) {where} of group {e.group}, {e.count} × {e.dtype}" + (
            f" (and {len(others)} more under way, from {self.endpoint.record.event(others[0].slot).op} on)" if others else "")

    def advance(self) -> bool:
        """Run the algorithm as far as it goes without waiting; whether it went anywhere."""
        moved = False
        while not self.done and (self.requests is None or self.complete(self.requests)):
            self.link.arrived()
            moved = True
            self.requests = next(self.steps, None)
            if self.requests is None:
                self.done = True
                self.endpoint.record.end(self.slot)
                self.endpoint.board.done()
                self.endpoint.pending.remove(self)
        return moved

    def complete(self, requests: list) -> bool:
        return requests[0].test() if self.shared() else self.endpoint.transport.test(requests)

    def shared(self) -> bool:
        """Whether it waits in shared memory, not for messages."""
        return bool(self.requests) and isinstance(self.requests[0], SHARED)

    def awaited(self) -> list[int]:
        """World ranks that haven't come, whose message is missing, or who haven't taken ours. Others may well have ended."""
        if self.shared():
            return self.requests[0].room.absent()
        test, requests = self.endpoint.transport.test, self.requests or ()
        missing = {peer for (_, peer), r in zip(self.link.open, requests, strict=False) if not test([r])}
        return sorted(missing) or list(self.endpoint.record.event(self.slot).peers)

    def test(self) -> bool:
        """Whether it is complete; moves it on without waiting."""
        self.endpoint.progress()
        return self.done

    def then(self, fn: Callable) -> "Handle":
        """The same handle; its result is what fn makes of the result so far."""
        before = self.result
        self.result = lambda: fn(before())
        return self

    def wait(self):
        """The result, once it is there. CollectiveError if it can't come."""
        if not self.done:
            self.endpoint.wait(self)
        return self.result()


class Link:
    """What an algorithm sees of the group: places 0 … size-1, messages that carry the collective's tag, and the room."""

    def __init__(self, comm, sequence: int, tag: int):
        self.comm, self.sequence, self.tag = comm, sequence, tag
        self.rank, self.size, self.nodes = comm.rank, comm.size, comm.nodes
        self.open: list[tuple[int, int]] = []           # slot in the record, world rank at the other end

    room = property(lambda self: self.comm.room)

    def send(self, x: np.ndarray, to: int):
        self._note("send", x, to)
        return self.comm.endpoint.transport.isend(x, self.comm.ranks[to], self.tag)

    def receive(self, x: np.ndarray, source: int):
        self._note("receive", x, source)
        return self.comm.endpoint.transport.irecv(x, self.comm.ranks[source], self.tag)

    def within(self, places) -> Within:
        """A link among these places only, renumbered."""
        return Within(self, places)

    def _note(self, op, x, peer):
        comm, to = self.comm, self.comm.ranks[peer]
        slot = comm.endpoint.record.begin(OP_IDS[op], comm.group_id, self.sequence, DTYPE_IDS[x.dtype], x.size, to, x.nbytes)
        self.open.append((slot, to))

    def arrived(self) -> None:
        """The messages posted so far are complete."""
        for slot, _ in self.open:
            self.comm.endpoint.record.end(slot)
        self.open = []
