"""Layouts: where each piece of a tensor lies on the mesh.

This is what the compiler works with. How users write layouts down is in ops/strategy.py; what a tensor outside a program
carries is in placement.py.
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from string import ascii_lowercase

from minispore.ops.strategy import NamedLayout
from minispore.parallel.mesh import Mesh


@dataclass(frozen=True)
class TensorLayout:
    """dims: for each tensor dim the mesh axes that split it, outermost first. partial: the axes over which the ranks'
    values are still to be reduced, by `kind` ("sum", "max", "min", "prod"). Over all other axes the value is repeated.

    >>> print(TensorLayout(((0, 1), ()), frozenset({2})))
    (ab, -) sum over c
    """
    dims: tuple[tuple[int, ...], ...]
    partial: frozenset[int] = frozenset()
    kind: str = "sum"

    def reduced(self) -> "TensorLayout":
        """The same pieces, with nothing left to be reduced."""
        return TensorLayout(self.dims) if self.partial else self

    def but(self, dim: int, axes: tuple[int, ...]) -> "TensorLayout":
        """The same, with one dim split by other axes."""
        return replace(self, dims=(*self.dims[:dim], axes, *self.dims[dim + 1:]))

    @property
    def axes(self) -> set[int]:
        """All axes that split a dim."""
        return {a for dim in self.dims for a in dim}

    @property
    def whole(self) -> bool:
        """Every rank has all of it."""
        return not self.partial and not any(self.dims)

    def __str__(self):
        dims = ", ".join("".join(map(axis_name, axes)) or "-" for axes in self.dims)
        return f"({dims})" + (f" {self.kind} over {''.join(map(axis_name, sorted(self.partial)))}" if self.partial else "")


def axis_name(axis: int) -> str:
    return ascii_lowercase[axis]


def whole(ndim: int) -> TensorLayout:
    """All of a tensor on every rank."""
    return TensorLayout(((),) * ndim)


def fits_shape(mesh: Mesh, shape: Iterable[int], layout: TensorLayout) -> bool:
    """Whether every split divides its dim."""
    return all(n % mesh.count(axes) == 0 for n, axes in zip(shape, layout.dims, strict=True))


def local_shape(mesh: Mesh, shape: Iterable[int], layout: TensorLayout) -> tuple[int, ...]:
    """Shape of a rank's piece; all ranks' pieces are of one shape."""
    return tuple(n // mesh.count(axes) for n, axes in zip(shape, layout.dims, strict=True))


def region(mesh: Mesh, shape: Iterable[int], layout: TensorLayout, rank: int) -> tuple[slice, ...]:
    """Where a rank's piece lies in the logical tensor.

    >>> region(Mesh(4), (8, 6), TensorLayout(((0,), (1,))), 3)
    (slice(4, 8, None), slice(3, 6, None))
    """
    sizes = local_shape(mesh, shape, layout)
    starts = [mesh.index(rank, axes) * n for axes, n in zip(layout.dims, sizes, strict=True)]
    return tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))


# ---- as MindSpore says it --------------------------------------------------------------------------

def device_arrangement(mesh: Mesh, layout: TensorLayout) -> tuple[list[int], list]:
    """MindSpore's form: (device matrix, tensor map). The map counts matrix dims from the right; -1 is not split.

    Axes that are used next to each other, or are all unused, become one dim of the matrix.

    >>> device_arrangement(Mesh(8), TensorLayout(((1, 2), ())))
    ([2, 4], [0, -1])
    """
    owner = {a: (dim, k) for dim, axes in enumerate(layout.dims) for k, a in enumerate(axes)}

    def run(axis):                      # equal for neighbours that belong together
        dim, k = owner.get(axis, (None, 0))
        return dim, axis - k
    runs = [list(axes) for _, axes in groupby(mesh.axes, run)]
    matrix = [mesh.count(r) for r in runs] or [1]
    place = {r[0]: len(runs) - 1 - i for i, r in enumerate(runs)}
    tensor_map = []
    for axes in layout.dims:
        parts = [place[a] for a in axes if a in place]
        tensor_map.append(-1 if not parts else parts[0] if len(parts) == 1 else tuple(parts))
    return matrix, tensor_map


def arranged(matrix: Iterable[int], tensor_map: Iterable) -> tuple[Mesh, TensorLayout]:
    """The mesh and layout of which this is the device_arrangement. ValueError if it is no such thing.

    >>> arranged([2, 4], [0, -1])
    (Mesh(n=8), TensorLayout(dims=((1, 2), ()), partial=frozenset(), kind='sum'))
    """
    matrix, tensor_map = list(matrix), list(tensor_map)
    mesh = Mesh(prod(matrix))
    runs, rest = [], list(mesh.axes)
    for n in matrix:
        run = []
        while rest and mesh.count(run) < n:
            run.append(rest.pop(0))
        if mesh.count(run) != n:
            raise ValueError(f"device matrix {matrix}: its dims must be made of the prime factors {mesh.sizes} of {mesh.n} "
                             "devices, in this order")
        runs.append(run)
    at = [[i for i in (e if isinstance(e, (list, tuple)) else [e]) if i != -1] for e in tensor_map]
    used = [i for entry in at for i in entry]
    if len(set(used)) < len(used) or any(not isinstance(i, int) or not 0 <= i < len(matrix) for i in used):
        raise ValueError(f"tensor map {tensor_map}: its numbers must be -1, or each a different dim of the device matrix "
                         f"{matrix}, counted from the right")
    return mesh, TensorLayout(tuple(tuple(a for i in entry for a in runs[len(matrix) - 1 - i]) for entry in at))


def named_layout(mesh: Mesh, named: NamedLayout) -> TensorLayout:
    """A layout written with names, in the mesh's axes: matrix axes take mesh axes of their prime factors, from the left."""
    matrix = named.device_matrix
    if prod(matrix) != mesh.n:
        raise ValueError(f"{named}: the device matrix has {prod(matrix)} devices, this program {mesh.n}; make their product "
                         "the number of devices")
    free, axes_of = list(mesh.axes), {"None": ()}
    for name, n in zip(named.alias_name, matrix, strict=True):
        mine = []
        for prime in Mesh(n).sizes:
            mine.append(next(a for a in free if mesh.sizes[a] == prime))
            free.remove(mine[-1])
        axes_of[name] = tuple(mine)
    return TensorLayout(tuple(tuple(a for name in (entry if isinstance(entry, tuple) else (entry,)) for a in axes_of[name])
                              for entry in named.tensor_map))
