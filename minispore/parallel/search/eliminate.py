"""Dynamic programming over a graph: variables are taken out one by one, each at its best answer to all its neighbours could do.

A variable with two neighbours leaves a table of the two, so chains and series-parallel graphs are solved exactly by tables of
two variables (Bertelè and Brioschi, "Nonserial dynamic programming", 1972). Other graphs need larger tables; where one would be
too large, the variable with most neighbours is fixed at what looks best, and nothing is claimed of the result.
"""
from math import prod
from typing import NamedTuple

import numpy as np

from minispore.parallel.search.problem import Problem, Scope, joined

LARGEST = 1 << 22           # entries of a table


class Step(NamedTuple):
    """A variable that was taken out: best[choices of scope] is its choice."""
    variable: int
    scope: Scope
    best: np.ndarray


class Eliminated(NamedTuple):
    """What is left, in the old numbers: `rest` has no table of the variables that were taken out. exact: none was fixed."""
    rest: Problem
    steps: list[Step]
    exact: bool

    def complete(self, choice: dict[int, int]) -> list[int]:
        """The best choices of all variables, given those of the ones that are left."""
        choice = dict(choice)
        for step in reversed(self.steps):
            choice[step.variable] = int(step.best[tuple(choice[v] for v in step.scope)])
        return [choice[v] for v in range(len(self.rest.sizes))]


def eliminate(problem: Problem, keep: frozenset[int] = frozenset(), most: int | None = None,
              largest: int = LARGEST) -> Eliminated:
    """Take variables out, the one with the smallest table first. keep: variables that must stay; most: the most neighbours
    a variable may have to be taken out, None for any number (then those of too large a table are fixed)."""
    steps, exact = [Step(v, (), np.array(0)) for v, n in enumerate(problem.sizes) if n == 1 and v not in keep], True
    decided = {step.variable for step in steps}     # nothing to choose; else they would make tables of very many dims
    known = Problem(problem.sizes)
    for scope, costs in problem.tables.items():
        left = tuple(v for v in scope if v not in decided)
        known.add(left, np.reshape(costs, [problem.sizes[v] for v in left]))
    tables, near = known.tables, known.neighbours()
    of: dict[int, set[Scope]] = {v: set() for v in near}
    for scope in tables:
        for v in scope:
            of[v].add(scope)
    todo = set(near) - keep - decided
    size = {v: prod(problem.sizes[u] for u in (v, *near[v])) for v in todo}

    def take(v: int) -> dict[Scope, np.ndarray]:
        mine = {scope: tables.pop(scope) for scope in of.pop(v)}
        for scope in mine:
            for u in scope:
                if u != v:
                    of[u].discard(scope)
        return mine

    def put(scope: Scope, costs: np.ndarray) -> None:
        tables[scope] = tables[scope] + costs if scope in tables else costs
        for u in scope:
            of[u].add(scope)

    def changed(others) -> None:
        for u in others:
            if u in size:
                size[u] = prod(problem.sizes[w] for w in (u, *near[u]))

    while todo:
        able = [v for v in todo if most is None or len(near[v]) <= most]
        if not able:
            break
        v = min(able, key=lambda v: (size[v], v))
        if size[v] > largest:
            if most is not None:
                break
            v, exact = max(todo, key=lambda v: (len(near[v]), v)), False
            guess = int(np.argmin(sum(_least(scope, costs, v) for scope, costs in tables.items() if v in scope)))
            mine, scope = take(v), ()
            for other, costs in mine.items():
                at = other.index(v)
                put(other[:at] + other[at + 1:], costs.take(guess, at))
            best = np.array(guess)
        else:
            scope = tuple(sorted(near[v]))
            both = joined(take(v), (*scope, v))
            both = np.broadcast_to(both, [problem.sizes[u] for u in (*scope, v)])
            best = both.argmin(-1)
            put(scope, np.take_along_axis(both, best[..., None], -1)[..., 0])
            for u in scope:
                near[u].update(scope)
                near[u].discard(u)
        steps.append(Step(v, scope, best))
        todo.discard(v)
        others = near.pop(v)
        for u in others:
            near[u].discard(v)
        changed(others)
    return Eliminated(Problem(problem.sizes, tables), steps, exact)


def _least(scope: Scope, costs: np.ndarray, v: int) -> np.ndarray:
    """For each choice of v the least that a table may cost."""
    return costs.min(tuple(i for i, u in enumerate(scope) if u != v))


def solve(problem: Problem, largest: int = LARGEST) -> tuple[list[int], bool]:
    """(the best decision, whether it is proved to be the best).

    >>> chain = Problem([2, 2, 2])
    >>> for pair in ((0, 1), (1, 2)):
    ...     chain.add(pair, [[1.0, 0.0], [3.0, 2.0]])
    >>> solve(chain)
    ([0, 0, 1], True)
    """
    done = eliminate(problem, largest=largest)
    return done.complete({}), done.exact


def descend(problem: Problem, choice: list[int]) -> list[int]:
    """Change one variable after the other to what suits its neighbours best, until none gains."""
    choice, of = list(choice), {}
    for scope in problem.tables:
        for v in scope:
            of.setdefault(v, []).append(scope)
    better = True
    while better:
        better = False
        for v, scopes in of.items():
            costs = sum(problem.tables[s][tuple(slice(None) if u == v else choice[u] for u in s)] for s in scopes)
            if costs.min() < costs[choice[v]] * (1 - 1e-12):
                choice[v], better = int(costs.argmin()), True
    return choice
