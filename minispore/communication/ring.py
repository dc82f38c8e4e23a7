"""The ring: where a rank's record lies. Rows of int64, of which the oldest go first; a header; texts that columns name by id.

It may be a file that is mapped into memory: then it survives the rank, also one that is killed. To write an event costs about
a microsecond; compiled code may write rows too.
"""
import mmap
import os
import platform
import struct
import time
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from minispore.common.errors import script_line
from minispore.communication import board

CAPACITY = 32768            # events kept a rank; a LeNet step on 4 ranks makes 13
TEXT_BYTES = 256 * 1024
WIDTH = 16                  # columns of a row, 3 of them spare; NUMBER is the last, for a row is written from left to right
(GROUP, SEQUENCE, OP, DTYPE, COUNT, PEER, BYTES, BEGIN, END, ALGORITHM, DETAIL, LINE), NUMBER = range(12), WIDTH - 1
ALL = -1                    # as PEER: all other ranks of the group

HEADER = 512                # numbers, of which few are used: a page, so that rows begin at one
(MAGIC, VERSION, RANK, SIZE, EVENTS, FIRST, STATE, CLOCK, ROOM, TEXT, PROCESS, HOST, SEEN, SPENT) = range(14)
# EVENTS: begun so far, whoever wrote them; FIRST: how many of them `clear` has made forgotten; CLOCK: the wall's time minus
# perf_counter_ns; ROOM: the capacity; TEXT: bytes of text in use; SEEN: when a waiting rank last looked round;
# SPENT: nanoseconds in communications (not their messages) that have ended
FORMAT = int.from_bytes(b"minispor", "little"), 1
ROW = struct.Struct(f"{WIDTH}q")

OPS = (*board.OPS, "send", "receive")
OP_IDS = {name: i for i, name in enumerate(OPS)}
SEND = OP_IDS["send"]       # from here on: messages of a call, not calls
FULL = 1                    # the id of "...", which stands for all texts that find no room


def row(op: int, group: int, sequence: int, dtype: int, count: int, peer: int, nbytes: int, algorithm: int = 0, detail: int = 0,
        begin: int = 0, number: int = 0) -> tuple[int, ...]:
    """An event's WIDTH columns."""
    return group, sequence, op, dtype, count, peer, nbytes, begin, 0, algorithm, detail, 0, 0, 0, 0, number


class _DtypeIds(dict):
    """dtype -> its index in board.DTYPES; to ask a dtype for its name takes longer than a whole event."""

    def __missing__(self, dtype):
        if dtype.name not in board.DTYPES:
            raise TypeError(f"an array of {dtype} can't be sent; ranks exchange {', '.join(board.DTYPES)}: cast it first")
        self[dtype] = board.DTYPES.index(dtype.name)
        return self[dtype]


DTYPE_IDS = _DtypeIds()


class Ring:
    """The events of one rank. rows, header: the ring as arrays, which compiled code may write too, as `begin` and `end` do.

    A slot is the number of events before this one; its row is rows[slot % capacity].
    """

    def __init__(self, rank: int, size: int = 1, path=None, capacity: int = CAPACITY):
        """path: the file to keep it in, made anew; None: in memory. OSError if it can't be made."""
        nbytes = 8 * HEADER + ROW.size * capacity + TEXT_BYTES
        self._lay(np.zeros(nbytes, np.uint8) if path is None else _mapped(path, nbytes), capacity)
        self.header[1:SPENT + 1] = (FORMAT[1], rank, size, 0, 0, board.RUNNING, time.time_ns() - perf_counter_ns(), capacity, 0,
                                    os.getpid(), this_host(), 0, 0)
        self._append("")
        self._append("...")
        self.header[MAGIC] = FORMAT[0]

    def _lay(self, memory: np.ndarray, capacity: int) -> None:
        """Find the areas in the memory."""
        a, b = 8 * HEADER, 8 * HEADER + ROW.size * capacity
        self.memory, self.capacity = memory, capacity
        self.header, self.rows, self.text = memory[:a].view(np.int64), memory[a:b].view(np.int64).reshape(-1, WIDTH), memory[b:]
        # Single numbers are read and written several times faster through a memoryview than through an array.
        self._header, self._cells, self._rows = memoryview(self.header), memoryview(memory[a:b].view(np.int64)), memory[a:b].data
        self._ids = {text: i for i, text in enumerate(self.texts())}

    rank = property(lambda self: self._header[RANK])
    size = property(lambda self: self._header[SIZE])
    state = property(lambda self: self._header[STATE])

    # ---- writing -------------------------------------------------------------------------------------

    def begin(self, op: int, group: int, sequence: int, dtype: int, count: int, peer: int, nbytes: int, algorithm: int = 0,
              detail: int = 0) -> int:
        """A communication or message begins; its slot. op, dtype: places in OPS, board.DTYPES; others: ids of texts."""
        slot = self._header[EVENTS]
        numbers = row(op, group, sequence, dtype, count, peer, nbytes, algorithm, detail, perf_counter_ns(), slot + 1)
        ROW.pack_into(self._rows, slot % self.capacity * ROW.size, *numbers)
        self._header[EVENTS] = slot + 1
        return slot

    def end(self, slot: int) -> None:
        """It is complete. Nothing happens if its row has gone to another event meanwhile."""
        at = slot % self.capacity * WIDTH
        if self._cells[at + NUMBER] == slot + 1:
            self._cells[at + END] = now = perf_counter_ns()
            if self._cells[at + OP] < SEND:
                self._header[SPENT] += now - self._cells[at + BEGIN]

    def intern(self, text: str) -> int:
        """The id of a text."""
        known = self._ids.get(text)
        return self._append(text) if known is None else known

    def group(self, name: str, ranks) -> int:
        """The id of a group: its name, with its world ranks beside it."""
        return self.intern(f"{name}\t{','.join(map(str, ranks))}")

    def _append(self, text: str) -> int:
        data = text.encode(errors="backslashreplace")
        used = self._header[TEXT]
        end = used + 4 + len(data)
        if end > len(self.text):
            return FULL
        self.text[used:end] = np.frombuffer(len(data).to_bytes(4, "little") + data, np.uint8)
        self._header[TEXT] = end
        return self._ids.setdefault(text, len(self._ids))

    def waits(self, slot: int) -> None:
        """This rank waits for it, and not just since now: note where in the script, and that it still looked round. Slot -1: for
        one that has no event yet."""
        self._header[SEEN] = perf_counter_ns()
        at = slot % self.capacity * WIDTH
        if slot >= 0 and self._cells[at + NUMBER] == slot + 1 and not self._cells[at + LINE]:
            self._cells[at + LINE] = self.intern(script_line())

    def finish(self, failed: bool) -> None:
        """This rank communicates no more."""
        self._header[STATE] = board.FAILED if failed else board.ENDED

    def clear(self) -> None:
        """Forget all events. Slots stay what they are."""
        self._header[FIRST], self._header[SPENT] = self._header[EVENTS], 0

    def texts(self) -> list[str]:
        """All texts, by id."""
        data, found, at = self.text[:self._header[TEXT]].tobytes(), [], 0
        while at < len(data):
            n = int.from_bytes(data[at:at + 4], "little")
            found.append(data[at + 4:at + 4 + n].decode(errors="replace"))
            at += 4 + n
        return found

    @classmethod
    def load(cls, path) -> "Ring":
        """A copy of a ring's file; its rank may go on writing there."""
        memory = np.memmap(path, np.uint8, "r")
        header = memory[:8 * HEADER].view(np.int64) if len(memory) >= 8 * HEADER else np.zeros(HEADER, np.int64)
        capacity, events = int(header[ROOM]), int(header[EVENTS])
        if header[VERSION] != FORMAT[1] or len(memory) != 8 * HEADER + ROW.size * capacity + TEXT_BYTES:
            raise ValueError(f"{path} is no record of this version of minispore, or was cut; run the job again")
        # Rows first, then the texts they name, which were there before. What was overwritten meanwhile doesn't count.
        a, b, copy = 8 * HEADER, 8 * HEADER + ROW.size * capacity, np.empty(len(memory), np.uint8)
        copy[a:b] = memory[a:b]
        copy[:a], copy[b:] = memory[:a], memory[b:]
        ring = cls.__new__(cls)
        ring._lay(copy, capacity)
        latest = int(ring.header[EVENTS])
        ring.header[FIRST] = min(events, max(int(ring.header[FIRST]), latest + 1 - capacity))
        ring.header[EVENTS] = events
        return ring


def _mapped(path, nbytes: int) -> np.ndarray:
    """A new file of zeros, in memory. An old one is removed, not emptied: somebody may still have it in his memory."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "x+b") as f:
        if hasattr(os, "posix_fallocate"):      # all of it at once: a disk that is full later would kill the process
            os.posix_fallocate(f.fileno(), 0, nbytes)
        else:
            f.write(bytes(nbytes))
            f.flush()
        return np.frombuffer(mmap.mmap(f.fileno(), nbytes), np.uint8)


def remove_rings(folder, first: int = 0) -> None:
    """A new job begins: remove what an earlier one left there, of ranks from `first` on."""
    for path in Path(folder).glob("record_*.ring"):
        if (number := path.stem.removeprefix("record_")).isdecimal() and int(number) >= first:
            with suppress(OSError):
                path.unlink()


def this_host() -> int:
    """A number for this machine: clocks and processes of one machine can be compared."""
    return board.code(platform.node())
