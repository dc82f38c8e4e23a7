"""Thread ranks: n ranks inside this process, each with a state of its own."""
import contextvars
import os
import threading
from collections.abc import Callable

from threadpoolctl import threadpool_limits

from minispore.common.errors import CollectiveError
from minispore.common.state import RankState, enter
from minispore.communication import selection
from minispore.communication.backends.threads import ThreadTransport, World
from minispore.communication.management import leave

MOST = 256


def run_ranks(fn: Callable, n: int, *args) -> list:
    """Run fn(*args) on n thread ranks and return their results in order of rank.

    Each rank has its own context, seed, random numbers and groups; init() inside fn joins the n ranks. They take over one
    thing, the selection of algorithms. If one fails, the
    others' communications fail too, and the first error is raised here with the rank's number as a note. A program in
    which all wait for one another ends with a CollectiveError.

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
    results, errors, lock = [None] * n, [], threading.Lock()

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
            leave(failed)

    with threadpool_limits(max(1, (os.cpu_count() or 1) // n)):        # or n ranks × all cores' BLAS threads
        threads = [threading.Thread(target=contextvars.Context().run, args=(rank_main, r), name=f"rank-{r}", daemon=True)
                   for r in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    if errors:
        # The cause, not what it did to the others: a rank that waited for a failed one fails too.
        rank, error = next(((r, e) for r, e in errors if not isinstance(e, CollectiveError)), errors[0])
        error.add_note(f"on rank {rank} of {n}")
        raise error
    return results
