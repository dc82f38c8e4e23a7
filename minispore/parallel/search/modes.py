"""From a task to a plan: the search modes, and what is true of all of them.

No mode's plan costs more than data parallel, where that fits the memory and no strategy forbids it.
"""
import time
from collections.abc import Callable
from math import inf, isfinite

from minispore.parallel.search import eliminate
from minispore.parallel.search.alike import ROUNDS, alike
from minispore.parallel.search.choices import Space, groupings
from minispore.parallel.search.explain import Found
from minispore.parallel.search.halving import halve
from minispore.parallel.search.optimum import Proposal, leanest, optimum, smallest
from minispore.parallel.search.task import Task

FEW_NODES = 150             # of a graph whose nodes all decide for themselves
FEW_CHOOSERS = 40           # nodes, or colours of nodes, that consider three groups of axes; more of them two


def propagate(task: Task, limit: int | None, deadline: float) -> Proposal:
    """From the ops that carry a strategy to all others, with the fewest redistributions (complete.py)."""
    return Proposal(task.completed())


def recursive(task: Task, limit: int | None, deadline: float) -> Proposal:
    return Proposal(halve(task, colours(task)))


def dynamic(task: Task, limit: int | None, deadline: float) -> Proposal:
    """Elimination for each grouping of the mesh's axes; the best of them."""
    best, exact = None, True
    for space in spaces(task):
        choice, sure = eliminate.solve(space.problem)
        plan = space.plan(choice if sure else eliminate.descend(space.problem, choice))
        exact &= sure
        best = min((p for p in (best, (task.seconds(plan), plan)) if p), key=lambda p: p[0])
    return Proposal(best[1], best[0] if exact else None)


def ilp(task: Task, limit: int | None, deadline: float) -> Proposal:
    """The optimum for each grouping of the mesh's axes, under the memory limit; the best of them."""
    every = spaces(task)
    every.sort(key=lambda space: max(map(task.mesh.count, space.groups), default=1))   # even groups are often the best
    bounds, spare, best, least = [], [], None, inf
    for i, space in enumerate(every):
        left = max(deadline - time.monotonic(), 1.0)
        plan, bound = optimum(space, limit, left / min(len(every) - i, 2), least)
        bounds.append(bound)
        if plan is None:
            continue
        if limit is None or task.memory(plan) <= limit:
            best, least = plan, task.seconds(plan)
        spare.append(plan)
    if best is None and limit is not None:
        best = leanest(task, *spare, smallest(every))
    return Proposal(best, min(bounds))


MODES: dict[str, Callable[[Task, int | None, float], Proposal]] = {
    "sharding_propagation": propagate, "recursive_programming": recursive, "dynamic_programming": dynamic, "ilp": ilp}


def search(task: Task, mode: str, limit: int | None = None, seconds: float = 45.0) -> Found:
    """Find a plan.

    Args:
        mode: a key of MODES.
        limit: bytes that a rank's program may take at most, which only "ilp" looks for; the other modes' plans are checked
            against it.
        seconds: how long "ilp" may take.

    Raises: ValueError, if no plan was found that keeps the limit; it names the smallest that some plan keeps.
    """
    start = time.monotonic()
    plan, bound = MODES[mode](task, limit, start + seconds)
    plain = task.completed(parameters_whole=True) if not task.checks else None
    plans = [p for p in (plan, plain) if p is not None]
    fits = [p for p in plans if limit is None or task.memory(p) <= limit]
    if not fits:
        smallest = min(map(task.memory, plans), default=0)
        raise ValueError(f"search_mode={mode!r}: no plan for {task.mesh.n} devices was found that keeps the memory limit of "
                         f"{limit:,} bytes a device; the smallest that was found to work is {smallest:,} bytes. "
                         "Raise the limit, take more devices, or " +
                         ("make the batch smaller" if mode == "ilp" else "use search_mode='ilp', which searches under the limit"))
    best = min(fits, key=task.seconds)
    proved = bound if bound is not None and isfinite(bound) else None
    return Found(task, mode, best, proved, plain, limit, time.monotonic() - start)


def colours(task: Task):
    """Who decides together: in large graphs what looks alike."""
    return alike(task, ROUNDS if len(task.graph.nodes) > FEW_NODES else None)


def spaces(task: Task) -> list[Space]:
    """The problem for each grouping of the mesh's axes."""
    some = colours(task)
    parts = 3 if len(set(some[0].values())) <= FEW_CHOOSERS else 2
    return [Space(task, groups, some) for groups in groupings(task.mesh, parts)]
