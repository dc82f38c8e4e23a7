"""Handles: a communication under way, by messages or in a room; Link: what an algorithm over messages sees of its group."""
from collections.abc import Callable
from dataclasses import dataclass
from time import sleep

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication.algorithms import Within
from minispore.communication.ring import ALL, DTYPE_IDS, OP_IDS


@dataclass
class Call:
    """What a communicator is asked to do, worked out once for all calls like it.

    detail: what must agree beside op, dtype and count (reduction, root), or a message's tag; peer: a world rank, or ALL; name: of
    the tensor; plan, machine: if it is done in a room, its plan and the kernel's machine code.
    """
    op: str
    detail: str
    dtype: np.dtype
    count: int
    algorithm: str
    peer: int = ALL
    name: str = ""
    plan: np.ndarray | None = None
    machine: Callable | None = None

    def event(self, comm) -> dict[str, int]:
        """What the record is to know of it."""
        algorithm, detail = map(comm.endpoint.record.intern, (self.algorithm, self.name or self.detail))
        return dict(op=OP_IDS[self.op], group=comm.group_id, dtype=DTYPE_IDS[self.dtype], count=self.count, peer=self.peer,
                    nbytes=self.count * self.dtype.itemsize, algorithm=algorithm, detail=detail)


class Handle:
    """A communication under way: its wait() gives the result."""
    in_room = False

    def __init__(self, comm, call: Call, sequence: int, result: Callable):
        self.comm, self.endpoint, self.call, self.sequence, self.result = comm, comm.endpoint, call, sequence, result
        self.ranks, self.slot = comm.ranks, -1                  # slot: of its event in the record, once it has one
        self.done, self.failure = False, None
        self.endpoint.pending.append(self)
        self.endpoint.board.subject = self

    def says(self) -> str:
        """What it is, in words."""
        call, peer = self.call, self.call.peer
        where = f"number {self.sequence}" if peer == ALL else f"{'to' if call.op == 'Send' else 'from'} rank {peer}"
        others = [h for h in self.endpoint.pending if h is not self]
        by = f" by {call.algorithm}" if peer == ALL else ""
        more = f" (and {len(others)} more under way, from {others[0].call.op} on)" if others else ""
        return (f"{call.op}({call.name or call.detail}) {where} of group {self.comm.name}, {call.count} × {call.dtype.name}"
                f"{by}{more}")

    def place(self) -> tuple:
        """What the board is to know of it."""
        call = self.call
        return self.comm.code, self.sequence, call.op, call.dtype.name, call.count, f"{call.detail} by {call.algorithm}"

    def advance(self) -> bool:
        """Go as far as it goes without waiting; whether it went anywhere."""
        raise NotImplementedError

    def rest(self, waited: float, patience: int) -> None:
        """Nothing has moved for `waited` seconds: let others work until something may have happened."""
        raise NotImplementedError

    def awaited(self) -> list[int]:
        """World ranks that it waits for. Others may well have ended."""
        raise NotImplementedError

    def end(self, failure: BaseException | None = None) -> None:
        """It is complete, or has failed."""
        self.done, self.failure = True, failure
        self.endpoint.pending.remove(self)
        if self.endpoint.board.subject is self:
            self.endpoint.board.subject = None

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
        if self.failure:
            raise self.failure
        return self.result()


class MessageHandle(Handle):
    """One that an algorithm does by messages. steps(link): its generator; tag: its messages'."""

    def __init__(self, comm, call: Call, sequence: int, tag: int, steps: Callable, result: Callable):
        super().__init__(comm, call, sequence, result)
        self.slot = self.endpoint.record.begin(sequence=sequence, **call.event(comm))
        self.link = Link(comm, sequence, tag)
        self.steps, self.requests = iter(steps(self.link)), None
        self.advance()

    def advance(self):
        moved = False
        try:
            while not self.done and (self.requests is None or self.endpoint.transport.test(self.requests)):
                self.link.arrived()
                moved = True
                self.requests = next(self.steps, None)
                if self.requests is None:
                    self.endpoint.record.end(self.slot)
                    self.endpoint.board.done()
                    self.end()
        except BaseException as e:
            if getattr(self.steps, "gi_running", False):        # we were called from inside next()
                raise CollectiveError(f"the algorithm of {self.call.op} waits for another operation of its own rank; it may only "
                                      "send and receive by its link, and yield what it waits for") from e
            self.end(e)
            raise
        return moved

    def rest(self, waited, patience):
        self.endpoint.transport.idle(waited)

    def awaited(self):
        """Those whose message is missing, or who haven't taken ours."""
        test, requests = self.endpoint.transport.test, self.requests or ()
        missing = {peer for (_, peer), r in zip(self.link.open, requests, strict=False) if not test([r])}
        others = [r for r in self.ranks if r != self.endpoint.rank] if self.call.peer == ALL else [self.call.peer]
        return sorted(missing) or others


class RoomHandle(Handle):
    """One that the ranks do in memory they share, after the group's earlier ones. x, out: flat arrays. begun: the kernel has been
    called, and must be called again."""
    in_room = True

    def __init__(self, comm, call: Call, sequence: int, x: np.ndarray, out: np.ndarray, result: Callable, begun: bool = False):
        super().__init__(comm, call, sequence, result)
        self.room, self.x, self.out = comm.room, x, out
        self.room.queue.append(self)
        if begun:
            self.slot = int(self.room.state[self.room.kernels.SLOT])
        else:
            self.advance()

    def advance(self):
        return self.step(0)

    def step(self, patience: int) -> bool:
        """Call the kernel, if it is this one's turn; whether that moved anything."""
        room = self.room
        if room.queue[0] is not self or (room.missing and not room.open()):
            return False
        kernels, state = room.kernels, room.state
        before = state[kernels.PHASE], state[kernels.MEETING]
        status = self.call.machine(state, self.call.plan, self.x, self.out, self.sequence, patience)
        self.slot = int(state[kernels.SLOT])
        if status == kernels.WAITING:
            return before != (state[kernels.PHASE], state[kernels.MEETING])
        if status == kernels.MISMATCH:
            self.endpoint.board.subject = self
            self.end(room.differ())
            raise self.failure
        self.end()
        return True

    def end(self, failure=None):
        super().end(failure)
        self.room.queue.remove(self)

    def rest(self, waited, patience):
        if self.room.missing:
            sleep(1e-4)
        else:
            self.room.queue[0].step(patience)

    def awaited(self):
        return self.room.absent()

    def wait(self):
        if not self.done and len(self.endpoint.pending) == 1:
            self.step(2)
        return super().wait()


class Link:
    """What an algorithm sees of the group: places 0 … size-1, messages that carry the collective's tag."""

    def __init__(self, comm, sequence: int, tag: int):
        self.comm, self.sequence, self.tag = comm, sequence, tag
        self.rank, self.size, self.nodes = comm.rank, comm.size, comm.nodes
        self.open: list[tuple[int, int]] = []           # slot in the record, world rank at the other end

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
