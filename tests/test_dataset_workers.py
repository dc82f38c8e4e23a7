"""Workers: any number of them gives what one gives; they overlap, look ahead only so far, and all end."""
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minispore.dataset as ds
from minispore.common.state import RankState, current, enter
from minispore.dataset import workers


def alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith("minispore-")] \
        + multiprocessing.active_children()


@pytest.fixture(autouse=True)
def nobody_left():
    """No test leaves a thread or a process behind."""
    yield
    gc.collect()
    assert not alive()


def numbers(n, **options):
    return ds.NumpySlicesDataset({"x": np.arange(n)}, **options)


def xs(data, epoch=0):
    return [row["x"].tolist() for row, _ in data.batches(epoch)]


class Slow:
    """A source whose rows take a moment, uneven ones."""

    def __init__(self, n, seconds=0.0):
        self.n, self.seconds = n, seconds

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.seconds * (i % 3))
        return i * 10, np.full(i % 4, i)


@given(st.integers(1, 120), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2))
def test_k_workers_give_what_one_gives(n_rows, k, size, epoch):
    def pipeline(k):
        data = ds.GeneratorDataset(Slow(n_rows), ["x", "y"], num_parallel_workers=k).project("x")
        data = data.map(lambda x: (x + 1, x * 2), "x", ["x", "z"], num_parallel_workers=k)
        data = data.filter(lambda x: x % 3, "x", num_parallel_workers=k)
        return data.batch(size, num_parallel_workers=k, per_batch_map=lambda x, z, info: (np.stack(x), np.stack(z)))
    assert xs(pipeline(k), epoch) == xs(pipeline(1), epoch)


def test_the_default_number_is_configs():
    seen = set()
    ds.config.set_num_parallel_workers(3)
    xs(numbers(200).map(lambda x: (seen.add(threading.current_thread()), time.sleep(0.001), x)[2]))
    assert len(seen) == 3 and {thread.name for thread in seen} == {"minispore-worker"}


def test_workers_overlap():
    def wait(x):
        time.sleep(0.01)
        return x
    begin = time.perf_counter()
    xs(numbers(64, shuffle=False).map(wait, num_parallel_workers=16))
    assert time.perf_counter() - begin < 0.4            # one after the other: 0.64 s


def test_they_look_ahead_only_so_far():
    made = []
    data = ds.GeneratorDataset(lambda: (made.append(1) or i for i in range(10_000)), "x")
    rows = data.map(lambda x: x, num_parallel_workers=2).batches(0)
    next(rows)
    time.sleep(0.2)
    assert len(made) < 400
    rows.close()


def test_workers_see_the_rank_that_started_them():
    seen = []

    def rank(r):
        enter(RankState(launched_rank=r, launched_size=2))
        xs(numbers(100).map(lambda x: (seen.append((r, current().rank)), x)[1], num_parallel_workers=2))
    threads = [threading.Thread(target=rank, args=(r,)) for r in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {(0, 0), (1, 1)}


def fail_at_37(x):
    if x == 37:
        raise KeyError("lost")
    return x


def test_an_error_comes_with_its_row_and_after_the_rows_before():
    seen = []
    with pytest.raises(RuntimeError, match=r"map: fail_at_37 on row 37 of column 'x' int64\(\) failed: KeyError: 'lost'"):
        seen.extend(int(row["x"]) for row, _ in numbers(100, shuffle=False).map(fail_at_37, num_parallel_workers=4).batches(0))
    assert seen == list(range(32))
    assert not [thread for thread in alive() if thread.is_alive() and thread.name == "minispore-worker"]


def test_all_end_when_the_consumer_breaks_off():
    data = numbers(5000).map(lambda x: x, num_parallel_workers=3).filter(lambda x: x >= 0, num_parallel_workers=2).batch(4)
    for _ in data:
        assert len(alive()) == 6        # and the thread that works ahead
        break
    assert not alive()
    list(data)
    assert not alive()
    rows = iter(data)
    next(rows)
    del rows
    assert not alive()


def test_hanging_workers_dont_keep_the_program_from_ending():
    program = """if True:
        import time, minispore.dataset as ds
        data = ds.NumpySlicesDataset(list(range(640)), shuffle=False)
        rows = iter(data.map(lambda x: x if x < 16 else time.sleep(60), num_parallel_workers=2))
        next(rows)
        print("done")
    """
    begin = time.time()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "") and time.time() - begin < 30


# ---- processes (they find this module's functions only where it is imported by its name) ----------

PROGRAM = """
import os, time
import numpy as np
import minispore.dataset as ds
from minispore.dataset.vision import RandomCrop

class Source:
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return i, np.full((4, 4, 1), i), os.getpid()

def pid(x):
    return x, os.getpid()

def pid_then_wait(x):
    if x > 150:                 # long after the 100 that are wanted: workers take several rows at a time
        time.sleep(100)
    return pid(x)

def die(x):
    os._exit(9) if x == 20 else None
    return x

def fail(x):
    return 1 // (int(x) - 20)

def crop(image):
    return RandomCrop(2, 1)(image)

def rows(data):
    return [{name: array.tolist() for name, array in row.items()} for row, _ in data.batches(0)]

def source(**options):
    return ds.GeneratorDataset(Source(), ["x", "image", "pid"], **options)

if __name__ == "__main__":
"""


def run(tmp_path, body, **options):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM + body)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, env=env, **options)


def test_processes_give_what_threads_give(tmp_path):
    done = run(tmp_path, """
    two = {"num_parallel_workers": 2, "python_multiprocessing": True}
    many = rows(source(**two).map(pid, "x", ["x", "mapped"], **two).map(crop, "image", **two))
    one = rows(source().map(pid, "x", ["x", "mapped"]).map(crop, "image"))
    assert [(r["x"], r["image"]) for r in many] == [(r["x"], r["image"]) for r in one], (many, one)
    pids = [{r[name] for r in many} for name in ("pid", "mapped")]
    assert all(1 <= len(p) <= 2 and os.getpid() not in p for p in pids) and not pids[0] & pids[1]
    import multiprocessing
    assert not multiprocessing.active_children()
    print("same")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "same\n", "")


def test_errors_and_deaths_in_processes(tmp_path):
    done = run(tmp_path, """
    x = ds.NumpySlicesDataset({"x": np.arange(40)}, shuffle=False)
    for data in (x.map(fail, num_parallel_workers=2, python_multiprocessing=True),
                 x.map(die, num_parallel_workers=2, python_multiprocessing=True),
                 x.map(lambda x: x, num_parallel_workers=2, python_multiprocessing=True)):
        try:
            rows(data)
        except Exception as error:
            print(type(error).__name__, error)
    half = iter(x.map(pid, "x", ["x", "p"], num_parallel_workers=2, python_multiprocessing=True))
    next(half)      # and the program ends
    """)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and done.stderr == "" and len(lines) == 3, done
    assert lines[0].startswith("RuntimeError map: fail on row 20 of column 'x' int64() failed: ZeroDivisionError")
    assert lines[1].startswith("RuntimeError a worker process of the dataset ended with exit code 9")
    assert lines[2].startswith("TypeError python_multiprocessing=True sends") and "threads" in lines[2]


def test_processes_of_ranks_of_a_mindspore_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import os
import numpy as np
import mindspore.dataset as ds
from mindspore.communication import get_group_size, get_rank, init

def pid(x):
    return x, os.getpid()

if __name__ == "__main__":
    init()
    data = ds.NumpySlicesDataset({"x": np.arange(100)}, shuffle=False, num_shards=get_group_size(), shard_id=get_rank())
    data = data.map(pid, "x", ["x", "pid"], num_parallel_workers=2, python_multiprocessing=True)
    rows = list(data.create_tuple_iterator(output_numpy=True, num_epochs=1))
    assert [int(x) for x, _ in rows] == list(range(get_rank(), 100, 2)) and os.getpid() not in {int(p) for _, p in rows}
    print(get_rank(), "done")
""")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    done = subprocess.run([sys.executable, "-m", "minispore.launch.msrun", "--worker_num=2", "script.py"], cwd=tmp_path,
                          env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "0 done" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("function", ["pid", "pid_then_wait"])
def test_processes_end_with_a_killed_program(tmp_path, function):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM + f"    function = {function}" + """
    data = ds.NumpySlicesDataset({"x": np.arange(400)}, shuffle=False)
    data = iter(data.map(function, "x", ["x", "p"], num_parallel_workers=2, python_multiprocessing=True))
    pids = {int(next(data)[1].asnumpy()) for _ in range(100)}
    print(*pids, flush=True)
    time.sleep(60)
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    def there(pid):
        try:
            return "spawn" in Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return False
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=env) as program:
        pids = [int(word) for word in program.stdout.readline().split()]
        before = pids and all(map(there, pids))     # so that the question is right
        program.kill()
    assert before

    deadline = time.time() + 10
    while any(map(there, pids)) and time.time() < deadline:
        time.sleep(0.05)
    assert not any(map(there, pids))


def test_ordered_itself():
    assert list(workers.ordered(lambda x: x * x, iter(range(50)), 7)) == [x * x for x in range(50)]
    assert list(workers.ordered(abs, [], 3)) == []
    taken = []
    some = workers.ordered(abs, (taken.append(i) or i for i in range(100)), 3)
    assert next(some) == 0 and len(taken) == 6
    some.close()

    def items():
        yield 1
        raise OSError("source")
    seen = []
    for k in (1, 2):
        with pytest.raises(OSError, match="source"):
            seen.extend(workers.ordered(abs, items(), k))
    assert seen == [1, 1]           # what comes before an error comes
