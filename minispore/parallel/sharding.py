"""What a sharding rule (ops/rule.py) says about layouts: mesh axes are assigned to its factors, and all follows.

An assignment is a dict {factor: (axis, …)}. A split factor splits every dim it stands in; one that no output has leaves
a partial result. No op has a table of its own: legality, output layouts, candidates and propagation all come from here.
"""
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product
from math import gcd, prod

from minispore.ops.rule import Rule, Term
from minispore.parallel.layout import TensorLayout
from minispore.parallel.mesh import Mesh

Assignment = dict[str, tuple[int, ...]]


def fits(rule: Rule, mesh: Mesh, assignment: Assignment) -> bool:
    """Whether each split divides its factor, whole factors are whole, and in a dim of several factors an inner one is
    split only if those outside it are split up completely (else a piece would not be one run of the dim)."""
    for factor, axes in assignment.items():
        if axes and (not rule.splittable(factor) or rule.sizes[factor] % mesh.count(axes) or not rule.sizes[factor]):
            return False
    for dim in compound_dims(rule):
        outer_whole = False
        for factor in dim:
            n = mesh.count(assignment.get(factor, ()))
            if outer_whole and n > 1:
                return False
            outer_whole |= n < rule.sizes[factor]
    return True


def compound_dims(rule: Rule) -> list[tuple[str, ...]]:
    return [dim for term in (*rule.ins, *rule.outs) for dim in term if len(dim) > 1]


def term_layout(term: Term, assignment: Assignment, partial=frozenset(), kind="sum") -> TensorLayout:
    """The layout of one tensor under an assignment."""
    dims = tuple(tuple(a for f in dim for a in assignment.get(f, ())) for dim in term)
    return TensorLayout(dims, frozenset(partial), kind if partial else "sum")


def layouts(rule: Rule, assignment: Assignment, kind: str = "sum") -> tuple[list[TensorLayout], list[TensorLayout]]:
    """Layouts of the inputs and of the outputs; `kind` is the reduction that a split contracted factor leaves."""
    partial = {a for f, axes in assignment.items() if rule.contracted(f) for a in axes}
    return [term_layout(t, assignment) for t in rule.ins], [term_layout(t, assignment, partial, kind) for t in rule.outs]


def extend(rule: Rule, mesh: Mesh, assignment: Assignment, term: Term, layout: TensorLayout,
           banned: frozenset = frozenset()) -> Assignment:
    """The assignment, with as much of one tensor's layout added as the rule allows: what propagation passes on."""
    for dim, axes in zip(term, layout.dims, strict=True):
        if any(assignment.get(f) for f in dim):
            continue                            # a stronger neighbour has decided
        k = 0
        for a in axes:
            taken = banned.union(*assignment.values())
            while k < len(dim):
                more = {**assignment, dim[k]: (*assignment.get(dim[k], ()), a)}
                if a not in taken and fits(rule, mesh, more):
                    assignment = more
                    break
                k += 1
            else:
                break                           # the axes inside a lost one would mean other pieces
    return assignment


def assignments(rule: Rule, mesh: Mesh, counts: dict[str, int], free: list[int]) -> Iterator[Assignment]:
    """Every choice of mesh axes that splits the factors so many times, the row-major one first."""
    counts = {f: n for f, n in counts.items() if n > 1}
    if not counts:
        yield {}
        return
    (factor, n), *rest = counts.items()
    for k in range(1, len(free) + 1):
        for axes in combinations(free, k):
            if mesh.count(axes) == n:
                for other in assignments(rule, mesh, dict(rest), [a for a in free if a not in axes]):
                    yield {factor: axes, **other}


def candidates(rule: Rule, mesh: Mesh) -> Iterator[dict[str, int]]:
    """All legal {factor: number of pieces}."""
    for counts in _choices(mesh.n, tuple(rule.factors())):
        assignment = next(assignments(rule, mesh, counts, list(mesh.axes)), None)
        if assignment is not None and fits(rule, mesh, assignment):
            yield counts


@lru_cache(None)
def _choices(n: int, factors: tuple[str, ...]) -> list[dict[str, int]]:
    sizes, seen = Mesh(n).sizes, {}
    for choice in product([None, *factors], repeat=len(sizes)):
        counts = tuple(prod(s for s, f in zip(sizes, choice, strict=True) if f == g) for g in factors)
        seen[counts] = dict(zip(factors, counts, strict=True))
    return list(seen.values())


# ---- split counts a dim, as users write them ---------------------------------------------------------

def factor_counts(dim: tuple[str, ...], n: int, rule: Rule) -> dict[str, int] | None:
    """How a dim's factors are split when it is cut into n pieces, outermost first; None if they can't be."""
    counts = {}
    for factor in dim:
        c = gcd(n, rule.sizes[factor]) if rule.splittable(factor) else 1
        counts[factor] = c
        n //= c
        if c < rule.sizes[factor]:
            break                               # what is inside stays whole
    return counts if n == 1 else None


def dim_counts(term: Term, counts: dict[str, int]) -> tuple[int, ...]:
    """The number of pieces of each dim of a tensor."""
    return tuple(prod(counts.get(f, 1) for f in dim) for dim in term)


def as_strategy(rule: Rule, counts: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """Split counts as MindSpore's strategy: one tuple an input."""
    return tuple(dim_counts(term, counts) for term in rule.ins)
