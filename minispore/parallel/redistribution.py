"""From one layout to another: the cheapest sequence of slices and collectives, by Dijkstra's algorithm.

Costs are values sent a rank, plus a latency for each collective. Only the innermost axes of a dim can be gathered or
moved; only axes that the goal wants are added.
"""
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, count, permutations
from math import prod

from minispore.parallel.layout import TensorLayout, axis_name, fits_shape, local_shape
from minispore.parallel.mesh import Mesh

LATENCY = 64.0              # what starting a collective costs, in values sent
INFINITE = float("inf")
FEW = 4                     # axes that are searched one by one; of more, neighbours go together, or it would take seconds


@dataclass(frozen=True)
class Grid:
    """Axes of any size: what moves need to know of a mesh."""
    sizes: tuple[int, ...]

    @property
    def axes(self) -> range:
        return range(len(self.sizes))

    def count(self, axes) -> int:
        return prod(self.sizes[a] for a in axes)


@dataclass(frozen=True)
class Move:
    """One step. op: "slice", "all_gather", "all_to_all", "reduce_scatter", "all_reduce" or "permute", along mesh `axes`.

    dim: the tensor dim that is cut or joined; all_to_all joins `dim` and cuts `to`.
    """
    op: str
    axes: tuple[int, ...]
    dim: int
    to: int
    src: TensorLayout
    dst: TensorLayout

    def __str__(self):
        return f"{self.op}[{''.join(map(axis_name, self.axes))}]  {self.src} -> {self.dst}"


def moves(mesh: Grid, shape: tuple, lay: TensorLayout, goal: TensorLayout) -> Iterator[tuple[float, Move]]:
    """(cost, move) for every step from `lay` that may help to reach `goal`."""
    size = prod(local_shape(mesh, shape, lay))

    def step(op, axes, dim, dst, values, to=-1):
        if fits_shape(mesh, shape, dst):
            yield values + (1 if op == "slice" else LATENCY), Move(op, tuple(axes), dim, to, lay, dst)

    to_reduce = sorted(lay.partial - goal.partial)
    for axes in (c for k in range(1, len(to_reduce) + 1) for c in combinations(to_reduce, k)):
        left, p = lay.partial - set(axes), mesh.count(axes)
        rest = TensorLayout(lay.dims, left, lay.kind if left else "sum")
        yield from step("all_reduce", axes, -1, rest, 2 * size * (p - 1) / p)
        for d, want in enumerate(goal.dims):
            if set(axes) <= set(want):
                for order in permutations(axes):
                    yield from step("reduce_scatter", order, d, rest.but(d, lay.dims[d] + order), size * (p - 1) / p)
    if lay.dims != goal.dims and all(mesh.count(a) == mesh.count(b) for a, b in zip(lay.dims, goal.dims, strict=True)) \
            and not lay.partial & goal.axes:
        yield from step("permute", sorted(lay.axes ^ goal.axes | _moved(lay, goal)), -1, replace(lay, dims=goal.dims), size)
    free = [a for a in mesh.axes if a not in lay.axes and a not in lay.partial]
    for d, axes in enumerate(lay.dims):
        for k in range(len(axes)):
            tail, cut = axes[k:], lay.but(d, axes[:k])
            p = mesh.count(tail)
            yield from step("all_gather", tail, d, cut, size * (p - 1))
            for t, want in enumerate(goal.dims):
                if t != d and set(tail) <= set(want):
                    yield from step("all_to_all", tail, d, cut.but(t, lay.dims[t] + tail), size * (p - 1) / p, t)
        for order in permutations(axes):
            if order != axes:
                yield from step("permute", axes, d, lay.but(d, order), size)
        for k, a in enumerate(axes):
            for b in free:
                if mesh.sizes[a] == mesh.sizes[b] and b in goal.dims[d]:
                    yield from step("permute", (a, b), d, lay.but(d, (*axes[:k], b, *axes[k + 1:])), size)
        for a in free:
            if a in goal.dims[d]:
                yield from step("slice", (a,), d, lay.but(d, (*axes, a)), 0)


def _moved(lay, goal) -> set[int]:
    return {a for x, y in zip(lay.dims, goal.dims, strict=True) if x != y for a in (*x, *y)}


@lru_cache(None)
def route(mesh: Mesh, shape: tuple, src: TensorLayout, dst: TensorLayout) -> tuple[float, tuple[Move, ...]] | None:
    """(cost, moves) of the cheapest path; None where there is none: nobody can make a value partial again.

    >>> cost, path = route(Mesh(4), (8, 8), TensorLayout(((0,), ()), frozenset({1})), TensorLayout(((0, 1), ())))
    >>> [move.op for move in path]
    ['reduce_scatter']
    """
    if not dst.partial <= src.partial or (dst.partial and dst.kind != src.kind):
        return None
    axes = sorted(src.axes | src.partial | dst.axes)
    groups = tuple((a,) for a in axes) if len(axes) <= FEW else together(src, dst)
    found = search(Grid(tuple(map(mesh.count, groups))), shape, *(relabelled(lay, groups) for lay in (src, dst)))
    if found is None:
        return None
    def spread(axes):
        return tuple(a for g in axes for a in groups[g])
    def original(lay):
        return TensorLayout(tuple(map(spread, lay.dims)), frozenset(spread(lay.partial)), lay.kind)
    return found[0], tuple(Move(m.op, spread(m.axes), m.dim, m.to, original(m.src), original(m.dst)) for m in found[1])


@lru_cache(None)
def together(src: TensorLayout, dst: TensorLayout) -> tuple[tuple[int, ...], ...]:
    """The axes that matter, those that stay neighbours from one layout to the other as one.

    >>> together(TensorLayout(((0, 1, 2), ())), TensorLayout(((0, 1), (2,))))
    ((0, 1), (2,))
    """
    inside = [{a: b for dim in lay.dims for a, b in zip(dim, (*dim[1:], None), strict=False)} for lay in (src, dst)]

    def next_to(a, b):                          # b comes directly inside a, or where neither splits a dim they fare alike
        if not any(x in inner for x in (a, b) for inner in inside) and a > b:
            return False                        # nothing orders them but their numbers
        return all(inner[a] == b if a in inner else b not in inner and (a in lay.partial) == (b in lay.partial)
                   for lay, inner in zip((src, dst), inside, strict=True))
    axes = sorted(src.axes | src.partial | dst.axes)
    groups = [[a] for a in axes if not any(next_to(b, a) for b in axes if b != a)]
    for group in groups:
        while (b := next((b for b in axes if b != group[-1] and next_to(group[-1], b)), None)) is not None:
            group.append(b)
    return tuple(map(tuple, groups))


def relabelled(lay: TensorLayout, groups: tuple[tuple[int, ...], ...]) -> TensorLayout:
    """A layout in terms of groups of axes."""
    head = {g[0]: i for i, g in enumerate(groups)}
    return TensorLayout(tuple(tuple(head[a] for a in dim if a in head) for dim in lay.dims),
                        frozenset(head[a] for a in lay.partial if a in head), lay.kind)


@lru_cache(None)
def search(mesh: Grid, shape: tuple, src: TensorLayout, dst: TensorLayout) -> tuple[float, tuple[Move, ...]] | None:
    """`route` by Dijkstra's algorithm, on a grid of any axes."""
    tick, best, heap = count(), {src: 0.0}, []
    heapq.heappush(heap, (0.0, next(tick), src, ()))
    while heap:
        cost, _, lay, path = heapq.heappop(heap)
        if lay.dims == dst.dims and lay.partial == dst.partial:
            return cost, path
        if cost > best[lay]:
            continue
        for extra, move in moves(mesh, shape, lay, dst):
            if cost + extra < best.get(move.dst, INFINITE):
                best[move.dst] = cost + extra
                heapq.heappush(heap, (cost + extra, next(tick), move.dst, (*path, move)))
    return None


def cheapest(mesh: Mesh, shape: tuple, have: list[TensorLayout], goal: TensorLayout) -> tuple[float, tuple[Move, ...]]:
    """(cost, moves) from the best of the layouts in which a value exists already."""
    if goal in have:
        return 0.0, ()
    routes = [r for r in (route(mesh, shape, lay, goal) for lay in have) if r]
    return min(routes, key=lambda r: r[0]) if routes else (INFINITE, ())


def remember(have: list[TensorLayout], path: tuple[Move, ...]) -> None:
    """The layouts passed on the way exist from now on too."""
    have.extend(dict.fromkeys(m.dst for m in path if m.dst not in have))
