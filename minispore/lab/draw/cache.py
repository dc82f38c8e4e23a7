"""cache: the arrays of a kernel, and which of their elements a small cache holds when so many have been touched."""
from minispore.lab.draw.svg import Picture, colour, picture, rect, text, tick
from minispore.lab.touches import through_cache
from minispore.lab.words import plural

CELL, GAP, TOP, LEFT = 34, 56, 84, 32         # pixels: an element, between arrays, above and left of them
STRIP = 560                                   # width of all touches, side by side


def cache(touched: list[int], arrays: dict[str, tuple[int, int]], cache: int, step: int, line: int = 1) -> Picture:
    """What a cache of the `cache` elements touched last holds after touch number `step` (from 1; 0: nothing yet).

    touched: what lab.touches.touches gave; line: as in lab.touches.loads. arrays: {name: shape of two dims}, in the order in
    which the kernel takes them. Held elements are filled. The one that is touched has a frame, with a tick if it was in the
    cache, else with a cross: it was loaded. The strip below has a bar for each touch so far, a high one for a load.

    >>> cache([0, 2, 0, 1], {"a": (1, 2), "b": (1, 2)}, cache=2, step=4)
    Picture: A cache of 2 elements, touch 4 of 4. a[0, 1] is loaded; 3 loads so far. Held: 2 elements of a.
    """
    if not 0 <= step <= len(touched):
        raise ValueError(f"cache: step {step} of {len(touched)} touches; give 0 … {len(touched)}")
    held, history = {}, []
    for loaded, held in through_cache(touched[:step], cache, line):     # noqa: B007    the last one is what is shown
        history.append(loaded)
    now = touched[step - 1] if step else None
    body, said, counts, x, start = [], "nothing is touched yet", [], LEFT, 0
    for i, (name, (rows, columns)) in enumerate(arrays.items()):
        body.append(text(x, TOP - 18, f"{name}  {rows} × {columns}", 13, fill="var(--soft)"))
        for e in range(rows * columns):
            r, c = divmod(e, columns)
            place = x + c * CELL, TOP + r * CELL
            body.append(element_at(*place, i, (start + e) // line in held, start + e == now, bool(history) and history[-1]))
            if start + e == now:
                said = f"{name}[{r}, {c}] {'is loaded' if history[-1] else 'was there'}"
        counts.append((sum((start + e) // line in held for e in range(rows * columns)), name))
        x, start = x + columns * CELL + GAP, start + rows * columns
    bottom = TOP + max(rows for rows, _ in arrays.values()) * CELL + 22
    holds = ", ".join(f"{plural(n, 'element')} of {name}" for n, name in counts if n) or "nothing"
    said += f"; {plural(sum(history), 'load')} so far"
    title = f"A cache of {cache} elements{f' in lines of {line}' if line > 1 else ''}, touch {step:,} of {len(touched):,}"
    body = [text(LEFT, 32, title, 15, font_weight=600), *body, text(LEFT, bottom, said, 14),
            text(LEFT, bottom + 23, f"held: {holds}", 13, fill="var(--soft)"), *strip(history, len(touched), bottom + 46)]
    return picture(max(x - GAP, LEFT + STRIP) + LEFT, bottom + 100, body, title, f"{said}. Held: {holds}.")


def element_at(x: float, y: float, array: int, held: bool, now: bool, loaded: bool) -> str:
    """One element: filled if the cache holds it, framed and marked if it is touched now."""
    size = CELL - 3
    parts = rect(x, y, size, size, fill=colour(array) if held else "var(--faint)", rx=5, fill_opacity=0.45 if held else None)
    if now:
        parts += rect(x, y, size, size, stroke="var(--bad)" if loaded else "var(--good)", stroke_width=3, rx=5)
        middle = x + size / 2, y + size / 2
        parts += text(*middle, "×", 24, "middle", "var(--bad)", font_weight=700) if loaded else tick(*middle, 14)
    return parts


def strip(history: list[bool], total: int, y: float) -> list[str]:
    """A bar for each touch so far: high for a load, low for one that was there."""
    wide = STRIP / max(total, 1)
    bars = [rect(LEFT + i * wide, y + (0 if loaded else 16), wide * 0.72, 22 if loaded else 6,
                 fill="var(--bad)" if loaded else "var(--good)") for i, loaded in enumerate(history)]
    return [rect(LEFT, y + 24, STRIP, 1, fill="var(--line)"), *bars,
            text(LEFT, y + 36, "a bar for each touch: high where it was loaded, low where it was there", 11.5,
                 fill="var(--soft)")]
