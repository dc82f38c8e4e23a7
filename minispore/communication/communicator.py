"""Communicator: the collectives of one group of ranks. Endpoint: what one rank needs to communicate at all.

Everything is asynchronous: a call returns a Handle at once, wait() gives the result. While a rank waits for one
communication, all its others go on too, so two handles can be waited for in any order.
"""
import os
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Protocol
from zlib import crc32

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication import algorithms, board
from minispore.communication.record import Event, Record
from minispore.device import kernels

TAGS = 2 ** 26              # collectives' tags lie below, those of single messages above; MPI allows 2^27 at least
CHECK_EVERY = 0.05          # seconds between two looks at the board while waiting


class Transport(Protocol):
    """Messages between ranks: the part that differs between threads and MPI (backends/)."""
    rank: int
    size: int
    board: board.Board

    def isend(self, data: np.ndarray, dest: int, tag: int):
        """Begin to send a contiguous array; it mustn't change before the request is complete."""

    def irecv(self, buffer: np.ndarray, source: int, tag: int):
        """Begin to receive into a contiguous array."""

    def test(self, requests: list) -> bool:
        """Whether all are complete."""

    def idle(self, waited: float) -> None:
        """Nothing moved for `waited` seconds: let others work. May raise CollectiveError."""

    def end(self, failed: bool) -> None:
        """This rank communicates no more."""


class Endpoint:
    """One rank's transport, record and communications under way."""

    def __init__(self, transport: Transport):
        self.transport, self.board = transport, transport.board
        self.rank, self.size = transport.rank, transport.size
        self.record = Record(self.rank)
        self.pending: list[Handle] = []
        self.timeout = float(os.environ.get("MINISPORE_TIMEOUT", 60))

    def progress(self) -> bool:
        """Move everything that can move without waiting."""
        moved = False
        for handle in tuple(self.pending):
            moved |= handle.advance()
        return moved

    def wait(self, handle: "Handle") -> None:
        since, looked = perf_counter(), 0.0
        while not handle.done:
            if self.progress():
                since, looked = perf_counter(), 0.0
                continue
            waited = perf_counter() - since
            if waited - looked > CHECK_EVERY:
                looked = waited
                self.look(handle, waited)
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
        self.board.set(board.WAITING)
        e, awaited = handle.event, handle.awaited()
        what = f"rank {self.rank} waits in {e.op}({e.detail}) number {e.sequence} of group {e.group} ({e.count} × {e.dtype})"
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


class Handle:
    """A communication under way."""

    def __init__(self, endpoint: Endpoint, event: Event, ranks: tuple[int, ...], link: "Link", steps, result: Callable):
        self.endpoint, self.event, self.ranks, self.link = endpoint, event, ranks, link
        self.steps, self.result = steps, result
        self.requests: list | None = None
        self.done = False
        endpoint.pending.append(self)
        self.advance()

    def advance(self) -> bool:
        """Run the algorithm as far as it goes without waiting; whether it went anywhere."""
        moved = False
        while not self.done and (self.requests is None or self.endpoint.transport.test(self.requests)):
            self.link.arrived()
            moved = True
            self.requests = next(self.steps, None)
            if self.requests is None:
                self.done = True
                self.event.end = perf_counter()
                self.endpoint.board.done()
                self.endpoint.pending.remove(self)
        return moved

    def awaited(self) -> list[int]:
        """World ranks whose message is missing, or who haven't taken ours. Others may well have ended."""
        test, requests = self.endpoint.transport.test, self.requests or ()
        missing = {e.peers[0] for e, r in zip(self.link.open, requests, strict=False) if not test([r])}
        return sorted(missing) or list(self.event.peers)

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
    """What an algorithm sees of the group: places 0 … size-1, and messages that carry the collective's tag."""

    def __init__(self, comm: "Communicator", sequence: int, tag: int):
        self.comm, self.sequence, self.tag = comm, sequence, tag
        self.rank, self.size = comm.rank, comm.size
        self.open: list[Event] = []

    def send(self, x: np.ndarray, to: int):
        self._note("send", x, to)
        return self.comm.endpoint.transport.isend(x, self.comm.ranks[to], self.tag)

    def receive(self, x: np.ndarray, source: int):
        self._note("receive", x, source)
        return self.comm.endpoint.transport.irecv(x, self.comm.ranks[source], self.tag)

    def _note(self, op, x, peer):
        endpoint = self.comm.endpoint
        event = Event(endpoint.rank, self.comm.name, self.sequence, op, x.dtype.name, x.size, (self.comm.ranks[peer],),
                      x.nbytes, perf_counter())
        self.open.append(event)
        endpoint.record.events.append(event)

    def arrived(self) -> None:
        """The messages posted so far are complete."""
        if self.open:
            now = perf_counter()
            for e in self.open:
                e.end = now
            self.open = []


class Communicator:
    """The collectives of a group. Arrays are numpy arrays; ranks in arguments are places in the group.

    ranks: the world ranks of the group; rank, size: this rank's place in it, and their number.
    """

    def __init__(self, endpoint: Endpoint, ranks: tuple[int, ...], name: str):
        self.endpoint, self.ranks, self.name = endpoint, tuple(ranks), name
        self.rank, self.size = self.ranks.index(endpoint.rank), len(ranks)
        self.code = board.code(f"{name}{self.ranks}")
        self.sequence = 0

    def split(self, ranks, name: str) -> "Communicator":
        """A communicator of some of the ranks (world numbers)."""
        return Communicator(self.endpoint, ranks, name)

    def all_reduce(self, x: np.ndarray, op: str = "sum", out: np.ndarray | None = None, name: str = "") -> Handle:
        """The sum (max, min, prod) of x over the ranks, on all of them; into `out` if given."""
        out = _into(out, x)
        return self._start("AllReduce", out, op, "ring",
                           lambda link: algorithms.ring_all_reduce(link, out.reshape(-1), kernels.accumulate(op)),
                           lambda: out, name)

    def reduce_scatter(self, x: np.ndarray, op: str = "sum") -> Handle:
        """x (size·k, …) reduced over the ranks; rank r gets its rows r·k … (r+1)·k."""
        self._divides("ReduceScatter", x)
        work = _into(None, x)
        chunks = [c.reshape(-1) for c in np.split(work, self.size)]
        return self._start("ReduceScatter", work, op, "ring",
                           lambda link: algorithms.ring_reduce_scatter(link, chunks, kernels.accumulate(op)),
                           lambda: np.split(work, self.size)[self.rank])

    def all_gather(self, x: np.ndarray) -> Handle:
        """The ranks' x (k, …) one behind the other: (size·k, …)."""
        out = np.empty((self.size, *x.shape), x.dtype)
        out[self.rank] = x
        return self._start("AllGather", x, "", "ring",
                           lambda link: algorithms.ring_all_gather(link, [o.reshape(-1) for o in out]),
                           lambda: out.reshape(self.size * x.shape[0], *x.shape[1:]) if x.ndim else out.reshape(-1))

    def broadcast(self, x: np.ndarray, root: int) -> Handle:
        """root's x, on all ranks."""
        out = _into(None, x)
        return self._start("Broadcast", out, f"root {root}", "tree",
                           lambda link: algorithms.tree_broadcast(link, out.reshape(-1), root), lambda: out)

    def reduce(self, x: np.ndarray, root: int, op: str = "sum") -> Handle:
        """The reduction of x over the ranks, on root; what the others get has no meaning."""
        out = _into(None, x)
        return self._start("Reduce", out, f"{op}, root {root}", "tree",
                           lambda link: algorithms.tree_reduce(link, out.reshape(-1), root, kernels.accumulate(op)),
                           lambda: out)

    def all_to_all(self, x: np.ndarray) -> Handle:
        """x (size·k, …): its r-th part goes to rank r; the result's s-th part came from rank s."""
        self._divides("AlltoAll", x)
        x = np.ascontiguousarray(x)
        out = np.empty_like(x)
        parts = [[p.reshape(-1) for p in np.split(a, self.size)] for a in (x, out)]
        return self._start("AlltoAll", x, "", "pairwise", lambda link: algorithms.pairwise_all_to_all(link, *parts),
                           lambda: out)

    def gather(self, x: np.ndarray, root: int) -> Handle:
        """The ranks' x (k, …) one behind the other, on root: (size·k, …); None on the others."""
        x = np.ascontiguousarray(x)
        out = np.empty((self.size, *x.shape), x.dtype) if self.rank == root else None
        chunks = [] if out is None else [o.reshape(-1) for o in out]
        return self._start("Gather", x, f"root {root}", "linear",
                           lambda link: algorithms.linear_gather(link, x.reshape(-1), chunks, root),
                           lambda: None if out is None else out.reshape(-1, *x.shape[1:]))

    def scatter(self, x: np.ndarray, root: int) -> Handle:
        """root's x (size·k, …), cut along dim 0: rank r gets its r-th part. The others' x says but shape and dtype."""
        self._divides("Scatter", x)
        x = np.ascontiguousarray(x)
        out = np.empty((x.shape[0] // self.size, *x.shape[1:]), x.dtype)
        chunks = [p.reshape(-1) for p in np.split(x, self.size)]
        return self._start("Scatter", x, f"root {root}", "linear",
                           lambda link: algorithms.linear_scatter(link, chunks, out.reshape(-1), root), lambda: out)

    def barrier(self) -> Handle:
        """Complete when all ranks have called it."""
        return self._start("Barrier", np.empty(0, np.uint8), "", "dissemination", algorithms.dissemination_barrier,
                           lambda: None)

    def send(self, x: np.ndarray, to: int, tag: int = 0) -> Handle:
        """x as one message. It is copied, so the handle need not be waited for."""
        data = np.array(x, order="C").reshape(-1)
        return self._message("Send", data, to, tag, algorithms.message_out, lambda: None)

    def receive(self, shape, dtype, source: int, tag: int = 0) -> Handle:
        """The next message of this tag from `source`, of exactly this shape and dtype."""
        out = np.empty(shape, dtype)
        return self._message("Receive", out.reshape(-1), source, tag, algorithms.message_in, lambda: out)

    # ---- how a communication begins ------------------------------------------------------------------

    def _start(self, op, x, detail, algorithm, steps, result, name="") -> Handle:
        self.sequence += 1
        # All that must agree is in the tag: messages of calls that differ never meet, and `look` says why.
        tag = _tag(self.code, self.sequence, op, x.dtype, x.size, detail)
        peers = tuple(r for r in self.ranks if r != self.endpoint.rank)
        return self._begin(op, x, detail, algorithm, self.sequence, tag, peers, steps, result, name)

    def _message(self, op, x, peer, tag, steps, result) -> Handle:
        wire = TAGS + _tag(self.code, tag, x.dtype, x.size)
        return self._begin(op, x, f"tag {tag}", "message", tag, wire, (self.ranks[peer],),
                           lambda link: steps(link, x, peer), result)

    def _begin(self, op, x, detail, algorithm, sequence, tag, peers, steps, result, name="") -> Handle:
        endpoint, dtype = self.endpoint, x.dtype.name
        event = Event(endpoint.rank, self.name, sequence, op, dtype, x.size, peers, x.nbytes, perf_counter(), 0.0,
                      algorithm, name or detail)
        endpoint.record.events.append(event)
        endpoint.board.enter(self.code, sequence, op, dtype, x.size, detail)
        link = Link(self, sequence, tag)
        return Handle(endpoint, event, self.ranks, link, iter(steps(link)), result)

    def _divides(self, op, x):
        if not x.ndim or x.shape[0] % self.size:
            raise ValueError(f"{op}: dim 0 of shape {x.shape} must divide by the {self.size} ranks of group {self.name}")


def _tag(*parts) -> int:
    """A number for what a call is, the same on all ranks."""
    return crc32(repr(parts).encode()) % TAGS


def _into(out, x):
    """A contiguous array with x's values, to work in."""
    if out is None:
        return np.array(x, order="C")
    np.copyto(out, x)
    return out
