"""What every picture must be: well-formed, with words for those who can't see it, in colours of both themes, nothing cut off."""
import re
import xml.etree.ElementTree as ET
from itertools import combinations

from minispore.lab.draw.svg import COLOURS, NEUTRAL, width_of

SVG = "{http://www.w3.org/2000/svg}"
VARIABLES = {f"--{name}" for name in (*NEUTRAL, *(f"c{i}" for i in range(len(COLOURS))))}
ON_COLOUR = {"#ffffff", "#14171c", "#000000"}           # letters and hatches on a rank's colour, in both themes


def checked(picture) -> ET.Element:
    """The picture's tree, if it is as every picture must be."""
    root = ET.fromstring(picture.svg)
    title, desc, style = list(root)[:3]
    assert (root.tag, title.tag, desc.tag, style.tag) == (f"{SVG}svg", f"{SVG}title", f"{SVG}desc", f"{SVG}style")
    assert root.get("role") == "img" and root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert title.text and desc.text and picture.alt == f"{title.text}. {desc.text}"
    sizes = [(float(root.get(name)), own) for name, own in zip(("width", "height"), size(root), strict=True)]
    shown = sizes[0][0] / sizes[0][1]                       # a little smaller than drawn, where it is wider than a page
    assert 0.8 <= shown <= 1 and all(abs(own * shown - attribute) < 0.01 for attribute, own in sizes)
    themed(root, style.text)
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids)) and title.get("id").endswith("-title")
    assert set(re.findall(r"url\(#(.*?)\)", picture.svg) + re.findall(r'href="#(.*?)"', picture.svg)) <= set(ids)
    inside(root)
    return root


def size(root) -> tuple[float, float]:
    """Width and height, in the units it is drawn in."""
    left, top, wide, tall = map(float, root.get("viewBox").split())
    assert left == top == 0
    return wide, tall


def themed(root, style: str):
    """Colours are variables, and the light and the dark theme have all of them."""
    light, dark = style.split("@media (prefers-color-scheme:dark)")
    assert set(re.findall(r"(--\w+):#", light)) == set(re.findall(r"(--\w+):#", dark)) == VARIABLES
    assert root.get("class") == "minispore-picture"
    for e in root.iter():
        for name in ("fill", "stroke", "style"):
            value = e.get(name, "")
            assert set(re.findall(r"var\((--\w+)\)", value)) <= VARIABLES
            assert set(re.findall(r"#[0-9a-f]{6}\b", value)) <= ON_COLOUR, (e.tag, value)


def texts(root, kind: str | None = None) -> list[str]:
    """All lines of text, or those of class `kind` (of a group, or of the line)."""
    return [words(t) for e in root.iter() if kind is None or kind in e.get("class", "").split()
            for t in ([e] if e.tag == f"{SVG}text" else e.iter(f"{SVG}text") if kind else [])]


def of_class(root, kind: str) -> list[ET.Element]:
    return [e for e in root.iter() if kind in e.get("class", "").split()]


def words(text) -> str:
    return "".join(text.itertext())


def span(text) -> tuple[float, float, float, float]:
    """Left, right, top and bottom of a line of text, with some allowance for the font."""
    style = dict(part.strip().split(": ") for part in text.get("style", "").split(";") if part)     # matplotlib's texts have one
    size, x, y = (float(n.removesuffix("px")) for n in (style.get("font-size") or text.get("font-size"), *map(text.get, "xy")))
    wide = width_of(words(text), size, "mono" in text.get("class", ""))
    before = wide * {"start": 0, "middle": 0.5, "end": 1}[style.get("text-anchor", text.get("text-anchor", "start"))]
    if text.get("transform", "").startswith("rotate(-90"):
        return x - 0.75 * size, x + 0.2 * size, y + before - wide, y + before
    return x - before, x - before + wide, y - 0.75 * size, y + 0.2 * size


def inside(root):
    """No text leaves the picture, or the box it stands in; neither boxes nor the labels between them overlap."""
    scaled = [float(g.get("transform")[6:-1]) for g in root if g.get("transform", "").startswith("scale(")]
    wide, tall = (length / (scaled or [1])[0] for length in size(root))
    for t in filter(lambda t: t.get("x"), root.iter(f"{SVG}text")):         # powers on matplotlib's axes have none
        left, right, top, bottom = span(t)
        assert left >= 0 and right <= wide and top >= 0 and bottom <= tall, (words(t), left, right, top, bottom)
    boxes = [g for kind in ("rank", "node") for g in of_class(root, kind) if g[0].tag == f"{SVG}rect"]
    for g in boxes:
        x0, x1, y0, y1 = corners(g[0])
        for t in g.iter(f"{SVG}text"):
            left, right, top, bottom = span(t)
            assert left >= x0 and right <= x1 and top >= y0 and bottom <= y1, (words(t), left, right, x0, x1)
    labels = [span(t) for t in of_class(root, "layout")]
    for left, right, top, bottom in labels:
        assert all(right <= x0 or left >= x1 or bottom <= y0 or top >= y1 for x0, x1, y0, y1 in (corners(g[0]) for g in boxes))
    for a, b in combinations(boxes, 2):
        (ax0, ax1, ay0, ay1), (bx0, bx1, by0, by1) = corners(a[0]), corners(b[0])
        assert ax1 <= bx0 or bx1 <= ax0 or ay1 <= by0 or by1 <= ay0, (texts(a), texts(b))


def corners(box) -> tuple[float, float, float, float]:
    x, y, wide, tall = (float(box.get(name)) for name in ("x", "y", "width", "height"))
    return x, x + wide, y, y + tall
