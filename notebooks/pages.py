"""Writes docs/notebooks/NN_title.md, for readers without a kernel: text, code, what came out, and pictures as files in a folder
of the same name. Notebooks run in full, with the solutions in; an exercise's cell is shown as learners get it.

    python notebooks/pages.py 04           write the page of chapter 04 (without a number: of all)
    python notebooks/pages.py --check      say which pages' text or code isn't the source's any more; runs nothing

What came out stands between two comments, so a page can be compared with its source without them.
"""
import argparse
import html
import re
import shutil
import sys
import tempfile
from base64 import b64decode
from pathlib import Path

import build
import run as runner

PAGES = build.HERE.parent / "docs" / "notebooks"
OUT = "<!-- out -->\n", "<!-- end of out -->\n\n"
OUTPUTS = re.compile(re.escape(OUT[0]) + ".*?" + re.escape(OUT[1].rstrip()) + "\n{1,2}", re.S)       # at the end of a page, one
WIDGETS = "application/vnd.jupyter.widget-view+json"
HEAD = """<!-- Made by notebooks/pages.py of notebooks/src/{stem}.py: change that. -->
*A page of the [course](../../notebooks/README.md). The same [as a notebook](../../notebooks/{stem}.ipynb), to run and to change;
`make learn` opens all of them.*

"""
SOLVED = "*Below, [a solution](../../exercises/solutions/{name}.py) has been put in.*\n\n"


class Pictures:
    """The picture files of one page: {name: bytes}, numbered as they come."""

    def __init__(self, stem: str):
        self.stem, self.files = stem, {}

    def add(self, data: bytes, kind: str, alt: str) -> str:
        """Markdown that shows it."""
        name = f"{len(self.files) + 1:02}.{kind}"
        self.files[name] = data
        return f'<img src="{self.stem}/{name}" alt="{html.escape(alt)}">\n\n'


def page(source: Path, book, pictures: Pictures | None = None) -> str:
    """A notebook as markdown. The text and code are the source's; the outputs, if there are any, `book`'s."""
    out = [HEAD.format(stem=source.stem)]
    for cell, ran in zip(build.notebook(source).cells, book.cells, strict=True):
        if cell.cell_type == "markdown":
            out.append(links(cell.source.strip()) + "\n\n")
            continue
        out.append(fenced(cell.source, "python"))
        if task := build.TASK.match(cell.source.partition("\n")[0]):
            out.append(SOLVED.format(name=task[1]))
        if shown := "".join(output_text(output, pictures) for output in merged(ran.outputs)):
            out.append(f"{OUT[0]}\n{shown}{OUT[1]}")
    return "".join(out).rstrip() + "\n"


def links(text: str) -> str:
    """Links of a notebook, as they must be on a page."""
    text = re.sub(r"\]\((\d\d_\w+)\.ipynb", r"](\1.md", text)
    return re.sub(r"\]\(glossary\.md", "](../glossary.md", text)


def fenced(text: str, language: str) -> str:
    """A block of code, whatever backticks are in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    lines = "\n".join(map(str.rstrip, text.rstrip().split("\n")))
    return f"{fence}{language}\n{lines}\n{fence}\n\n"


def merged(outputs: list) -> list:
    """With pieces of text that follow one another as one."""
    out = []
    for output in outputs:
        if out and output.output_type == out[-1].output_type == "stream":
            out[-1].text += output.text
        else:
            out.append(output.copy())
    return out


def output_text(output, pictures: Pictures) -> str:
    """One output as markdown; "" for the controls of a widget."""
    if output.output_type == "stream":
        lines = (line.rpartition("\r")[2] for line in plain(output.text).rstrip().replace("\r\n", "\n").split("\n"))
        return fenced("\n".join(lines), "text")
    if output.output_type == "error":
        return fenced(plain("\n".join(output.traceback)), "text")
    data = output.data
    if WIDGETS in data:
        return ""
    if "image/svg+xml" in data:
        svg = data["image/svg+xml"]
        return pictures.add(plain(svg).encode(), "svg", ": ".join(described(svg)))
    if "image/png" in data:
        return pictures.add(b64decode(data["image/png"]), "png", plain(data.get("text/plain", "a picture")))
    if "text/markdown" in data:
        return links(plain(data["text/markdown"]).strip()) + "\n\n"
    text, page = data.get("text/plain", ""), data.get("text/html", "")
    if "ms-grade" in page or (page and text.startswith("<")):       # a grade, of which the text is a number; an HTML object
        text = html_text(page)
    return fenced(plain(text), "text") if text.strip() else ""


def html_text(page: str) -> str:
    """What is to be read in it, a line a block."""
    page = re.sub(r"<style.*?</style>", "", page, flags=re.S)
    page = re.sub(r"<(?:div|pre|p|tr|h\d|br)\b[^>]*>", "\n", page)
    text = html.unescape(re.sub(r"<(?:span|em|td|th)\b[^>]*>", "  ", page))
    lines = re.sub(r"<[^>]+>", "", text).split("\n")
    return "\n".join(line.strip() for line in lines if line.strip())


def described(svg: str) -> list[str]:
    """A drawing's title and description, in words."""
    found = (re.search(rf"<{tag}\b[^>]*>(.*?)</{tag}>", svg, re.S) for tag in ("title", "desc"))
    return [html.unescape(" ".join(match[1].split())) for match in found if match] or ["a picture"]


def plain(text: str) -> str:
    """Without colours, and without this machine's paths."""
    text = runner.COLOURS.sub("", text)
    for path, instead in ((f"{runner.ROOT}/", ""), (sys.prefix, ".venv"), (sys.base_prefix, "/usr"), (str(Path.home()), "~")):
        text = text.replace(path, instead)
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/[\w./-]*?(?=[\w.-]+(?:[^\w./-]|$))", "", text)


def write(source: Path) -> runner.Ran:
    """Run a notebook and write its page and pictures. Nothing is written if a cell fails."""
    with tempfile.TemporaryDirectory(prefix="minispore-learner-") as folder:
        ran = runner.run(runner.furnish(Path(folder), source, solved=True), Path(folder), solved=True)
    if ran.failed or ran.left:
        return ran
    pictures = Pictures(source.stem)
    text = page(source, ran.book, pictures)
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / f"{source.stem}.md").write_text(text, "utf-8")
    shutil.rmtree(PAGES / source.stem, ignore_errors=True)
    for name, data in pictures.files.items():
        (PAGES / source.stem).mkdir(exist_ok=True)
        (PAGES / source.stem / name).write_bytes(data)
    return ran


def faults(source: Path) -> list[str]:
    """What isn't up to date with a source: its page's text or code, or pictures that are missing or too many."""
    path = PAGES / f"{source.stem}.md"
    if not path.exists():
        return [f"{path.relative_to(runner.ROOT)} is not there"]
    text = path.read_text("utf-8")
    named = set(re.findall(rf'<img src="{source.stem}/([^"]+)"', text))
    there = {picture.name for picture in (PAGES / source.stem).glob("*")}
    wanted = page(source, build.notebook(source))
    got = OUTPUTS.sub("", text).rstrip() + "\n"
    out = []
    if got != wanted:
        pairs = zip(got.split("\n"), [*wanted.split("\n"), ""], strict=False)
        first = next((f"the page has {a!r}, the source {b!r}" for a, b in pairs if a != b), "the page is longer")
        out.append(f"{path.relative_to(runner.ROOT)} isn't up to date with its source: {first}")
    out += [f"{path.relative_to(runner.ROOT)}: the picture {name} is missing" for name in sorted(named - there)]
    return out + [f"{(PAGES / source.stem / name).relative_to(runner.ROOT)} is in no page" for name in sorted(there - named)]


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser("pages.py", description="Write the notebooks' pages, with what comes out.", allow_abbrev=False)
    p.add_argument("chapters", nargs="*", metavar="NN", help="which, say 04 (all)")
    p.add_argument("--check", action="store_true", help="write nothing, run nothing; say what isn't up to date")
    o = p.parse_args(argv)
    bad = False
    for source in build.sources(o.chapters):
        if o.check:
            found = faults(source)
            print(*found, sep="\n", end="\n" * bool(found))
            bad = bad or bool(found)
        else:
            ran = write(source)
            wrong = bool(ran.failed or ran.left)
            print(f"{source.stem}:", f"not written\n{ran}" if wrong else f"written after {ran.seconds:.1f} s", flush=True)
            bad = bad or wrong
    if o.check and bad:
        print("run: python notebooks/pages.py NN")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
