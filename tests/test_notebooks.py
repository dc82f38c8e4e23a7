"""The course: built files are up to date, its numbers are right, and every notebook of a learner's folder runs to its end.

In the normal suite each notebook runs once, with solutions in and MINISPORE_FAST=1; the slow tests run it as learners get it, and
in full. None has a network, and no process may be left.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import build
import claims
import nbformat
import pages
import pytest
import run as runner

ROOT = Path(__file__).parents[1]
CHAPTERS = [source.stem for source in build.sources()]
CELL, NOTEBOOK = 30, 60            # seconds: a cell's time-out, and what a notebook may take in full


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A learner's folder, as the command makes it."""
    folder = tmp_path_factory.mktemp("learner") / "course"
    command = [sys.executable, "-m", "minispore.cli", "learn", str(folder), "--setup-only"]
    subprocess.run(command, check=True, timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return folder


@pytest.fixture(scope="module")
def times(request):
    """{chapter: what came of it}, printed when all are through."""
    seen = {}
    yield seen
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        for name, ran in seen.items():
            slowest = max(ran.cells, key=lambda cell: cell.seconds)
            print(f"\n{name:<34}{ran.seconds:6.1f} s, slowest cell {slowest.seconds:5.1f} s: {slowest.first_line[:50]}", end="")
        print(f"\n{'all notebooks':<34}{sum(ran.seconds for ran in seen.values()):6.1f} s")


def run(course, name, tmp_path, solved, quick):
    """Run a notebook in a copy of the course, with its solutions in if `solved`."""
    folder = shutil.copytree(course, tmp_path / "course")
    book = nbformat.read(folder / f"{name}.ipynb", as_version=4)
    if solved:
        build.solve(book)
    return runner.run(book, folder, quick=quick, cell_timeout=CELL, solved=solved)


def grades(ran):
    """{exercise: (points, of)} as the cards of the check cells show them."""
    out = {}
    for cell in ran.book.cells:
        if found := build.CHECK.match(cell.source):
            shown = " ".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
            out[found[1]] = tuple(map(float, re.search(r"([\d.]+) of ([\d.]+) points", shown).groups())) if shown else None
    return out


def exercises_of(name):
    return re.findall(r"^%%exercise (e\d\d)", "\n".join(cell.source for cell in build.notebook(source_of(name)).cells), re.M)


def source_of(name):
    return build.SOURCES / f"{name}.py"


# ---- built files and text ----------------------------------------------------------------------------

def test_built_files_are_up_to_date(capsys):
    assert build.main(["--check"]) == 0, capsys.readouterr().out


def test_pages_are_up_to_date(capsys):
    assert pages.main(["--check"]) == 0, capsys.readouterr().out
    size = sum(path.stat().st_size for path in pages.PAGES.rglob("*"))
    assert size < 6e6, f"{size:,} bytes of pages and pictures"


def test_the_index_shows_every_chapter():
    index = (ROOT / "notebooks" / "README.md").read_text("utf-8")
    shown = re.findall(r'<img src="\.\./(docs/notebooks/screens/\d\d\.png)" width="220" alt="[^"]+">.*\((\w+)\.ipynb\)', index)
    assert [chapter for _, chapter in shown] == CHAPTERS and all((ROOT / picture).is_file() for picture, _ in shown)


@pytest.mark.parametrize("last", ["# %%\nprint('last')", "# %% [markdown]\n# **last**"])
def test_a_page_is_compared_without_what_came_out(tmp_path, monkeypatch, last):
    source = tmp_path / "99_short.py"
    source.write_text(f"# %% [markdown]\n# # 99 · Short\n\n# %%\nprint(1)\n\n{last}\n")
    book = build.notebook(source)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("stream", text="what came\n")]
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    (tmp_path / "99_short.md").write_text(pages.page(source, book))
    assert pages.faults(source) == [] and (tmp_path / "99_short.md").read_text().count("what came") == 1 + ("print" in last)
    source.write_text(source.read_text().replace("print(1)", "print(2)"))
    (fault,) = pages.faults(source)
    assert "the page has 'print(1)', the source 'print(2)'" in fault


def test_numbers_in_the_text():
    found, known = claims.check()
    assert not found, "\n".join(map(str, found))
    assert known > 50


@pytest.mark.parametrize(("text", "wrong"), [
    ("a ring sends 24<!--= 2*4*3 --> messages", ""),
    ("a ring sends 25<!--= 2*4*3 --> messages", "2*4*3 gives 24"),
    ("a ring sends 25 messages", "without a claim"),
    ("a third is 0.33<!--= 1/3 -->", ""),
    ("a third is 0.34<!--= 1/3 -->", "1/3 gives 0.333"),
    ("1,048,576 bytes<!--= 2**20 --> and 8 MB<!--= 8 -->", ""),
    ("1,048,575 bytes<!--= 2**20 -->", "gives 1,048,576"),
    ("10.0<!--= 10 -->%, 50%<!--= 100/2 -->, **12**<!--= 12 -->", ""),
    ("64KB fit", "without a claim"), ("12x as fast", "without a claim"), ("0.5 of them", "without a claim"),
    ("`x = 24`<!--= 25 -->", "25 gives 25"), ("$2\\cdot 12 = 24$<!--= 2*12 -->", ""),
    ("chapters 07 and\n10 to 12, `x = 24`, E12, float32, Python 3.11, [x](https://a.b/123), about 40 minutes, 2026-12-03", ""),
    ("# 10 · Pipelines\n", ""), ("5 of 7 ranks", ""), ("nothing<!--= 24 -->", "no number before"),
    ("24<!--= 2*4*unknown -->", "NameError"), ("24<!--= [1, 2] -->", "TypeError"),
])
def test_what_a_claim_finds(text, wrong):
    found = list(claims.faults(f"\n{text}\n", "a.md"))
    assert len(found) == bool(wrong) and all(wrong in str(fault) and fault.line == 2 for fault in found), found


def test_a_built_file_that_differs_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "src").mkdir()
    shutil.copy(source_of(CHAPTERS[0]), tmp_path / "src")
    (tmp_path / "README.md").write_text("<!-- chapters -->\n<!-- end of chapters -->\n")
    shutil.copytree(ROOT / "exercises", tmp_path / "exercises")
    (tmp_path / "nb").mkdir()
    monkeypatch.setattr(build, "HERE", tmp_path / "nb")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "src")
    shutil.copy(tmp_path / "README.md", tmp_path / "nb")
    assert build.main([]) == 0 and build.main(["--check"]) == 0
    stub, book = next((tmp_path / "exercises").glob("e05*/exercise.py")), tmp_path / "nb" / f"{CHAPTERS[0]}.ipynb"
    stub.write_text(stub.read_text() + "# a line\n")
    book.write_text(book.read_text().replace("ranks", "RANKS", 1))
    (tmp_path / "nb" / "99_gone.ipynb").write_text("{}")
    capsys.readouterr()
    assert build.main(["--check"]) == 1
    out = capsys.readouterr().out
    assert all(name in out for name in ("exercise.py", book.name, "has no source in notebooks/src: nb/99_gone.ipynb"))
    assert out.count("not up to date") == 2


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_notebook_as_it_is_built(name):
    book = build.notebook(source_of(name))
    ids = [cell.id for cell in book.cells]
    assert len(set(ids)) == len(ids) and all(i.startswith(f"{name[:2]}-") for i in ids)
    text = "\n".join(cell.source for cell in book.cells)
    assert "<!--=" not in text and "BEGIN SOLUTION" not in text and "!%" not in text
    marks = [cell.metadata.nbgrader for cell in book.cells if "nbgrader" in cell.metadata]
    assert [m.grade_id for m in marks] == [f"{e}-{what}" for e in exercises_of(name) for what in ("answer", "check")]
    assert all(m.schema_version == 3 and m.grade == m.locked != m.solution and not m.task for m in marks)
    assert all(cell.execution_count is None and not cell.outputs for cell in book.cells if cell.cell_type == "code")


def test_a_cell_keeps_its_id_when_another_changes(tmp_path):
    text = source_of(CHAPTERS[0]).read_text("utf-8")
    changed = tmp_path / f"{CHAPTERS[0]}.py"
    changed.write_text(text.replace("# %%\n", "# %%\n1 + 1\n", 1), "utf-8")
    a, b = build.notebook(source_of(CHAPTERS[0])).cells, build.notebook(changed).cells
    assert sum(x.id != y.id for x, y in zip(a, b, strict=True)) == 1


# ---- runs --------------------------------------------------------------------------------------------

@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", CHAPTERS)
def test_with_solutions(course, name, tmp_path, times):
    ran = times[name] = run(course, name, tmp_path, solved=True, quick=True)
    assert not ran.failed and not ran.left, str(ran)
    assert grades(ran) == {e: (10, 10) for e in exercises_of(name)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAPTERS)
def test_with_solutions_in_full(course, name, tmp_path):
    ran = run(course, name, tmp_path, solved=True, quick=False)
    assert not ran.failed and not ran.left and ran.seconds < NOTEBOOK, str(ran)
    assert grades(ran) == {e: (10, 10) for e in exercises_of(name)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAPTERS)
def test_as_learners_get_it(course, name, tmp_path):
    ran = run(course, name, tmp_path, solved=False, quick=False)
    assert not ran.failed and not ran.left and ran.seconds < NOTEBOOK, str(ran)
    found = grades(ran)
    assert list(found) == exercises_of(name) and all(got < of == 10 for got, of in found.values()), found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_any_network(tmp_path):
    """In a network namespace that has nothing but a loopback (which mpiexec talks over)."""
    unshare = [shutil.which("unshare") or "unshare", "-r", "-n", sys.executable]
    script = tmp_path / "alone.py"
    script.write_text(ALONE.format(run=str(ROOT / "notebooks" / "run.py")))
    try:
        subprocess.run([*unshare, "-c", "pass"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"this system lets nobody make a network namespace ({e})")
    done = subprocess.run([*unshare, script, "--solutions", "--fast"], cwd=tmp_path, capture_output=True, text=True, timeout=570,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


ALONE = """
import fcntl, os, socket, struct, sys
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x41))        # SIOCSIFFLAGS: up and running
    try:
        s.connect(("192.0.2.1", 80))
        sys.exit("there is a network")
    except OSError:
        pass
os.execv(sys.executable, [sys.executable, {run!r}, *sys.argv[1:]])
"""


def test_what_a_run_finds(tmp_path):
    """A cell that fails, one that is too slow, one that may fail, and a process that is left."""
    cells = ["1 / 0", "import time; time.sleep(60)", "raise NotImplementedError", "print('goes on')",
             "import subprocess, sys\n"
             "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    book.cells[2].metadata["tags"] = ["exercise"]
    ran = runner.run(book, tmp_path, cell_timeout=2)
    assert [cell.index for cell in ran.failed] == [0, 1] and "ZeroDivisionError" in ran.failed[0].error
    assert "stopped after 2 s" in ran.failed[1].error
    assert ran.cells[2].error and book.cells[3].outputs[0].text == "goes on\n"
    if runner.processes.LINUX:
        (pid,) = ran.left
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"      # it has been ended
