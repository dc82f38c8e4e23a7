"""cache: the arrays of a kernel, and which of their elements a small cache holds when so many have been touched."""
from minispore.lab.draw.svg import Picture, colour, picture, plural, rect, text, tick
from minispore.lab.touches import through_cache

CELL, GAP, TOP, LEFT = 26, 46, 82, 32         # pixels: an element, between arrays, above and left of them


def cache(touched: list[int], arrays: dict[str, tuple[int, int]], cache: int, step: int, line: int = 1) -> Picture:
    """What a cache of the `cache` elements touched last holds after touch number `step` (from 1; 0: nothing yet).

    touched: what lab.touches.touches gave; line: as in lab.touches.loads. arrays: {name: shape of two dims}, in the order in which
    the kernel takes them. Held elements are filled. The one that is touched has a frame, with a tick if it was in the cache, else
    with a cross: it was loaded.

    >>> cache([0, 2, 0, 1], {"a": (1, 2), "b": (1, 2)}, cache=2, step=4)
    Picture: A cache of 2 elements, touch 4 of 4. a[0, 1] is loaded; 3 loads so far. Held: 2 elements of a.
    """
    if not 0 <= step <= len(touched):
        raise ValueError(f"cache: step {step} of {len(touched)} touches; give 0 … {len(touched)}")
    held, loads, hit = {}, 0, False
    for loaded, held in through_cache(touched[:step], cache, line):     # noqa: B007    the last one is what is shown
        loads, hit = loads + loaded, not loaded
    now = touched[step - 1] if step else None
    body, said, counts, x, start = [], "nothing is touched yet", [], LEFT, 0
    for i, (name, (rows, columns)) in enumerate(arrays.items()):
        body.append(text(x, TOP - 16, f"{name}  ({rows}, {columns})", 13, fill="var(--soft)"))
        for e in range(rows * columns):
            r, c = divmod(e, columns)
            body.append(element_at(x + c * CELL, TOP + r * CELL, i, (start + e) // line in held, start + e == now, hit))
            if start + e == now:
                said = f"{name}[{r}, {c}] {'was there' if hit else 'is loaded'}"
        counts.append((sum((start + e) // line in held for e in range(rows * columns)), name))
        x, start = x + columns * CELL + GAP, start + rows * columns
    bottom = TOP + max(rows for rows, _ in arrays.values()) * CELL + 24
    holds = ", ".join(f"{plural(n, 'element')} of {name}" for n, name in counts if n) or "nothing"
    lines = f" in lines of {line}" if line > 1 else ""
    title = f"A cache of {cache} elements{lines}, touch {step:,} of {len(touched):,}"
    body = [text(LEFT, 30, title, 15, font_weight=600), *body,
            text(LEFT, bottom, f"{said}; {plural(loads, 'load')} so far", 13.5, fill="var(--ink)"),
            text(LEFT, bottom + 22, f"held: {holds}", 13, fill="var(--soft)")]
    return picture(max(x - GAP + LEFT, 420), bottom + 44, body, title, f"{said}; {plural(loads, 'load')} so far. Held: {holds}.")


def element_at(x: float, y: float, array: int, held: bool, now: bool, hit: bool) -> str:
    """One element: filled if the cache holds it, framed and marked if it is touched now."""
    size = CELL - 3
    parts = rect(x, y, size, size, fill=colour(array) if held else "var(--faint)", rx=4, fill_opacity=0.45 if held else None)
    if now:
        parts += rect(x, y, size, size, stroke="var(--good)" if hit else "var(--bad)", stroke_width=2.5, rx=4)
        middle = x + size / 2, y + size / 2
        parts += tick(*middle, 11) if hit else text(*middle, "×", 19, "middle", "var(--bad)", font_weight=700)
    return parts
