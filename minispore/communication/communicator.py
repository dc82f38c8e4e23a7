"""Communicator: the collectives of one group of ranks.

A call returns a Handle at once; its wait() gives the result. Which algorithm does the work is selection's choice.
"""
from functools import cached_property
from math import prod
from zlib import crc32

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication import board, selection
from minispore.communication.algorithms import message_in, message_out, shared
from minispore.communication.endpoint import Endpoint
from minispore.communication.handle import Call, Handle, MessageHandle, RoomHandle
from minispore.communication.ring import row
from minispore.device import kernels

TAGS = 2 ** 26              # collectives' tags lie below, those of single messages above; MPI allows 2^27 at least
MOST_CALLS = 4096           # kinds of calls remembered


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
        self.chooser, self.calls = None, {}

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The places of the group by node."""
        return selection.nodes_of(self.ranks, self.endpoint.transport.host)

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
        """Where the group meets, if its locality is "shared"; else None."""
        node = self.endpoint.transport.node
        return node.room(self.code, self.ranks, self.endpoint.record) if self.locality == "shared" else None

    def leave(self) -> None:
        """This rank takes part in nothing of this group any more: the memory in which it met is given back."""
        if self.endpoint.transport.node:
            self.endpoint.transport.node.leave(self.code)

    def split(self, ranks, name: str) -> "Communicator":
        """A communicator of some of the ranks (world numbers)."""
        return Communicator(self.endpoint, ranks, name)

    def empty(self, shape, dtype) -> np.ndarray:
        """A new array, if possible in memory that the other ranks of the node reach: their AllReduce then copies nothing."""
        node, dtype = self.endpoint.transport.node, np.dtype(dtype)
        nbytes = int(np.prod(shape)) * dtype.itemsize
        memory = node.heap.empty(max(nbytes, 1)) if node and nbytes >= 0 else None      # numpy refuses what is negative
        return np.empty(shape, dtype) if memory is None else memory[:nbytes].view(dtype).reshape(shape)

    def buffer(self, shape, dtype) -> np.ndarray:
        """A new array to communicate with: `empty` if it is so large that this is worth it."""
        small = prod(shape) * dtype.itemsize < shared.WORTH or self.locality != "shared"
        return np.empty(shape, dtype) if small else self.empty(shape, dtype)

    def all_reduce(self, x: np.ndarray, op: str = "sum", out: np.ndarray | None = None, name: str = "") -> Handle:
        """The sum (…) of x over the ranks, on all of them; into `out`, a contiguous array, if given (it may be x itself)."""
        x = _contiguous(x)
        out = self._result(x.shape, x.dtype, out, x)

        def steps(link, algorithm):
            if x is not out:
                np.copyto(out, x)
            yield from algorithm(link, out.reshape(-1), kernels.accumulate(_sums(op)))
            self._average(op, out)
        return self._start("AllReduce", x, out, steps, lambda: out, reduction=op, name=name)

    def all_reduce_now(self, x: np.ndarray, op: str = "sum", out: np.ndarray | None = None, name: str = "") -> np.ndarray:
        """all_reduce(...).wait(), with less ado where the ranks share memory and nothing else is under way."""
        x = _contiguous(x)
        call = self.calls.get(("AllReduce", x.dtype, x.size, op, None, name))
        if (call is None or call.plan is None or self.endpoint.pending or self.room.missing
                or selection.current() is not self.chooser):
            return self.all_reduce(x, op, out, name).wait()
        out = self._result(x.shape, x.dtype, out, x)
        flat, into = (x, out) if x.ndim == 1 else (x.reshape(-1), out.reshape(-1))
        self.sequence += 1
        if call.machine(self.room.state, call.plan, flat, into, self.sequence, 2):
            return RoomHandle(self, call, self.sequence, flat, into, lambda: out, begun=True).wait()
        return out

    def reduce_scatter(self, x: np.ndarray, op: str = "sum", out: np.ndarray | None = None) -> Handle:
        """x (size·k, …) reduced over the ranks; rank r gets its rows r·k … (r+1)·k."""
        x = self._divides("ReduceScatter", x)
        out = self._result((x.shape[0] // self.size, *x.shape[1:]), x.dtype, out, x, self.rank * (x.nbytes // self.size))

        def steps(link, algorithm):
            chunks = [c.reshape(-1) for c in np.split(x.copy(), self.size)]
            yield from algorithm(link, chunks, kernels.accumulate(_sums(op)))
            out[...] = chunks[self.rank].reshape(out.shape)
            self._average(op, out)
        return self._start("ReduceScatter", x, out, steps, lambda: out, reduction=op)

    def all_gather(self, x: np.ndarray, out: np.ndarray | None = None) -> Handle:
        """The ranks' x (k, …) one behind the other: (size·k, …)."""
        x = _contiguous(x)
        rows = self.size * (x.shape[0] if x.ndim else 1)
        out = self._result((rows, *x.shape[1:]), x.dtype, out, x, -self.rank * x.nbytes)

        def steps(link, algorithm):
            chunks = np.split(out.reshape(-1), self.size)
            chunks[self.rank][...] = x.reshape(-1)
            return algorithm(link, chunks)
        return self._start("AllGather", x, out, steps, lambda: out)

    def broadcast(self, x: np.ndarray, root: int, out: np.ndarray | None = None) -> Handle:
        """root's x, on all ranks."""
        x = _contiguous(x)
        out = self._result(x.shape, x.dtype, out, x)

        def steps(link, algorithm):
            out[...] = x
            return algorithm(link, out.reshape(-1), root)
        return self._start("Broadcast", x if self.rank == root else out, out, steps, lambda: out, root=root)

    def reduce(self, x: np.ndarray, root: int, op: str = "sum") -> Handle:
        """The reduction of x over the ranks, on root; what the others get has no meaning."""
        x, out = _contiguous(x), self._result(x.shape, x.dtype)

        def steps(link, algorithm):
            out[...] = x
            yield from algorithm(link, out.reshape(-1), root, kernels.accumulate(_sums(op)))
            self._average(op, out)
        return self._start("Reduce", x, out, steps, lambda: out, reduction=op, root=root)

    def all_to_all(self, x: np.ndarray, out: np.ndarray | None = None) -> Handle:
        """x (size·k, …): its r-th part goes to rank r; the result's s-th part came from rank s. out mustn't be x."""
        x = self._divides("AlltoAll", x)
        out = self._result(x.shape, x.dtype, out, x, None)
        return self._start("AlltoAll", x, out, lambda link, algorithm: algorithm(
            link, *(np.split(a.reshape(-1), self.size) for a in (x, out))), lambda: out)

    def gather(self, x: np.ndarray, root: int) -> Handle:
        """The ranks' x (k, …) one behind the other, on root: (size·k, …); None on the others."""
        x, at_root = _contiguous(x), self.rank == root
        rows = self.size * (x.shape[0] if x.ndim else 1) if at_root else 0
        out = self._result((rows, *x.shape[1:]), x.dtype)
        return self._start("Gather", x, out, lambda link, algorithm: algorithm(
            link, x.reshape(-1), np.split(out.reshape(-1), self.size) if at_root else [], root),
            lambda: out if at_root else None, root=root)

    def scatter(self, x: np.ndarray, root: int) -> Handle:
        """root's x (size·k, …), cut along dim 0: rank r gets its r-th part. The others' x says but shape and dtype."""
        x = self._divides("Scatter", x)
        out = self._result((x.shape[0] // self.size, *x.shape[1:]), x.dtype)
        return self._start("Scatter", x, out, lambda link, algorithm: algorithm(
            link, np.split(x.reshape(-1), self.size), out.reshape(-1), root), lambda: out, root=root)

    def barrier(self) -> Handle:
        """Complete when all ranks have called it."""
        nothing = np.empty(0, np.uint8)
        return self._start("Barrier", nothing, nothing, lambda link, algorithm: algorithm(link), lambda: None)

    def send(self, x: np.ndarray, to: int, tag: int = 0) -> Handle:
        """x as one message. It is copied, so the handle need not be waited for."""
        data = np.array(x, order="C").reshape(-1)
        return self._message("Send", data, to, tag, message_out, lambda: None)

    def receive(self, shape, dtype, source: int, tag: int = 0) -> Handle:
        """The next message of this tag from `source`, of exactly this shape and dtype."""
        out = np.empty(shape, dtype)
        return self._message("Receive", out.reshape(-1), source, tag, message_in, lambda: out)

    # ---- how a communication begins ------------------------------------------------------------------

    def _result(self, shape, dtype, out: np.ndarray | None = None, x: np.ndarray | None = None, at: int | None = 0) -> np.ndarray:
        """out, if it can take the result of x; a new array if none is given. at: how many bytes behind x it may begin where it
        shares x's memory; None: it mustn't share any."""
        if out is None:
            return self.buffer(shape, dtype)
        if out.shape != shape or out.dtype != dtype or not out.flags.carray:
            raise ValueError(f"out must be a contiguous array of shape {shape} and {dtype} that can be written, not one of shape "
                             f"{out.shape}, {out.dtype}, strides {out.strides}")
        if out is not x and np.may_share_memory(x, out) and (behind := out.ctypes.data - x.ctypes.data) != at:
            where = "it mustn't here" if at is None else f"it may do so at {at} only"
            raise ValueError(f"out overlaps the array that is given, {behind} bytes behind its start; {where}: pass another")
        return out

    def _call(self, op, dtype, count, reduction, root, name) -> Call:
        """The same object for the same arguments, as long as the selection doesn't change."""
        if (now := selection.current()) is not self.chooser or len(self.calls) > MOST_CALLS:
            self.chooser, self.calls = now, {}
        key = op, dtype, count, reduction, root, name
        if key not in self.calls:
            algorithm = selection.choose(op, self.size, count * dtype.itemsize, self._locality(dtype, reduction))
            call = self.calls[key] = Call(op, _detail(reduction, root), dtype, count, algorithm, name=name)
            if algorithm == "shared":
                self._plan(call, reduction, root)
        return self.calls[key]

    def _locality(self, dtype, reduction) -> str:
        """The group's, for this: what Numba can't calculate isn't done in shared memory."""
        uncompiled = reduction and (dtype.name in ("float16", "bfloat16") or not dtype.isnative)
        return self.endpoint.transport.locality if uncompiled and self.locality == "shared" else self.locality

    def _plan(self, call: Call, reduction: str, root: int | None) -> None:
        """What a call needs that is done in the room. Arrays that are only moved are bytes there."""
        k, event, dtype = self.room.kernels, call.event(self), call.dtype if reduction else np.dtype(np.uint8)
        width = dtype.itemsize
        call.plan = shared.plan(call.op, self.rank, self.size, root or 0, event["nbytes"] // width, width).copy()
        call.plan[k.EVENT] = row(sequence=0, **event)
        call.plan[k.HEAD, [k.ALIKE, k.OP]] = 1 + _tag(call.op, call.dtype.name, call.count, call.detail), k.OPS.get(reduction, 0)
        like = np.empty(0, dtype)
        call.machine = k.collective.code(self.room.state, call.plan, like, like, 0, 0)

    def _start(self, op, x, out, steps, result, reduction="", root=None, name="") -> Handle:
        """A collective. steps(link, algorithm): what it does where it is done by messages."""
        if reduction:
            _known(reduction, x.dtype)
        if root is not None and root not in range(self.size):
            raise ValueError(f"{op}: root {root!r} must be a place in group {self.name}, 0 … {self.size - 1}")
        call = self._call(op, x.dtype, x.size, reduction, root, name)
        self.sequence += 1
        if call.plan is not None:
            flat = (x.reshape(-1), out.reshape(-1)) if reduction else (_bytes(x), _bytes(out))
            return RoomHandle(self, call, self.sequence, *flat, result)
        # All that must agree is in the tag: messages of calls that differ never meet.
        tag = _tag(self.code, self.sequence, op, x.dtype, x.size, call.detail, call.algorithm)
        run = lambda link: steps(link, selection.function(op, call.algorithm))      # noqa: E731
        if self.size > 1 and self.endpoint.checks:
            return MessageHandle(self, call, self.sequence, tag, lambda link: checked(link, call, run(link)), result)
        return MessageHandle(self, call, self.sequence, tag, run, result)

    def _message(self, op, x, peer, tag, steps, result) -> Handle:
        if peer not in range(self.size):
            raise ValueError(f"{op}: rank {peer!r} must be a place in group {self.name}, 0 … {self.size - 1}")
        call = Call(op, f"tag {tag}", x.dtype, x.size, "message", self.ranks[peer])
        wire = TAGS + _tag(self.code, tag, x.dtype, x.size)
        return MessageHandle(self, call, tag, wire, lambda link: steps(link, x, peer), result)

    def _average(self, op: str, total: np.ndarray) -> None:
        """Make an average of a sum, in place."""
        if op == "avg":
            if total.dtype.kind in "iu":
                wide = total.astype(total.dtype.kind + "8")
                down = wide // self.size
                total[...] = down + ((wide < 0) & (down * self.size != wide))
            else:
                total /= self.size

    def _divides(self, op, x) -> np.ndarray:
        """x, contiguous, if there is an equal part of it for each rank."""
        x = _contiguous(x)
        if not x.ndim or x.shape[0] % self.size:
            raise ValueError(f"{op}: dim 0 of shape {x.shape} must divide by the {self.size} ranks of group {self.name}")
        return x


def checked(link, call: Call, steps):
    """First a short message to the next rank: what this one is about to do. If each does what the one before it does, all do
    the same. It shows at once what the algorithm's own messages might never show."""
    what = f"{call.op}({call.detail}), {call.count} × {call.dtype.name} by {call.algorithm}"
    mine, theirs = np.zeros((2, 128), np.uint8)
    text = what.encode()[:128]
    mine[:len(text)] = np.frombuffer(text, np.uint8)
    comm, left = link.comm, (link.rank - 1) % link.size
    transport, tag = comm.endpoint.transport, _tag(comm.code, link.sequence)
    yield [transport.isend(mine, comm.ranks[(link.rank + 1) % link.size], tag), transport.irecv(theirs, comm.ranks[left], tag)]
    if (mine != theirs).any():
        said = bytes(theirs).rstrip(b"\0").decode(errors="replace")
        raise CollectiveError(f"rank {comm.endpoint.rank} is in {what}, number {link.sequence} of group {comm.name}, but rank "
                              f"{comm.ranks[left]} is in {said} there; op, dtype, count, root and algorithm must agree on all "
                              f"ranks:\n{comm.endpoint.board.table()}")
    yield from steps


def _tag(*parts) -> int:
    """A number for what a call is, the same on all ranks."""
    return crc32(repr(parts).encode()) % TAGS


def _known(op: str, dtype) -> None:
    if op == "avg" and dtype.kind == "b":
        raise ValueError("bools have no avg; cast them to a float first, or reduce by sum (any) or prod (all)")
    if op not in (*kernels.OPS, "avg"):
        raise ValueError(f"a reduction is one of {', '.join(kernels.OPS)} and avg, not {op!r}")


def _detail(reduction: str, root: int | None) -> str:
    return ", ".join(filter(None, (reduction, "" if root is None else f"root {root}")))


def _sums(op: str) -> str:
    return "sum" if op == "avg" else op


def _contiguous(x: np.ndarray) -> np.ndarray:
    if not isinstance(x, np.ndarray):
        raise TypeError(f"collectives take numpy arrays, not a {type(x).__name__}; np.asarray(…) makes one")
    return x if x.flags.c_contiguous else np.array(x, order="C")


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)
