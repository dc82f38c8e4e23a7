"""Slices: which device has which piece of a tensor. The tensor on the left, cut; the devices on the right, each in the colour of
its piece. How pieces follow from a layout is in minispore/parallel/layout.py."""
from collections import defaultdict
from math import prod

from minispore.lab.draw.svg import HATCH, Picture, colour, hatched, ink_on, line, picture, rect, text, width_of
from minispore.lab.words import plural
from minispore.ops.rule import bind, letters
from minispore.ops.strategy import NamedLayout
from minispore.parallel.layout import TensorLayout, fits_shape, local_shape, named_layout, region
from minispore.parallel.mesh import Mesh
from minispore.parallel.sharding import assignments

WIDTH, TOP, MOST_DEVICES = 880, 72, 64
BOX = 330.0                 # pixels of the tensor's longer side
CELLS = 24                  # up to so many values a side are told apart by lines


def slices(shape: tuple[int, ...], layout, device_num: int) -> Picture:
    """Each device's piece of a tensor.

    shape: of the tensor; of its dims at most two may be split. layout: a strategy as `shard` takes it, one split count a dim,
    such as (4, 1); an ms.Layout called with names; or a TensorLayout, which may be partial. device_num: 1 to 64 devices.

    >>> slices((16, 8), (4, 1), 4)
    Picture: A tensor (16, 8) on 4 devices. Split as (ab, -): 4 pieces of (4, 8). rank 0: [0:4, 0:8]; rank 1: [4:8, 0:8]; \
rank 2: [8:12, 0:8]; rank 3: [12:16, 0:8].
    """
    if not isinstance(device_num, int) or not 1 <= device_num <= MOST_DEVICES:
        raise ValueError(f"draw.slices: device_num={device_num!r} must be a whole number from 1 to {MOST_DEVICES}")
    mesh, shape = Mesh(device_num), tuple(shape)
    lay = tensor_layout(mesh, shape, layout)
    split = [d for d, axes in enumerate(lay.dims) if axes]
    if len(split) > 2:
        raise ValueError(f"draw.slices: {lay} splits {len(split)} dims of {shape}; a picture has two. Draw two of them at a time")
    owners = defaultdict(list)
    for rank in range(device_num):
        owners[tuple((s.start, s.stop) for s in region(mesh, shape, lay, rank))].append(rank)
    number = {piece: i for i, piece in enumerate(owners)}
    rows, columns = axes_drawn(shape, split)
    body, tall = tensor(shape, rows, columns, owners, number, lay)
    cards, high = devices(mesh, owners, number, shape, lay)
    height = max(TOP + tall + 56, TOP + high + 24)
    head = f"{plural(len(owners), 'piece')} of {local_shape(mesh, shape, lay)}"
    copies = device_num // len(owners)
    note = f"each on {plural(copies, 'device')}" if copies > 1 else "each on one device"
    if lay.partial:
        note = f"each of {plural(mesh.count(lay.partial), 'device')} has a part of every value; their {lay.kind} is the value"
    title = [text(22, 30, head, 17, font_weight=600), text(22, 52, f"layout {lay}, {note}", 12.5, fill="var(--soft)")]
    where = "; ".join(f"rank {r}: [{', '.join(f'{a}:{b}' for a, b in piece)}]" for r, piece in
                      sorted((r, piece) for piece, ranks in owners.items() for r in ranks))
    return picture(WIDTH, height, [*title, *body, *cards], f"A tensor {shape} on {plural(device_num, 'device')}",
                   f"Split as {lay}: {head}. {where}.", HATCH)


def tensor_layout(mesh: Mesh, shape: tuple, layout) -> TensorLayout:
    """What a user wrote, as a TensorLayout. ValueError if it doesn't fit the shape."""
    if isinstance(layout, NamedLayout):
        found = named_layout(mesh, layout)
    elif isinstance(layout, TensorLayout):
        found = layout
    else:
        counts = tuple(layout)
        if len(counts) != len(shape) or not all(isinstance(n, int) and n > 0 for n in counts):
            raise ValueError(f"draw.slices: strategy {counts} for shape {shape}; give one split count, 1 or more, for each dim")
        names = letters(len(shape))
        rule = bind(f"{' '.join(names)} -> {' '.join(names)}", [shape], [shape])
        made = next(assignments(rule, mesh, dict(zip(names, counts, strict=True)), list(mesh.axes)), None)
        if made is None:
            raise ValueError(f"draw.slices: strategy {counts} takes {prod(counts)} devices; it doesn't fit on {mesh.n}, whose "
                             f"prime factors are {mesh.sizes}")
        found = TensorLayout(tuple(made.get(name, ()) for name in names))
    if len(found.dims) != len(shape) or not fits_shape(mesh, shape, found):
        raise ValueError(f"draw.slices: layout {found} doesn't divide shape {shape} on {mesh.n} devices")
    return found


def axes_drawn(shape: tuple, split: list[int]) -> tuple[int | None, int | None]:
    """The dims that become rows and columns: those that are split, else the last two."""
    chosen = sorted({*split, *[d for d in reversed(range(len(shape))) if d not in split][:2 - len(split)]})
    return (chosen[0], chosen[1]) if len(chosen) == 2 else (None, chosen[0] if chosen else None)


def tensor(shape, rows, columns, owners, number, lay) -> tuple[list[str], float]:
    """The tensor, cut, and its height."""
    m, n = (shape[d] if d is not None else 1 for d in (rows, columns))
    unit = BOX / max(m, n, 1)
    wide, tall = max(unit * n, 40.0), max(unit * m, 40.0)
    left = 84 + (BOX - wide) / 2
    sx, sy = wide / max(n, 1), tall / max(m, 1)
    body = []
    for piece, ranks in owners.items():
        (y0, y1), (x0, x1) = (piece[d] if d is not None else (0, 1) for d in (rows, columns))
        x, y, w, h = left + x0 * sx, TOP + y0 * sy, (x1 - x0) * sx, (y1 - y0) * sy
        i = number[piece]
        body.append(rect(x, y, w, h, colour(i), "var(--panel)", stroke_width=2, class_="piece"))
        if hatched(i) or lay.partial:
            body.append(rect(x, y, w, h, "url(#ID-hatch)"))
        label = ", ".join(map(str, ranks)) if len(ranks) < 5 else f"{ranks[0]} … {ranks[-1]}"
        size = min(15.0, h - 4, 15 * (w - 4) / max(width_of(label, 15), 1))
        if size >= 8:
            body.append(text(x + w / 2, y + h / 2, label, size, "middle", ink_on(i), font_weight=700))
    if max(m, n) <= CELLS:
        body += [line(left + i * sx, TOP, left + i * sx, TOP + tall, "var(--panel)", 1, stroke_opacity=0.45) for i in range(1, n)]
        body += [line(left, TOP + i * sy, left + wide, TOP + i * sy, "var(--panel)", 1, stroke_opacity=0.45) for i in range(1, m)]
    if columns is not None:
        body.append(text(left + wide / 2, TOP + tall + 18, f"dim {columns}: {n}", 12.5, "middle", "var(--soft)"))
    if rows is not None:
        words = f"dim {rows}: {m}"
        lines = [words] if width_of(words, 12.5) <= left - 14 else [f"dim {rows}:", m]
        body += [text(left - 10, TOP + tall / 2 + 16 * (i - (len(lines) - 1) / 2), row, 12.5, "end", "var(--soft)")
                 for i, row in enumerate(lines)]
    body.append(text(left + wide / 2, TOP + tall + 38, "numbers: the ranks that hold the piece", 11.5, "middle", "var(--soft)"))
    return body, tall


def devices(mesh: Mesh, owners, number, shape, lay) -> tuple[list[str], float]:
    """The mesh of devices, row by row, and its height: the last axes across, the first ones down."""
    of_rank = {r: piece for piece, ranks in owners.items() for r in ranks}
    across = next((k for k in (4, 3, 2, 5, 7) if mesh.n % k == 0 and mesh.n > k), min(mesh.n, 4)) if mesh.n <= 16 else 8
    if mesh.n == 4:
        across = 2
    down = -(-mesh.n // across)
    left, room = 470.0, WIDTH - 470 - 24
    w, h = room / across - 10, min(64.0, max(30.0, 360 / down - 10))
    body = []
    for r in range(mesh.n):
        piece, (row, column) = of_rank[r], divmod(r, across)
        i, x, y = number[piece], left + column * (w + 10), TOP + row * (h + 10)
        body += [rect(x, y, w, h, "var(--faint)", "var(--edge)", 8, class_="device"), rect(x, y, 8, h, colour(i), rx=4)]
        if hatched(i) or lay.partial:
            body.append(rect(x, y, 8, h, "url(#ID-hatch)", rx=4))
        where = "[" + ", ".join(f"{a}:{b}" if (a, b) != (0, n) else ":" for (a, b), n in zip(piece, shape, strict=True)) + "]"
        many = h >= 44
        body.append(text(x + 16, y + (h / 2 - 9 if many else h / 2), f"rank {r}", 12.5, font_weight=600))
        size = min(11.5, 11.5 * (w - 22) / max(width_of(where, 11.5), 1))
        if many and size >= 7:
            body.append(text(x + 16, y + h / 2 + 10, where, size, fill="var(--soft)"))
    return body, down * (h + 10)
