"""Where exercises lie, what belongs to one, and the stub that a learner begins with.

    exercises/e05_reduce_scatter/test_e05.py    its tests      exercises/e05_reduce_scatter/hints.md   from gentle to nearly there
    exercises/e05_reduce_scatter/exercise.py    its stub, which `stub` makes of exercises/solutions/e05.py
    exercises/wrong/e05_*.py                    answers with mistakes that learners make, each to be rejected

A learner's own folder (minispore learn) has exercises/e05.py.
"""
import ast
import difflib
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
NAME = re.compile(r"e\d\d")


@dataclass(frozen=True)
class Test:
    """One test of an exercise: its function's name, what it is about, the points it is worth, and the hint that helps."""
    name: str
    about: str
    worth: float
    hint: int


@dataclass(frozen=True)
class Exercise:
    """name: "e05"; folder: of its tests, hints and stub."""
    name: str
    folder: Path

    @property
    def label(self) -> str:
        """How it is called in texts.

        >>> Exercise("e05", Path("exercises/e05_reduce_scatter")).label
        'E5'
        """
        return f"E{int(self.name[1:])}"

    @property
    def title(self) -> str:
        """What it is about, in words, from the folder's name."""
        return self.folder.name[len(self.name) + 1:].replace("_", " ")

    @property
    def tests(self) -> Path:
        return self.folder / f"test_{self.name}.py"

    @property
    def stub(self) -> Path:
        return self.folder / "exercise.py"

    @property
    def solution(self) -> Path:
        return self.folder.parent / "solutions" / f"{self.name}.py"

    @property
    def wrong(self) -> list[Path]:
        return sorted((self.folder.parent / "wrong").glob(f"{self.name}_*.py"))

    def listed(self) -> list[Test]:
        """Its tests, in order, read and not run: what stands in @points(…) must be numbers. SyntaxError, ValueError else."""
        return [_listed(node, mark) for node in ast.parse(self.tests.read_text("utf-8")).body
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
                for mark in node.decorator_list if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "points"]

    def seconds(self) -> float:
        """What its tests ask for with a line `SECONDS = 8`, if they need longer than others; 0 if they don't."""
        found = re.search(r"^SECONDS = ([\d.]+)", self.tests.read_text("utf-8"), re.M)
        return float(found[1]) if found else 0.0

    def hints(self) -> list[str]:
        """The texts below `## Hint 1`, `## Hint 2`, … of hints.md."""
        path = self.folder / "hints.md"
        if not path.is_file():
            return []
        return [part.strip() for part in re.split(r"^## Hint \d+.*$", path.read_text("utf-8"), flags=re.M)[1:]]


def _listed(node: ast.FunctionDef, mark: ast.Call) -> Test:
    given = dict(zip(("worth", "hint"), map(ast.literal_eval, mark.args), strict=False))
    given |= {named.arg: ast.literal_eval(named.value) for named in mark.keywords}
    about = (ast.get_docstring(node) or node.name.removeprefix("test_").replace("_", " ")).split("\n")[0]
    return Test(node.name, about.rstrip("."), given["worth"], given.get("hint", 1))


def home() -> Path:
    """The folder of all exercises: beside the package (a clone), or where a wheel has put them. FileNotFoundError else."""
    beside = Path(__file__).parents[2]                              # of the package; there with pip's --target, too
    data = [sysconfig.get_path("data"), sysconfig.get_path("data", sysconfig.get_preferred_scheme("user")), beside]
    places = [beside / "exercises", *(Path(prefix, "share", "minispore", "exercises") for prefix in data)]
    for place in places:
        if any(place.glob("e??_*/test_e??.py")):
            return place
    raise FileNotFoundError(f"the exercises are not there, neither in {places[0]} nor in {places[1]}; take a clone of minispore, "
                            "or install it again")


def exercises(folder: Path | None = None) -> dict[str, Exercise]:
    """All exercises of a folder (home()), by name, in order."""
    found = (path.parent for path in (folder or home()).glob("e??_*/test_e??.py"))
    return {path.name[:3]: Exercise(path.name[:3], path) for path in sorted(found) if NAME.match(path.name)}


def find(name: str) -> Exercise:
    """The exercise of this name ("e05", also "E5" or "5"). ValueError that lists those there are."""
    known = exercises()
    number = re.fullmatch(r"[eE]?0*(\d{1,2})", str(name).strip())
    wanted = f"e{int(number[1]):02}" if number else str(name)
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, 1)
        raise ValueError(f"there is no exercise {name!r}{f'; near: {near[0]}' if near else ''}. There are: {', '.join(known)}")
    return known[wanted]


# ---- a learner's folder ------------------------------------------------------------------------------

def learner_folder(start: Path | None = None) -> Path:
    """The exercises/ with e01.py … in the current folder or one above. FileNotFoundError that says how to get one."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if learner_files(folder / "exercises"):
            return folder / "exercises"
    raise FileNotFoundError(f"there is no exercises/e01.py …, neither in {start} nor in a folder above it. `minispore learn` "
                            "makes a folder with notebooks and exercises; work in there, or name the file")


def learner_files(folder: Path) -> dict[str, Path]:
    """The files e01.py … of a learner, by the exercise's name."""
    return {path.stem: path for path in sorted(folder.glob("e??.py")) if NAME.fullmatch(path.stem)}


# ---- stubs -------------------------------------------------------------------------------------------

def stub(text: str) -> str:
    """A solution's text without its answer: what stands between `### BEGIN SOLUTION` and `### END SOLUTION` becomes an error
    that names the task. ValueError if a mark has no partner, or nothing is marked.

    >>> print(stub('''def double(x):
    ...     ### BEGIN SOLUTION
    ...     return 2 * x
    ...     ### END SOLUTION
    ... ''').rstrip())
    def double(x):
        raise NotImplementedError("write double(x), see above")
    """
    label = re.search(r"\bE\d+\b", (ast.get_docstring(ast.parse(text)) or "").split("\n")[0])
    out, begun = [], None
    for number, line in enumerate(text.splitlines(), 1):
        mark = line.strip()
        if mark == BEGIN and begun is None:
            begun = number
            if what := _signature(text, number):
                task = f"{label[0]}: {what}" if label else what
                out.append(f'{line[:line.index("#")]}raise NotImplementedError("{task}")')
        elif mark == END and begun is not None:
            begun = None
        elif mark in (BEGIN, END):
            raise ValueError(f"line {number}: {mark} has no partner")
        elif begun is None:
            out.append(line)
    if begun is not None:
        raise ValueError(f"line {begun}: {BEGIN} has no partner")
    if BEGIN not in text:
        raise ValueError(f"nothing is marked with {BEGIN} and {END}")
    return "\n".join(out) + "\n"


def _signature(text: str, line: int) -> str:
    """"write name(arguments), see above" of the innermost function around a line; "" if it is in none."""
    around = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
              and node.lineno < line <= node.end_lineno]
    if not around:
        return ""
    node = max(around, key=lambda node: node.lineno)
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
    return f"write {node.name}({', '.join(names)}), see above"
