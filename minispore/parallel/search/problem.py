"""A search as numbers: variables with some choices each, and tables of what choices cost alone and together.

This is a weighted constraint network, what min-sum solvers and integer programs are made of: the cost of a decision is the
sum of one entry of each table. Nothing here knows of tensors.
"""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Scope = tuple[int, ...]             # the variables of a table, ascending; its array has one dim for each


@dataclass
class Problem:
    """sizes: the number of choices of each variable. tables: {scope: costs}; infinite is forbidden.

    >>> p = Problem([2, 2])
    >>> p.add((0,), [1.0, 0.0])
    >>> p.add((0, 1), [[0.0, 5.0], [5.0, 2.0]])
    >>> p.total([1, 1])
    2.0
    """
    sizes: list[int] = field(default_factory=list)
    tables: dict[Scope, np.ndarray] = field(default_factory=dict)

    def variable(self, size: int) -> int:
        """A new variable's number."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def add(self, scope: Sequence[int], costs) -> None:
        """Add a table of one or two variables, in any order; of the same variable twice it is the diagonal that counts."""
        costs = np.asarray(costs, float)
        if len(scope) == 2 and scope[0] == scope[1]:
            scope, costs = scope[:1], np.diagonal(costs)
        if len(scope) == 2 and scope[0] > scope[1]:
            scope, costs = scope[::-1], costs.T
        scope = tuple(scope)
        self.tables[scope] = self.tables[scope] + costs if scope in self.tables else costs

    def total(self, choice: Sequence[int] | Mapping[int, int]) -> float:
        """What a decision costs."""
        return float(sum(costs[tuple(choice[v] for v in scope)] for scope, costs in self.tables.items()))

    def only(self, choices: Sequence[np.ndarray]) -> "Problem":
        """The same with some of each variable's choices."""
        return Problem([len(some) for some in choices],
                       {scope: costs[np.ix_(*(choices[v] for v in scope))] for scope, costs in self.tables.items()})

    def neighbours(self) -> dict[int, set[int]]:
        """For each variable those it shares a table with."""
        out: dict[int, set[int]] = {v: set() for v in range(len(self.sizes))}
        for scope in self.tables:
            for v in scope:
                out[v].update(scope)
                out[v].discard(v)
        return out


def joined(tables: Mapping[Scope, np.ndarray], scope: Scope) -> np.ndarray:
    """The sum of some tables as one table over `scope`, which holds all of their variables in any order."""
    place = {v: i for i, v in enumerate(scope)}
    out = 0.0
    for mine, costs in tables.items():
        order = sorted(range(len(mine)), key=lambda i: place[mine[i]])
        shape = [1] * len(scope)
        for i, v in enumerate(mine):
            shape[place[v]] = costs.shape[i]
        out = out + costs.transpose(order).reshape(shape)
    return out
