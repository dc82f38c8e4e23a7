"""Rooms: where a group of ranks of one node meets in the memory they share (segment.py).

Everybody has a door there (a flag that counts the meetings it has come to), two headers (what it is about to do) and two
stages, on which it shows the others something. What is shown before a meeting may be looked at from that meeting until the next,
so the two stages are used by turns. What is done there is data (algorithms/shared.py), and carried out by compiled code
(device/kernels/shared.py).
"""
import os

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication.board import DONE, STATE, Board
from minispore.communication.ring import BEGIN, END, EVENTS, NUMBER, SEQUENCE, SPENT, WIDTH, Ring
from minispore.communication.segment import ENTRIES, Heap, Segment

SPIN = 100_000                  # nanoseconds that a rank looks at a flag before it sleeps, if there is a core for each rank
NAP = 50_000_000                # nanoseconds of sleep after which a rank looks whether the others are still there


class Node:
    """The shared memory of the node's ranks. ranks: world ranks; segments: theirs; rank: this one."""

    def __init__(self, rank: int, ranks: list[int], segments: list[Segment], board: Board):
        self.rank, self.segments, self.board = rank, dict(zip(ranks, segments, strict=True)), board
        self.heap = Heap(self.segments[rank], keep=self.segments[rank].size // 4)
        self.rooms: dict[int, Room] = {}            # by the group's code
        self.made: dict[int, int] = {}              # how many rooms of a group there have been
        self.left: list[Room] = []                  # rooms this rank has left, and others perhaps not
        cores = len(os.sched_getaffinity(0))
        self.spin = SPIN if len(ranks) <= cores else 0

    def reaches(self, ranks: tuple[int, ...]) -> bool:
        """Whether all these ranks share this memory."""
        return all(r in self.segments for r in ranks)

    def room(self, code: int, ranks: tuple[int, ...], record: Ring) -> "Room":
        """The room of a group, the same one until it is left. record: where its collectives are written down."""
        if code not in self.rooms:
            self.sweep()
            number = self.made[code] = self.made.get(code, 0) + 1       # a rank may still be in the group's last one
            self.rooms[code] = Room(self, code + number, ranks, record)
        return self.rooms[code]

    def leave(self, code: int) -> None:
        """This rank comes to the group's room no more. What is under way there holds it open."""
        if code in self.rooms and not self.rooms[code].queue:
            room = self.rooms.pop(code)
            room.entry[0] = 0
            self.left.append(room)
            self.sweep()

    def sweep(self) -> None:
        """Give back this rank's part of the rooms that all have left, or never came to: nobody looks there any more."""
        for room in tuple(self.left):
            if not any((self.segments[r].directory[:, 0] == room.code).any() for r in room.ranks):
                self.heap.free(int(room.entry[1]), room.nbytes)
                room.entry[1] = 0
                self.left.remove(room)


class Room:
    """A group's meeting place. It is open when every rank has made its part."""

    def __init__(self, node: Node, code: int, ranks: tuple[int, ...], record: Ring):
        from minispore.device.kernels import shared as k
        assert (k.BEGUN, k.ENDED, k.NUMBER, k.SEQUENCE, k.COLUMNS, k.EVENTS, k.SPENT) == (BEGIN, END, NUMBER, SEQUENCE, WIDTH,
                                                                                       EVENTS, SPENT), "two files must agree"
        self.kernels, self.node, self.code, self.ranks = k, node, code, ranks
        self.place, self.size = ranks.index(node.rank), len(ranks)
        segment = node.segments[node.rank]
        free = np.flatnonzero(segment.directory[:, 1] == 0)
        if not len(free):
            raise RuntimeError(f"group of ranks {list(ranks)}: this rank is in {ENTRIES} groups already; reuse some")
        self.nbytes = nbytes = k.STAGES + 2 * k.STAGE
        try:
            start = node.heap.place(nbytes)
        except OSError as e:
            raise RuntimeError(f"group of ranks {list(ranks)}: no {nbytes / 1e6:.1f} MB of shared memory for it ({e}). Make "
                               "/dev/shm larger, or set MINISPORE_SHARED_MEMORY=0 to send messages over MPI instead") from e
        segment.memory[start:start + k.STAGES] = 0
        self.times, self.scratch = np.array([0, NAP, 0, 0]), np.empty(k.BLOCK, np.uint8)      # how long to sleep; the clock
        self.state = np.zeros(k.FIXED + 4 * self.size, np.int64)
        mine = node.board.rows[node.rank]
        for field, value in ((k.ME, self.place), (k.SIZE, self.size), (k.SPIN, node.spin), (k.HEAP, segment.address),
                             (k.HEAP_END, segment.address + segment.size), (k.TIMES, self.times.ctypes.data),
                             (k.SCRATCH, self.scratch.ctypes.data), (k.BOARD_STATE, mine[STATE:].ctypes.data),
                             (k.BOARD_DONE, mine[DONE:].ctypes.data), (k.RING, record.header.ctypes.data),
                             (k.RING_ROWS, record.rows.ctypes.data), (k.RING_LENGTH, record.capacity)):
            self.state[field] = value
        self.kept = mine, record               # the state holds but their addresses
        self.entry = segment.directory[free[0]]
        k.put(self.entry[1:].ctypes.data, start)
        k.put(self.entry.ctypes.data, code)
        self.missing = set(range(self.size))    # places whose part isn't there yet
        self.queue: list = []                   # handles of this group, in order; the first is at work

    def open(self) -> bool:
        """Whether all ranks have made their part."""
        k = self.kernels
        for p in tuple(self.missing):
            segment = self.node.segments[self.ranks[p]]
            found = np.flatnonzero(segment.directory[:, 0] == self.code)
            if len(found):
                self.state[k.FIXED + p] = segment.address + segment.directory[found[0], 1]
                self.state[k.FIXED + self.size + p] = segment.address
                self.missing.discard(p)
        return not self.missing

    def absent(self) -> list[int]:
        """World ranks that haven't come to this rank's meeting, or not to the room at all."""
        if self.missing:
            return [self.ranks[p] for p in sorted(self.missing)]
        return [r for p, r in enumerate(self.ranks) if self.kernels.flag(self.state, p) < self.state[self.kernels.MEETING]]

    def differ(self) -> CollectiveError:
        """What to say when ranks have met to do different things."""
        other = self.ranks[int(self.state[self.kernels.OTHER])]
        return CollectiveError(f"rank {self.node.rank} and rank {other} are in different operations; op, dtype, count, root "
                               f"and algorithm must agree on all ranks:\n{self.node.board.table()}")
