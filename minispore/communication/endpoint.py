"""Endpoint: what one rank needs to communicate at all, and how it waits.

While a rank waits for one communication (handle.py), all its others go on too, so handles can be waited for in any order.
"""
import os
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Protocol

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication import board
from minispore.communication.record import Record

if TYPE_CHECKING:
    from minispore.communication.handle import Handle
    from minispore.communication.room import Node

CHECK_EVERY = 0.05          # seconds between two looks at the board while waiting


class Transport(Protocol):
    """Messages between ranks: the part that differs between threads and MPI (backends/)."""
    rank: int
    size: int
    board: board.Board
    locality: str               # "threads" or "messages"; see selection.LOCALITIES
    node: "Node | None"         # memory shared with the ranks beside this one, if there is any

    def host(self, rank: int) -> int:
        """A number for the machine that a world rank is on."""

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
        self.board.subject = handle
        since, looked = perf_counter(), 0.0
        while not handle.done:
            if self.progress():
                since, looked = perf_counter(), 0.0
                continue
            waited = perf_counter() - since
            if waited - looked > CHECK_EVERY:
                looked = waited
                self.look(handle, waited)
            # Not asleep in a room while messages are under way: MPI moves them only when it is called.
            handle.rest(waited, 2 if all(h.in_room for h in self.pending) else 1)

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
            raise CollectiveError(f"{what}, but rank {other} is in another operation there; op, dtype, count, root and algorithm "
                                  f"must agree on all ranks:\n{self.board.table()}")
        if waited > self.timeout:
            raise CollectiveError(f"{what} for {self.timeout:g} s (MINISPORE_TIMEOUT) without a message from "
                                  f"{', '.join(f'rank {r}' for r in awaited)}:\n{self.board.table()}")
