"""Thread ranks: n ranks inside this process, each with a state of its own."""
import contextvars
import ctypes
import os
import threading
import time
from collections.abc import Callable
from operator import itemgetter

from threadpoolctl import threadpool_limits

from minispore.common.errors import CollectiveError
from minispore.common.state import RankState, enter
from minispore.communication import selection
from minispore.communication.backends.threads import ThreadTransport, World
from minispore.communication.management import leave, unreceived

MOST = 256
FAREWELL = 0.5          # seconds for ranks to end when they are told; one asleep in C or in the system ends later


def run_ranks(fn: Callable, n: int, *args) -> list:
    """Run fn(*args) on n thread ranks and return their results in order of rank.

    Each rank has its own context, seed, random numbers and groups; init() inside fn joins the n ranks. They take over one
    thing, the selection of algorithms. If one fails, the others' communications fail too, and the first error is raised
    here with the rank's number as a note. A program in which all wait for one another ends with a CollectiveError. Ctrl-C
    ends all ranks, and shows where the first one was.

    >>> from minispore.communication import get_rank, init
    >>> def program():
    ...     init()
    ...     return get_rank() ** 2
    >>> run_ranks(program, 4)
    [0, 1, 4, 9]
    """
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MOST:
        raise ValueError(f"run_ranks: n={n!r} must be a whole number of ranks from 1 to {MOST}")
    world = World(n)
    chosen = selection.current()
    results, errors, lock, working = [None] * n, [], threading.Lock(), set(range(n))

    def rank_main(rank):
        transport = ThreadTransport(world, rank)
        enter(RankState(launched_rank=rank, launched_size=n, transport=transport))
        selection.enter(chosen)
        failed = True
        try:
            results[rank] = fn(*args)
            failed = False
        except BaseException as e:
            with lock:
                errors.append((rank, e))
        finally:
            working.discard(rank)
            leave(failed)

    with threadpool_limits(max(1, (os.cpu_count() or 1) // n)):        # or n ranks × all cores' BLAS threads
        threads = [threading.Thread(target=contextvars.Context().run, args=(rank_main, r), name=f"rank-{r}", daemon=True)
                   for r in range(n)]
        try:
            for t in threads:
                t.start()
            failed = await_all(threads, errors)
        except BaseException as e:              # Ctrl-C above all
            stop(world, threads, working)
            with lock:
                interrupted = [error for _, error in sorted(errors, key=itemgetter(0)) if isinstance(error, KeyboardInterrupt)]
            if interrupted and isinstance(e, KeyboardInterrupt):
                raise interrupted[0] from None
            raise
    with lock:
        causes = tuple(errors)
    if failed:
        stop(world, threads, working)
    if causes:
        # The cause, not what it did to the others: a rank that waited for a failed one fails too.
        rank, error = next(((r, e) for r, e in causes if not isinstance(e, CollectiveError)), causes[0])
        error.add_note(f"on rank {rank} of {n}")
        raise error
    for rank in range(n):
        if lost := unreceived(ThreadTransport(world, rank)):
            raise lost
    return results


def await_all(threads: list[threading.Thread], errors: list) -> bool:
    """Until all have ended, False; or until one has failed and others, which may never end, had some time to end too: True."""
    patience, failed = float(os.environ.get("MINISPORE_TIMEOUT", 60)) / 2, None
    for t in threads:
        while t.is_alive():
            t.join(0.05)
            if errors:
                failed = failed or time.monotonic()
                if time.monotonic() - failed > patience:
                    return True
    return False


def stop(world: World, threads: list[threading.Thread], working: set[int]) -> None:
    """End all ranks: those that communicate raise a KeyboardInterrupt themselves, in those that only compute it is raised.

    In this order: raised in a rank that is about to take the World's lock, it might leave that locked for ever.
    """
    world.stopped = True
    with world.lock:
        world.tell_all()
    join(threads)
    for rank in tuple(working):
        if threads[rank].is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threads[rank].ident), ctypes.py_object(KeyboardInterrupt))
    join(threads)


def join(threads: list[threading.Thread]) -> None:
    """Wait for the threads to end, but not for long."""
    until = time.monotonic() + FAREWELL
    for t in threads:
        if t.ident:
            t.join(max(0.0, until - time.monotonic()))
