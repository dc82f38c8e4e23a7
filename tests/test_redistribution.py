"""From any layout to any other: the values arrive exactly, and never at a higher cost than by MindSpore's greedy planner."""
import random
from collections import Counter
from functools import lru_cache
from itertools import permutations, product

import numpy as np
import pytest

from minispore.parallel.collectives import FOLD, joint_move
from minispore.parallel.layout import TensorLayout, fits_shape, local_shape, region
from minispore.parallel.mesh import Mesh
from minispore.parallel.redistribution import LATENCY, route

PART, IDLE = -1, -2         # where a mesh axis goes that splits no dim


def all_layouts(mesh, ndim, kinds):
    """Every layout of a tensor: each axis splits a dim, is partial or idle; the axes of a dim in every order."""
    for places in product([*range(ndim), PART, IDLE], repeat=len(mesh.sizes)):
        at = [[a for a in mesh.axes if places[a] == d] for d in range(ndim)]
        partial = frozenset(a for a in mesh.axes if places[a] == PART)
        for dims in product(*(permutations(axes) for axes in at)):
            for kind in kinds if partial else ["sum"]:
                yield TensorLayout(dims, partial, kind)


def drawn_layout(rng, mesh, shape, kinds):
    while True:
        axes = rng.sample(mesh.axes, len(mesh.axes))
        places = [rng.choice([*range(len(shape)), PART, IDLE]) for _ in axes]
        dims = tuple(tuple(a for a, p in zip(axes, places, strict=True) if p == d) for d in range(len(shape)))
        partial = frozenset(a for a, p in zip(axes, places, strict=True) if p == PART)
        layout = TensorLayout(dims, partial, rng.choice(kinds) if partial else "sum")
        if fits_shape(mesh, shape, layout):
            return layout


# ---- values ---------------------------------------------------------------------------------------

@lru_cache(None)
def logical(shape):
    return np.random.default_rng(0).permutation(np.prod(shape)).astype(float).reshape(shape)


@lru_cache(None)
def parts(mesh, shape, partial, kind):
    """For each place along the partial axes an array; reduced they give the logical one. All integers."""
    n, whole, rng = mesh.count(partial), logical(shape), np.random.default_rng(1)
    if kind == "sum":
        some = rng.integers(-99, 99, (n, *shape)).astype(float)
        some[-1] = whole - some[:-1].sum(0)
        return some
    some = whole + rng.integers(1, 99, (n, *shape)) * (1 if kind == "min" else -1)
    np.put_along_axis(some, rng.integers(0, n, (1, *shape)), whole[None], 0)       # one of them, here and there
    return some


@lru_cache(None)
def pieces(mesh, shape, layout):
    axes = tuple(sorted(layout.partial))
    many = parts(mesh, shape, layout.partial, layout.kind)
    return [many[mesh.index(r, axes)][region(mesh, shape, layout, r)] for r in range(mesh.n)]


def moved(mesh, shape, src, path):
    xs = pieces(mesh, shape, src)
    for move in path:
        assert move.src == src
        xs, src = joint_move(mesh, move, xs, shape), move.dst
    return xs


def assert_arrived(mesh, shape, src, dst, path):
    """Each rank has its piece of dst; where dst is partial, the ranks' pieces together reduce to it."""
    xs, axes = moved(mesh, shape, src, path), tuple(sorted(dst.partial))
    for group in mesh.groups(axes):
        got = FOLD[dst.kind](np.stack([xs[r] for r in group]), 0)
        for r in group:
            assert xs[r].shape == local_shape(mesh, shape, dst)
            assert np.array_equal(got, logical(shape)[region(mesh, shape, dst, r)]), (str(src), str(dst), list(map(str, path)))


def reachable(src, dst):
    """Nobody can make a whole value partial, nor a sum a maximum."""
    return dst.partial <= src.partial and (not dst.partial or dst.kind == src.kind)


# ---- MindSpore's way -------------------------------------------------------------------------------

def greedy_cost(mesh, shape, src, dst):
    """Reduce what is partial, then cut what is missing, exchange what is elsewhere, gather what nobody wants; where none
    of them helps, gather the first that is in the way. One mesh axis at a time."""
    size = np.prod(local_shape(mesh, shape, src))
    n = mesh.count(src.partial - dst.partial)
    cost = 2 * size * (n - 1) / n + LATENCY if n > 1 else 0.0
    now, goal = [list(d) for d in src.dims], [list(d) for d in dst.dims]

    def wanted(d):                      # the next axis that dim d lacks, if what it has is right
        return goal[d][len(now[d])] if len(now[d]) < len(goal[d]) and goal[d][:len(now[d])] == now[d] else None

    def wrong(d):                       # what dim d has is in the way
        return now[d] and goal[d][:len(now[d])] != now[d]

    while now != goal:
        used = {a for axes in now for a in axes} | dst.partial
        dims = range(len(now))
        if cut := [d for d in dims if wanted(d) is not None and wanted(d) not in used]:
            now[cut[0]].append(wanted(cut[0]))
            cost, size = cost + 1, size / mesh.sizes[now[cut[0]][-1]]
        elif exchange := [(d, t) for d in dims for t in dims if wrong(d) and d != t and wanted(t) == now[d][-1]]:
            d, t = exchange[0]
            now[t].append(now[d].pop())
            cost += size * (mesh.sizes[now[t][-1]] - 1) / mesh.sizes[now[t][-1]] + LATENCY
        else:
            idle = [d for d in dims if wrong(d) and not any(now[d][-1] in g for g in goal)]
            n = mesh.sizes[now[(idle or list(filter(wrong, dims)))[0]].pop()]
            cost, size = cost + size * (n - 1) + LATENCY, size * n
    return cost


# ---- tests ------------------------------------------------------------------------------------------

def saved_by(path):
    """What makes a path cheaper than the greedy one."""
    ops = {m.op for m in path}
    return next((op for op in ("reduce_scatter", "permute") if op in ops),
                "several axes at once" if any(len(m.axes) > 1 for m in path) else "another order")


def check(mesh, shape, pairs):
    """Every pair. Returns how many there are, and of those cheaper than the greedy path how many, by what saves."""
    done, cheaper = 0, Counter()
    for src, dst in pairs:
        found = route(mesh, shape, src, dst)
        assert (found is not None) == reachable(src, dst), (str(src), str(dst))
        if found:
            cost, path = found
            greedy = greedy_cost(mesh, shape, src, dst)
            assert cost <= greedy, (str(src), str(dst), cost, greedy, list(map(str, path)))
            assert_arrived(mesh, shape, src, dst, path)
            cheaper[saved_by(path)] += bool(cost < greedy)
            done += 1
    return done, dict(+cheaper)


@pytest.mark.parametrize(("shape", "table"), [
    # little data: what counts is the number of messages; and more of it
    ((16, 24), {"reduce_scatter": 3576, "permute": 1758, "several axes at once": 492, "another order": 228}),
    ((64, 96), {"reduce_scatter": 3768, "permute": 1686, "several axes at once": 336, "another order": 228}),
])
def test_all_pairs_of_a_matrix_on_2x2x2(shape, table):
    """All 92² pairs of whole layouts and sums, and those with maxima; three quarters of them are cheaper than greedy."""
    mesh, layouts = Mesh(8), list(all_layouts(Mesh(8), 2, ("sum", "max")))
    assert (len(layouts), sum(x.kind == "sum" for x in layouts)) == (135, 92)
    assert check(mesh, shape, product(layouts, layouts)) == (7877, table)


@pytest.mark.parametrize(("n", "shape"), [(8, (8, 16, 8)), (8, (2, 4, 12)), (6, (6, 12, 18)), (6, (2, 3, 6)), (12, (12, 24, 12)),
                                          (12, (4, 6, 15))])
def test_drawn_pairs_of_three_dims(n, shape):
    """Also of shapes that can't be split in all ways."""
    mesh, rng = Mesh(n), random.Random(n)

    def pair():
        src, dst = (drawn_layout(rng, mesh, shape, ("sum", "max", "min")) for _ in range(2))
        return src, dst if reachable(src, dst) else dst.reduced()
    done, cheaper = check(mesh, shape, (pair() for _ in range(800)))
    assert done == 800 and sum(cheaper.values()) > 100
