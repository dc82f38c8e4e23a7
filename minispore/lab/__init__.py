"""The laboratory: ranks to try things out on and to look into, in a notebook or anywhere else.

    ranks.py ── in_threads.py ─┐
                               ├─ result.py ── drawings, check
    msrun ── in_processes.py ──┘
    magics.py: both for a whole cell, %%ranks and %%msrun, after %load_ext minispore.lab
"""
import os

from minispore.communication import cost
from minispore.lab import draw
from minispore.lab.exercises import check, hint
from minispore.lab.explore import explore
from minispore.lab.ranks import run_ranks
from minispore.lab.watch import watch

from minispore.lab.in_threads import ranks  # isort: skip    the name of a module before

__all__ = ["check", "cost", "draw", "explore", "fast", "hint", "ranks", "run_ranks", "watch"]


def fast(full, quick):
    """`full`, or where MINISPORE_FAST=1 `quick`: for tests of notebooks, say fewer steps.

    >>> fast(full=1000, quick=10) in (10, 1000)
    True
    """
    return quick if os.environ.get("MINISPORE_FAST") == "1" else full


def load_ipython_extension(shell) -> None:
    """%load_ext minispore.lab"""
    from minispore.lab import exercises, magics
    magics.load(shell)
    exercises.load(shell)
