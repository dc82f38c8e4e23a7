"""The devices as a grid: one axis for each prime factor of their number, so that all splittings meet in it.

A split of 4 and one of 2 · 2 on 8 devices use the same axes of 2 · 2 · 2; a split of 2 and one of 3 meet on 6 devices.
Ranks are numbered row-major: the last axis is the fastest.
"""
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod


@dataclass(frozen=True)
class Mesh:
    """n devices; `sizes` are the prime factors of n in ascending order.

    >>> Mesh(12).sizes, Mesh(12).coordinates(7), Mesh(12).groups((1,))[0]
    ((2, 2, 3), (1, 0, 1), (0, 3))
    """
    n: int

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return _primes(self.n)

    @property
    def axes(self) -> range:
        return range(len(self.sizes))

    def count(self, axes: Iterable[int]) -> int:
        """Number of devices along some axes."""
        sizes = self.sizes
        return prod(sizes[a] for a in axes)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        return _coordinates(self.n)[rank]

    def index(self, rank: int, axes: tuple[int, ...]) -> int:
        """A rank's position along an ordered tuple of axes; the first is the slowest."""
        at, where, sizes = 0, self.coordinates(rank), self.sizes
        for a in axes:
            at = at * sizes[a] + where[a]
        return at

    def group(self, rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks that differ from `rank` along these axes only, in the order of their index."""
        return next(g for g in self.groups(axes) if rank in g)

    def groups(self, axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """All such groups."""
        return _groups(self, tuple(axes))


@lru_cache(None)
def _primes(n: int) -> tuple[int, ...]:
    out, p = [], 2
    while n > 1:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return tuple(out)


@lru_cache(None)
def _coordinates(n: int) -> list[tuple[int, ...]]:
    table = []
    for rank in range(n):
        where = []
        for size in reversed(_primes(n)):
            rank, c = divmod(rank, size)
            where.append(c)
        table.append(tuple(where[::-1]))
    return table


@lru_cache(None)
def _groups(mesh: Mesh, axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    found: dict[tuple, list[int]] = {}
    for rank in range(mesh.n):
        others = tuple(c for a, c in enumerate(mesh.coordinates(rank)) if a not in axes)
        found.setdefault(others, []).append(rank)
    return tuple(tuple(sorted(g, key=lambda r: mesh.index(r, axes))) for g in found.values())
