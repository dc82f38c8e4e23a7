"""Runs notebooks as a learner's browser would, in a folder like a learner's, and says how long each cell took.

    python notebooks/run.py 04                      as learners get it: cells with an exercise fail, and may
    python notebooks/run.py 04 --solutions --fast   with the solutions in, MINISPORE_FAST=1: nothing may fail

The kernel is this Python. It gets no network (proxies that don't answer), and no process of it may be left afterwards.
tests/test_notebooks.py and pages.py use `run`.
"""
import argparse
import os
import re
import secrets
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import build
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from minispore.grade import exercise
from minispore.launch import processes
from minispore.learn import kernel

MARK = "MINISPORE_NOTEBOOK"                     # in the environment of all processes of a notebook
ROOT = Path(__file__).resolve().parents[1]
NO_PROXY_THERE = "http://127.0.0.1:9"           # port 9 throws away what it gets; nobody listens
TRANSPORT = "tcp" if os.name == "nt" else "ipc"     # also where there is no network at all
NOT_A_LEARNERS = ("MINISPORE_FAST", "MINISPORE_QUIET", "no_proxy", "NO_PROXY", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                  "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")       # what the test suite sets
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class CellRun:
    """One code cell's run. error: "" or its last lines; expected: it may fail (an exercise not yet solved)."""
    index: int
    id: str
    seconds: float
    error: str
    expected: bool
    first_line: str


@dataclass(frozen=True)
class Ran:
    """A notebook's run: book with its outputs; seconds with the kernel's start and end; left: processes that didn't end."""
    book: nbformat.NotebookNode
    cells: list[CellRun]
    seconds: float
    left: list[int]

    @property
    def failed(self) -> list[CellRun]:
        return [cell for cell in self.cells if cell.error and not cell.expected]

    def __str__(self):
        lines = [f"{'':>4}{'seconds':>9}  cell"]
        for cell in self.cells:
            verdict = "" if not cell.error else "  fails, as it may" if cell.expected else "  FAILED"
            lines.append(f"{cell.index:>4}{cell.seconds:>9.2f}  {cell.first_line[:90]}{verdict}")
        lines += [f"\n{cell.id} failed: {cell.first_line}\n{cell.error}" for cell in self.failed[:3]]
        if self.left:
            lines.append(f"\nprocesses that were left: {self.left}")
        return "\n".join([*lines, f"{self.seconds:.1f} s in all, {len(self.failed)} of {len(self.cells)} cells failed"])


def run(book: nbformat.NotebookNode, folder: Path, quick: bool = False, cell_timeout: float = 60, solved: bool = False) -> Ran:
    """Run a notebook in a folder. solved: cells with an exercise may not fail either."""
    mark = MARK, secrets.token_hex(8)
    began, times = {}, {}
    with tempfile.TemporaryDirectory(prefix="minispore-jupyter-") as private:
        os.environ["JUPYTER_PATH"] = str(kernel(Path(private)))       # where nbclient looks for kernels
        manager = {"transport": TRANSPORT, "connection_file": f"{private}/kernel.json"}
        client = NotebookClient(
            book, timeout=cell_timeout, interrupt_on_timeout=True, allow_errors=True, kernel_name="python3",
            resources={"metadata": {"path": str(folder)}}, config=Config({"KernelManager": manager}),
            on_cell_start=lambda cell, cell_index: began.__setitem__(cell_index, time.perf_counter()),
            on_cell_executed=lambda cell, cell_index, **_: times.__setitem__(cell_index, time.perf_counter() - began[cell_index]))
        start = time.perf_counter()
        try:
            client.execute(env=environment(private, quick) | dict([mark]))
        finally:
            seconds, left = time.perf_counter() - start, gone(mark)
            processes.kill_marked(mark)
    cells = [result(i, cell, times.get(i, 0.0), cell_timeout, solved) for i, cell in enumerate(book.cells)
             if cell.cell_type == "code"]
    return Ran(book, cells, seconds, left)


def environment(private: str, quick: bool) -> dict[str, str]:
    """Of a kernel: no network, nothing of the user's own settings, minispore from this clone."""
    proxies = {name: NO_PROXY_THERE for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    ours = {name: value for name, value in os.environ.items() if name not in NOT_A_LEARNERS}
    return ours | proxies | {"PYTHONPATH": path, "IPYTHONDIR": private} | ({"MINISPORE_FAST": "1"} if quick else {})


def gone(mark: tuple[str, str], patience: float = 3.0) -> list[int]:
    """The processes with this mark that don't end within `patience` seconds."""
    until = time.monotonic() + patience
    while (left := list(processes.marked(mark))) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def result(index: int, cell, seconds: float, limit: float, solved: bool) -> CellRun:
    errors = [output for output in cell.outputs if output.output_type == "error"]
    text = "\n".join(COLOURS.sub("", line) for error in errors for line in error.traceback)[-3000:]
    if not errors and cell.source.strip() and cell.execution_count is None:
        text = "it didn't run"
    if errors and seconds >= limit:
        text = f"it was stopped after {limit:g} s, its time-out\n{text}"
    tags = cell.metadata.get("tags", [])
    may = not solved if "exercise" in tags else "raises-exception" in tags
    return CellRun(index, cell.id, seconds, text, may, cell.source.strip().partition("\n")[0])


def furnish(folder: Path, source: Path, solved: bool) -> nbformat.NotebookNode:
    """Put one chapter and all stubs into a folder; the notebook."""
    book = build.notebook(source, solved)
    nbformat.write(book, folder / f"{source.stem}.ipynb")
    (folder / "exercises").mkdir(exist_ok=True)
    for task in exercise.exercises(ROOT / "exercises").values():
        (folder / "exercises" / f"{task.name}.py").write_text(exercise.stub(task.solution.read_text("utf-8")), "utf-8")
    return book


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser("run.py", description="Run notebooks from their sources.", allow_abbrev=False)
    p.add_argument("chapters", nargs="*", metavar="NN", help="which, say 04 (all)")
    p.add_argument("--solutions", action="store_true", help="with the solutions in; then no cell may fail")
    p.add_argument("--fast", action="store_true", help="with MINISPORE_FAST=1: fewer steps where a notebook says so")
    p.add_argument("--timeout", type=float, default=60, metavar="S", help="seconds for one cell (60)")
    p.add_argument("--keep", type=Path, metavar="FOLDER", help="write the notebooks with their outputs there")
    o = p.parse_args(argv)
    bad = False
    for source in build.sources(o.chapters):
        with tempfile.TemporaryDirectory(prefix="minispore-learner-") as folder:
            ran = run(furnish(Path(folder), source, o.solutions), Path(folder), o.fast, o.timeout, o.solutions)
        print(f"{source.stem}\n{ran}\n", flush=True)
        bad = bad or bool(ran.failed or ran.left)
        if o.keep:
            o.keep.mkdir(parents=True, exist_ok=True)
            nbformat.write(ran.book, o.keep / f"{source.stem}.ipynb")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
