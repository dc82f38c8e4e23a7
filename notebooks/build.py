"""Builds what learners get: notebooks/NN_title.ipynb from notebooks/src/NN_title.py, the stubs exercises/eNN_*/exercise.py from
exercises/solutions/eNN.py, and the table in notebooks/README.md from the notebooks' first cells.

    python notebooks/build.py                        build all
    python notebooks/build.py 04 05                  only these chapters
    python notebooks/build.py --check                say what isn't up to date; exit code 1 if anything is
    python notebooks/build.py --solutions FOLDER     notebooks with the solutions in, elsewhere

Sources are Python with cells marked `# %%` (jupytext's py:percent). A notebook has no outputs, and ids of cells that follow from
their text, so that it can be compared. run.py runs notebooks, claims.py recomputes their numbers, pages.py renders them.
"""
import argparse
import re
import sys
from hashlib import blake2b
from pathlib import Path

import jupytext
import nbformat

from minispore.grade import exercise
from minispore.grade.exercise import BEGIN, END

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
MAGIC = re.compile(r"^(?:# )?!(?=%)", re.M)                 # written `# !%%ranks`, or jupytext would take it for a cell's mark
TASK = re.compile(r"%%exercise (e\d\d)\s*$")
CHECK = re.compile(r'check\("(e\d\d)"\)')
CLAIM = re.compile(r"<!--=.*?-->", re.S)
TABLE = re.compile(r"(<!-- chapters -->\n).*?(<!-- end of chapters -->)", re.S)
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
          "language_info": {"name": "python"}}
POINTS = 10
MINUTES = re.compile(r"(?i)\b(?:(\d+|twenty|thirty|forty|fifty) minutes|half an hour)\b")
IN_WORDS = {"twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", None: "30"}      # None: half an hour


def sources(numbers: list[str] | None = None) -> list[Path]:
    """The sources of these chapters ("04"), or of all. SystemExit if there is none of a number."""
    found = sorted(SOURCES.glob("[0-9][0-9]_*.py"))
    if unknown := sorted(set(numbers or ()) - {path.name[:2] for path in found}):
        raise SystemExit(f"there is no notebook {unknown[0]!r}. There are: {', '.join(path.name[:2] for path in found)}")
    return [path for path in found if not numbers or path.name[:2] in numbers]


def notebook(source: Path, solved: bool = False) -> nbformat.NotebookNode:
    """The notebook of a source: with stubs where exercises are, or solved with their solutions."""
    read = jupytext.reads(source.read_text("utf-8"), fmt="py:percent")
    book, ids = nbformat.v4.new_notebook(metadata=KERNEL), {}
    for cell in read.cells:
        text, tags = cell.source, cell.metadata.get("tags", [])
        if "exercise" in tags:
            tags = [*tags, "raises-exception"]          # so that "Run All" goes on behind a stub
        if cell.cell_type == "markdown":
            made = nbformat.v4.new_markdown_cell(CLAIM.sub("", text))
        else:
            made = nbformat.v4.new_code_cell(answer(MAGIC.sub("", text), solved))
        made.metadata = {"tags": tags, **nbgrader(made.source)} if tags else nbgrader(made.source)
        made.id = cell_id(source.name[:2], made, ids)
        book.cells.append(made)
    return book


def answer(text: str, solved: bool) -> str:
    """A cell's text; behind `%%exercise e05` the stub, or the solution."""
    found = TASK.match(text)
    if not found:
        return text
    task = exercise.find(found[1])
    solution = task.solution.read_text("utf-8")
    filled = "".join(line for line in solution.splitlines(True) if line.strip() not in (BEGIN, END))
    return f"{text.rstrip()}\n{(filled if solved else exercise.stub(solution)).rstrip()}"


def solve(book: nbformat.NotebookNode) -> None:
    """Put the solutions into a notebook's cells, as a learner would."""
    for cell in book.cells:
        first = cell.source.partition("\n")[0]
        if TASK.match(first):
            cell.source = answer(first, solved=True)


def nbgrader(text: str) -> dict:
    """What nbgrader wants to know of a cell with an answer, or with its check."""
    common = {"schema_version": 3, "task": False}
    if found := re.match(r"%%exercise (e\d\d)", text):
        return {"nbgrader": {**common, "grade": False, "solution": True, "locked": False, "grade_id": f"{found[1]}-answer"}}
    if found := CHECK.match(text):
        return {"nbgrader": {**common, "grade": True, "solution": False, "locked": True, "grade_id": f"{found[1]}-check",
                             "points": POINTS}}
    return {}


def cell_id(chapter: str, cell, seen: dict) -> str:
    """Of the cell's kind and text; for an answer and its check of the exercise's name, so that it stays when the text changes."""
    name = cell.metadata.get("nbgrader", {}).get("grade_id") or blake2b(f"{cell.cell_type} {cell.source}".encode(),
                                                                        digest_size=4).hexdigest()
    seen[name] = seen.get(name, 0) + 1
    return f"{chapter}-{name}" + (f"-{seen[name]}" if seen[name] > 1 else "")


def head(source: Path) -> tuple[str, str, str]:
    """(title, goal, minutes) from a source's first cell: `# 04 · Ring AllReduce`, `At the end you can …. About 40 minutes.`"""
    lines = jupytext.reads(source.read_text("utf-8"), fmt="py:percent").cells[0].source.split("\n")
    title = re.match(rf"# {source.name[:2]} · (.+)", lines[0])
    body = CLAIM.sub("", " ".join(" ".join(lines[1:]).split()))
    goal, minutes = re.search(r"\byou can (.*?)\.(?:\s|$)", body), MINUTES.search(body)
    if not title or not goal or not minutes:
        raise ValueError(f"{source.name}: the first cell must begin with `# {source.name[:2]} · Its title`, and then say `At the "
                         "end you can …. About 30 minutes.` It is:\n" + "\n".join(lines[:6]))
    time = minutes[1] and minutes[1].lower()
    return title[1], goal[1], IN_WORDS.get(time, time)


def index(text: str, chosen: list[Path]) -> str:
    """README.md's text with the table of chapters made anew."""
    rows = ["|  | chapter | at the end you can | time |", "|---|---|---|---|"]
    for source in chosen:
        title, goal, minutes = head(source)
        picture = HERE.parent / "docs" / "notebooks" / "screens" / f"{source.name[:2]}.png"
        shown = f'<img src="../docs/notebooks/screens/{picture.name}" width="220" alt="{title}">' if picture.exists() else ""
        links = f"[{source.name[:2]} · {title}]({source.stem}.ipynb)<br>[as a page](../docs/notebooks/{source.stem}.md)"
        rows.append(f"| {shown} | {links} | {goal} | {minutes} minutes |")
    table = "\n".join(rows)
    if not TABLE.search(text):
        raise ValueError("notebooks/README.md must have the lines `<!-- chapters -->` and `<!-- end of chapters -->`")
    return TABLE.sub(lambda m: f"{m[1]}{table}\n{m[2]}", text)


def products(chosen: list[Path]) -> dict[Path, str]:
    """What each built file must be: the notebooks of these sources, all stubs, the index."""
    made = {HERE / f"{source.stem}.ipynb": text_of(notebook(source)) for source in chosen}
    for task in exercise.exercises(HERE.parent / "exercises").values():
        made[task.stub] = exercise.stub(task.solution.read_text("utf-8"))
    readme = HERE / "README.md"
    return made | {readme: index(readme.read_text("utf-8"), sources())}


def text_of(book: nbformat.NotebookNode) -> str:
    """A notebook as it stands in its file. nbformat.ValidationError if it isn't one."""
    nbformat.validate(book)
    return nbformat.writes(book) + "\n"


def solved(chosen: list[Path], folder: Path) -> int:
    """Write notebooks with their solutions."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in chosen:
        (folder / f"{source.stem}.ipynb").write_text(text_of(notebook(source, solved=True)), "utf-8")
        print(f"built: {folder / source.stem}.ipynb, with solutions")
    return 0


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser("build.py", description="Build the notebooks, the stubs and the index.", allow_abbrev=False)
    p.add_argument("chapters", nargs="*", metavar="NN", help="only these notebooks, say 04 (all)")
    p.add_argument("--check", action="store_true", help="write nothing; say what isn't up to date")
    p.add_argument("--solutions", type=Path, metavar="FOLDER", help="write them there, with the solutions in")
    o = p.parse_args(argv)
    chosen = sources(o.chapters)
    if o.solutions:
        return solved(chosen, o.solutions)
    made = products(chosen)
    stale = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    orphans = set(HERE.glob("*.ipynb")) - {HERE / f"{source.stem}.ipynb" for source in sources()}
    for path in stale:
        if not o.check:
            path.write_text(made[path], "utf-8")
        print(f"{'not up to date' if o.check else 'built'}: {path.relative_to(HERE.parent)}")
    for path in sorted(orphans):
        print(f"has no source in notebooks/src: {path.relative_to(HERE.parent)}; remove it")
    if o.check and stale:
        print("run: python notebooks/build.py")
    return int(bool(orphans or (o.check and stale)))


if __name__ == "__main__":
    sys.exit(main())
