"""Ranks as threads of one process: a message is an array handed over.

All ranks share one World with one lock. Because it sees every rank, it knows at once when nobody can move any more.
"""
from collections import deque
from threading import Condition, Lock

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication.board import ENDED, FAILED, Board


class World:
    """What n thread ranks share."""

    def __init__(self, size: int):
        self.size, self.lock = size, Lock()
        self.memory = np.zeros(size * Board.BYTES, np.uint8)     # the board
        self.news = [Condition(self.lock) for _ in range(size)]
        self.unread = [False] * size                # something happened to the rank since it last looked
        self.mail: list[dict] = [{} for _ in range(size)]
        self.blocked: set[int] = set()
        self.alive = set(range(size))
        self.stuck: set[int] = set()                # found waiting for one another, and not told yet
        self.stopped = False                        # Ctrl-C: nobody communicates any more

    def tell(self, rank: int) -> None:
        """Wake a rank. The lock is held."""
        self.unread[rank] = True
        self.blocked.discard(rank)
        self.news[rank].notify()

    def tell_all(self) -> None:
        for rank in range(self.size):
            self.tell(rank)


class ThreadTransport:
    """One thread rank's end of the World (see endpoint.Transport)."""
    locality = "threads"
    node = None

    def __init__(self, world: World, rank: int):
        self.world, self.rank, self.size = world, rank, world.size
        self.board = Board(world.memory, rank)

    def host(self, rank):
        return 0

    def isend(self, data, dest, tag):
        self.go_on()
        with self.world.lock:
            self.world.mail[dest].setdefault((self.rank, tag), deque()).append(data.copy())
            self.world.tell(dest)
        return None                                 # complete: the data are copied

    def irecv(self, buffer, source, tag):
        return [buffer, source, tag]

    def test(self, requests):
        with self.world.lock:
            for request in requests:
                if request and not self._take(request):
                    return False
        return True

    def _take(self, request) -> bool:
        """Fill a receive from the mailbox; an emptied request is complete."""
        buffer, source, tag = request
        queue = self.world.mail[self.rank].get((source, tag))
        if not queue:
            return False
        data = queue.popleft()
        if data.nbytes != buffer.nbytes or data.dtype != buffer.dtype:
            raise CollectiveError(f"rank {self.rank} expects {buffer.size} × {buffer.dtype} from rank {source}, which "
                                  f"sent {data.size} × {data.dtype}; op, count and dtype must agree on all "
                                  f"ranks:\n{self.board.table()}")
        np.copyto(buffer, data)
        request.clear()
        return True

    def idle(self, waited):
        world = self.world
        with world.lock:
            if not world.unread[self.rank]:
                world.blocked.add(self.rank)
                if world.blocked >= world.alive:    # nobody is left who could send anything
                    world.stuck |= world.alive
                    world.tell_all()
                else:
                    world.news[self.rank].wait(0.05)
                world.blocked.discard(self.rank)
            world.unread[self.rank] = False
            stuck = self.rank in world.stuck
            world.stuck.discard(self.rank)
        self.go_on()
        if stuck:
            self.board.waits()
            gone, table = self.board.gone(range(self.size)), self.board.table()
            other = self.board.mismatch(range(self.size))
            why = f"rank {gone[0]} can't come any more" if gone else "all ranks wait for one another"
            if other is not None:
                why = f"rank {other} is in another operation; op, dtype, count, root and algorithm must agree on all ranks"
            raise CollectiveError(f"deadlock on rank {self.rank}: {why}. Every receive needs a send, and all ranks "
                                  f"the same calls in the same order:\n{table}")

    def go_on(self) -> None:
        """KeyboardInterrupt if all ranks are to end."""
        if self.world.stopped:
            raise KeyboardInterrupt

    def unclaimed(self):
        with self.world.lock:
            return [(source, tag, m.nbytes) for (source, tag), queue in self.world.mail[self.rank].items() for m in queue]

    def end(self, failed):
        world = self.world
        with world.lock:
            self.board.set(FAILED if failed else ENDED)
            world.alive.discard(self.rank)
            world.tell_all()
