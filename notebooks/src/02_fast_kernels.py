# %% [markdown]
# # 02 · Fast kernels
#
# After this chapter you can turn Python loops into machine code with Numba, make them fast, and find out what is wrong when they
# aren't, or when they are wrong. Forty minutes; chapter 01 comes before.

# %%
import time

import numba
import numpy as np

from minispore.lab import check, draw, explore, fast, hint
from minispore.lab.touches import loads, touches

# !%load_ext minispore.lab


def seconds(function, *args, times=3):
    """How long a call takes: the best of some, the first not counted."""
    function(*args)
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        function(*args)
        took.append(time.perf_counter() - begin)
    return min(took)


# %% [markdown]
# ## A question
#
# Here is a matrix product as it stands in the book: three loops. How much slower is it than `a @ b`?

# %%
def columns(a, b, out):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = total


def squares(n, dtype=np.float64):
    """Two matrices and a place for their product."""
    draw_numbers = np.random.default_rng(n)
    return draw_numbers.random((n, n)).astype(dtype), draw_numbers.random((n, n)).astype(dtype), np.empty((n, n), dtype)


a, b, out = squares(64)
by_python, by_numpy = seconds(columns, a, b, out, times=1), seconds(np.matmul, a, b)
print(f"Python {by_python * 1e3:.1f} ms, numpy {by_numpy * 1e3:.3f} ms: {by_python / by_numpy:,.0f} times")

# %% [markdown]
# Now one more line, and the same loops again:

# %%
compiled = numba.njit(columns)

begin = time.perf_counter()
compiled(a, b, out)
print(f"first call  {(time.perf_counter() - begin) * 1e3:8.2f} ms")
assert np.allclose(out, a @ b)
by_numba = seconds(compiled, a, b, out)
print(f"later calls {by_numba * 1e3:8.2f} ms, {by_python / by_numba:,.0f} times as fast as Python")

# %% [markdown]
# `numba.njit` makes *machine code* (机器码) of a Python function. A function of loops over arrays, made to be compiled, is a
# *kernel* (核函数).
#
# The first call is slow: it compiles. That is *just-in-time compilation* (即时编译, JIT). Only at the call does Numba know what the
# arguments are, and it makes a version for each combination of dtypes, dims and orders in memory it meets, a *signature* (签名):

# %%
compiled(*squares(8, np.float32))
for signature in compiled.signatures:
    print(signature)

# %% [markdown]
# Two signatures, two versions, compiled twice. Now larger matrices:

# %%
sizes = fast([16, 32, 64, 128], [16, 32, 64])
times = {"Python": [seconds(columns, *squares(n), times=1) for n in sizes],
         "Numba": [seconds(compiled, *squares(n)) for n in sizes],
         "numpy": [seconds(np.matmul, *squares(n)[:2]) for n in sizes]}
draw.curves(times, x=sizes, xlabel="rows and columns", ylabel="seconds", log=True)

# %% [markdown]
# Numba's line lies far below Python's, and there is still room below. We do n·n·n multiplications and so does numpy. Where does
# the time go?
#
# ## It is about memory
#
# These loops do the same multiplications in another order. `j` is now the innermost:

# %%
@numba.njit
def rows(a, b, out):
    for i in range(a.shape[0]):
        target = out[i]
        for j in range(len(target)):
            target[j] = 0.0
        for k in range(a.shape[1]):
            factor, row = a[i, k], b[k]
            for j in range(len(target)):
                target[j] += factor * row[j]


n = fast(384, 192)
a, b, out = squares(n)
rows(a, b, out)
assert np.allclose(out, a @ b)
for name, kernel in {"columns": compiled, "rows": rows}.items():
    print(f"{name:<8} {seconds(kernel, a, b, out) * 1e3:7.1f} ms")

# %% [markdown]
# Not one multiplication less, and many times as fast. In memory a matrix lies row by row. `columns` walks down a column of `b`:
# from each number to the next it jumps over a whole row. `rows` walks along rows, and the next number is always the neighbour.
#
# That matters because a processor computes faster than memory delivers. It keeps what it has touched lately in a small fast
# memory, the *cache* (缓存). What is found there costs little. What isn't must be *loaded*, and memory never hands over a single
# number but a *line* (缓存行) of neighbours, eight float64 at once.
#
# We can't look into the real cache. But we can run the loops as plain Python, on arrays that write down each element that is
# touched, and play the cache ourselves. Here a line has four numbers. Move the slider, for both orders:

# %%
small = np.ones((4, 4))
walks = {"rows": touches(rows, small, small, small.copy()), "columns": touches(compiled, small, small, small.copy())}
arrays = {"a": (4, 4), "b": (4, 4), "out": (4, 4)}


def watch_cache(touch, order, cache):
    walk = walks[order]
    return draw.cache(walk, arrays, cache, min(touch, len(walk)), line=4)


explore(watch_cache, touch=(20, max(map(len, walks.values()))), order=["columns", "rows"], cache=[16, 12, 24, 48])

# %% [markdown]
# Go to the last touch and compare the loads. `columns` loads a line for one number of it, and when it comes for the next, the
# line is gone. `rows` uses up a line before it takes another. With a cache that holds everything (48<!--= 3*4*4 -->) the two
# are equal: each line is loaded once. So what a loop costs depends on how soon it comes back to what it has.
#
# Larger, with real lines of eight:

# %%
n = 24
big = np.ones((n, n))
caches = [36, 72, 144, 288, 576, 1152, 2304]
walks = {"columns": touches(compiled, big, big, big.copy()), "rows": touches(rows, big, big, big.copy())}
counts = {name: [loads(walk, cache, line=8) for cache in caches] for name, walk in walks.items()}
for name, count in counts.items():
    print(f"{name:<8}", *(f"{c:>7,}" for c in count))
assert counts["columns"][2] > 5 * counts["rows"][2] and loads(walks["rows"], 144) == 14_976
draw.curves(counts, x=caches, xlabel="numbers the cache holds", ylabel="loads", log=True)

# %% [markdown]
# `rows` is far better. But it, too, begins again with all of `b` for each row of `out`, and its line doesn't fall to the bottom
# before the cache holds `b` and some more. A thousand by a thousand float64 are 8 MB<!--= 1000*1000*8/1e6 -->; no fast cache
# holds that.
#
# ## Tiles
#
# The way out: do as much as you can with what you have, before you fetch something else. Cut all three matrices into
# *tiles* (分块) of t by t. Take one tile of `a`, one of `b` and one of `out`, which fit into the cache together, and do all that
# can be done with these: t·t·t multiplications for at most 3·t·t numbers.
#
# Let's count numbers now, not lines. There are (n/t)³ such products of tiles. If the tile of `out` stays until it is finished,
# each needs 2·t·t new numbers, and `out` is loaded once:
#
# (n/t)³ · 2·t² + n² = (2·n/t + 1) · n²
#
# For n = 24<!--= 24 --> and t = 6 this is 5,184<!--= (2*24//6 + 1) * 24**2 -->, and the cache has to hold little more than
# three tiles. With a cache of 144<!--= 4*6*6 --> numbers, `rows` loads n³ + 2·n² = 14,976<!--= 24**3 + 2*24**2 --> of them.
# Twice the tile, nearly half the loads.
#
# ## Exercise E3: a matrix product in tiles
#
# Your grade doesn't depend on how fast this machine is: loads are counted as above, number by number.

# %% tags=["exercise"]
# !%%exercise e03

# %% tags=["check"]
check("e03")

# %%
hint("e03", 1)

# %% [markdown]
# Did it get faster, too? Perhaps a little, perhaps not: a processor of today sees a row coming and fetches it before it is
# asked for, so that `rows` waits less than the count says. Where there is no such help, tiles are all there is: a GPU or an NPU
# has a small memory beside each core, and every product of matrices on it is made of tiles. So is the one inside numpy.
#
# ## Small print of fast loops
#
# Two kernels that do the same, one of which is several times slower than the other. Can you see why?

# %%
@numba.njit
def add_at(x, y, start, n):
    for i in range(n):
        y[start + i] += 2 * x[start + i]


@numba.njit
def add_slice(x, y, start, n):
    mine, target = x[start:start + n], y[start:start + n]
    for i in range(len(mine)):
        target[i] += 2 * mine[i]


x, y = np.ones(20_000, np.float32), np.ones(20_000, np.float32)
for kernel in add_at, add_slice:
    print(f"{kernel.__name__:<10} {seconds(kernel, x, y, 100, 10_000, times=20) * 1e6:6.1f} µs")

# %% [markdown]
# In Python, `x[-1]` is the last element. So with every `x[start + i]` the machine code must ask whether the index is negative,
# and as long as it asks it can't take eight or sixteen numbers at a time (*SIMD*, 向量化). In a slice, `i` counts from 0 up, and
# Numba sees that it is never negative. Slice first, then index.
#
# And sums. A sum must be taken in the order that is written, since rounding depends on it, and one after the other is slow. You
# can allow another order:

# %%
def total(x):
    s = np.float32(0)
    for i in range(len(x)):
        s += x[i]
    return s


in_order, any_order = numba.njit(total), numba.njit(fastmath={"reassoc", "nsz"})(total)
x = np.random.default_rng(0).random(10_000, np.float32)
for name, kernel in {"in order": in_order, "any order": any_order}.items():
    print(f"{name:<10} {seconds(kernel, x, times=20) * 1e6:6.1f} µs   {kernel(x):.3f}")
print(f"in float64 {'':>9}   {x.sum(dtype=np.float64):.3f}")

# %% [markdown]
# Don't write `fastmath=True` instead of the two words: it also promises that no NaN and no infinity ever comes, and then a
# training that goes wrong may not show it.
#
# ## Several cores
#
# `prange` shares the rounds of a loop out over the cores. Such a kernel gets a process of its own here, with `%%msrun -n 1`.
# You will see why.

# %%
# !%%msrun -n 1
import time

import numba
import numpy as np
from numba import prange


@numba.njit(parallel=True)
def shared_total(x):
    total = np.zeros(1)
    for i in prange(len(x)):
        total[0] += x[i]                    # all cores write here
    return total[0]


@numba.njit(parallel=True)
def own_totals(x):
    total = 0.0
    for i in prange(len(x)):
        total += x[i]                       # each core has its own; Numba adds them in the end
    return total


x = np.ones(4_000_000)
for kernel in shared_total, own_totals:
    kernel(x)
    begin = time.perf_counter()
    result = kernel(x)
    print(f"{kernel.__name__:<13} {result:>11,.0f}  {(time.perf_counter() - begin) * 1e3:5.1f} ms  "
          f"on {numba.get_num_threads()} cores")
right = own_totals(x) == len(x)

# %%
assert job[0].right

# %% [markdown]
# Four million ones, and the first kernel may find fewer: two cores read the same total, both add their one, both write it back,
# and one of the two is lost. That is a *race* (竞争). With one core there is none, so such a mistake may hide on your machine.
# The second kernel is right: `total += …` on a plain number is a *reduction* (归约), which Numba knows.
#
# You have met this before. It is an AllReduce: everybody has a part of the sum, and no two write to the same place.
#
# Now why the process of its own. Thread ranks are threads, and Numba's cores are threads, too. The simplest of Numba's ways to
# share work out can't be used from two threads at once:

# %%
# !%%msrun -n 1 --env NUMBA_THREADING_LAYER=workqueue --env NUMBA_NUM_THREADS=2 --may-fail
import threading

import numba
import numpy as np
from numba import prange


@numba.njit(parallel=True)
def double(x):
    for i in prange(len(x)):
        x[i] *= 2


x = np.ones(1_000_000)
double(x)


def again():
    for _ in range(100):
        double(x)


threads = [threading.Thread(target=again) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

# %%
assert job.exit_code != 0
print(job)

# %% [markdown]
# The process is gone, with all its variables. Here it was one that we could spare; in a notebook it would have been the kernel
# with all your work. So: **no `parallel=True` next to thread ranks.** minispore's own kernels are never `parallel`: with a rank
# for each core the cores are busy already.
#
# ## When a kernel is wrong
#
# Machine code doesn't check indices. This reads behind the end of `x`, and `print` would be no help inside it:

# %%
# !%%msrun -n 1
import numba
import numpy as np


@numba.njit
def differences(x, out):
    for i in range(len(x)):
        out[i] = x[i + 1] - x[i]


x, out = np.array([1.0, 4.0, 9.0]), np.zeros(3)
differences(x, out)
print("without checks:", out)

# %% [markdown]
# The last difference is made of something that was never in `x`. If it had been written instead of read, it might have
# destroyed another array, and the crash would come much later. The same script once more, with one variable in the environment:

# %%
# !%%msrun -n 1 --env NUMBA_DISABLE_JIT=1 --may-fail
import numba
import numpy as np


@numba.njit
def differences(x, out):
    for i in range(len(x)):
        print("i =", i)
        out[i] = x[i + 1] - x[i]


x, out = np.array([1.0, 4.0, 9.0]), np.zeros(3)
differences(x, out)

# %%
assert job.error is not None

# %% [markdown]
# `NUMBA_DISABLE_JIT=1` makes `njit` do nothing: the loops run as ordinary Python, with every check, with `print`, with a
# debugger. For a kernel that is compiled already, `kernel.py_func` is the Python function. And `numba.njit(boundscheck=True)`
# compiles with checks.
#
# ## Compiled once, for all
#
# The compiled code is lost when the process ends, unless `cache=True` lets Numba keep it in a file. This script runs twice, as
# two processes:

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import time, numba, numpy as np

@numba.njit(cache=True)
def columns(a, b, out):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = total

numba.njit(lambda: None)()                          # Numba itself needs a moment to start
x = np.ones((2, 2))
begin = time.perf_counter()
columns(x, x, x.copy())
found = sum(columns.stats.cache_hits.values())
print(f"{(time.perf_counter() - begin) * 1e3:6.1f} ms, {'found in the cache' if found else 'compiled'}")
"""
with tempfile.TemporaryDirectory() as folder:
    script = Path(folder, "kernels.py")
    script.write_text(SCRIPT)
    said = [subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout for _ in range(2)]
print(*said, sep="")
assert "compiled" in said[0] and "found" in said[1]

# %% [markdown]
# Four ranks that start together would compile the same kernel four times, at the same time, and get in each other's way.
# minispore lets one of them compile; the others wait and load. Its kernels (`minispore/device/kernels`) are marked `@kernel`, a
# small thing around `njit` that sees to this, and to this:

# %%
from minispore.device.kernels.jit import kernel


@kernel
def scale(x, factor):
    for i in range(len(x)):
        x[i] *= factor


x = np.arange(6.0)
scale(x, 10.0)
print(x)
try:
    scale(x[::2], 10.0)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Quiz
#
# <details><summary>A kernel takes a second at its first call and a millisecond later. Your colleague measures one call. What does he
# measure?</summary>
#
# The compiler. Call it once before you measure, with arguments of the same dtypes and dims.
# </details>
#
# <details><summary>With tiles of 6 there were 5,184<!--= (2*24//6 + 1) * 24**2 --> loads. How many are there with tiles of 12<!--= 12 -->,
# and what do they need?</summary>
#
# (2·2 + 1)·576<!--= 24*24 --> = 2,880<!--= (2*24//12 + 1) * 24**2 -->, and a cache for three tiles of 144<!--= 12*12 --> numbers.
# </details>
#
# <details><summary><code>for i in prange(n): x[i] = x[i - 1] + 1</code>: what is wrong?</summary>
#
# Each round needs the one before, but the cores do them in any order. `prange` is for rounds that don't need each other.
# </details>
#
# ## In MindSpore
#
# - A kernel **is in MindSpore** C++ for the CPU, CUDA for GPUs, and for Ascend a program of its own that moves tiles between
#   memories by hand.
# - A kernel of yours in a network **is in MindSpore** `ops.Custom`. In minispore it is a primitive whose `cpu` method calls it.
# - `cache=True` **is in MindSpore** the compile cache of graphs, `set_context(enable_compile_cache=True)`.
#
# ## Pitfalls
#
# Three errors you will meet: something that Numba doesn't know, a type that changes, and a cache where there is no file:

# %%
@numba.njit
def unknown(x):
    return x.median()


@numba.njit
def changing(n):
    result = 0
    if n > 0:
        result = "many"
    return result


text = "@numba.njit(cache=True)\ndef from_text(x):\n    return x + 1"

for wrong in (lambda: unknown(np.ones(3))), (lambda: changing(3)), (lambda: exec(text)):
    try:
        wrong()
    except (numba.TypingError, RuntimeError) as error:
        print(type(error).__name__, "\n    ".join(["", *filter(str.strip, str(error).splitlines()[:4])]), "\n")
    else:
        raise AssertionError("this was to fail")

# %% [markdown]
# - `TypingError`: read the first lines, and the line number, which counts within the cell. Numba knows loops, arithmetic,
#   tuples and a good part of numpy.
# - `cannot cache`: code that stands in no file, as in `exec`. In a cell `cache=True` works, but with every change of the cell
#   another file is kept. Put kernels that you want to keep into a module, a `.py` file beside the notebook.
