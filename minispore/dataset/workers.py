"""Call a function for many items in several workers at once, and get the results in the items' order.

Workers are threads: numpy, Pillow, reading files and waiting for a network let other threads run meanwhile.
Pure Python code doesn't; for that each thread may have a process of its own. A process is *spawned*, never
forked: a rank has MPI and Numba threads inside, which a fork would copy in the midst of their work. Hence
what goes to a process must be picklable, and a script that uses it needs `if __name__ == "__main__":`.
"""
import contextvars
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing import get_context
from queue import SimpleQueue

AHEAD = 2       # items under way for each worker: one it works on, one that waits


def ordered(function: Callable, items: Iterable, workers: int = 1, processes: bool = False) -> Iterator:
    """function(item) for each of `items`, in their order, made by `workers` at once.

    No more than AHEAD · workers items are under way. An error is raised where its item's result would come.
    Workers end with the items, at an error and when this generator is closed or forgotten.

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
        for item in items:
            pending.append(Future())
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
        self.process = context.Process(target=_serve, args=(theirs, function), name="minispore-worker", daemon=True)
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
                "it may have run out of memory, or the script lacks `if __name__ == \"__main__\":` around what "
                "starts the work; use fewer workers, or threads (python_multiprocessing left out)") from None
        if done:
            return result
        raise result

    def close(self) -> None:
        self.pipe.close()                   # the process sees the end of its pipe, as it does if we die
        self.process.join(timeout=2)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()
        self.process.close()


def _serve(pipe, function: Callable) -> None:
    """What a process does: answer each item with (True, result) or (False, error)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)        # Ctrl-C is for the program; we end with it
    with suppress(EOFError, OSError):                   # the pipe's other end is closed, or its process gone
        while True:
            item = pipe.recv()
            try:
                answer = pickle.dumps((True, function(item)))
            except Exception as error:
                answer = _packed(error)
            pipe.send_bytes(answer)


def _packed(error: Exception) -> bytes:
    try:
        pickle.loads(data := pickle.dumps((False, error)))
        return data
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
