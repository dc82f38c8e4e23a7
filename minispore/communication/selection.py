"""Which algorithm does a collective: chosen by size, number of ranks and whether they share memory; or forced.

`MINISPORE_ALGORITHM=ring` forces an algorithm wherever a collective has one of that name, `with algorithm("ring"):` does so
for a while. All ranks must be forced alike.
"""
import os
from contextlib import contextmanager
from contextvars import ContextVar

from minispore.communication.algorithms import ALGORITHMS

MESSAGES = {"AllReduce": "ring", "ReduceScatter": "ring", "AllGather": "ring", "Broadcast": "tree", "Reduce": "tree",
            "AlltoAll": "pairwise", "Gather": "linear", "Scatter": "linear", "Barrier": "dissemination"}
NAMES = sorted({name for table in ALGORITHMS.values() for name in table})

_forced: ContextVar[str | None] = ContextVar("minispore_algorithm", default=None)


def choose(op: str, size: int, nbytes: int, shared: bool) -> str:
    """The name of the algorithm for an op on `size` ranks with nbytes each; shared: whether they share memory."""
    forced = _forced.get() or os.environ.get("MINISPORE_ALGORITHM")
    if forced:
        _known(forced)
        if forced == "shared" and shared and size > 1:
            return forced
        return forced if forced != "shared" and forced in ALGORITHMS[op] else MESSAGES[op]
    return "shared" if shared and size > 1 else MESSAGES[op]


@contextmanager
def algorithm(name: str):
    """Force an algorithm for the communications begun in this context, on all ranks alike.

    >>> from minispore.communication import communicator, init
    >>> from minispore.lab import run_ranks
    >>> def program():
    ...     init()
    ...     with algorithm("ring"):
    ...         return communicator().all_reduce(np.ones(3)).wait().tolist()
    >>> run_ranks(program, 2)[0]
    [2.0, 2.0, 2.0]
    """
    token = _forced.set(_known(name))
    try:
        yield
    finally:
        _forced.reset(token)


def _known(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"algorithm {name!r} is unknown; there are {', '.join(NAMES)}")
    return name
