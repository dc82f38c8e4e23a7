"""The course in JupyterLab, as a learner has it: a headless browser runs notebooks, moves a slider, stops a job, reloads."""
import copy
import importlib.util
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import build
import nbformat
import pytest
from test_lab_processes import marked

from minispore import cli, learn
from minispore.launch import processes

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
DRIVER = shutil.which("chromedriver")
MISSING = [name for name in (*learn.NEEDED, "selenium") if importlib.util.find_spec(name) is None]
MISSING += ["chromium"] * (not CHROMIUM) + ["chromedriver"] * (not DRIVER)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120),
              pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
              pytest.mark.skipif(not processes.LINUX, reason="looks for processes as Linux lists them")]

if "selenium" not in MISSING:
    from selenium import webdriver
    from selenium.webdriver import ActionChains
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

CHAPTER = "04_ring_all_reduce.ipynb"
MARK = "MINISPORE_BROWSER", secrets.token_hex(8)            # in the environment of all processes that are started here
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server",
           "--window-size=1280,1000")
ENDLESS = ["%load_ext minispore.lab", "%%msrun -n 2 --timeout 300\nprint('begun', flush=True)\nwhile True:\n    pass", "1 + 1"]


# ---- the server and the browser ----------------------------------------------------------------------

@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A learner's folder, and in it: chapter 04 with its solutions in; the chapter up to its first slider; a job without end."""
    folder = tmp_path_factory.mktemp("browser") / "course"
    assert cli.main(["learn", str(folder), "--setup-only"]) == 0
    book = nbformat.read(folder / CHAPTER, as_version=4)
    solved, short = copy.deepcopy(book), copy.deepcopy(book)
    build.solve(solved)
    nbformat.write(solved, folder / "solved.ipynb")
    short.cells = short.cells[:1 + next(i for i, cell in enumerate(book.cells) if "explore(" in cell.source.split("\n")[-1])]
    nbformat.write(short, folder / "short.ipynb")
    endless = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, ENDLESS)), metadata=book.metadata)
    nbformat.write(endless, folder / "endless.ipynb")
    return folder


@pytest.fixture(scope="module")
def server(course):
    """JupyterLab as `minispore learn --no-browser` starts it, on a free port: (address, token). Nothing of it is left."""
    private = course.parent / "jupyter"
    command, environment = learn.jupyter(course, browser=False)
    command += ["--ServerApp.port_retries=100", "--LabApp.expose_app_in_browser=True"]
    environment |= {f"JUPYTER_{what}_DIR": str(private / what) for what in ("RUNTIME", "CONFIG", "DATA")}
    environment |= {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(private / "ipython"), "MINISPORE_FAST": "1"} | dict([MARK])
    with open(course.parent / "jupyter.log", "wb") as log:
        started = subprocess.Popen(command, cwd=course, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield address_of(started, private / "RUNTIME", Path(log.name))
    finally:
        started.terminate()
        with suppress(subprocess.TimeoutExpired):
            started.wait(10)
        processes.kill_marked(MARK, 10)
        started.wait(10)
    assert not list(processes.marked(MARK))


def address_of(started, folder, log):
    """Where a server says that it listens, once it does."""
    until = time.monotonic() + 60
    while time.monotonic() < until and started.poll() is None:
        with suppress(ValueError, StopIteration):
            said = json.loads(next(folder.glob("jpserver-*.json")).read_text())
            return said["url"], said["token"]
        time.sleep(0.1)
    pytest.fail(f"JupyterLab hasn't started:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def lab(server, tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER, env=os.environ | dict([MARK])))
    try:
        driver.set_page_load_timeout(40)
        driver.set_script_timeout(20)
        yield Lab(driver, *server)
    finally:
        driver.quit()


class Lab:
    """A browser with JupyterLab in it."""

    def __init__(self, driver, url, token):
        self.driver, self.url, self.token = driver, url, token

    def js(self, code, *arguments):
        """What `return code` gives in the page; there `book` is the notebook on top, `kernel` its kernel."""
        return self.driver.execute_script(
            "const book = window.jupyterapp?.shell.currentWidget, kernel = book?.sessionContext?.session?.kernel;"
            f"return {code}", *arguments)

    def wait(self, what, condition, seconds=30):
        """Until condition() holds, and what it gives. An error that says what there was instead."""
        until = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > until:
                notebook = [[cell["source"][-60:], cell["outputs"]] for cell in self.cells()]
                pytest.fail(f"{what}: not within {seconds} s. There is {json.dumps(notebook)[-3000:]}")
            time.sleep(0.1)
        return found

    def open(self, name):
        """A notebook, alone in the window, with its kernel."""
        self.driver.get(f"{self.url}lab/workspaces/{name[:5]}-{secrets.token_hex(4)}/tree/{name}?token={self.token}")
        self.ready(name)

    def ready(self, name):
        self.wait(f"{name} opens", lambda: self.js("book?.context?.path == arguments[0] && book.context.isReady", name), 60)
        self.wait("its kernel is there", lambda: self.js("kernel?.status == 'idle'"), 60)

    def menu(self, name, entry):
        """Click on an entry of a menu."""
        for css, words in (("#jp-MainMenu .lm-MenuBar-item", name), (".lm-Menu-itemLabel", entry)):
            def found(css=css, words=words):
                return next((e for e in self.driver.find_elements(By.CSS_SELECTOR, css) if e.text == words), None)
            self.wait(f"the menu shows {words}", found, 10).click()

    def cells(self):
        """The code cells, as in the file; and `state`: "running" also for one that is to run."""
        return self.js("Array.from({length: book?.content?.model?.cells.length ?? 0}, (_, i) => book.content.model.cells.get(i))"
                       ".filter(m => m.type == 'code').map(m => ({...m.toJSON(), source: m.sharedModel.getSource(),"
                       "state: m.executionState}))")

    def run_all(self, seconds):
        """By the menu; the code cells, when nothing runs any more."""
        self.menu("Run", "Run All Cells")
        self.wait("the first cell runs", lambda: self.cells()[0]["execution_count"])
        self.wait("all has run", lambda: all(c["state"] == "idle" for c in self.cells()) and self.js("kernel.status == 'idle'"),
                  seconds)
        return self.cells()

    def pictures(self):
        """The titles of the drawings that are to be seen."""
        shown = self.js("[...document.querySelectorAll('.jp-OutputArea img, .jp-OutputArea svg.minispore-picture')]"
                        ".filter(e => e.tagName != 'IMG' || e.complete && e.naturalWidth).map(e => e.src || e.outerHTML)")
        return [m[1] for text in shown if (m := re.search("<title[^>]*>(.*?)</title>", unquote(text)))]

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()


def errors(cells):
    return [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]


def jobs():
    """The processes of %%msrun's jobs in this server."""
    return [pid for pid in processes.marked(MARK) if marked(pid)]


# ---- tests -------------------------------------------------------------------------------------------

def test_run_all_runs_a_chapter_to_its_end(lab):
    lab.open("solved.ipynb")
    cells = lab.run_all(90)
    assert len(cells) > 20 and [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1)) and not errors(cells)
    pages = [output.get("data", {}).get("text/html", "") for cell in cells for output in cell["outputs"]]
    cards = [page for page in pages if "ms-grade" in page]
    assert len(cards) == 3 and all("10 of 10" in card for card in cards) and len(lab.pictures()) > 6 and not jobs()


def test_run_all_goes_on_behind_an_exercise_that_is_not_solved(lab):
    lab.open(CHAPTER)
    cells = lab.run_all(60)
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    failed = [cell for cell in cells if errors([cell])]
    assert failed and all("exercise" in cell["metadata"]["tags"] for cell in failed)
    assert {error["ename"] for error in errors(failed)} == {"NotImplementedError"}
    assert "E5: write reduce_scatter" in errors(failed)[0]["evalue"]


def test_a_slider_moved_by_its_keys_changes_the_picture(lab):
    lab.open("short.ipynb")
    assert not errors(lab.run_all(40))
    handle = lab.wait("there is a slider", lambda: lab.driver.find_elements(By.CSS_SELECTOR, ".noUi-handle"))[0]
    before = lab.pictures()
    assert "step 1 of 6" in before[-1]
    for key, step in ((Keys.ARROW_RIGHT, 2), (Keys.ARROW_RIGHT, 3), (Keys.ARROW_LEFT, 2)):
        handle.send_keys(key)
        lab.wait(f"it shows step {step}", lambda step=step: f"step {step} of 6" in lab.pictures()[-1], 10)
    assert lab.pictures()[:-1] == before[:-1] and not errors(lab.cells())


def test_on_a_small_screen_pictures_fit_and_controls_stand_in_line(lab):
    lab.open("short.ipynb")
    lab.run_all(40)
    lab.wait("the slider's picture is there", lambda: "step 1 of 6" in lab.pictures()[-1], 10)
    wide = lab.js("[...document.querySelectorAll('.jp-RenderedSVG')].map(e => [e.clientWidth, e.scrollWidth])")
    assert len(wide) == 3 and all(room >= used > 600 for room, used in wide), wide
    lines = lab.js("[...document.querySelectorAll('.widget-vbox > *')].map(e => [e.firstChild.getBoundingClientRect().right,"
                   "e.children[1].getBoundingClientRect().left, e.offsetHeight])")
    assert len(lines) == 2 and len({name for name, *_ in lines}) == 1, lines            # names end at the same place,
    assert all(name < control and height < 40 for name, control, height in lines), lines    # and the controls are beside them


def test_an_interrupt_ends_a_job_s_processes_and_not_the_kernel(lab):
    lab.open("endless.ipynb")
    kernel = lab.js("kernel.id")
    lab.menu("Run", "Run All Cells")
    lab.wait("both ranks have begun", lambda: json.dumps(lab.cells()[1]["outputs"]).count("begun") == 2, 40)
    assert len(jobs()) >= 3                                 # two ranks and msrun
    lab.driver.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-InputPrompt")[1].click()
    lab.keys(Keys.ESCAPE, "i", "i")
    lab.wait("the cell is stopped", lambda: errors(lab.cells()) and lab.js("kernel.status == 'idle'"))
    assert [error["ename"] for error in errors(lab.cells())] == ["KeyboardInterrupt"]
    lab.wait("no process is left", lambda: not jobs(), 5)
    lab.driver.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-InputPrompt")[2].click()
    lab.driver.find_element(By.CSS_SELECTOR, ".jp-Notebook").send_keys(Keys.SHIFT + Keys.ENTER)
    lab.wait("1 + 1 is computed", lambda: lab.cells()[2]["outputs"], 20)
    assert lab.cells()[2]["outputs"][0]["data"]["text/plain"] == "2" and lab.js("kernel.id") == kernel


def test_pictures_are_there_after_a_reload_and_without_the_kernel_that_drew_them(lab):
    lab.open("short.ipynb")
    before, pictures, kernel = lab.run_all(40), lab.pictures(), lab.js("kernel.id")
    assert len(pictures) == 3
    lab.menu("File", "Save Notebook")
    lab.wait("it is saved", lambda: lab.js("!book.context.model.dirty"), 10)
    for same_kernel in (True, False):
        if not same_kernel:
            lab.driver.execute_async_script(
                "jupyterapp.shell.currentWidget.sessionContext.shutdown().then(arguments[0], arguments[0])")
        lab.driver.refresh()
        lab.ready("short.ipynb")
        lab.wait("the pictures are there", lambda: lab.pictures() == pictures, 15)
        assert (lab.js("kernel.id") == kernel) == same_kernel
        assert [c["execution_count"] for c in lab.cells()] == [c["execution_count"] for c in before]       # nothing ran again
