"""What no decision can cost less than, by messages: in a second about what an integer program's relaxation says in ten.

Sequential tree-reweighted message passing (Kolmogorov, "Convergent tree-reweighted message passing", 2006, in the form of
"A new look at reweighted message passing", 2015): costs are moved between the tables of neighbours, which changes no decision's
total, so that the sum of the tables' least entries, the bound, rises towards the relaxation's optimum.
"""
import numpy as np

from minispore.parallel.search.problem import Problem


class Messages:
    """A problem's costs on the move. Needs tables of at most two variables.

    >>> p = Problem([2, 2])
    >>> p.add((0,), [0.0, 1.0])
    >>> p.add((0, 1), [[4.0, 6.0], [2.0, 0.0]])
    >>> m = Messages(p)
    >>> m.bound, m.sweep(), m.bound
    (0.0, [1, 1], 1.0)
    """

    def __init__(self, problem: Problem):
        self.sizes, self.sure = problem.sizes, float(problem.tables.get((), 0.0))
        self.one = [np.zeros(size) for size in problem.sizes]
        self.two = {scope: costs.copy() for scope, costs in problem.tables.items() if len(scope) == 2}
        self.before: list[list] = [[] for _ in problem.sizes]       # tables with variables of smaller numbers
        self.after: list[list] = [[] for _ in problem.sizes]
        for scope, costs in problem.tables.items():
            if len(scope) == 1:
                self.one[scope[0]] += costs
            elif len(scope) == 2:
                self.after[scope[0]].append(scope)
                self.before[scope[1]].append(scope)

    @property
    def bound(self) -> float:
        """No decision costs less."""
        return self.sure + float(sum(c.min() for c in self.one) + sum(c.min() for c in self.two.values()))

    def sweep(self) -> list[int]:
        """Once to the last variable and back; a decision that looks good, variable after variable on the way back."""
        self._pass(range(len(self.sizes)), self.before, self.after)
        return self._pass(range(len(self.sizes))[::-1], self.after, self.before)

    def _pass(self, order, behind, ahead) -> list[int]:
        choice = [0] * len(self.sizes)
        for v in order:
            costs = self.one[v]
            for scope in (*behind[v], *ahead[v]):       # all that the tables say of v is gathered,
                mine = self._seen_from(v, scope)
                least = mine.min(1)
                costs = costs + least
                mine -= np.where(np.isinf(least), 0.0, least)[:, None]
            known = sum((self._seen_from(v, scope)[:, choice[sum(scope) - v]] for scope in behind[v]), costs)
            choice[v] = int(known.argmin())
            chains = max(len(behind[v]), len(ahead[v]), 1)
            share = costs / chains                      # and goes on to those ahead; chains that end here keep their share
            for scope in ahead[v]:
                self._seen_from(v, scope)[...] += share[:, None]
            over = chains - len(ahead[v])
            self.one[v] = share * over if over else np.where(np.isinf(costs), np.inf, 0.0)
        return choice

    def _seen_from(self, v: int, scope) -> np.ndarray:
        """A table with a row for each choice of v."""
        return self.two[scope] if scope[0] == v else self.two[scope].T

    def add(self, v: int, costs: np.ndarray) -> None:
        """Make choices of a variable dearer, or cheaper."""
        self.one[v] = self.one[v] + costs

    def near(self, over: float) -> list[np.ndarray]:
        """For each variable its choices, but those of which it's known that decisions with them cost more than the bound and
        `over`."""
        more = [costs - costs.min() for costs in self.one]
        for (a, b), costs in self.two.items():
            more[a] += costs.min(1) - costs.min()
            more[b] += costs.min(0) - costs.min()
        return [np.flatnonzero(m <= over) for m in more]
