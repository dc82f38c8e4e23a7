"""Pictures: SVG as text, made of small functions. Every drawing beside this file uses the colours and the panel from here.

A picture stands on its own rounded panel and brings a light and a dark variant, as the reader's system prefers, so it can be
read on any page. Colours are Okabe and Ito's, which colour-blind people can tell apart; each comes with a label or a hatch.
"""
from dataclasses import dataclass
from hashlib import blake2b
from html import escape
from math import atan2, cos, hypot, pi, sin
from pathlib import Path

# Of rank 0, 1, …: (in light, in dark). Okabe-Ito; in dark the blue and the vermillion are a little lighter.
COLOURS = [("#0072b2", "#3d9be0"), ("#e69f00", "#e69f00"), ("#009e73", "#12b886"), ("#cc79a7", "#d68bb5"),
           ("#56b4e9", "#8fd0f7"), ("#d55e00", "#f07a2b"), ("#f0e442", "#f0e442"), ("#8c8c8c", "#a3a3a3")]
NEUTRAL = {"panel": ("#ffffff", "#1b1e24"), "edge": ("#d8dce3", "#3a404b"), "ink": ("#1c2128", "#e8eaee"),
           "soft": ("#5b6470", "#a4adba"), "faint": ("#eef0f4", "#282d36"), "line": ("#c3c9d2", "#4a515e"),
           "good": ("#007a58", "#2fd3a0"), "bad": ("#c0392b", "#ff7b6b"), "on": ("#ffffff", "#14171c"),
           "strong": ("#d55e00", "#f07a2b"), "wash": ("#fdf1e7", "#3a2a1d")}
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", Arial, sans-serif'
MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace'
PAGE = 830                  # pixels that JupyterLab has for an output on a screen of 1280; it shrinks no picture by itself
LEAST = 0.8                 # of its size, so that letters aren't too small; what is still wider gets a scroll bar
HEAD = 8.0                  # length of an arrow's head
NO_XML = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(0xd800, 0xe000), 0xfffe, 0xffff))     # what XML can't hold


@dataclass(frozen=True)
class Picture:
    """A drawing. svg: its text; alt: what is to be seen, in words, for those who can't see it.

    >>> Picture("<svg/>", "nothing")
    Picture: nothing
    """
    svg: str
    alt: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self):
        return f"Picture: {self.alt}"

    def save(self, path) -> Path:
        """Write it as an .svg file; the path it was written to."""
        path = Path(path)
        if path.suffix != ".svg":
            raise ValueError(f"save: {path} doesn't end in .svg; a Picture is saved as SVG. To have a PNG, open it in a browser")
        path.write_text(self.svg, encoding="utf-8")
        return path


def _variables(which: int) -> str:
    named = {**NEUTRAL, **{f"c{i}": pair for i, pair in enumerate(COLOURS)}}
    return "".join(f"--{name}:{pair[which]};" for name, pair in named.items())


STYLE = (f".minispore-picture{{{_variables(0)}font-family:{FONT}}}"
         f"@media (prefers-color-scheme:dark){{.minispore-picture{{{_variables(1)}}}}}"
         f".minispore-picture .mono{{font-family:{MONO}}}")


def picture(width: float, height: float, body: list[str], title: str, desc: str, defs: str = "") -> Picture:
    """A Picture of this size in pixels, shown smaller if it is wider than a notebook's page, as long as it can be read. In defs,
    id="ID-… stands for a name that is this picture's own, in body url(#ID-…."""
    shown = min(1.0, max(PAGE / width, LEAST))
    inside = tag("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=14, fill="var(--panel)", stroke="var(--edge)")
    inside += "".join(body)
    name = "m" + blake2b(f"{title}{desc}{inside}{defs}".encode(errors="replace"), digest_size=5).hexdigest()
    svg = tag("svg", tag("title", escape(title), id=f"{name}-title") + tag("desc", escape(desc), id=f"{name}-desc")
              + tag("style", STYLE) + (tag("defs", defs.replace('id="ID-', f'id="{name}-')) if defs else "")
              + inside.replace("url(#ID-", f"url(#{name}-"),
              xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {number(width)} {number(height)}", width=width * shown,
              height=height * shown, class_="minispore-picture", role="img", aria_labelledby=f"{name}-title {name}-desc",
              style="max-width:100%;height:auto")
    return Picture(svg.translate(NO_XML), (f"{title}. {desc}" if desc else title).translate(NO_XML))


def tag(name: str, content: str | None = None, **attributes) -> str:
    """An element; underscores in names of attributes become hyphens, a last one is dropped, and those that are None too.

    >>> tag("path", d="M0 0", stroke_width=1.50, class_="a")
    '<path d="M0 0" stroke-width="1.5" class="a"/>'
    """
    text = "".join(f' {key.rstrip("_") if key.endswith("_") else key if key == "viewBox" else key.replace("_", "-")}="'
                   f'{escape(number(value))}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{text}/>" if content is None else f"<{name}{text}>{content}</{name}>"


def number(value) -> str:
    """A number with as few digits as a picture needs."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def colour(i: int) -> str:
    """The colour of rank i, as a CSS value."""
    return f"var(--c{i % len(COLOURS)})"


def hatched(i: int) -> bool:
    """Whether the colours have been used up before i: then lines across tell it from the first that has its colour."""
    return i // len(COLOURS) % 2 == 1


def ink_on(i: int) -> str:
    """A colour of letters that can be read on colour(i), in light and in dark."""
    return "var(--on)" if i % len(COLOURS) in (0, 2, 5) else "#14171c"


HATCH = ('<pattern id="ID-hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
         '<rect width="1.4" height="4" fill="#000000" fill-opacity="0.55"/></pattern>')


def text(x: float, y: float, what, size: float = 13, anchor: str = "start", fill: str = "var(--ink)", **more) -> str:
    """A line of text; y is the middle of its small letters' height, so that it is centred where it is put."""
    return tag("text", escape(str(what)), x=float(x), y=float(y + 0.35 * size), font_size=float(size),
               text_anchor=None if anchor == "start" else anchor, fill=fill, **more)


def width_of(what, size: float = 13, mono: bool = False) -> float:
    """About how wide a text becomes, in the widest of the fonts."""
    wide = sum(1.0 if ord(c) > 0x2e80 else 0.9 if c in "mwMW—→" else 0.34 if c in "iljI.,:;'|![]()" else 0.61 for c in str(what))
    return size * (0.605 * len(str(what)) if mono else wide)


def shortened(what, room: float, size: float = 13, mono: bool = False) -> str:
    """A text without its middle, where it is wider than `room` pixels.

    >>> shortened("short", 100), shortened("layer.11.attention.weight", 100)
    ('short', 'layer.…weight')
    """
    what, keep = str(what), len(str(what))
    short = what
    while width_of(short, size, mono) > room and keep:
        keep -= 1
        short = f"{what[:(keep + 1) // 2]}…{what[len(what) - keep // 2:]}"
    return short


def rect(x, y, width, height, fill="none", stroke=None, rx=None, **more) -> str:
    return tag("rect", x=float(x), y=float(y), width=float(max(width, 0)), height=float(max(height, 0)), rx=rx, fill=fill,
               stroke=stroke, **more)


def line(x0, y0, x1, y1, stroke="var(--line)", stroke_width=1.0, **more) -> str:
    return tag("line", x1=float(x0), y1=float(y0), x2=float(x1), y2=float(y1), stroke=stroke, stroke_width=stroke_width, **more)


def tick(x: float, y: float, size: float = 8, stroke: str = "var(--good)") -> str:
    """A check mark around (x, y)."""
    s = size / 2
    path = f"M{number(x - s)} {number(y)}l{number(s * 0.7)} {number(s * 0.75)}l{number(s * 1.3)} {number(-s * 1.5)}"
    return tag("path", d=path, fill="none", stroke=stroke, stroke_width=size / 4.5, stroke_linecap="round",
               stroke_linejoin="round", class_="tick")


# ---- arrows ----------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Curve:
    """A quadratic curve from a to b, bent towards c."""
    a: tuple[float, float]
    c: tuple[float, float]
    b: tuple[float, float]

    def at(self, t: float) -> tuple[float, float]:
        u = 1 - t
        return tuple(u * u * p + 2 * u * t * q + t * t * r for p, q, r in zip(self.a, self.c, self.b, strict=True))


def bent(x0, y0, x1, y1, bend: float = 0.0) -> Curve:
    """A curve whose middle lies `bend` pixels to the left of the straight line, seen along it (y grows downwards)."""
    dx, dy = x1 - x0, y1 - y0
    n = hypot(dx, dy) or 1.0
    return Curve((x0, y0), ((x0 + x1) / 2 + 2 * bend * dy / n, (y0 + y1) / 2 - 2 * bend * dx / n), (x1, y1))


def arrow(curve: Curve, stroke: str = "var(--soft)", stroke_width: float = 1.8, head: float = HEAD, **more) -> str:
    """An arrow along a curve: a group of class "arrow"."""
    (cx, cy), (bx, by) = curve.c, curve.b
    angle = atan2(by - cy, bx - cx) if (cx, cy) != (bx, by) else atan2(by - curve.a[1], bx - curve.a[0])
    tip = [(bx, by), *((bx - head * cos(angle + turn), by - head * sin(angle + turn)) for turn in (0.42, -0.42))]
    end = bx - 0.8 * head * cos(angle), by - 0.8 * head * sin(angle)
    shaft = tag("path", d=f"M{point(curve.a)}Q{point(curve.c)} {point(end)}", fill="none", stroke=stroke,
                stroke_width=stroke_width, stroke_linecap="round", stroke_dasharray=more.pop("stroke_dasharray", None))
    return tag("g", shaft + tag("path", d="M" + "L".join(map(point, tip)) + "Z", fill=stroke), class_="arrow", **more)


def point(p) -> str:
    return f"{number(float(p[0]))} {number(float(p[1]))}"


def edge_of(cx, cy, width, height, towards_x, towards_y, gap: float = 4) -> tuple[float, float]:
    """Where the line from the middle of a box towards a point leaves it, `gap` pixels outside."""
    dx, dy = towards_x - cx, towards_y - cy
    if not dx and not dy:
        return cx, cy
    t = min((width / 2 + gap) / abs(dx) if dx else 1e9, (height / 2 + gap) / abs(dy) if dy else 1e9)
    return cx + dx * t, cy + dy * t


def on_circle(n: int, cx: float, cy: float, rx: float, ry: float) -> list[tuple[float, float]]:
    """n points on an ellipse, clockwise from the top; two of them side by side."""
    start = pi if n == 2 else -pi / 2
    return [(cx + rx * cos(start + 2 * pi * i / n), cy + ry * sin(start + 2 * pi * i / n)) for i in range(n)]
