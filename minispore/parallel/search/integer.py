"""The best decision as an integer program, under limits, with a bound that proves how good it is (scipy's HiGHS).

One 0/1 variable for each choice; for a table of two variables one number between 0 and 1 for each pair of choices, whose sums
over one side are the choices of the other (Schlesinger's linear relaxation; where HiGHS finds it whole, it is the optimum).
Choices with equal rows of a table share one such number. Needs tables of at most two variables.
"""
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from minispore.parallel.search.eliminate import eliminate
from minispore.parallel.search.problem import Problem

NEIGHBOURS, PAIRS = 2, 1 << 16      # what is taken out before leaves tables of two variables, of so many entries at most
Row = Mapping[int, np.ndarray]      # {variable: amount of each choice}


class Limit(NamedTuple):
    """The amounts of the choices must not exceed `most` in sum."""
    amounts: Row
    most: float


class Answer(NamedTuple):
    """choice: {variable: choice}, None where no decision keeps the limits (or none was found in time: then `bound` isn't
    infinite); bound: no decision that keeps them costs less."""
    choice: dict[int, int] | None
    bound: float


def solve(problem: Problem, limits: Sequence[Limit] = (), seconds: float = 60.0, gap: float = 0.0,
          peak: Sequence[Row] = ()) -> Answer:
    """The best decision of the variables that have tables or amounts. seconds: when to stop; gap: the relative distance from
    the bound that is good enough. peak: with it, the largest sum of these amounts is made small, whatever the tables cost
    (infinite ones stay forbidden).

    >>> p = Problem([2, 2])
    >>> p.add((0, 1), [[0.0, 1.0], [2.0, 9.0]])
    >>> choice, bound = solve(p, [Limit({0: np.array([5.0, 1.0])}, 3.0)])
    >>> choice, round(bound, 6)
    ({0: 1, 1: 0}, 2.0)
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # a third of a second to import, and only wanted here
    from scipy.sparse import csr_array
    rows = _Rows(problem, sorted({v for scope in problem.tables for v in scope} | {v for lim in limits for v in lim.amounts}
                                 | {v for row in peak for v in row}))
    for scope, costs in problem.tables.items():
        rows.table(scope, costs)
    scale = max(max((float(c[np.isfinite(c)].max(initial=0)) for c in problem.tables.values()), default=1.0), 1e-30) / 1e3
    cost, top = np.array(rows.cost) / scale, 1.0
    if peak:
        top = max(float(a.max()) for row in peak for a in row.values()) or 1.0
        cost = np.zeros(len(cost) + 1)
        cost[-1] = 1.0
        rows.cost.append(0.0)
        for row in peak:
            rows.limit({v: a / top for v, a in row.items()}, 0.0, -1.0, len(cost) - 1)
    for lim in limits:
        whole = max(lim.most, 1e-30)
        rows.limit({v: a / whole for v, a in lim.amounts.items()}, lim.most / whole)
    n = len(cost)
    upper = np.ones(n)
    upper[rows.forbidden] = 0
    if peak:
        upper[-1] = np.inf
    sure = 0.0 if peak else float(problem.tables.get((), 0.0))
    if not n:
        return Answer({}, sure)
    matrix = csr_array((rows.entries, (rows.at, rows.column)), shape=(len(rows.low), n))
    integer = np.zeros(n)
    integer[:rows.binaries] = 1
    found = milp(cost, integrality=integer, bounds=Bounds(0, upper), constraints=LinearConstraint(matrix, rows.low, rows.high),
                 options={"time_limit": seconds, "mip_rel_gap": gap})
    bound = -np.inf if found.mip_dual_bound is None else found.mip_dual_bound * (top if peak else scale) + sure
    if found.x is None:
        return Answer(None, np.inf if found.status == 2 else bound)
    choice = {v: int(np.argmax(found.x[first:first + problem.sizes[v]])) for v, first in rows.first.items()}
    return Answer(choice, bound)


def decide(problem: Problem, limits: Sequence[Limit] = (), peak: Sequence[Row] = (), **options) -> tuple[list[int] | None, float]:
    """`solve` for all variables, as a list: those with few neighbours, whose amounts don't matter, are taken out first.

    >>> p = Problem([2, 2])
    >>> p.add((0, 1), [[0.0, 1.0], [2.0, 9.0]])
    >>> decide(p)
    ([0, 0], 0.0)
    """
    counted = frozenset(v for row in (*(lim.amounts for lim in limits), *peak) for v in row)
    done = eliminate(problem, counted, NEIGHBOURS, PAIRS)
    choice, bound = solve(done.rest, limits, peak=peak, **options)
    return None if choice is None else done.complete(choice), bound


class _Rows:
    """The program's columns and sparse rows."""

    def __init__(self, problem: Problem, variables: list[int]):
        self.first, self.cost, self.forbidden = {}, [], []
        self.entries, self.at, self.column, self.low, self.high = [], [], [], [], []
        for v in variables:
            self.first[v] = len(self.cost)
            self.cost += [0.0] * problem.sizes[v]
        self.binaries = len(self.cost)
        for v in variables:
            self.row({self.first[v] + i: 1.0 for i in range(problem.sizes[v])}, 1.0, 1.0)

    def row(self, entries: Mapping[int, float], low: float, high: float) -> None:
        self.entries += entries.values()
        self.column += entries.keys()
        self.at += [len(self.low)] * len(entries)
        self.low.append(low)
        self.high.append(high)

    def limit(self, amounts: Row, most: float, extra: float = 0.0, column: int = -1) -> None:
        entries = {self.first[v] + i: float(a) for v, amount in amounts.items() for i, a in enumerate(amount) if a}
        if column >= 0:
            entries[column] = extra
        self.row(entries, -np.inf, most)

    def table(self, scope, costs: np.ndarray) -> None:
        if not scope:
            return
        if len(scope) == 1:
            for i, c in enumerate(costs):
                if np.isfinite(c):
                    self.cost[self.first[scope[0]] + i] += c
                else:
                    self.forbidden.append(self.first[scope[0]] + i)
            return
        left, right = scope
        _, kind_of_row = np.unique(costs, axis=0, return_inverse=True)
        _, kind_of_column = np.unique(costs, axis=1, return_inverse=True)
        kind_of_row, kind_of_column = kind_of_row.reshape(-1), kind_of_column.reshape(-1)
        rows = [np.flatnonzero(kind_of_row == k) for k in range(kind_of_row.max() + 1)]
        columns = [np.flatnonzero(kind_of_column == k) for k in range(kind_of_column.max() + 1)]
        pair = {}
        for r, some in enumerate(rows):
            for c, others in enumerate(columns):
                price = costs[some[0], others[0]]
                if np.isfinite(price):
                    pair[r, c] = len(self.cost)
                    self.cost.append(float(price))
        for side, (v, kinds) in enumerate(((left, rows), (right, columns))):
            for k, members in enumerate(kinds):
                entries = {column: 1.0 for key, column in pair.items() if key[side] == k}
                entries |= {self.first[v] + int(i): -1.0 for i in members}
                self.row(entries, 0.0, 0.0)
