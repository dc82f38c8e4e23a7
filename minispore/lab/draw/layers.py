"""Layers: where the boxes of a graph go, so that lines run from above to below and cross seldom (Sugiyama, Tagawa and Toda,
"Methods for visual understanding of hierarchical system structures", 1981). graph.py draws what comes out."""
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

SWEEPS = 8
BEND = 14.0                 # width that a line takes which passes a layer


@dataclass(frozen=True)
class Placed:
    """at: {box: (x of its middle, layer from above)}; bends: {(from, to): the places on the way of a line}; width; levels."""
    at: dict[Hashable, tuple[float, int]]
    bends: dict[tuple, list[tuple[float, int]]]
    width: float
    levels: int


def place(ins: Mapping[Hashable, Sequence[Hashable]], widths: Mapping[Hashable, float], gap: float) -> Placed:
    """Layers for boxes, each below all it reads.

    ins: {box: boxes it reads}, in an order in which each comes behind those it reads; widths: of boxes, in pixels.

    >>> placed = place({"a": [], "b": ["a"], "c": ["a", "b"]}, dict.fromkeys("abc", 50.0), 10.0)
    >>> {box: level for box, (_, level) in placed.at.items()}, list(placed.bends["a", "c"]) != []
    ({'a': 0, 'b': 1, 'c': 2}, True)
    """
    at, bends, left, levels = {}, {}, 0.0, 0
    for part in parts(ins):
        placed = place_part(part, widths, gap)
        at |= {box: (left + x, level) for box, (x, level) in placed.at.items()}
        bends |= {pair: [(left + x, level) for x, level in points] for pair, points in placed.bends.items()}
        left, levels = left + placed.width + 2 * gap, max(levels, placed.levels)
    return Placed(at, bends, max(left - 2 * gap, 0.0), levels)


def parts(ins: Mapping[Hashable, Sequence[Hashable]]) -> list[dict]:
    """The boxes as several graphs, where no line connects them; they stand side by side."""
    part_of: dict[Hashable, dict] = {}
    for box, sources in ins.items():
        joined = {}
        for part in {id(part_of[s]): part_of[s] for s in sources}.values():
            joined |= part
        joined[box] = sources
        part_of.update(dict.fromkeys(joined, joined))
    return list({id(part): part for part in part_of.values()}.values())


def place_part(ins: Mapping[Hashable, Sequence[Hashable]], widths: Mapping[Hashable, float], gap: float) -> Placed:
    """The same for boxes that hang together."""
    level = {}
    for box, sources in ins.items():
        level[box] = max((level[s] + 1 for s in sources), default=0)
    readers = defaultdict(list)
    for box, sources in ins.items():
        for s in sources:
            readers[s].append(box)
    for box, sources in reversed(ins.items()):          # what nothing stands above goes as low as it can
        if not sources and readers[box]:
            level[box] = min(level[r] for r in readers[box]) - 1
    size, above, below = {box: widths[box] for box in ins}, defaultdict(list), defaultdict(list)
    chains = {}
    for box, sources in ins.items():
        for s in dict.fromkeys(sources):
            chain = [("bend", s, box, k) for k in range(level[s] + 1, level[box])]
            chains[s, box] = chain
            size.update(dict.fromkeys(chain, BEND))
            level.update({c: c[3] for c in chain})
            for a, b in zip([s, *chain], [*chain, box], strict=True):
                above[b].append(a)
                below[a].append(b)
    rows = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for thing in [*ins, *(c for chain in chains.values() for c in chain)]:
        rows[level[thing]].append(thing)
    x = {}
    for row in rows:
        spread(row, {t: float(i) for i, t in enumerate(row)}, x, size, gap)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows if down else reversed(rows):
            wish = {t: sum(x[n] for n in near[t]) / len(near[t]) if near[t] else x[t] for t in row}
            row.sort(key=lambda t: wish[t])
            spread(row, wish, x, size, gap)
    low = min((x[t] - size[t] / 2 for t in x), default=0.0)
    high = max((x[t] + size[t] / 2 for t in x), default=0.0)
    return Placed({box: (x[box] - low, level[box]) for box in ins},
                  {pair: [(x[c] - low, c[3]) for c in chain] for pair, chain in chains.items()}, high - low, len(rows))


def spread(row: list, wish: Mapping, x: dict, size: Mapping, gap: float) -> None:
    """Put a row's things as near to where they wish to be as their widths let them, in the row's order: neighbours that would
    overlap form a block, which lies where its members wish on average."""
    blocks = []                                         # [things, middle of the first as they wish on average]
    offset = {}
    for t in row:
        block, start = [t], wish[t]
        offset[t] = 0.0
        while blocks and blocks[-1][1] + offset[blocks[-1][0][-1]] + (size[blocks[-1][0][-1]] + size[block[0]]) / 2 + gap > start:
            before, _ = blocks.pop()
            shift = offset[before[-1]] + (size[before[-1]] + size[block[0]]) / 2 + gap
            for member in block:
                offset[member] += shift
            block = before + block
            start = sum(wish[m] - offset[m] for m in block) / len(block)
        blocks.append([block, start])
    for block, start in blocks:
        for t in block:
            x[t] = start + offset[t]
