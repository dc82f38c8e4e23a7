"""A learner's own folder: the notebooks, the glossary and a stub for each exercise; and JupyterLab opened in it.

    minispore learn                 set up ./minispore-course (or add what is missing in it), open JupyterLab
    minispore learn --reset e05     the exercise as it was at the beginning; the answer is kept beside it

What a learner has changed is never overwritten. The material lies beside the package (a clone, an editable install) or where a
wheel has put it, `share/minispore`; grade/exercise.py finds it.
"""
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from minispore.grade import exercise

FOLDER = "minispore-course"
OURS = ".minispore"                     # in a course: what we wrote (written.json), and how to start JupyterLab
FIRST = "00_first_program.ipynb"
NEEDED = ("jupyterlab", "ipykernel", "ipywidgets", "matplotlib")         # modules of the extra `notebooks`
NOT_FOR_LEARNERS = re.compile(r"<!-- for readers of the repository -->.*?<!-- end -->\n*|<br>\[as a page\]\([^)]*\)", re.S)
LAB = {  # JupyterLab's own settings, for this course only
    "page_config.json": {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}},     # asks the network
    "default_setting_overrides.json": {
        "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}}},
}


class LearnError(Exception):
    """What is asked for can't be done; the text says why, and what to do."""


# ---- the material ------------------------------------------------------------------------------------

def material() -> dict[str, bytes]:
    """{file of a course: what is in it} as it is at the beginning. FileNotFoundError if the material isn't installed."""
    home = exercise.home().parent
    notebooks = home / "notebooks"
    if not (notebooks / FIRST).is_file():
        raise FileNotFoundError(f"the notebooks are not there, in {notebooks}; take a clone of minispore (and run python "
                                "notebooks/build.py in it), or install it again")
    index = NOT_FOR_LEARNERS.sub("", (notebooks / "README.md").read_text("utf-8"))
    files = {"README.md": index.replace("../docs/notebooks/screens/", "pictures/").encode(),
             "glossary.md": (home / "docs" / "glossary.md").read_bytes()}
    files |= {path.name: path.read_bytes() for path in sorted(notebooks.glob("??_*.ipynb"))}
    files |= {f"pictures/{path.name}": path.read_bytes() for path in sorted((home / "docs/notebooks/screens").glob("*.png"))}
    return files | {f"exercises/{task.name}.py": task.stub.read_bytes() for task in exercise.exercises().values()}


# ---- a course ----------------------------------------------------------------------------------------

def course(named: str | None) -> Path:
    """The folder that is meant: the one named, else the course we are in, else ./minispore-course.

    LearnError if it can't become a course.
    """
    here = Path.cwd()
    if named is None:
        folder = next((f for f in (here, *here.parents) if (f / OURS).is_dir()), here / FOLDER)
    else:
        folder = Path(named).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise LearnError(f"{folder} is a file; name a folder, or none for ./{FOLDER}")
    if folder.is_dir() and not (folder / OURS).is_dir() and any(folder.iterdir()):
        raise LearnError(f"{folder} has something else in it; name a new or empty folder, or a course that exists already")
    return folder


def set_up(folder: Path) -> list[str]:
    """Make a course, or add to one what is missing; lines that say what was done.

    A file that is still as we wrote it is brought up to date; one that the learner has changed or written stays.
    """
    new, written, said = material(), _written(folder), {"added": [], "brought up to date": [], "yours, kept": []}
    for name, data in new.items():
        path = folder / name
        if not path.exists():
            said["added"].append(name)
        elif path.read_bytes() == data:
            written[name] = _digest(data)
            continue
        elif _digest(path.read_bytes()) == written.get(name):
            said["brought up to date"].append(name)
        else:
            said["yours, kept"].append(name)
            continue
        _write(path, data)
        written[name] = _digest(data)
    _write(folder / OURS / "written.json", json.dumps(written, indent=1).encode())
    if len(said["added"]) == len(new):
        return [f"set up {folder}: {sum(name.endswith('.ipynb') for name in new)} notebooks, "
                f"{sum(name.startswith('exercises/') for name in new)} exercises"]
    return [f"{what}: {', '.join(names)}" for what, names in said.items() if names] or [f"{folder} is complete"]


def reset(folder: Path, name: str) -> list[str]:
    """Put an exercise back as it was, in exercises/ and in its notebook; lines that say what was done and where the answer is.

    ValueError lists the exercises if there is none of that name, LearnError if the folder is no course.
    """
    task = exercise.find(name)
    if not (folder / OURS).is_dir():
        raise LearnError(f"{folder} is no course; go into yours, or name it: minispore learn FOLDER --reset {task.name}")
    stub, path = task.stub.read_text("utf-8"), folder / "exercises" / f"{task.name}.py"
    new, answers = {path: stub.encode()}, [path.read_text("utf-8")] if path.is_file() else []
    for notebook in sorted(folder.glob("*.ipynb")):
        book = _read(notebook)
        cells = [cell for cell in book["cells"] if re.match(rf"%%exercise +{task.name}\b", _source(cell))]
        for cell in cells:
            answers.append(_source(cell).partition("\n")[2])
            text = f"%%exercise {task.name}\n{stub}".rstrip()
            cell |= {"source": text.splitlines(True), "outputs": [], "execution_count": None}
        if cells:
            new[notebook] = (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode()
    kept = []
    for answer in {text.strip(): text for text in answers if text.strip() and text.strip() != stub.strip()}.values():
        kept.append(_free(path.parent, f"{task.name}_{time.strftime('%Y-%m-%d')}"))
        _write(kept[-1], (answer.rstrip() + "\n").encode())       # before anything of it is overwritten
    for file, data in new.items():
        _write(file, data)
    said = [f"{task.label}: exercises/{path.name} is the stub again"]
    books = [file.name for file in new if file != path]
    said += [f"{name}: its cell too. If the notebook is open: File > Reload Notebook from Disk" for name in books]
    if not books:
        said.append(f"no notebook has a cell %%exercise {task.name}; `minispore learn` adds notebooks that are missing")
    return said + [f"your answer is in exercises/{file.name}" for file in kept]


def _free(folder: Path, stem: str) -> Path:
    """stem.py, or stem_2.py … if that is there."""
    names = (f"{stem}.py" if i == 1 else f"{stem}_{i}.py" for i in range(1, 10_000))
    return next(folder / name for name in names if not (folder / name).exists())


def _read(notebook: Path) -> dict:
    try:
        book = json.loads(notebook.read_text("utf-8"))
        if not isinstance(book, dict) or not isinstance(book.get("cells"), list):
            raise ValueError("it has no cells")
        return book
    except ValueError as e:
        raise LearnError(f"{notebook} can't be read as a notebook ({e}). Rename it; `minispore learn` writes it anew") from None


def _source(cell: dict) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def _write(path: Path, data: bytes) -> None:
    """Whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _written(folder: Path) -> dict[str, str]:
    """{file: digest of what we wrote}; empty for a new course, and where the list is lost: all is taken for the learner's."""
    try:
        written = json.loads((folder / OURS / "written.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}


# ---- JupyterLab --------------------------------------------------------------------------------------

def kernel(folder: Path) -> Path:
    """Write a kernel `python3` that is this very Python; for JUPYTER_PATH, where it comes before all others of that name."""
    argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    text = {"argv": argv, "display_name": "Python 3 (minispore)", "language": "python", "metadata": {"debugger": True}}
    _write(folder / "kernels" / "python3" / "kernel.json", json.dumps(text, indent=1).encode())
    return folder


def jupyter(folder: Path, browser: bool = True) -> tuple[list[str], dict[str, str]]:
    """(command, environment) that open JupyterLab in a course, with kernels of this Python. LearnError if it isn't installed."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise LearnError(f"the notebooks need {', '.join(missing)}, which this Python hasn't got. Install it with\n\n"
                         f"    {sys.executable} -m pip install 'minispore[notebooks]'\n\nand run minispore learn again. "
                         f"{folder} is set up; until then, `minispore grade` grades what is in its exercises/")
    ours = kernel(folder / OURS / "jupyter")
    for name, settings in LAB.items():
        _write(ours / "labconfig" / name, json.dumps(settings, indent=1).encode())
    first = f"/lab/tree/{FIRST}" if (folder / FIRST).exists() else "/lab"
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}", f"--LabApp.default_url={first}"]
    before = {name: os.pathsep.join(filter(None, (str(ours), os.environ.get(name)))) for name in ("JUPYTER_PATH",
                                                                                                  "JUPYTER_CONFIG_PATH")}
    before["PATH"] = os.pathsep.join(filter(None, (sysconfig.get_path("scripts"), os.environ.get("PATH"))))     # minispore, msrun
    root = hasattr(os, "geteuid") and os.geteuid() == 0         # in a container, mostly; it serves this machine only
    return command + ["--no-browser"] * (not browser) + ["--allow-root"] * root, os.environ | before


def main(folder: str | None, reset_name: str | None, browser: bool, setup_only: bool) -> int:
    """The command; its exit code. JupyterLab takes this process' place, where the system can do that."""
    try:
        where = course(folder)
        print(*(set_up(where) if reset_name is None else reset(where, reset_name)), sep="\n")
        if reset_name is not None or setup_only:
            return 0
        command, environment = jupyter(where, browser)
    except (LearnError, ValueError, OSError) as e:
        why = f"{e.filename} can't be written or read ({e.strerror})" if isinstance(e, OSError) and e.filename else e
        print(f"minispore learn: {why}", file=sys.stderr)
        return 1
    print(f"opening JupyterLab in {where}; Ctrl-C twice ends it", flush=True)
    if os.name == "nt":
        return subprocess.call(command, env=environment)
    os.execve(command[0], command, environment)
