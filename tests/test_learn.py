"""`minispore learn`: what is in a course, what of a learner's stays, an exercise's reset, and a wheel that brings all of it."""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from minispore import cli, learn
from minispore.grade import exercise

ROOT = Path(__file__).parents[1]
EXERCISES = exercise.exercises(ROOT / "exercises")
ANSWER = "def reduce_scatter(link, x, accumulate):\n    yield []    # mine\n"


@pytest.fixture(scope="session")
def fresh(tmp_path_factory):
    """A course as it is at the beginning; to be copied."""
    folder = tmp_path_factory.mktemp("fresh") / "course"
    assert cli.main(["learn", str(folder), "--setup-only"]) == 0
    return folder


@pytest.fixture
def course(fresh, tmp_path):
    return shutil.copytree(fresh, tmp_path / "course")


class Replaced(Exception):
    """JupyterLab would have taken this process' place."""


@pytest.fixture
def command(capsys, monkeypatch):
    """`minispore learn …` in this process: (exit code, stdout, stderr)."""
    def exec_instead(*arguments):
        raise Replaced(*arguments)
    monkeypatch.setattr(os, "execve", exec_instead)

    def run(*words):
        code = cli.main(["learn", *map(str, words)])
        return code, *capsys.readouterr()
    return run


def files(folder):
    """{name: its bytes} of a course, without what is ours."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(learn.OURS)}


def answer(course, text=ANSWER, book=None):
    """Write an answer to E5 into exercises/e05.py, and into the notebook's cell."""
    (course / "exercises/e05.py").write_text(text)
    path = course / "04_ring_all_reduce.ipynb"
    content = json.loads(path.read_text("utf-8"))
    cell_of(content)["source"] = f"%%exercise e05\n{book or text}"
    path.write_text(json.dumps(content), "utf-8")


def cell_of(content):
    return next(cell for cell in content["cells"] if "".join(cell["source"]).startswith("%%exercise e05"))


def source(course):
    """What is below `%%exercise e05` in the notebook."""
    return "".join(cell_of(json.loads((course / "04_ring_all_reduce.ipynb").read_text("utf-8")))["source"]).partition("\n")[2]


# ---- what is in a course -----------------------------------------------------------------------------

def test_a_course_has_all_notebooks_and_a_stub_for_each_exercise(fresh):
    there = files(fresh)
    notebooks = {path.name for path in (ROOT / "notebooks").glob("??_*.ipynb")}
    pictures = {f"pictures/{path.name}" for path in (ROOT / "docs/notebooks/screens").glob("*.png")}
    assert len(notebooks) >= 8
    assert set(there) == notebooks | pictures | {f"exercises/{name}.py" for name in EXERCISES} | {"README.md", "glossary.md"}
    assert all(there[f"exercises/{name}.py"].decode() == exercise.stub(task.solution.read_text("utf-8"))
               for name, task in EXERCISES.items())


def test_no_solution_and_no_wrong_answer_is_in_a_course(fresh):
    text = "\n".join(data.decode() for name, data in files(fresh).items() if not name.endswith(".png"))
    assert exercise.BEGIN not in text and "Rejected by test_" not in text
    for task in EXERCISES.values():
        blocks = re.findall(f"{exercise.BEGIN}\n(.*?) *{exercise.END}", task.solution.read_text("utf-8"), re.S)
        assert blocks
        for block in blocks:
            as_in_a_notebook = "\\n\",\n    \"".join(line.replace('"', '\\"') for line in block.splitlines())
            assert block not in text and as_in_a_notebook not in text, task.name


def test_links_and_pictures_of_the_course_s_readme_lead_to_files_in_it(fresh):
    text = (fresh / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)|src=\"([^\"]+)\"", text)
    assert len(links) >= 8 and all((fresh / (link or picture)).is_file() for link, picture in links)
    assert "make learn" not in text and "claims.py" not in text     # what is for readers of the repository


def test_without_a_folder_it_is_minispore_course(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    code, out, _ = command("--setup-only")
    books = len(list((ROOT / "notebooks").glob("??_*.ipynb")))
    assert code == 0 and out == f"set up {tmp_path / 'minispore-course'}: {books} notebooks, {len(EXERCISES)} exercises\n"
    assert (tmp_path / "minispore-course/exercises/e05.py").is_file()


def test_inside_a_course_it_is_that_course(course, monkeypatch, command):
    monkeypatch.chdir(course / "exercises")
    assert command("--setup-only") == (0, f"{course} is complete\n", "")
    assert not (course / "exercises" / learn.FOLDER).exists()


def test_an_empty_folder_becomes_a_course(tmp_path, command):
    (tmp_path / "mine").mkdir()
    code, out, _ = command(tmp_path / "mine", "--setup-only")
    assert code == 0 and out.startswith("set up") and (tmp_path / "mine" / learn.FIRST).is_file()


# ---- a second time -----------------------------------------------------------------------------------

def test_a_second_time_nothing_changes(course, command):
    before = files(course)
    assert command(course, "--setup-only") == (0, f"{course} is complete\n", "")
    assert files(course) == before


def test_a_learner_s_work_is_kept(course, command):
    answer(course)
    (course / "notes.md").write_text("mine")
    before = files(course)
    code, out, _ = command(course, "--setup-only")
    assert code == 0 and out == "yours, kept: 04_ring_all_reduce.ipynb, exercises/e05.py\n"
    assert files(course) == before


def test_what_is_missing_is_added(course, fresh, command):
    (course / "exercises/e05.py").unlink()
    (course / learn.FIRST).unlink()
    code, out, _ = command(course, "--setup-only")
    assert code == 0 and out == f"added: {learn.FIRST}, exercises/e05.py\n" and files(course) == files(fresh)


def test_an_old_file_that_nobody_has_changed_is_brought_up_to_date(course, fresh, command):
    old, written = b"as it was in an older version", json.loads((course / learn.OURS / "written.json").read_text())
    for name in ("glossary.md", "exercises/e05.py"):
        (course / name).write_bytes(old)
    written["glossary.md"] = learn._digest(old)
    (course / learn.OURS / "written.json").write_text(json.dumps(written))
    code, out, _ = command(course, "--setup-only")
    assert code == 0 and out == "brought up to date: glossary.md\nyours, kept: exercises/e05.py\n"
    assert (course / "glossary.md").read_bytes() == files(fresh)["glossary.md"]


@pytest.mark.parametrize("text", [None, "", "{", "[]", '"e05"'])
def test_without_the_list_of_what_was_written_all_that_differs_is_the_learner_s(course, command, text):
    answer(course)
    (course / learn.OURS / "written.json").unlink()
    if text is not None:
        (course / learn.OURS / "written.json").write_text(text)
    code, out, _ = command(course, "--setup-only")
    assert code == 0 and out.startswith("yours, kept: ") and (course / "exercises/e05.py").read_text() == ANSWER


# ---- reset -------------------------------------------------------------------------------------------

def test_reset_gives_back_the_stub_and_keeps_the_answer(course, fresh, command):
    answer(course)
    code, out, _ = command(course, "--reset", "e05")
    (kept,) = (course / "exercises").glob("e05_*.py")
    assert code == 0 and f"your answer is in exercises/{kept.name}" in out and kept.read_text() == ANSWER
    assert (course / "exercises/e05.py").read_bytes() == files(fresh)["exercises/e05.py"] and source(course) == source(fresh)


def test_reset_keeps_both_answers_where_file_and_notebook_differ(course, command):
    answer(course, book="in_the_notebook = 1\n")
    assert command(course, "--reset", "e05")[0] == 0
    assert {path.read_text() for path in (course / "exercises").glob("e05_*.py")} == {ANSWER, "in_the_notebook = 1\n"}


def test_a_second_reset_keeps_the_first_answer(course, command):
    for text in ("first = 1\n", "second = 2\n"):
        answer(course, text)
        assert command(course, "--reset", "5")[0] == 0
    assert {path.read_text() for path in (course / "exercises").glob("e05_*.py")} == {"first = 1\n", "second = 2\n"}


def test_reset_keeps_no_copy_of_a_stub(course, command):
    code, out, _ = command(course, "--reset", "E5")
    assert code == 0 and "your answer" not in out and not list((course / "exercises").glob("e05_*.py"))


def test_reset_touches_nothing_else(course, fresh, command):
    (course / "exercises/e06.py").write_text("mine = 6\n")
    command(course, "--reset", "e05")
    changed = {name for name, data in files(course).items() if files(fresh).get(name) != data}
    assert changed <= {"exercises/e06.py", "04_ring_all_reduce.ipynb"} and source(course) == source(fresh)
    assert (course / "exercises/e06.py").read_text() == "mine = 6\n"


def test_reset_brings_back_a_file_that_is_gone(course, fresh, command):
    (course / "exercises/e05.py").unlink()
    assert command(course, "--reset", "e05")[0] == 0
    assert (course / "exercises/e05.py").read_bytes() == files(fresh)["exercises/e05.py"]


def test_reset_says_where_the_cell_is_missing(course, command):
    (course / "04_ring_all_reduce.ipynb").unlink()
    code, out, _ = command(course, "--reset", "e05")
    assert code == 0 and "no notebook has a cell %%exercise e05" in out


@pytest.mark.parametrize("text", ["{", "[]", '{"cells": 3}'])
def test_a_notebook_that_is_broken_costs_no_answer(course, command, text):
    answer(course)
    (course / "04_ring_all_reduce.ipynb").write_text(text)
    code, _, err = command(course, "--reset", "e05")
    assert code == 1 and "04_ring_all_reduce.ipynb can't be read as a notebook" in err
    assert ANSWER in [path.read_text() for path in (course / "exercises").glob("e05*.py")]


# ---- what can't be done ------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["e99", "E", "", "../e05", "e05.py"])
def test_an_exercise_that_is_not_there(course, fresh, command, name):
    code, out, err = command(course, "--reset", name)
    assert (code, out) == (1, "") and f"there is no exercise {name!r}" in err and "There are: e01, e02" in err
    assert files(course) == files(fresh)


def test_a_reset_where_there_is_no_course(tmp_path, command):
    code, out, err = command(tmp_path / "none", "--reset", "e05")
    assert (code, out) == (1, "") and f"{tmp_path / 'none'} is no course" in err and not list(tmp_path.iterdir())


def test_a_folder_that_is_a_file(tmp_path, command):
    (tmp_path / "mine").write_text("text")
    code, out, err = command(tmp_path / "mine", "--setup-only")
    assert (code, out) == (1, "") and f"{tmp_path / 'mine'} is a file; name a folder" in err
    assert (tmp_path / "mine").read_text() == "text"


def test_a_folder_below_a_file(tmp_path, command):
    (tmp_path / "mine").write_text("text")
    code, out, err = command(tmp_path / "mine" / "course", "--setup-only")
    assert (code, out) == (1, "") and str(tmp_path / "mine") in err and "Errno" not in err


def test_a_folder_with_something_else_in_it(tmp_path, command):
    (tmp_path / "thesis.tex").write_text("text")
    code, out, err = command(tmp_path, "--setup-only")
    assert (code, out) == (1, "") and f"{tmp_path} has something else in it" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_may_not_be_written(course, command):
    (course / "exercises/e05.py").unlink()
    folders = [course, course / "exercises", course / learn.OURS]
    for folder in folders:
        folder.chmod(0o555)
    try:
        if os.access(course, os.W_OK):
            pytest.skip("this user may write everywhere")
        code, out, err = command(course, "--setup-only")
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert (code, out) == (1, "") and f"{course}" in err and "can't be written" in err and "Permission denied" in err


def test_jupyterlab_is_missing(tmp_path, monkeypatch, command):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("jupyterlab", "ipywidgets") else found(name))
    code, out, err = command(tmp_path / "course")
    assert code == 1 and out.startswith("set up") and "the notebooks need jupyterlab, ipywidgets" in err
    assert f"{sys.executable} -m pip install 'minispore[notebooks]'" in err
    assert command(tmp_path / "course", "--setup-only")[0] == 0         # which needs none of them


def test_the_material_is_missing(tmp_path, monkeypatch, command):
    monkeypatch.setattr(exercise, "home", lambda: tmp_path / "exercises")
    code, out, err = command(tmp_path / "course", "--setup-only")
    assert (code, out) == (1, "") and f"the notebooks are not there, in {tmp_path / 'notebooks'}" in err


# ---- JupyterLab, and the grader ----------------------------------------------------------------------

@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in learn.NEEDED), reason="takes the extra `notebooks`")
@pytest.mark.skipif(os.name == "nt", reason="there a process can't be replaced")
def test_jupyterlab_opens_the_first_notebook_with_kernels_of_this_python(course, command, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", "theirs")
    with pytest.raises(Replaced) as e:
        command(course, "--no-browser")
    program, words, environment = e.value.args
    assert program == sys.executable and words[:3] == [sys.executable, "-m", "jupyterlab"] and "--no-browser" in words
    assert f"--ServerApp.root_dir={course}" in words and f"--LabApp.default_url=/lab/tree/{learn.FIRST}" in words
    ours, theirs = environment["JUPYTER_PATH"].split(os.pathsep)
    assert theirs == "theirs" and json.loads(Path(ours, "kernels/python3/kernel.json").read_text())["argv"][0] == sys.executable
    assert "--no-browser" not in learn.jupyter(course)[0]


def test_grade_inside_a_course_takes_its_exercises(course):
    shutil.copy(EXERCISES["e02"].solution, course / "exercises/e02.py")
    grade = [sys.executable, "-m", "minispore.cli", "grade", "e02"]
    done = subprocess.run(grade, cwd=course / "exercises", capture_output=True, text=True, timeout=60,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "10 of 10" in done.stdout, done.stdout + done.stderr


# ---- a wheel -----------------------------------------------------------------------------------------

def test_the_wheel_s_list_is_what_a_course_needs():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["data-files"]
    assert {folder.removeprefix("share/minispore/"): patterns for folder, patterns in listed.items()} == {
        "notebooks": ["notebooks/*.ipynb", "notebooks/README.md"], "docs": ["docs/glossary.md"],
        "docs/notebooks/screens": ["docs/notebooks/screens/*.png"],
        **{f"exercises/{task.folder.name}": [f"exercises/{task.folder.name}/*.*"] for task in EXERCISES.values()}}
    for task in EXERCISES.values():
        assert {path.name for path in task.folder.glob("*.*")} == {"exercise.py", "hints.md", f"test_{task.name}.py"}


@pytest.mark.slow
def test_a_course_from_a_wheel_is_the_one_from_a_clone(fresh, tmp_path):
    belongs = subprocess.run(["git", "-C", ROOT, "ls-files", "-zco", "--exclude-standard"], capture_output=True, text=True)
    if belongs.returncode:
        pytest.skip("takes a clone, to tell what belongs to it")
    for name in filter(lambda name: (ROOT / name).is_file(), belongs.stdout.split("\0")):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "src" / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", "wheels", "./src"]
    made = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    if made.returncode and re.search("No module named pip|Cannot import 'setuptools|bdist_wheel", made.stdout + made.stderr):
        pytest.skip("takes pip and setuptools >= 70.1, to build a wheel without a network")
    assert made.returncode == 0, made.stderr
    (wheel,) = (tmp_path / "wheels").glob("minispore-*.whl")
    into = [*pip, "install", "--no-index", "--no-deps", "--no-compile", "--target", "installed", wheel]
    subprocess.run(into, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert not any("solution" in path.name or path.name == "wrong" for path in (tmp_path / "installed/share").rglob("*"))
    done = subprocess.run([sys.executable, "-m", "minispore.cli", "learn", "course", "--setup-only"], cwd=tmp_path, timeout=60,
                          capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")})
    assert done.returncode == 0, done.stderr
    assert files(tmp_path / "course") == files(fresh)


def test_commands_are_on_the_path_of_jupyterlab(tmp_path):
    _, environment = learn.jupyter(tmp_path, browser=False)
    done = subprocess.run(["minispore", "--version"], env={"PATH": environment["PATH"]}, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and done.stdout.startswith("minispore ")
