"""Make the next item while the consumer works on this one.

A training step and the batch after it are independent, so a thread makes that batch ahead. The thread
ends with the items, with the consumer (who may break off and forget us half-way) or with the program.
"""
import contextvars
import threading
import weakref
from collections.abc import Iterator
from queue import SimpleQueue


class Prefetcher(Iterator):
    """Iterates over `items`, a generator, made in a thread of their own, one ahead.

    The thread runs in a copy of the caller's context, so it sees the same rank. An error in making an item
    is raised where that item is asked for.

    >>> list(Prefetcher(n * n for n in range(4)))
    [0, 1, 4, 9]
    """

    def __init__(self, items: Iterator):
        # SimpleQueue, because the garbage collector may close us in the midst of any queue operation.
        self._asked, self._made = SimpleQueue(), SimpleQueue()
        thread = threading.Thread(target=contextvars.copy_context().run,
                                  args=(_make, items, self._asked, self._made),
                                  name="minispore-prefetch", daemon=True)
        # Runs once: by close(), or when nobody refers to us any more, or at the interpreter's exit.
        self.close = weakref.finalize(self, _end, thread, self._asked)
        self._asked.put(True)
        thread.start()

    def __next__(self):
        if not self.close.alive:
            raise StopIteration
        item, error = self._made.get()
        if error is None:
            self._asked.put(True)
            return item
        self.close()
        raise error


def _make(items: Iterator, asked: SimpleQueue, made: SimpleQueue) -> None:
    """Answer each True in `asked` with (item, None), or at the end with (None, what ended it)."""
    while asked.get():
        try:
            made.put((next(items), None))
        except BaseException as end:        # StopIteration too
            return made.put((None, end))
    items.close()


def _end(thread: threading.Thread, asked: SimpleQueue) -> None:
    asked.put(False)
    if thread is not threading.current_thread():    # the garbage collector may run in any thread
        thread.join(timeout=2)                      # an op that takes longer ends alone: it's a daemon
