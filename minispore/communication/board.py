"""The board: one row a rank that says what it is doing, in memory all ranks of the node can read.

A rank counts there what it has completed. Who waits for long writes in what, in numbers that can be compared and in words, with
the line of the script: from that comes the report which rank waits where, and which ones can never come.
"""
import time
from hashlib import blake2b

import numpy as np

from minispore.common.errors import script_line

OPS = ("", "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter",
       "Barrier", "Send", "Receive")
MESSAGES = {OPS.index("Send"), OPS.index("Receive")}
RUNNING, WAITING, ENDED, FAILED = 0, 1, 2, 3
STATE, GROUP, SEQUENCE, OP, DTYPE, COUNT, DETAIL, DONE, NOTED = range(9)
COLUMNS = 9
NOTE = 256              # bytes of a note
SETTLE = 0.15           # seconds in which the others may still come to write theirs

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "bfloat16")

ENDINGS = {ENDED: "has ended", FAILED: "has failed"}


def code(text: str) -> int:
    """A number for a name, the same on all ranks."""
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")


class Board:
    """memory: uint8 (ranks · BYTES), all zero at first, shared by the ranks. `unknown` ranks (of other nodes) write elsewhere."""

    BYTES = COLUMNS * 8 + NOTE          # a rank

    def __init__(self, memory: np.ndarray, rank: int, unknown: frozenset[int] = frozenset()):
        size = len(memory) // self.BYTES
        self.rows = memory[:size * COLUMNS * 8].view(np.int64).reshape(size, COLUMNS)
        self.notes = memory[size * COLUMNS * 8:].reshape(size, NOTE)
        self.rank, self.unknown = rank, unknown
        self.subject = None             # the handle that this rank is about to wait in: it `says()` what it is, and its `place()`

    def set(self, state: int) -> None:
        self.rows[self.rank, STATE] = state

    def clear(self) -> None:
        """As if this rank had not communicated yet."""
        self.rows[self.rank] = 0

    def waits(self) -> None:
        """This rank has waited for long, or for something that can't come: a note says in what, and where in the script."""
        row, said = self.rows[self.rank], ""
        if self.subject is not None:
            group, sequence, op, dtype, count, detail = self.subject.place()
            row[GROUP:DONE] = group, sequence, OPS.index(op), DTYPES.index(dtype), count, code(detail)
            said = self.subject.says()
        text = ", ".join(filter(None, (said, script_line()))).encode()[:NOTE]
        self.notes[self.rank] = np.frombuffer(text.ljust(NOTE, b"\0"), np.uint8)
        row[NOTED], row[STATE] = row[DONE] + 1, WAITING         # the note holds until one more communication is complete

    def done(self) -> None:
        """This rank has completed one more communication."""
        self.rows[self.rank, STATE] = RUNNING
        self.rows[self.rank, DONE] += 1

    def gone(self, ranks) -> list[int]:
        """Those of the ranks that have ended, well or not."""
        return [r for r in ranks if r not in self.unknown and self.rows[r, STATE] >= ENDED]

    def mismatch(self, ranks) -> int | None:
        """A rank that waits in the same group and place as this one, but in another operation. Messages have no such place:
        who waits for one may well differ from who waits for another."""
        mine = self.rows[self.rank]
        for r in ranks:
            row = self.rows[r]
            if (r != self.rank and not MESSAGES & {row[OP], mine[OP]} and r not in self.unknown and row[STATE] == WAITING
                    and row[GROUP] == mine[GROUP] and row[SEQUENCE] == mine[SEQUENCE]
                    and tuple(row[OP:DONE]) != tuple(mine[OP:DONE])):
                return r
        return None

    def line(self, rank: int) -> str:
        """What a rank does, in words."""
        if rank in self.unknown:
            return f"rank {rank}: on another node"
        row = self.rows[rank]
        done = f"after {row[DONE]} communications"
        note = bytes(self.notes[rank]).rstrip(b"\0").decode(errors="replace") if row[NOTED] == row[DONE] + 1 else ""
        if row[STATE] in ENDINGS:
            return f"rank {rank}: {ENDINGS[row[STATE]]} " + (f"in {note}, " if note and row[STATE] == FAILED else "") + done
        if row[STATE] == WAITING:
            return f"rank {rank}: waits in {note}, {done}"
        return f"rank {rank}: computes {done}"

    def table(self) -> str:
        """All ranks, a line each, after a moment in which those that wait too come to say where. For an error of this rank."""
        self.waits()
        until = time.monotonic() + SETTLE
        known = [r for r in range(len(self.rows)) if r not in self.unknown]
        while (self.rows[known, STATE] == RUNNING).any() and time.monotonic() < until:
            time.sleep(0.002)
        return "\n".join(f"  {self.line(r)}" for r in range(len(self.rows)))
