"""Submissions of e05 that no learner should hand in, and what their grade has to say. test_grade.py grades them."""
from dataclasses import dataclass

from minispore.grade.exercise import exercises

RIGHT = exercises()["e05"].solution.read_text("utf-8")


@dataclass(frozen=True)
class Attack:
    """text: the file; says: what the message of a failed test must match; quick: graded in each `make test`, others in
    `make test-all` only."""
    text: str
    says: str
    quick: bool = False


def inside(body: str, before: str = "", then_right: bool = False) -> str:
    """A file whose reduce_scatter has this body; then_right: and then does what it should."""
    lines = "\n    ".join(body.strip("\n").splitlines())
    tail = "yield from right(link, chunks, accumulate)" if then_right else "yield []"
    return (f"{RIGHT.replace('def reduce_scatter', 'def right')}\n{before}\n"
            f"def reduce_scatter(link, chunks, accumulate):\n    {lines}\n    {tail}\n")


def elsewhere(code: str) -> str:
    """A line that runs code under a file name which isn't the submission's, as a library's would be."""
    return f"exec(compile({code!r}, '/usr/lib/python3/elsewhere.py', 'exec'), {{}})"


def unseen(code: str, environment: str = "None") -> str:
    """Lines that start another Python, below all that the guard sees."""
    return f"""
import _posixsubprocess, os, sys
r, w = os.pipe()
_posixsubprocess.fork_exec([sys.executable, "-c", {code!r}], [os.fsencode(sys.executable)], True, (w,), None, {environment}, -1,
                           -1, -1, -1, -1, -1, r, w, False, True, -1, None, None, None, -1, None, False)
"""


REFERENCE = "minispore.communication.algorithms.ring"
SOLUTION = "Path(minispore.__file__).parents[1] / 'exercises/solutions/e05.py'"
TESTS = "Path(minispore.__file__).parents[1] / 'exercises/e05_reduce_scatter/test_e05.py'"
HERE = "from pathlib import Path\nimport minispore\n"
DYING = "class Dying:\n    def __del__(self):\n        while True:\n            pass\n"
END = r"didn't end within"

ATTACKS = {
    # ---- never end -------------------------------------------------------------------------------------
    "loops_at_import": Attack("while True:\n    pass\n", rf"{END} 4 s; then it was at\n  line [12]: "),
    "loops_in_the_function": Attack(inside("while True:\n    pass"), rf"{END} 4 s; then it was at\n  line \d+: (pass|while)"),
    "yields_for_ever": Attack(inside("while True:\n    yield []"), END),
    "loops_and_blocks_signals": Attack(
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True:\n    pass\n", END),
    "ignores_signals": Attack("import signal\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
                              "    except (ValueError, OSError):\n        pass\nwhile True:\n    pass\n", END),
    "holds_the_interpreter": Attack("import itertools\nsum(itertools.repeat(0))\n", f"{END} 4 s, and let nothing else"),
    "swallows_everything": Attack("while True:\n    try:\n        while True:\n            pass\n"
                                  "    except BaseException:\n        pass\n", END),
    "sleeps": Attack("import time\ntime.sleep(1000)\n", rf"{END} 4 s; then it was at\n  line 2: time.sleep"),
    "waits_for_a_lock": Attack(inside("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"), END),
    "loops_in_del": Attack(inside("Dying()", DYING), END),
    "loops_in_del_of_a_cycle": Attack(
        inside("d = Dying()\nd.me = d\ndel d", DYING)
        + "\nimport gc\ngc.set_threshold(1)\n", END),
    "loops_in_the_error": Attack("class Long(Exception):\n    def __str__(self):\n        while True:\n            pass\n"
                                 "raise Long\n", END),
    "loops_in_flush": Attack("import sys\nclass Out:\n    def flush(self):\n        while True:\n            pass\n"
                             "    def write(self, text):\n        pass\nsys.stdout = Out()\n", END),
    "loops_at_exit": Attack("import atexit\ndef again():\n    while True:\n        pass\natexit.register(again)\n"
                            + inside("pass"), "should be"),
    "del_at_exit": Attack(DYING + "kept = Dying()\n" + inside("pass"), "should be"),
    "a_thread_that_never_ends": Attack(
        inside("threading.Thread(target=again).start()", "import threading\ndef again():\n    while True:\n        pass\n",
               then_right=True), "left a thread running|didn't end"),
    "a_daemon_thread_that_never_ends": Attack(
        "import threading, time\nthreading.Thread(target=time.sleep, args=[1000], daemon=True).start()\n" + RIGHT,
        "left a thread running", quick=True),
    "a_raw_thread_that_never_ends": Attack(
        "import _thread, time\n_thread.start_new_thread(lambda: time.sleep(1000), ())\n" + RIGHT,
        "left a thread running", quick=True),
    # ---- end too soon ----------------------------------------------------------------------------------
    "os_exit": Attack(inside("import os\nos._exit(0)"), r"ended the process, with exit code 0: os\._exit\(\)\?", quick=True),
    "os_exit_at_import": Attack("import os\nos._exit(0)\n", r"ended the process, with exit code 0"),
    "os_exit_in_a_thread": Attack("import os, threading\nthreading.Thread(target=os._exit, args=[0]).start()\n" + RIGHT,
                                  r"ended the process, with exit code 0"),
    "sys_exit": Attack("import sys\nsys.exit(0)\n", r"raised SystemExit, as sys\.exit\(\) does.*\n  line 2: sys.exit\(0\)",
                       quick=True),
    "sys_exit_in_the_function": Attack(inside("import sys\nsys.exit(0)"), "SystemExit"),
    "base_exception": Attack("class Mine(BaseException):\n    pass\nraise Mine('so there')\n", "Mine: so there"),
    "keyboard_interrupt": Attack(inside("raise KeyboardInterrupt"), "KeyboardInterrupt"),
    "aborts": Attack("import os\nos.abort()\n", r"crashed the process: SIGABRT\n.*line 2"),
    "kills_itself": Attack("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "may not send signals"),
    "kills_the_grader": Attack("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n", "may not send signals"),
    "raises_a_signal": Attack("import signal\nsignal.raise_signal(signal.SIGTERM)\n", "crashed the process: SIGTERM|signals"),
    "recursion": Attack("def f(n):\n    return f(n + 1)\nf(0)\n", "calls itself without end", quick=True),
    "deep_recursion": Attack("import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(n):\n    return max([f(n + 1)], key=len)\nf(0)\n",
                             f"crashed the process: SIGSEGV|needed more memory|{END}"),
    # ---- take too much ---------------------------------------------------------------------------------
    "eats_memory": Attack("kept = []\nwhile True:\n    kept.append(bytearray(10 ** 7))\n",
                          "needed more memory than the 1024 MB", quick=True),
    "eats_memory_bit_by_bit": Attack("kept = []\nwhile True:\n    kept.append([len(kept)])\n", f"needed more memory|{END}"),
    "one_big_array": Attack(inside("np.ones(10 ** 10)"), "needed more memory than the 1024 MB"),
    "eats_memory_and_goes_on": Attack(
        "kept = []\nwhile True:\n    try:\n        kept.append(bytearray(10 ** 7))\n    except MemoryError:\n        pass\n",
        END),
    "leaves_no_memory_to_tell_of_it": Attack(inside("fill()", """
kept = []
def fill():
    size = 1 << 30
    while True:
        try:
            kept.append(bytearray(size))
        except MemoryError:
            if size < 100:
                raise
            size //= 2
"""), f"needed more memory|{END}"),
    "prints_a_gigabyte": Attack("for _ in range(1000):\n    print('x' * 10 ** 6)\n", "printed, or wrote into one file, more than",
                                quick=True),
    "prints_a_gigabyte_below_python": Attack("import os\nwhile True:\n    os.write(1, b'x' * 10 ** 6)\n",
                                             "printed, or wrote into one file, more than"),
    "prints_and_goes_on": Attack("import os\nwhile True:\n    try:\n        os.write(1, b'x' * 10 ** 6)\n"
                                 "    except OSError:\n        pass\n", END),
    "writes_a_big_file": Attack("with open('big', 'wb') as f:\n    while True:\n        f.write(bytes(10 ** 6))\n",
                                "wrote into one file, more than the 16 MB"),
    "writes_many_files": Attack("for i in range(1000):\n    with open(f'a{i}', 'wb') as f:\n"
                                "        f.write(bytes(15 * 10 ** 6))\n",
                                "wrote more than the 256 MB of files"),
    "forks": Attack("import os\nos.fork()\n" + RIGHT, r"E5: your file may not start processes \(os\.fork\)", quick=True),
    "forks_in_the_function": Attack(inside("import os\nos.fork()", then_right=True), "may not start processes"),
    "forks_by_ctypes": Attack("import ctypes\nctypes.CDLL(None).fork()\n" + RIGHT, "may not call C libraries", quick=True),
    "starts_a_program": Attack("import subprocess\nsubprocess.run(['sleep', '1000'])\n", "may not start processes"),
    "starts_a_shell": Attack("import os\nos.system('sleep 1000')\n", "may not start processes"),
    "multiprocessing": Attack(
        "import multiprocessing\nmultiprocessing.Process(target=print).start()\n", "may not start processes"),
    # ---- round the guard: what it doesn't see is ended from outside ------------------------------------
    "daemon": Attack(unseen("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
                            "        while True:\n            time.sleep(1)\n") + RIGHT, "started a process", quick=True),
    "daemon_without_a_name": Attack(unseen("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
                                           "        while True:\n            time.sleep(1)\n", "[]") + RIGHT,
                                    "started a process"),
    "daemon_in_the_function": Attack(inside(unseen("import time\ntime.sleep(1000)"), then_right=True), "started a process"),
    "many_processes": Attack(unseen("import os, time\nfor _ in range(7):\n    if os.fork() == 0:\n        os.setpgid(0, 0)\n"
                                    "time.sleep(1000)\n") + "import time\ntime.sleep(1000)\n", "started a process"),
    "by_another_name": Attack(elsewhere("import ctypes\nctypes.CDLL(None).fork()"), "can't go by the name of another"),
    "by_another_module": Attack("import sys\nopen('mine.py', 'w').write('import ctypes\\nctypes.CDLL(None).fork()')\n"
                                "sys.path.insert(0, '.')\nimport mine\n", "may not call C libraries"),
    "by_another_code": Attack(
        "def f():\n    import ctypes\n    ctypes.CDLL(None).fork()\n"
        "exec(f.__code__.replace(co_filename='/usr/lib/python3/elsewhere.py'))\n", "can't go by the name of another"),
    # ---- cheat -----------------------------------------------------------------------------------------
    "edits_the_tests": Attack(HERE + f"({TESTS}).write_text('')\n", r"may not change .*test_e05\.py \(open\)", quick=True),
    "edits_the_tests_by_a_link": Attack(
        HERE + f"import os\nos.symlink({TESTS}, 'mine')\nopen('mine', 'w').close()\n", r"may not change .*test_e05\.py"),
    "edits_the_tests_by_a_hard_link": Attack(HERE + f"import os\nos.link({TESTS}, 'mine')\n", r"may not change .*test_e05\.py"),
    "moves_the_tests": Attack(HERE + f"import os\nos.rename({TESTS}, 'mine')\n", r"may not change .*test_e05\.py"),
    "removes_the_tests": Attack(HERE + f"({TESTS}).unlink()\n", r"may not change .*test_e05\.py"),
    "cuts_the_tests": Attack(HERE + f"import os\nos.truncate({TESTS}, 0)\n", r"may not change .*test_e05\.py"),
    "locks_the_tests": Attack(HERE + f"({TESTS}).chmod(0)\n", r"may not change .*test_e05\.py"),
    "maps_the_tests": Attack(HERE + f"import numpy as np\nnp.memmap({TESTS}, mode='r+')\n", r"may not change .*test_e05\.py"),
    "edits_the_library": Attack(HERE + "open(minispore.__file__, 'a').close()\n", r"may not change .*__init__\.py"),
    "edits_the_grader": Attack(HERE + "from minispore.grade import points\npoints.__code__ = (lambda *a: a).__code__\n",
                               r"functions keep their code"),
    "replaces_allclose": Attack("import numpy as np\nnp.allclose = lambda *a, **k: True\n" + inside("pass"),
                                r"your file replaced numpy\.allclose", quick=True),
    "replaces_array_equal": Attack(inside("np.array_equal = lambda *a, **k: True"), "your file replaced numpy.array_equal"),
    "replaces_isinstance": Attack("import builtins\nbuiltins.isinstance = lambda *a: True\n" + inside("pass"),
                                  r"your file replaced builtins\.isinstance"),
    "replaces_builtins_of_the_tests": Attack(inside("""
try:
    raise ValueError
except ValueError as e:
    frame = e.__traceback__.tb_frame
while frame is not None:
    if "check_sum" in frame.f_globals:
        frame.f_globals["len"] = lambda x: 0
    frame = frame.f_back
"""), "replaced|should be"),
    "replaces_a_test": Attack("""
import sys
def reduce_scatter(link, chunks, accumulate):
    yield []
class Gone(Exception):
    pass
try:
    raise Gone
except Gone as e:
    frame = e.__traceback__.tb_frame
while frame is not None:
    for value in list(frame.f_locals.values()):
        space = getattr(getattr(value, "__defaults__", None) and value.__defaults__[0], "__globals__", {})
        if "check_sum" in space:
            space["check_sum"] = lambda *a: None
    frame = frame.f_back
""", "should be|replaced"),
    "looks_for_the_tests": Attack(
        "import gc\nfor thing in gc.get_objects():\n    if isinstance(thing, dict) and 'check_sum' in thing:\n"
        "        thing['check_sum'] = lambda *a: None\n", r"gc\.get_objects looks into the grader"),
    "imports_the_solution": Attack("from exercises.solutions.e05 import reduce_scatter\n", "ModuleNotFoundError"),
    "imports_the_solution_by_its_folder": Attack(
        HERE + f"import sys\nsys.path.insert(0, str(({SOLUTION}).parent))\ndel sys.modules['e05']\n"
        "from e05 import reduce_scatter\n",
        "ModuleNotFoundError|may not read|ImportError", quick=True),
    "imports_the_solution_by_path": Attack(
        HERE + f"import importlib.util\nspec = importlib.util.spec_from_file_location('x', {SOLUTION})\n"
        "module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\n"
        "reduce_scatter = module.reduce_scatter\n", r"may not read .*solutions/e05\.py"),
    "executes_the_solution": Attack(HERE + f"exec(({SOLUTION}).read_text())\n", r"may not read .*solutions/e05\.py", quick=True),
    "runs_the_solution": Attack(HERE + f"import runpy\nglobals().update(runpy.run_path(str({SOLUTION})))\n",
                                r"may not read .*solutions/e05\.py"),
    "reads_the_solution_through_proc": Attack(
        HERE + f"exec(open('/proc/self/root' + str({SOLUTION})).read())\n", r"may not read .*solutions/e05\.py"),
    "links_to_the_solution": Attack(
        HERE + f"import os\nos.symlink({SOLUTION}, 'mine.py')\nexec(open('mine.py').read())\n",
        r"may not read .*solutions/e05\.py"),
    "lists_the_solutions": Attack(HERE + f"list(({SOLUTION}).parent.iterdir())\n", "may not read .*solutions"),
    "imports_the_reference": Attack(f"from {REFERENCE} import ring_reduce_scatter as reduce_scatter\n",
                                    "E5 asks you to write this yourself: ring_reduce_scatter is taken away", quick=True),
    "returns_the_reference": Attack(
        inside("return algorithms.ring_reduce_scatter(link, chunks, accumulate)",
               "from minispore.communication import algorithms\n"),
        "E5 asks you to write this yourself|should be"),
    "executes_the_reference": Attack(
        f"import {REFERENCE} as ring\nexec(open(ring.__file__).read())\nreduce_scatter = ring_reduce_scatter\n",
        r"may not read .*ring\.py", quick=True),
    "inspects_the_reference": Attack(
        f"import inspect, {REFERENCE} as ring\nexec(inspect.getsource(ring))\nreduce_scatter = ring_reduce_scatter\n",
        r"may not read .*ring\.py|OSError"),
    "reloads_the_reference": Attack(
        f"import importlib, {REFERENCE} as ring\nreduce_scatter = importlib.reload(ring).ring_reduce_scatter\n",
        r"may not read .*ring"),
    "compiles_the_reference": Attack(
        f"import marshal, importlib.util, {REFERENCE} as ring\n"
        "data = open(importlib.util.cache_from_source(ring.__file__), 'rb').read()\n"
        "exec(marshal.loads(data[16:]))\nreduce_scatter = ring_reduce_scatter\n", r"may not read .*ring.*\.pyc"),
    "asks_the_library": Attack(
        inside("from minispore.communication import communicator\nflat = np.concatenate(chunks)\n"
               "total = communicator().all_reduce(flat).wait()\n"
               "chunks[link.rank][:] = np.array_split(total, link.size)[link.rank]"),
        "may only send and receive by its link"),
    "an_array_that_lies": Attack("""
import numpy as np
class Liar(np.ndarray):
    def __eq__(self, other):
        return True
    def all(self, *a, **k):
        return True
    def __array_function__(self, *a, **k):
        return True
def reduce_scatter(link, chunks, accumulate):
    for i, chunk in enumerate(chunks):
        chunks[i] = chunk.view(Liar)
    yield [link.send(chunks[0].view(Liar), (link.rank + 1) % link.size)]
    return [np.zeros(1).view(Liar)]
""", "chunk 0 on rank 0 should be"),
    "forges_results": Attack("""
import json, os
names = ["test_two_ranks", "test_sum_on_any_number_of_ranks", "test_chunks_of_any_length", "test_any_reduction",
         "test_messages_go_to_the_right_neighbour", "test_bytes"]
for fd in range(256):
    try:
        for name in ["", *names]:
            line = json.dumps({"event": "result", "test": name, "ok": True, "message": "", "seconds": 0, "printed": [0, 0],
                               "going": True})
            os.write(fd, f"{'0' * 32} {line}\\n{line}\\n".encode())
        os.write(fd, b'{"event": "end"}\\n')
    except OSError:
        pass
""" + inside("pass"), "should be|array", quick=True),
    "half_a_line": Attack("""
import os
for fd in range(256):
    try:
        os.write(fd, b"half a line")
    except OSError:
        pass
""" + inside("pass"), "should be"),
    "closes_all_files": Attack("import os\nos.closerange(0, 256)\n" + RIGHT, "closed the files of the process it runs in"),
    "no_text_in_its_error": Attack(inside("""
class Kind(type):
    @property
    def __name__(cls):
        raise KeyError
class Untold(Exception, metaclass=Kind):
    __class__ = __traceback__ = property(lambda self: 1 / 0)
raise Untold
"""), "ZeroDivisionError|nothing can be told"),
    "untold_at_import": Attack("""
class Kind(type):
    @property
    def __name__(cls):
        raise KeyError
class Untold(BaseException, metaclass=Kind):
    __class__ = property(lambda self: 1 / 0)
raise Untold
""" + RIGHT, "raised an error of which nothing can be told"),
    "tells_it_differently": Attack("""
import json
before = json.dumps
json.dumps = lambda d, **k: before({**d, "ok": True, "message": "", "going": True})
""" + inside("pass"), r"your file replaced json\.dumps"),
}
