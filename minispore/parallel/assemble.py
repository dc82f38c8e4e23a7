"""Any part of a logical tensor, put together from the slices that ranks hold. Only arrays here, no files and no ranks."""
from collections.abc import Callable, Collection

import numpy as np

from minispore.parallel.strategy_file import Region, Stored


class Uncovered(ValueError):
    """A part of a tensor that none of the slices at hand covers."""

    def __init__(self, region: Region, holders: list[int]):
        self.region, self.holders = region, holders
        super().__init__(f"no slice covers [{', '.join(f'{a}:{b}' for a, b in region)}], which rank "
                         f"{' or '.join(map(str, holders))} saved")


def all_of(stored: Stored) -> Region:
    """The region of the whole tensor."""
    return tuple((0, n) for n in stored.placement.shape)


def pieces(stored: Stored, want: Region) -> dict[Region, list[int]]:
    """The distinct slices that have something of `want`, and the ranks that hold each.

    >>> from minispore.parallel.layout import TensorLayout
    >>> from minispore.parallel.mesh import Mesh
    >>> from minispore.parallel.placement import Placement
    >>> pieces(Stored(Placement(Mesh(4), (8,), TensorLayout(((1,),)))), ((0, 3),))
    {((0, 4),): [0, 2]}
    """
    found: dict[Region, list[int]] = {}
    for rank in stored.ranks:
        region = stored.region(rank)
        if all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(region, want, strict=True)):
            found.setdefault(region, []).append(rank)
    return found


def ranks_for(wanted: list[tuple[Stored, Region]]) -> list[int]:
    """A small set of ranks that together hold all these parts."""
    chosen: set[int] = set()
    for stored, want in wanted:
        for holders in pieces(stored, want).values():
            if not chosen.intersection(holders):
                chosen.add(holders[0])
    return sorted(chosen)


def assemble(stored: Stored, want: Region, have: Collection[int], read: Callable[[int], np.ndarray]) -> np.ndarray:
    """The part `want` of a tensor, from the slices of the ranks in `have`; read(rank) gives one, checked.

    Uncovered if they don't have all of it: nothing is ever filled up.
    """
    found, shape = pieces(stored, want), [b - a for a, b in want]
    if not found:                               # a dim of length 0
        return np.empty(shape, read(next(r for r in stored.ranks if r in have)).dtype)
    out = None
    for region, holders in found.items():
        rank = next((r for r in holders if r in have), None)
        if rank is None:
            raise Uncovered(region, holders)
        piece = read(rank)
        if region == want:
            return piece
        if out is None:
            out = np.empty(shape, piece.dtype)
        common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(region, want, strict=True)]
        out[within(common, want)] = piece[within(common, region)]
    return out


def within(part, region: Region) -> tuple[slice, ...]:
    """Where a part lies inside a region that contains it."""
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(part, region, strict=True))
