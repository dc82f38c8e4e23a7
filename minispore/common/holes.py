"""Free memory as a list of holes (offset, bytes), for whoever hands out pieces of one block."""

Hole = tuple[int, int]


def with_hole(holes: list[Hole], start: int, nbytes: int) -> list[Hole]:
    """The holes and one more, in order; neighbours become one.

    >>> with_hole([(0, 8), (24, 8)], 8, 16)
    [(0, 32)]
    """
    merged: list[Hole] = []
    for hole in sorted([*holes, (start, nbytes)]):
        if merged and sum(merged[-1]) == hole[0]:
            merged[-1] = merged[-1][0], merged[-1][1] + hole[1]
        else:
            merged.append(hole)
    return merged
