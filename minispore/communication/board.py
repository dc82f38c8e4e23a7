"""The board: one row a rank that says what it is doing, in memory all ranks of the node can read.

It is written with a handful of stores a collective and read only by who has waited in vain: from it comes the report
which rank waits where, and which ones can never come.
"""
from hashlib import blake2b

import numpy as np

OPS = ("", "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter",
       "Barrier", "Send", "Receive")
MESSAGES = {OPS.index("Send"), OPS.index("Receive")}
RUNNING, WAITING, ENDED, FAILED = 0, 1, 2, 3
STATE, GROUP, SEQUENCE, OP, DTYPE, COUNT, DETAIL, DONE = range(8)
COLUMNS = 8

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "bfloat16")


ENDINGS = {ENDED: "has ended", FAILED: "has failed"}


def call(op: str, sequence: int, count: int, dtype: str, group: str = "its group") -> str:
    """A collective, in words."""
    return f"{op} number {sequence} of {group}, {count} × {dtype}"


def code(text: str) -> int:
    """A number for a name, the same on all ranks."""
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")


class Board:
    """rows: int64 (ranks, COLUMNS), shared by the ranks; `unknown` ranks (of other nodes) have no row here."""

    def __init__(self, rows: np.ndarray, rank: int, unknown: frozenset[int] = frozenset()):
        self.rows, self.rank, self.unknown = rows, rank, unknown

    def enter(self, group: int, sequence: int, op: str, dtype: str, count: int, detail: str) -> None:
        """This rank begins a communication."""
        self.rows[self.rank, 1:DONE] = (group, sequence, OPS.index(op), DTYPES.index(dtype), count,
                                        code(detail) if detail else 0)

    def set(self, state: int) -> None:
        self.rows[self.rank, STATE] = state

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
        if row[STATE] in ENDINGS:
            return f"rank {rank}: {ENDINGS[row[STATE]]} {done}"
        what = call(OPS[row[OP]], row[SEQUENCE], row[COUNT], DTYPES[row[DTYPE]])
        if row[STATE] == WAITING:
            return f"rank {rank}: waits in {what}, {done}"
        return f"rank {rank}: computes {done}"

    def table(self) -> str:
        """All ranks, a line each."""
        return "\n".join(f"  {self.line(r)}" for r in range(len(self.rows)))
