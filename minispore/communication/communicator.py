"""Communicator: the collectives of one group of ranks.

A call returns a Handle at once; its wait() gives the result. Which algorithm does the work is selection's choice.
"""
from functools import cached_property
from zlib import crc32

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication import board, selection
from minispore.communication.algorithms import message_in, message_out
from minispore.communication.endpoint import Endpoint, Handle, Link
from minispore.communication.ring import ALL, DTYPE_IDS, OP_IDS
from minispore.communication.room import Meeting, Opening
from minispore.device import kernels

ALL_REDUCE = OP_IDS["AllReduce"]
TAGS = 2 ** 26              # collectives' tags lie below, those of single messages above; MPI allows 2^27 at least


class Communicator:
    """The collectives of a group. Arrays are numpy arrays; ranks in arguments are places in the group.

    ranks: the world ranks of the group; rank, size: this rank's place in it, and their number. Reductions are "sum", "prod",
    "max", "min" and "avg" (the sum divided by the number of ranks, whole numbers towards zero).
    """

    def __init__(self, endpoint: Endpoint, ranks: tuple[int, ...], name: str):
        self.endpoint, self.ranks, self.name = endpoint, tuple(ranks), name
        self.rank, self.size = self.ranks.index(endpoint.rank), len(ranks)
        self.code = board.code(f"{name}{self.ranks}")
        self.group_id = endpoint.record.group(name, self.ranks)
        self.sequence = 0
        self.codes: dict[tuple, int] = {}
        self.chooser, self.chosen = None, {}

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The places of the group by node."""
        return selection.nodes_of(self.ranks)

    @cached_property
    def locality(self) -> str:
        """How far the ranks are from one another (selection.LOCALITIES)."""
        if len(self.nodes) > 1 and min(map(len, self.nodes)) > 1:
            return "nodes"
        transport = self.endpoint.transport
        near = transport.node and self.size > 1 and len(self.nodes) == 1 and transport.node.reaches(self.ranks)
        return "shared" if near else transport.locality

    @cached_property
    def room(self):
        """Where the group meets, if its locality is "shared"."""
        return self.endpoint.transport.node.room(self.code, self.ranks)

    def split(self, ranks, name: str) -> "Communicator":
        """A communicator of some of the ranks (world numbers)."""
        return Communicator(self.endpoint, ranks, name)

    def empty(self, shape, dtype) -> np.ndarray:
        """A new array, if possible in memory that the other ranks of the node reach: their AllReduce then copies nothing."""
        node, dtype = self.endpoint.transport.node, np.dtype(dtype)
        memory = node.heap.empty(max(int(np.prod(shape)) * dtype.itemsize, 1)) if node else None
        if memory is None:
            return np.empty(shape, dtype)
        return memory[:int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)

    def all_reduce(self, x: np.ndarray, op: str = "sum", out: np.ndarray | None = None, name: str = "") -> Handle:
        """The sum (…) of x over the ranks, on all of them; into `out`, a contiguous array, if given (it may be x itself)."""
        x, out = _contiguous(x), np.empty(x.shape, x.dtype) if out is None else out
        return self._all_reduce(x, _reduction(op, x.dtype), out, name)

    def all_reduce_now(self, x: np.ndarray, op: str = "sum", out: np.ndarray | None = None, name: str = "") -> np.ndarray:
        """all_reduce(...).wait(), with less ado where the ranks share memory and nothing else is under way."""
        if (self.endpoint.pending or x.dtype not in kernels.COMPILED or op not in kernels.OPS
                or self._choose("AllReduce", x.nbytes) != "shared" or (room := self.room).missing):
            return self.all_reduce(x, op, out, name).wait()
        x, out = _contiguous(x), np.empty(x.shape, x.dtype) if out is None else out
        record, alike = self.endpoint.record, self._alike("AllReduce", x, op)
        slot = record.begin(ALL_REDUCE, self.group_id, self.sequence + 1, DTYPE_IDS[x.dtype], x.size, ALL, x.nbytes,
                            record.intern("shared"), record.intern(name or op))
        status = room.all_reduce(x.reshape(-1), out.reshape(-1), room.kernels.OPS[op], alike, 1)
        if status != room.kernels.DONE:
            return self._all_reduce(x, op, out, name, status, slot).wait()
        self.sequence += 1
        record.end(slot)
        self.endpoint.board.done()
        return out

    def _all_reduce(self, x, op, out, name, status=None, slot=None) -> Handle:
        algorithm = self._choose("AllReduce", x.nbytes) if status is None else "shared"

        def steps(link):
            compiled = algorithm == "shared" and x.dtype in kernels.COMPILED and op in kernels.OPS
            if compiled and (yield from quick(link.room, x.reshape(-1), out.reshape(-1), op, self._alike("AllReduce", x, op),
                                              status)):
                return
            if x is not out:
                np.copyto(out, x)
            yield from selection.function("AllReduce", algorithm)(link, out.reshape(-1), kernels.accumulate(_sums(op)))
            self._average(op, out)
        return self._start("AllReduce", x, op, algorithm, steps, lambda: out, name, slot)

    def reduce_scatter(self, x: np.ndarray, op: str = "sum") -> Handle:
        """x (size·k, …) reduced over the ranks; rank r gets its rows r·k … (r+1)·k."""
        self._divides("ReduceScatter", x)
        work = np.array(x, order="C")
        chunks = np.split(work, self.size)
        mine, algorithm = chunks[self.rank], self._choose("ReduceScatter", x.nbytes)

        def steps(link):
            flat = [c.reshape(-1) for c in chunks]
            yield from selection.function("ReduceScatter", algorithm)(link, flat, kernels.accumulate(_sums(op)))
            self._average(op, mine)
        return self._start("ReduceScatter", work, _reduction(op, x.dtype), algorithm, steps, lambda: mine)

    def all_gather(self, x: np.ndarray) -> Handle:
        """The ranks' x (k, …) one behind the other: (size·k, …)."""
        out = np.empty((self.size, *x.shape), x.dtype)
        out[self.rank] = x
        return self._run("AllGather", x, "", ([o.reshape(-1) for o in out],),
                         lambda: out.reshape(self.size * x.shape[0], *x.shape[1:]) if x.ndim else out.reshape(-1))

    def broadcast(self, x: np.ndarray, root: int) -> Handle:
        """root's x, on all ranks."""
        out = np.array(x, order="C")
        return self._run("Broadcast", out, f"root {root}", (out.reshape(-1), root), lambda: out)

    def reduce(self, x: np.ndarray, root: int, op: str = "sum") -> Handle:
        """The reduction of x over the ranks, on root; what the others get has no meaning."""
        out, algorithm = np.array(x, order="C"), self._choose("Reduce", x.nbytes)

        def steps(link):
            yield from selection.function("Reduce", algorithm)(link, out.reshape(-1), root, kernels.accumulate(_sums(op)))
            self._average(op, out)
        return self._start("Reduce", out, f"{_reduction(op, x.dtype)}, root {root}", algorithm, steps, lambda: out)

    def all_to_all(self, x: np.ndarray) -> Handle:
        """x (size·k, …): its r-th part goes to rank r; the result's s-th part came from rank s."""
        self._divides("AlltoAll", x)
        x = np.ascontiguousarray(x)
        out = np.empty_like(x)
        parts = tuple([p.reshape(-1) for p in np.split(a, self.size)] for a in (x, out))
        return self._run("AlltoAll", x, "", parts, lambda: out)

    def gather(self, x: np.ndarray, root: int) -> Handle:
        """The ranks' x (k, …) one behind the other, on root: (size·k, …); None on the others."""
        x = _contiguous(x)
        out = np.empty((self.size, *x.shape), x.dtype) if self.rank == root else None
        chunks = [] if out is None else [o.reshape(-1) for o in out]
        return self._run("Gather", x, f"root {root}", (x.reshape(-1), chunks, root),
                         lambda: None if out is None else out.reshape(self.size * x.shape[0], *x.shape[1:]) if x.ndim else out)

    def scatter(self, x: np.ndarray, root: int) -> Handle:
        """root's x (size·k, …), cut along dim 0: rank r gets its r-th part. The others' x says but shape and dtype."""
        self._divides("Scatter", x)
        x = np.ascontiguousarray(x)
        out = np.empty((x.shape[0] // self.size, *x.shape[1:]), x.dtype)
        chunks = [p.reshape(-1) for p in np.split(x, self.size)]
        return self._run("Scatter", x, f"root {root}", (chunks, out.reshape(-1), root), lambda: out)

    def barrier(self) -> Handle:
        """Complete when all ranks have called it."""
        return self._run("Barrier", np.empty(0, np.uint8), "", (), lambda: None)

    def send(self, x: np.ndarray, to: int, tag: int = 0) -> Handle:
        """x as one message. It is copied, so the handle need not be waited for."""
        data = np.array(x, order="C").reshape(-1)
        return self._message("Send", data, to, tag, message_out, lambda: None)

    def receive(self, shape, dtype, source: int, tag: int = 0) -> Handle:
        """The next message of this tag from `source`, of exactly this shape and dtype."""
        out = np.empty(shape, dtype)
        return self._message("Receive", out.reshape(-1), source, tag, message_in, lambda: out)

    # ---- how a communication begins ------------------------------------------------------------------

    def _choose(self, op: str, nbytes: int) -> str:
        if (now := selection.current()) is not self.chooser:
            self.chooser, self.chosen = now, {}
        if (op, nbytes) not in self.chosen:
            self.chosen[op, nbytes] = selection.choose(op, self.size, nbytes, self.locality)
        return self.chosen[op, nbytes]

    def _alike(self, op: str, x: np.ndarray, detail: str) -> int:
        """A number for what must agree on all ranks."""
        key = op, x.dtype, x.size, detail
        if key not in self.codes:
            self.codes[key] = 1 + _tag(op, x.dtype.name, x.size, detail)
        return self.codes[key]

    def _run(self, op, x, detail, args, result, name="") -> Handle:
        """A collective that is an algorithm and nothing else."""
        algorithm = self._choose(op, x.nbytes)
        return self._start(op, x, detail, algorithm, lambda link: selection.function(op, algorithm)(link, *args), result, name)

    def _start(self, op, x, detail, algorithm, steps, result, name="", slot=None) -> Handle:
        self.sequence += 1
        # All that must agree is in the tag: messages of calls that differ never meet.
        tag = _tag(self.code, self.sequence, op, x.dtype, x.size, detail, algorithm)
        if algorithm == "shared":
            alike, run = self._alike(op, x, detail), steps
            steps = lambda link: in_turn(link.room, alike, run(link))       # noqa: E731
        elif self.size > 1 and self.endpoint.checks:
            what, run = f"{op}({detail}), {x.size} × {x.dtype.name}", steps
            steps = lambda link: checked(link, what, run(link))             # noqa: E731
        return self._begin(op, x, detail, algorithm, self.sequence, tag, ALL, steps, result, name, slot)

    def _message(self, op, x, peer, tag, steps, result) -> Handle:
        wire = TAGS + _tag(self.code, tag, x.dtype, x.size)
        return self._begin(op, x, f"tag {tag}", "message", tag, wire, self.ranks[peer],
                           lambda link: steps(link, x, peer), result)

    def _begin(self, op, x, detail, algorithm, sequence, tag, peer, steps, result, name="", slot=None) -> Handle:
        endpoint, record = self.endpoint, self.endpoint.record
        if slot is None:
            slot = record.begin(OP_IDS[op], self.group_id, sequence, DTYPE_IDS[x.dtype], x.size, peer, x.nbytes,
                                record.intern(algorithm), record.intern(name or detail))
        endpoint.board.enter(self.code, sequence, op, x.dtype.name, x.size, detail)
        link = Link(self, sequence, tag)
        return Handle(endpoint, slot, self.ranks, link, iter(steps(link)), result)

    def _average(self, op: str, total: np.ndarray) -> None:
        """Make an average of a sum, in place."""
        if op == "avg":
            if total.dtype.kind in "iu":
                total[...] = np.trunc(total / self.size)
            else:
                total /= self.size

    def _divides(self, op, x):
        if not x.ndim or x.shape[0] % self.size:
            raise ValueError(f"{op}: dim 0 of shape {x.shape} must divide by the {self.size} ranks of group {self.name}")


def in_turn(room, alike: int, steps):
    """A communication in a room: when all are there, and after the group's earlier ones."""
    turn = Opening(room)
    yield [turn]
    room.next = alike
    yield from steps
    turn.leave()


def quick(room, x, out, op: str, alike: int, status: int | None = None):
    """AllReduce by the kernel; whether that could. status: of a kernel that has begun."""
    kernel, room.next = room.kernels, 0         # the kernel itself says what it is about to do
    if status is None:
        status = room.all_reduce(x, out, kernel.OPS[op], alike, 0)
    while status == kernel.WAITING:
        yield [Meeting(room)]
        status = room.all_reduce(x, out, kernel.OPS[op], alike, 0)
    if status == kernel.MISMATCH:
        raise room.differ()
    return status == kernel.DONE


def checked(link, what: str, steps):
    """First a short message to the next rank: what this one is about to do. If each does what the one before it does, all do
    the same. It shows at once what the algorithm's own messages might never show."""
    mine, theirs = np.zeros((2, 128), np.uint8)
    text = what.encode()[:128]
    mine[:len(text)] = np.frombuffer(text, np.uint8)
    comm, left = link.comm, (link.rank - 1) % link.size
    transport, tag = comm.endpoint.transport, _tag(comm.code, link.sequence)
    yield [transport.isend(mine, comm.ranks[(link.rank + 1) % link.size], tag), transport.irecv(theirs, comm.ranks[left], tag)]
    if (mine != theirs).any():
        said = bytes(theirs).rstrip(b"\0").decode(errors="replace")
        raise CollectiveError(f"rank {comm.endpoint.rank} is in {what}, number {link.sequence} of group {comm.name}, but rank "
                              f"{comm.ranks[left]} is in {said} there; op, dtype, count and root must agree on all ranks:\n"
                              f"{comm.endpoint.board.table()}")
    yield from steps


def _tag(*parts) -> int:
    """A number for what a call is, the same on all ranks."""
    return crc32(repr(parts).encode()) % TAGS


def _reduction(op: str, dtype) -> str:
    if op == "avg" and dtype.kind == "b":
        raise ValueError("bools have no avg; cast them to a float first, or reduce by sum (any) or prod (all)")
    if op not in (*kernels.OPS, "avg"):
        raise ValueError(f"a reduction is one of {', '.join(kernels.OPS)} and avg, not {op!r}")
    return op


def _sums(op: str) -> str:
    return "sum" if op == "avg" else op


def _contiguous(x: np.ndarray) -> np.ndarray:
    return x if x.flags.c_contiguous else np.array(x, order="C")
