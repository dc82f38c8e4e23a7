"""Call a function for many items in several workers at once, and get the results in the items' order.

Workers are threads: numpy, Pillow, reading files and waiting for a network let other threads run meanwhile.
Pure Python code doesn't; for that each thread may have a process of its own. A process is *spawned*, never
forked: a rank has MPI and Numba threads inside, which a fork would copy in the midst of their work. Hence
what goes to a process must be picklable, and a script that uses it needs `if __name__ == "__main__":`.
"""
import contextvars
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from queue import SimpleQueue

AHEAD = 2       # items under way for each worker: one it works on, one that waits


def ordered(function: Callable, items: Iterable, workers: int = 1, processes: bool = False) -> Iterator:
    """function(item) for each of `items`, in their order, made by `workers` at once.

    No more than AHEAD · workers items are under way. An error, also one in making `items`, is raised after the
    results before it. Workers end with the items, at an error and when this generator is closed or forgotten.

    >>> list(ordered(abs, [-2, 3, -1], workers=2))
    [2, 3, 1]
    """
    if workers == 1:
        yield from map(function, items)
        return
    tasks, pending = SimpleQueue(), deque()
    calls = _processes(function, workers) if processes else [function] * workers
    threads = [threading.Thread(target=contextvars.copy_context().run, args=(_work, call, tasks),
                                name="minispore-worker", daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    try:
        for item in _and_error(items):
            pending.append(Future())
            if isinstance(item, _Error):
                pending[-1].set_exception(item.error)
                break
            tasks.put((pending[-1], item))
            if len(pending) == AHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        for _ in threads:
            tasks.put(None)
        for thread in threads:
            if thread is not threading.current_thread():        # the garbage collector may run in any thread
                thread.join(timeout=2)      # an item that takes longer ends alone: threads and processes are daemons


@dataclass(frozen=True)
class _Error:
    error: Exception


def _and_error(items: Iterable) -> Iterator:
    """The items and, if making one fails, at last the error."""
    try:
        yield from items
    except Exception as error:
        yield _Error(error)


def _work(call: Callable, tasks: SimpleQueue) -> None:
    while task := tasks.get():
        future, item = task
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call(item))
            except BaseException as error:
                future.set_exception(error)
        del task, future, item      # don't keep a block alive while waiting for the next
    if isinstance(call, _Process):
        call.close()


def _processes(function: Callable, workers: int) -> list["_Process"]:
    started = []
    try:
        for _ in range(workers):
            started.append(_Process(function))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        for process in started:
            process.close()
        raise TypeError(f"python_multiprocessing=True sends the source or the ops to other processes, and these can't be "
                        f"pickled: {error}; define functions and classes at the top of a module, or leave "
                        "python_multiprocessing out: workers are threads then") from None
    return started


class _Process:
    """A process that computes function(item) for the one thread that calls this."""

    def __init__(self, function: Callable):
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        finders = [finder for finder in sys.meta_path if type(finder).__module__.startswith("minispore.")]
        name = _Name("minispore-worker", finders) if finders else "minispore-worker"
        self.process = context.Process(target=_serve, args=(theirs, function), name=name, daemon=True)
        try:
            self.process.start()
        finally:
            theirs.close()

    def __call__(self, item):
        try:
            self.pipe.send(item)
            done, result = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(timeout=2)
            raise RuntimeError(
                f"a worker process of the dataset ended with exit code {self.process.exitcode} in the midst of its work; "
                "it may have run out of memory, couldn't import the functions (in a notebook they must stand in a module), or "
                "the script lacks `if __name__ == \"__main__\":` around what starts the work; use threads "
                "(python_multiprocessing left out), or fewer workers") from None
        if done:
            return result
        raise result

    def close(self) -> None:
        self.pipe.close()                   # the process sees the end of its pipe, as it does if we die
        self.process.join(timeout=2)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()
        # No process.close(): the interpreter's exit may be joining it just now, in the main thread.


class _Name(str):
    """A process's name, that lets it find modules as we do: a script that imports mindspore gets minispore there, too.

    A new process reads its name before it imports the script, so that is where the finders can come along.
    """

    def __new__(cls, name: str, finders: list):
        self = super().__new__(cls, name)
        self.finders = finders
        return self

    def __reduce__(self):
        return _install, (str(self), self.finders)


def _install(name: str, finders: list) -> str:
    sys.meta_path[:0] = finders
    return name


def _serve(pipe, function: Callable) -> None:
    """What a process does: answer each item with (True, result) or (False, error)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)        # Ctrl-C is for the program; we end with it
    threading.Thread(target=_end_with_the_program, daemon=True).start()
    with suppress(EOFError, OSError):                   # the pipe's other end is closed, or its process gone
        while True:
            item = pipe.recv()
            try:
                answer = pickle.dumps((True, function(item)))
            except Exception as error:
                answer = _packed(error)
            pipe.send_bytes(answer)


def _end_with_the_program() -> None:
    """If it is killed while we work: a function that waits for something would never come to the end of the pipe."""
    parent_process().join()
    os._exit(1)


def _packed(error: Exception) -> bytes:
    try:
        pickle.loads(data := pickle.dumps((False, error)))
        return data
    except Exception:                   # an error that can't travel, or not come out: its words do
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
