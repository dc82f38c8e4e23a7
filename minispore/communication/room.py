"""Rooms: where a group of ranks of one node meets in the memory they share (segment.py).

Everybody has a door there (a flag that counts the meetings it has come to), two headers (what it is about to do) and two
stages, on which it shows the others something. What is shown before a meeting may be looked at from that meeting until the next,
so the two stages are used by turns. The loops are in device/kernels/shared.py.
"""
import os
from time import sleep

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication.board import Board
from minispore.communication.segment import ENTRIES, Heap, Segment

SPIN = 2000                     # looks at a flag before a rank sleeps, if there is a core for each rank
NAP = 50_000_000                # nanoseconds of sleep after which a rank looks whether the others are still there


class Node:
    """The shared memory of the node's ranks. ranks: world ranks; segments: theirs; rank: this one."""

    def __init__(self, rank: int, ranks: list[int], segments: list[Segment], board: Board):
        self.rank, self.segments, self.board = rank, dict(zip(ranks, segments, strict=True)), board
        self.heap = Heap(self.segments[rank], keep=self.segments[rank].size // 4)
        self.rooms: dict[int, Room] = {}
        cores = len(os.sched_getaffinity(0))
        self.spin = SPIN if len(ranks) <= cores else 0

    def reaches(self, ranks: tuple[int, ...]) -> bool:
        """Whether all these ranks share this memory."""
        return all(r in self.segments for r in ranks)

    def room(self, code: int, ranks: tuple[int, ...]) -> "Room":
        """The room of a group, the same one each time."""
        if code not in self.rooms:
            self.rooms[code] = Room(self, code, ranks)
        return self.rooms[code]


class Room:
    """A group's meeting place. It is open when every rank has made its part."""

    def __init__(self, node: Node, code: int, ranks: tuple[int, ...]):
        from minispore.device.kernels import shared
        self.kernels = shared
        self.node, self.code, self.ranks = node, code, ranks
        self.place, self.size = ranks.index(node.rank), len(ranks)
        segment = node.segments[node.rank]
        free = np.flatnonzero(segment.directory[:, 1] == 0)
        if not len(free):
            raise RuntimeError(f"group of ranks {list(ranks)}: this rank is in {ENTRIES} groups already; reuse some")
        nbytes = shared.STAGES + 2 * shared.STAGE
        try:
            start = node.heap.place(nbytes)
        except OSError as e:
            raise RuntimeError(f"group of ranks {list(ranks)}: no {nbytes / 1e6:.1f} MB of shared memory for it ({e}). Make "
                               "/dev/shm larger, or set MINISPORE_SHARED_MEMORY=0 to send messages over MPI instead") from e
        segment.memory[start:start + shared.STAGES] = 0
        self.state = np.zeros(shared.FIXED + 2 * self.size, np.int64)
        self.rows, self.blocks = np.zeros(self.size, np.int64), {}
        self.nap = np.array([0, NAP], np.int64)
        self.state[shared.ME], self.state[shared.SIZE], self.state[shared.SPIN] = self.place, self.size, node.spin
        self.state[shared.HEAP], self.state[shared.HEAP_END] = segment.address, segment.address + segment.size
        self.state[shared.CLOCK] = self.nap.ctypes.data
        entry = segment.address + 16 * int(free[0])
        shared.put(entry + 8, start)
        shared.put(entry, code)
        self.missing = set(range(self.size))    # places whose part isn't there yet
        self.queue: list[Opening] = []          # communications of this group, in order; the first is at work
        self.next = 0                           # what this rank is about to do, for the next meeting's header

    def open(self) -> bool:
        """Whether all ranks have made their part."""
        shared = self.kernels
        for p in tuple(self.missing):
            segment = self.node.segments[self.ranks[p]]
            found = np.flatnonzero(segment.directory[:, 0] == self.code)
            if len(found):
                self.state[shared.FIXED + p] = segment.address + segment.directory[found[0], 1]
                self.state[shared.FIXED + self.size + p] = segment.address
                self.missing.discard(p)
        return not self.missing

    # ---- what algorithms do here ---------------------------------------------------------------------

    def meet(self) -> "Meeting":
        """Come to the next meeting."""
        self.kernels.come(self.state, self.next)
        self.next = 0
        return Meeting(self)

    def absent(self) -> list[int]:
        """World ranks that haven't come to this rank's meeting, or not to the room at all."""
        if self.missing:
            return [self.ranks[p] for p in sorted(self.missing)]
        return [r for p, r in enumerate(self.ranks) if self.kernels.flag(self.state, p) < self.state[self.kernels.MEETING]]

    def differ(self) -> CollectiveError:
        """What to say when ranks have met to do different things."""
        other = self.ranks[int(self.state[self.kernels.OTHER])]
        return CollectiveError(f"rank {self.node.rank} and rank {other} are in different operations; op, dtype, count and root "
                               f"must agree on all ranks:\n{self.node.board.table()}")

    def stage(self, place: int, dtype, ahead: int = 0) -> np.ndarray:
        """What a place shows at this meeting, or is to show at the next (ahead=1)."""
        shared = self.kernels
        segment = self.node.segments[self.ranks[place]]
        start = int(self.state[shared.FIXED + place]) - segment.address + shared.STAGES
        start += ((int(self.state[shared.MEETING]) + ahead) & 1) * shared.STAGE
        return segment.memory[start:start + shared.STAGE].view(dtype)

    def all_reduce(self, x: np.ndarray, out: np.ndarray, op: int, code: int, patience: int) -> int:
        """The kernel of this name, on flat arrays. Its meetings must be waited for by calling it again."""
        block = self.blocks.get(x.dtype)
        if block is None:
            block = self.blocks[x.dtype] = np.empty(self.kernels.BLOCK // x.itemsize, x.dtype)
        return self.kernels.all_reduce(self.state, self.rows, block, x, out, op, code, patience)


class Opening:
    """A request: complete when all ranks have made their part of the room, and no earlier communication is at work there."""

    def __init__(self, room: Room):
        self.room = room
        room.queue.append(self)

    def test(self, patience: int = 0) -> bool:
        room = self.room
        if room.missing and not room.open():
            if patience > 1:
                sleep(1e-4)
            return False
        if room.queue[0] is not self:
            room.kernels.met(room.state, patience)      # where the first one stands
            return False
        return True

    def leave(self) -> None:
        self.room.queue.remove(self)


class Meeting:
    """A request: complete when all ranks have come. CollectiveError if they mean to do different things."""

    def __init__(self, room: Room):
        self.room = room

    def test(self, patience: int = 0) -> bool:
        kernels = self.room.kernels
        status = kernels.met_alike(self.room.state, patience)
        if status == kernels.MISMATCH:
            raise self.room.differ()
        return status == kernels.DONE
