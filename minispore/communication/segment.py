"""Memory that the ranks of one node share: a file in /dev/shm for each rank, mapped by all, removed once all have it.

Behind a short directory (which group's room lies where) a rank's file is its heap: rooms, and arrays that other ranks may
read and write without a copy.
"""
import mmap
import os
import platform
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from minispore.common.holes import with_hole

FOLDER = "/dev/shm"
DIRECTORY = 1 << 14             # bytes: 1,024 entries of (code of the group, place of its room)
ENTRIES = DIRECTORY // 16
ALIGN = 128                     # bytes: two cache lines, since neighbours are fetched together


def rounded(nbytes: int) -> int:
    """What a piece of so many bytes takes of a heap."""
    return -(-max(nbytes, 1) // ALIGN) * ALIGN


def possible() -> bool:
    """Whether this machine has what rooms need: futexes, and files in memory. MINISPORE_SHARED_MEMORY=0 says no."""
    return (sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64") and os.path.isdir(FOLDER)
            and os.environ.get("MINISPORE_SHARED_MEMORY", "1") != "0")


class Segment:
    """One rank's file, mapped. memory: its bytes; address: where they begin in this process."""

    def __init__(self, path: str, size: int | None = None):
        made = os.O_CREAT | os.O_EXCL if size else 0
        self.path, self.file = path, os.open(path, os.O_RDWR | made, 0o600)
        if size:
            os.ftruncate(self.file, size)           # takes no memory yet: see Heap
        self.size = size or os.fstat(self.file).st_size
        self.map = mmap.mmap(self.file, self.size)
        self.memory = np.frombuffer(self.map, np.uint8)
        self.address = self.memory.ctypes.data
        self.directory = self.memory[:DIRECTORY].view(np.int64).reshape(ENTRIES, 2)

    def unlink(self) -> None:
        """Take its name: the memory is there as long as a process has it mapped."""
        with suppress(FileNotFoundError):
            os.unlink(self.path)


class Heap:
    """Gives out pieces of a rank's own segment. Memory is taken from the system as it is wanted, and kept."""

    def __init__(self, segment: Segment, keep: int = 0):
        self.segment, self.keep = segment, keep     # keep: bytes that arrays leave free for rooms
        self.taken = 0                              # bytes the system has given us
        self.holes = [(DIRECTORY, segment.size - DIRECTORY)]
        self.spare: dict[int, list[int]] = {}       # places that have been free'd, by their size
        self.given: dict[int, weakref.ref] = {}     # arrays that are in use, by their place
        self.give(DIRECTORY)

    def give(self, upto: int) -> None:
        """Have the system give memory; OSError if there is none left."""
        if upto > self.taken:
            step = min(max(upto, self.taken + (1 << 20)), self.segment.size)
            os.posix_fallocate(self.segment.file, self.taken, step - self.taken)
            self.taken = step

    def place(self, nbytes: int) -> int:
        """Where in the segment that many bytes are free; they are taken. OSError if nowhere."""
        nbytes = rounded(nbytes)
        if spare := self.spare.get(nbytes):
            return spare.pop()
        fit = self._fit(nbytes)
        if self.spare and (fit is None or fit[0] + nbytes > self.taken):
            for size, starts in self.spare.items():
                for start in starts:
                    self.holes = with_hole(self.holes, start, size)     # neighbouring holes become one
            self.spare.clear()
            fit = self._fit(nbytes)
        if fit is None:
            raise OSError(f"no {nbytes} bytes in a row are left of {self.segment.size}")
        self.give(fit[0] + nbytes)
        self.holes.remove(fit)
        if fit[1] > nbytes:
            self.holes.append((fit[0] + nbytes, fit[1] - nbytes))
        return fit[0]

    def _fit(self, nbytes: int) -> tuple[int, int] | None:
        """The hole to take them from: the smallest, but rather memory that the system has given us already."""
        return min((h for h in self.holes if h[1] >= nbytes), key=lambda h: (h[0] + nbytes > self.taken, h[1]), default=None)

    def free(self, start: int, nbytes: int) -> None:
        """Take bytes back. Programs want the same sizes again and again, so they are kept as they are until another size would
        take more memory from the system."""
        self.spare.setdefault(rounded(nbytes), []).append(start)

    def used(self) -> int:
        """Bytes that somebody has."""
        spare = sum(size * len(starts) for size, starts in self.spare.items())
        return self.segment.size - sum(size for _, size in self.holes) - spare

    def empty(self, nbytes: int) -> np.ndarray | None:
        """Bytes that other ranks can reach, free again when nobody looks at them any more. None if there aren't enough."""
        if self.segment.size - self.used() < nbytes + self.keep:
            return None
        try:
            start = self.place(nbytes)
        except OSError:
            return None
        # Of a memoryview, not of the array: a view of a view holds on to the first array, past this one.
        array = np.frombuffer(memoryview(self.segment.map)[start:start + nbytes], np.uint8)
        self.given[start] = weakref.ref(array, lambda _: (self.given.pop(start), self.free(start, nbytes)))
        return array


def join(rank: int, ranks: list[int], token: str, all_say: Callable[[str], list[str]], need: int) -> list[Segment]:
    """The segments of the node's ranks, in their order; all of them call this together.

    all_say(text): what every one of them says, in the same order; need: bytes a rank can't do without. RuntimeError, on all,
    if one of them doesn't get its memory.
    """
    about = os.statvfs(FOLDER)
    size = max(about.f_frsize * about.f_blocks // len(ranks) // 4096 * 4096, 4096)
    paths, trouble = [os.path.join(FOLDER, f"minispore-{token}-{r}") for r in ranks], ""
    try:
        mine = Segment(paths[ranks.index(rank)], size)
        os.posix_fallocate(mine.file, 0, need)
    except OSError as e:
        trouble = f"rank {rank}: {e}"
    told = [t for t in all_say(trouble) if t]
    try:
        if told:
            raise RuntimeError(
                f"init(): {len(ranks)} ranks on this node need {len(ranks) * need / 1e6:.1f} MB of shared memory in {FOLDER}, "
                f"which has {about.f_frsize * about.f_bavail / 1e6:.1f} MB free ({told[0]}). Make it larger (docker run "
                "--shm-size=1g), or set MINISPORE_SHARED_MEMORY=0 to send messages over MPI instead")
        segments = [mine if r == rank else Segment(path) for r, path in zip(ranks, paths, strict=True)]
        all_say("")                             # all have mapped all
    finally:
        with suppress(FileNotFoundError):
            os.unlink(paths[ranks.index(rank)])
    return segments
