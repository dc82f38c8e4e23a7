"""The optimum of one grouping of the mesh's axes, under a memory limit where there is one.

How much memory a moment of the program may take is a row of the integer program, demanded once a plan has broken it there: of the
many moments few matter. What a plan's compiled program takes beyond that sum is measured, and so much room must be left: for
copies that moves make, which are thrown away after each use, if they are too many to be kept for the next.
Such rows tie all variables together, so that on a large graph the integer program alone doesn't end in time.
Prices on memory untie them (Lagrange multipliers: Everett 1963, Held and Karp 1971): at any prices the messages' bound less what
the limits are worth is a bound under the limits, and choices that look dear at good prices can be left aside at first.
"""
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from minispore.graph.ir import Graph
from minispore.parallel.algorithm import nearness
from minispore.parallel.complete import Plan
from minispore.parallel.search import integer
from minispore.parallel.search.choices import Space
from minispore.parallel.search.eliminate import descend
from minispore.parallel.search.messages import Messages
from minispore.parallel.search.task import Task

CLOSE = 1e-3                        # relative distance from the bound that is near enough under a memory limit
SWEEPS, PRICINGS = 15, 40           # of messages, before and while prices are changed
STEP, SLOWER = 0.05, 0.93           # the first change of a price, relative to the bound, and what each next is of the one before
NEAR = 1e-5, 1e-4, inf              # relative to the bound: how dear choices are looked at, first, then, and at last
LESS = 0.98                         # of the smallest memory that is known: what is tried next
Rows = dict[int, integer.Row]       # {moment: what choices take of the limit then}


class Proposal(NamedTuple):
    """A plan (where none keeps the limit, the one with the least memory that was seen), and what no plan of the same choices
    can cost less than (None: not known)."""
    plan: Plan | None
    bound: float | None = None


def optimum(space: Space, limit: int | None, seconds: float, below: float = inf) -> Proposal:
    """The best plan of a grouping, unless another grouping's costs `below` and this one's bound is no lower."""
    task, deadline = space.task, time.monotonic() + seconds
    if limit is not None and limit < space.least()[1].max():
        return Proposal(None, inf)
    near_enough = nearness(task.algorithm)
    messages, rows, room, best, spare = Messages(space.problem), {}, limit, None, None
    bound = raised(messages, space, limit, rows, deadline)
    for near in NEAR[-1:] if limit is None else NEAR:
        while bound < below * (1 - max(near_enough, CLOSE if rows else 0)) and (left := deadline - time.monotonic()) > 0:
            kept = messages.near(inf if near == inf else near * messages.bound)      # the bound may be 0
            limits = [integer.Limit(only(row, kept), room / limit) for row in rows.values()]
            choice, low = integer.decide(space.problem.only(kept), limits, seconds=left if near == inf else left / 2,
                                         gap=max(near_enough, CLOSE if rows else 0.0))
            bound = max(bound, low) if near == inf and room == limit else bound
            if choice is None:
                break
            plan = space.plan([some[c] for some, c in zip(kept, choice, strict=True)])
            if demand(space, plan, limit, rows, room):
                continue
            plan = fitted(task, plan, limit)
            if limit is None or task.memory(plan) <= limit:
                if task.seconds(plan) < below:
                    best, below = plan, task.seconds(plan)
                break
            spare = leanest(task, spare, plan)
            room = min(room, limit - (task.memory(plan) - task.peak(plan)[0]))
            demand(space, plan, limit, rows, room)
    return Proposal(best or spare, bound)


def fitted(task: Task, plan: Plan, limit: int | None) -> Plan:
    """The plan, with its copies thrown away after each use if it doesn't keep the limit else and that helps."""
    if limit is None or task.memory(plan) <= limit:
        return plan
    return leanest(task, plan, lean(plan, task.graph))


def lean(plan: Plan, graph: Graph) -> Plan:
    """The plan with copies that are made for one use each."""
    return replace(plan, apart=frozenset(v for node in graph.nodes for v in node.ins), memory=None)


def leanest(task: Task, *plans: Plan | None) -> Plan | None:
    """The plan with the least memory."""
    return min((plan for plan in plans if plan is not None), key=task.memory, default=None)


def raised(messages: Messages, space: Space, limit: int | None, rows: Rows, deadline: float) -> float:
    """Raise the messages' bound, by prices on the memory of moments at which what looks best breaks the limit; these are added to
    `rows`. The messages stay at the last prices."""
    prices: dict[int, float] = {}
    for _ in range(SWEEPS):
        choice = messages.sweep()
    best = messages.bound
    for i in range(0 if limit is None else PRICINGS):
        demand(space, space.plan(choice), limit, rows, limit)
        over = {at: sum(row[v][choice[v]] for v in row) - 1 for at, row in rows.items()}
        most = max((abs(x) for at, x in over.items() if x > 0 or prices.get(at)), default=0.0)
        if not most or not isfinite(best) or time.monotonic() > deadline:
            break
        for at, row in rows.items():
            old = prices.get(at, 0.0)
            prices[at] = max(old + STEP * SLOWER**i * best * over[at] / most, 0.0)
            if prices[at] != old:
                for v, amount in row.items():
                    messages.add(v, (prices[at] - old) * amount)
        for _ in range(3):
            choice = messages.sweep()
        best = max(best, messages.bound - sum(prices.values()))
    return best


def demand(space: Space, plan: Plan, limit: int | None, rows: Rows, room: int | None) -> bool:
    """Whether a plan takes more than the room there is; the moments at which it does so most are added to the rows."""
    peaks = [] if limit is None else space.task.peaks(plan, room)
    for at in peaks:
        rows.setdefault(at, {v: amount / max(limit, 1) for v, amount in space.amounts(at).items()})
    return bool(peaks)


def only(row: integer.Row, kept: list[np.ndarray]) -> integer.Row:
    return {v: amount[kept[v]] for v, amount in row.items()}


def smallest(spaces: Sequence[Space], seconds: float = 20.0) -> Plan | None:
    """The plan with the least memory that was found: from the least sum of what is alive in steps to what a compiled program
    takes that no other takes much less of."""
    end, found, task = time.monotonic() + seconds, [], spaces[0].task
    for i, space in enumerate(spaces):
        found.append(_smallest(space, time.monotonic() + (end - time.monotonic()) / (len(spaces) - i)))
    best = leanest(task, *found)
    while best is not None and task.taken is not None and (left := end - time.monotonic()) > 0:
        limit = int(task.memory(best) * LESS)
        better = leanest(task, best, *(optimum(space, limit, left / len(spaces)).plan for space in spaces))
        if better is best:
            break
        best = better
    return best


def _smallest(space: Space, deadline: float) -> Plan | None:
    """Mostly all values can lie as small as they get at once; where they can't, an integer program weighs them."""
    task = space.task
    kept, low = space.least()
    best, least, moments = None, inf, {int(low.argmax())}
    choice = _some(space, kept, deadline)
    bound = low.max()
    while choice is not None:
        plan = space.plan(choice)
        peak, at = task.peak(plan)
        if peak < least:
            best, least = plan, peak
        moments |= {at}
        if least <= bound * (1 + 1e-6) or time.monotonic() > deadline:
            break
        choice, bound = integer.decide(space.problem, peak=[space.amounts(at) for at in sorted(moments)],
                                       seconds=max(deadline - time.monotonic(), 1.0))
    return best and fitted(task, best, 0)


def _some(space: Space, kept: list[np.ndarray], deadline: float) -> list[int] | None:
    """A decision among some choices, or among all, if these don't go together."""
    for some in (kept, [np.arange(size) for size in space.problem.sizes]):
        if all(map(len, some)):
            part = space.problem.only(some)
            messages = Messages(part)
            choice = descend(part, [messages.sweep() for _ in range(SWEEPS)][-1])
            if not isfinite(part.total(choice)):
                choice, _ = integer.decide(part, seconds=max(deadline - time.monotonic(), 1.0))
            if choice is not None:
                return [int(which[c]) for which, c in zip(some, choice, strict=True)]
    return None
