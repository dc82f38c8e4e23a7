"""The CPU's compiled loops against the same formulas written as plainly as numpy allows."""
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from minispore.device.kernels import conv, jit, pool, reduce

few = settings(max_examples=60, deadline=None, derandomize=True)
floats = st.sampled_from([np.float32, np.float64])
small = st.integers(1, 3)


def close(got, want, dtype):
    np.testing.assert_allclose(got, want, rtol=0, atol=(1e-4 if dtype == np.float32 else 1e-11))


# Convolution

def plain_conv(x, w, stride, pads, dilation):
    (sh, sw), (top, bottom, left, right), (dh, dw) = stride, pads, dilation
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    rows = (x.shape[2] - (w.shape[2] - 1) * dh - 1) // sh + 1
    cols = (x.shape[3] - (w.shape[3] - 1) * dw - 1) // sw + 1
    out = np.zeros((x.shape[0], w.shape[0], rows, cols))
    for p in range(rows):
        for q in range(cols):
            for k in range(w.shape[2]):
                for l in range(w.shape[3]):
                    pixels = x[:, :, p * sh + k * dh, q * sw + l * dw]
                    out[:, :, p, q] += pixels @ w[:, :, k, l].T.astype(np.float64)
    return out


@st.composite
def convolutions(draw):
    """(x, w, dout, attributes): images smaller than the kernel, too, if padding makes up for it"""
    dtype, kernel = draw(floats), draw(st.tuples(small, small))
    stride, dilation = draw(st.tuples(small, small)), draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    size = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    n, i, o = draw(st.sampled_from([0, 1, 2, 7, 70])), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    spare = [size[a] + pads[2 * a] + pads[2 * a + 1] - (kernel[a] - 1) * dilation[a] - 1 for a in (0, 1)]
    assume(min(spare) >= 0)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    normal = lambda *shape: rng.standard_normal(shape).astype(dtype)
    dout = normal(n, o, spare[0] // stride[0] + 1, spare[1] // stride[1] + 1)
    return normal(n, i, *size), normal(o, i, *kernel), dout, (stride, pads, dilation)


@few
@given(convolutions())
def test_conv2d_is_its_formula(case):
    x, w, dout, how = case
    out = np.full_like(dout, np.nan)
    conv.conv2d(x, w, out, *how)
    close(out, plain_conv(x, w, *how), x.dtype)


@few
@given(convolutions())
def test_the_gradients_are_the_adjoints(case):
    """<conv(x, w), dout> = <x, dx> = <w, dw>, for each element of x and w by linearity in random ones"""
    x, w, dout, how = case
    dx, dw = np.full_like(x, np.nan), np.full_like(w, np.nan)
    conv.conv2d_input(dout, w, dx, *how)
    conv.conv2d_filter(dout, x, dw, *how)
    want = np.vdot(plain_conv(x, w, *how), dout)
    scale = 1 + np.linalg.norm(dout) * np.linalg.norm(x) * np.linalg.norm(w)
    close(np.vdot(x.astype(np.float64), dx) / scale, want / scale, x.dtype)
    close(np.vdot(w.astype(np.float64), dw) / scale, want / scale, x.dtype)


@few
@given(convolutions(), st.integers(0, 10**6))
def test_each_element_of_the_gradients(case, pick):
    """The gradient to one element is <conv(unit vector), dout>."""
    x, w, dout, how = case
    dx, dw = np.full_like(x, np.nan), np.full_like(w, np.nan)
    conv.conv2d_input(dout, w, dx, *how)
    conv.conv2d_filter(dout, x, dw, *how)
    if x.size:
        unit = np.zeros_like(x)
        unit.flat[pick % x.size] = 1
        close(dx.flat[pick % x.size], np.vdot(plain_conv(unit, w, *how), dout), x.dtype)
    unit = np.zeros_like(w)
    unit.flat[pick % w.size] = 1
    close(dw.flat[pick % w.size], np.vdot(plain_conv(x, unit, *how), dout), x.dtype)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_pixel_spoils_just_its_windows(bad):
    x, w = np.ones((2, 1, 6, 6), np.float32), np.ones((1, 1, 3, 3), np.float32)
    x[1, 0, 0, 0] = bad
    out = np.empty((2, 1, 4, 4), np.float32)
    conv.conv2d(x, w, out, (1, 1), (0, 0, 0, 0), (1, 1))
    expected = np.full_like(out, 9)
    expected[1, 0, 0, 0] = bad
    np.testing.assert_array_equal(out, expected)


def test_read_only_inputs_are_fine_and_strided_ones_an_error():
    x, w = np.ones((1, 1, 3, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    x.flags.writeable = False
    out = np.empty((1, 1, 1, 2), np.float32)
    conv.conv2d(x, w, out, (1, 1), (0, 0, 0, 0), (1, 1))
    assert out.tolist() == [[[[9, 9]]]]
    with pytest.raises(ValueError, match="ascontiguousarray"):
        conv.conv2d(x.swapaxes(2, 3), w, out, (1, 1), (0, 0, 0, 0), (1, 1))


# Pooling

def windows(x, kernel, stride, pads):
    """(n, c, p, q, flat positions in the image, row-major) of every window"""
    for n, c in np.ndindex(*x.shape[:2]):
        height, width = x.shape[2:]
        for p in range((height + pads[0] + pads[1] - kernel[0]) // stride[0] + 1):
            for q in range((width + pads[2] + pads[3] - kernel[1]) // stride[1] + 1):
                y = np.arange(kernel[0]) + p * stride[0] - pads[0]
                z = np.arange(kernel[1]) + q * stride[1] - pads[2]
                y, z = y[(y >= 0) & (y < height)], z[(z >= 0) & (z < width)]
                yield n, c, p, q, (y[:, None] * width + z).ravel()


@st.composite
def pools(draw):
    """(x, dout, g, attributes): few different values (ties), sometimes NaN and infinities"""
    dtype, kernel, stride = draw(floats), draw(st.tuples(small, small)), draw(st.tuples(small, small))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    size = draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    rows, cols = ((size[a] + pads[2 * a] + pads[2 * a + 1] - kernel[a]) // stride[a] + 1 for a in (0, 1))
    assume(min(rows, cols) > 0)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = draw(st.sampled_from([[0, 1], [-1, 0, 1, 2], [np.nan, 0, 1, -np.inf], [-np.inf]]))
    x = rng.choice(np.array(values, dtype), (2, 2, *size))
    dout, g = (rng.standard_normal((2, 2, *s)).astype(dtype) for s in ((rows, cols), size))
    return x, dout, g, (kernel, stride, pads)


@few
@given(pools())
def test_pooling_is_its_formula(case):
    x, dout, g, how = case
    out, picked = np.empty_like(dout), np.empty_like(dout)
    dx, want_dx = np.full_like(x, np.nan), np.zeros_like(x)
    pool.max_pool(x, out, *how)
    pool.max_pool_grad(x, dout, dx, *how)
    pool.max_pool_gather(x, g, picked, *how)
    for n, c, p, q, places in windows(x, *how):
        if not places.size:
            assert out[n, c, p, q] == -np.inf and picked[n, c, p, q] == 0
            continue
        winner = places[x[n, c].flat[places].argmax()]          # numpy's argmax: the first; a NaN before all
        np.testing.assert_equal(out[n, c, p, q], x[n, c].flat[winner])
        assert picked[n, c, p, q] == g[n, c].flat[winner]
        want_dx[n, c].flat[winner] += dout[n, c, p, q]
    close(dx, want_dx, x.dtype)
    scale = 1 + np.linalg.norm(dout) * np.linalg.norm(g)
    close(np.vdot(dx, g) / scale, np.vdot(dout, picked) / scale, x.dtype)


# Reduction

@pytest.mark.parametrize("op", reduce.OPS)
@pytest.mark.parametrize("dtype", ["?", *"bhilqBHILQ", *"efd"])
def test_accumulate(op, dtype):
    rng = np.random.default_rng(0)
    dst, src = (rng.integers(0, 9, 1000).astype(dtype) for _ in range(2))
    if dst.dtype.kind == "f":
        dst[3] = src[5] = np.nan
    plain = {"sum": dst + src, "prod": dst * src, "max": np.where(dst >= src, dst, src),
             "min": np.where(dst <= src, dst, src)}[op]
    if dst.dtype.kind == "f":
        plain[[3, 5]] = np.nan
    assert reduce.accumulate(op)(dst, src) is None
    np.testing.assert_array_equal(dst, plain)
    assert dst.dtype == np.dtype(dtype)


def test_accumulate_names_its_ops():
    with pytest.raises(ValueError, match="sum, prod, max, min"):
        reduce.accumulate("mean")


# Compilation



PROGRAM = """
import sys, numpy as np
from minispore.device.kernels import conv, jit, pool
assert "numba" not in sys.modules
x = np.arange(32, dtype=sys.argv[1]).reshape(2, 1, 4, 4)
out = np.empty((2, 1, 2, 2), x.dtype)
pool.max_pool(x, out, (2, 2), (2, 2), (0, 0, 0, 0))
print(out.ravel().astype(int).tolist())
"""
ANSWER = "[5, 7, 13, 15, 21, 23, 29, 31]"


def start(folder, dtype, **env):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env = {**os.environ, "PYTHONPATH": root, "MINISPORE_CACHE": str(folder), **env}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, dtype], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_processes_that_compile_at_once(tmp_path):
    """Four ranks, two dtypes, an empty cache: all get it right, and both versions end up in the cache."""
    ranks = [start(tmp_path, dtype) for dtype in ("float32", "float64") * 2]
    assert [rank.communicate()[0].strip() for rank in ranks] == [ANSWER] * 4
    assert len(list(tmp_path.rglob("pool.max_pool-*.nbc"))) == 2


def test_without_compiler(tmp_path):
    """NUMBA_DISABLE_JIT=1: the same loops in plain Python, nothing compiled, no Numba"""
    rank = start(tmp_path, "float32", NUMBA_DISABLE_JIT="1")
    assert rank.communicate()[0].strip() == ANSWER
    assert not list(tmp_path.iterdir())


def test_a_cache_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    rank = start(tmp_path / "file" / "folder", "float32", TMPDIR=str(tmp_path), NUMBA_DISABLE_JIT="0")
    assert rank.communicate()[0].strip() == ANSWER


def test_threads_that_compile_at_once():
    """One compilation serves all threads."""
    @jit.kernel
    def double(x):
        for i in range(x.shape[0]):
            x[i] *= 2

    rows = np.ones((4, 10))
    threads = [threading.Thread(target=double, args=(row,)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (rows == 2).all() and len(double.compiled) == 1
