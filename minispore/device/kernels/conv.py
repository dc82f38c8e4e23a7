"""2-D convolution and its two gradients, as one idea: long runs of numbers, multiplied and added.

Written down as defined, a convolution is seven nested loops over tiny ranges, which no processor likes. So a
block of samples is first copied into a *page*, where the sample is the innermost dim, padding is zeros and
pixels that a stride visits together lie together:

    x (n, i, y, z)  ->  page (i, y % sh, z % sw, y // sh, z // sw, n)

Now all samples of one output row are one contiguous *run*, and what the weight at a kernel position (i, k, l)
touches is a run of the same length, a fixed distance further: its *tap*. With the taps in a table,

    conv2d          out run o         +=  Σ_t  w[o, t] · (x page's run at tap t)
    conv2d_input    (dx page's run at tap t)  +=  Σ_o  w[o, t] · dout run o
    conv2d_filter   dw[o, t]          +=  dout run o  ·  (x page's run at tap t)

The forward pass reads at the taps, the input's gradient writes at the taps (so a stride costs it nothing),
the filter's gradient is dot products; size, stride, padding and dilation are all in the table.

Arrays are float32 or float64, NCHW, contiguous; stride (sh, sw), pads (top, bottom, left, right), dilation
(dh, dw). `out`, `dx`, `dw` are overwritten.
"""
import numpy as np

from .jit import FAST_SUMS, kernel

RUN = 256       # numbers in a run worth starting a loop for: a block has so many samples that a row has them
CHUNK = 24      # source runs worked through before the next destination: they stay in the first-level cache


@kernel(fastmath=FAST_SUMS)
def conv2d(x, w, out, stride, pads, dilation):
    """out[n,o,p,q] = Σ_ikl x[n, i, p·sh + k·dh - top, q·sw + l·dw - left] · w[o,i,k,l]

    for each block of samples, each run, each output channel o, each tap t:
        out[o, run] += w[o, t] · x[tap t + run]
    """
    block, height, width, rows, cols = _plan(x, out, stride, pads)
    x_page, y_page = _pages(x, out, block, height, width, stride)
    table = w.reshape((w.shape[0], -1))
    for n in range(0, x.shape[0], block):
        samples = min(block, x.shape[0] - n)
        taps = _taps(w, height, width, stride, dilation) * samples
        channels = np.arange(out.shape[1]) * (out.shape[2] * width * samples)
        _load(x[n:n + samples], x_page, height, width, stride, pads)
        y_page[:] = 0
        for p in range(0, out.shape[2], rows):
            _mix(y_page, channels, x_page, taps, table, p * width * samples, cols * samples)
        _store(y_page, out[n:n + samples], out.shape[2], width, (1, 1), (0, 0, 0, 0))


@kernel(fastmath=FAST_SUMS)
def conv2d_input(dout, w, dx, stride, pads, dilation):
    """dx[n,i,y,z] = Σ_okl dout[n,o,p,q] · w[o,i,k,l], over the p, q with p·sh + k·dh - top = y, likewise z

    for each block of samples, each run, each tap t of input channel i, each output channel o:
        dx[tap t + run] += w[o, t] · dout[o, run]
    """
    block, height, width, rows, cols = _plan(dx, dout, stride, pads)
    x_page, y_page = _pages(dx, dout, block, height, width, stride)
    inputs, positions = w.shape[1], w.shape[2] * w.shape[3]
    table = w.reshape((w.shape[0], inputs, positions)).transpose(2, 1, 0).copy()
    for n in range(0, dx.shape[0], block):
        samples = min(block, dx.shape[0] - n)
        taps = (_taps(w, height, width, stride, dilation) * samples).reshape((inputs, positions)).T.copy()
        channels = np.arange(dout.shape[1]) * (dout.shape[2] * width * samples)
        _load(dout[n:n + samples], y_page, dout.shape[2], width, (1, 1), (0, 0, 0, 0))
        x_page[:] = 0
        for p in range(0, dout.shape[2], rows):
            for k in range(positions):
                _mix(x_page, taps[k], y_page, channels, table[k], p * width * samples, cols * samples)
        _store(x_page, dx[n:n + samples], height, width, stride, pads)


@kernel(fastmath=FAST_SUMS)
def conv2d_filter(dout, x, dw, stride, pads, dilation):
    """dw[o,i,k,l] = Σ_npq dout[n,o,p,q] · x[n, i, p·sh + k·dh - top, q·sw + l·dw - left]

    for each block of samples, each run, each output channel o, each tap t:
        dw[o, t] += dout[o, run] · x[tap t + run]        (a dot product)
    """
    block, height, width, rows, cols = _plan(x, dout, stride, pads)
    x_page, y_page = _pages(x, dout, block, height, width, stride)
    table = dw.reshape((dw.shape[0], -1))
    table[:] = 0
    for n in range(0, x.shape[0], block):
        samples = min(block, x.shape[0] - n)
        taps = _taps(dw, height, width, stride, dilation) * samples
        channels = np.arange(dout.shape[1]) * (dout.shape[2] * width * samples)
        _load(x[n:n + samples], x_page, height, width, stride, pads)
        _load(dout[n:n + samples], y_page, dout.shape[2], width, (1, 1), (0, 0, 0, 0))
        for p in range(0, dout.shape[2], rows):
            _correlate(table, y_page, channels, x_page, taps, p * width * samples, cols * samples)


@kernel
def _plan(x, out, stride, pads):
    """(samples in a block, page height, page width, output rows in a run, pixels in a run)"""
    height = (x.shape[2] + pads[0] + pads[1] + stride[0] - 1) // stride[0]
    width = (x.shape[3] + pads[2] + pads[3] + stride[1] - 1) // stride[1]
    rows, cols = out.shape[2], out.shape[3]
    block = 1
    while block < x.shape[0] and block * cols < RUN:
        block *= 2
    block = max(1, min(block, x.shape[0]))
    if block * cols >= 128:
        return block, height, width, 1, cols
    # So few samples that a row is short: let the whole image be one run. Between two rows it passes over the
    # pixels where the kernel would hang over the edge; what they get is never read (see _store), what they
    # give is zero (see _load).
    return block, height, width, rows, (rows - 1) * width + cols


@kernel
def _pages(x, out, block, height, width, stride):
    """Room for a block of x and of out; out's rows are as far apart as x's, so that one run serves both."""
    x_size = x.shape[1] * stride[0] * stride[1] * height * width * block
    y_size = out.shape[1] * out.shape[2] * width * block
    return _aligned(x_size, x.dtype), _aligned(y_size, x.dtype)


@kernel
def _aligned(size, dtype):
    """Uninitialised numbers that start where a cache line does, as then no vector is in two."""
    room = np.empty(size + 16, dtype)
    return room[-(room.ctypes.data // room.itemsize) % 16:][:size]


@kernel
def _taps(w, height, width, stride, dilation):
    """For each (i, k, l) the distance in its page, in pixels, from the first output's place."""
    taps = np.empty(w.shape[1] * w.shape[2] * w.shape[3], np.int64)
    t = 0
    for i in range(w.shape[1]):
        for k in range(w.shape[2]):
            for l in range(w.shape[3]):
                y, z = k * dilation[0], l * dilation[1]
                plane = (i * stride[0] + y % stride[0]) * stride[1] + z % stride[1]
                taps[t] = (plane * height + y // stride[0]) * width + z // stride[1]
                t += 1
    return taps


@kernel
def _load(images, page, height, width, stride, pads):
    """page (c, y % sh, z % sw, y // sh, z // sw, n) = images (n, c, y - top, z - left), zero elsewhere."""
    samples, channels, rows = images.shape[:3]
    step = stride[1]
    if page.size > images.size:
        page[:] = 0
    for c in range(channels):
        for row in range(rows):
            for phase in range(step):
                line, col, count = _line(page, images.shape, c, row, phase, height, width, stride, pads)
                for n in range(samples):
                    cells, pixels = line[n:], images[n, c, row, col:]
                    for j in range(count):
                        cells[j * samples] = pixels[j * step]


@kernel
def _store(page, images, height, width, stride, pads):
    """images (n, c, y - top, z - left) = page (c, y % sh, z % sw, y // sh, z // sw, n): the way back."""
    samples, channels, rows = images.shape[:3]
    step = stride[1]
    for c in range(channels):
        for row in range(rows):
            for phase in range(step):
                line, col, count = _line(page, images.shape, c, row, phase, height, width, stride, pads)
                for n in range(samples):
                    cells, pixels = line[n:], images[n, c, row, col:]
                    for j in range(count):
                        pixels[j * step] = cells[j * samples]


@kernel
def _line(page, shape, c, row, phase, height, width, stride, pads):
    """One phase of an image row: (the page from its first pixel on, this pixel's column, number of pixels)"""
    y, left, step = row + pads[0], pads[2], stride[1]
    z = max(0, left - phase + step - 1) // step
    line = ((c * stride[0] + y % stride[0]) * step + phase) * height + y // stride[0]
    col = z * step + phase - left
    return page[(line * width + z) * shape[0]:], col, (shape[3] - col + step - 1) // step


@kernel(fastmath=FAST_SUMS)
def _mix(to, to_at, source, source_at, weights, start, length):
    """to[to_at[d] + i] += Σ_s weights[d, s] · source[source_at[s] + i], for each d and each i in the run."""
    outputs, inputs = weights.shape
    for first in range(0, inputs, CHUNK):
        some = source_at[first:first + CHUNK] + start
        for d in range(0, outputs - 1, 2):
            _add_to_two(to[to_at[d] + start:][:length], to[to_at[d + 1] + start:][:length], source, some,
                        weights[d, first:], weights[d + 1, first:])
        if outputs % 2:
            _add_to_one(to[to_at[outputs - 1] + start:][:length], source, some, weights[outputs - 1, first:])


@kernel(fastmath=FAST_SUMS)
def _add_to_two(a, b, source, at, wa, wb):
    """a[:] += Σ_s wa[s] · source[at[s]:], b[:] likewise. Four sources at a time: eight multiply-adds for six
    loads, and the weights stay in registers."""
    fours = at.shape[0] // 4 * 4
    for j in range(0, fours, 4):
        r, s, t, u = source[at[j]:], source[at[j + 1]:], source[at[j + 2]:], source[at[j + 3]:]
        a0, a1, a2, a3 = wa[j], wa[j + 1], wa[j + 2], wa[j + 3]
        b0, b1, b2, b3 = wb[j], wb[j + 1], wb[j + 2], wb[j + 3]
        for i in range(a.shape[0]):
            x, y, z, v = r[i], s[i], t[i], u[i]
            a[i] += a0 * x + a1 * y + a2 * z + a3 * v
            b[i] += b0 * x + b1 * y + b2 * z + b3 * v
    for j in range(fours, at.shape[0]):
        r, a0, b0 = source[at[j]:], wa[j], wb[j]
        for i in range(a.shape[0]):
            x = r[i]
            a[i] += a0 * x
            b[i] += b0 * x


@kernel(fastmath=FAST_SUMS)
def _add_to_one(a, source, at, wa):
    """The same for the last of an odd number."""
    fours = at.shape[0] // 4 * 4
    for j in range(0, fours, 4):
        r, s, t, u = source[at[j]:], source[at[j + 1]:], source[at[j + 2]:], source[at[j + 3]:]
        a0, a1, a2, a3 = wa[j], wa[j + 1], wa[j + 2], wa[j + 3]
        for i in range(a.shape[0]):
            a[i] += a0 * r[i] + a1 * s[i] + a2 * t[i] + a3 * u[i]
    for j in range(fours, at.shape[0]):
        r, a0 = source[at[j]:], wa[j]
        for i in range(a.shape[0]):
            a[i] += a0 * r[i]


@kernel(fastmath=FAST_SUMS)
def _correlate(to, left, left_at, right, right_at, start, length):
    """to[d, s] += Σ_i left[left_at[d] + i] · right[right_at[s] + i], over the run, for each d and s."""
    outputs, inputs = to.shape
    for first in range(0, inputs, CHUNK):
        some = right_at[first:first + CHUNK] + start
        for d in range(0, outputs - 1, 2):
            _dots_of_two(to[d, first:], to[d + 1, first:], left[left_at[d] + start:][:length],
                         left[left_at[d + 1] + start:][:length], right, some)
        if outputs % 2:
            _dots_of_one(to[outputs - 1, first:], left[left_at[outputs - 1] + start:][:length], right, some)


@kernel(fastmath=FAST_SUMS)
def _dots_of_two(to_a, to_b, a, b, right, at):
    """to_a[s] += a · right[at[s]:], to_b[s] likewise. Four at a time: eight sums in registers, six loads."""
    zero = a.dtype.type(0)
    fours = at.shape[0] // 4 * 4
    for j in range(0, fours, 4):
        r, s, t, u = right[at[j]:], right[at[j + 1]:], right[at[j + 2]:], right[at[j + 3]:]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
        for i in range(a.shape[0]):
            a0 += a[i] * r[i]
            a1 += a[i] * s[i]
            a2 += a[i] * t[i]
            a3 += a[i] * u[i]
            b0 += b[i] * r[i]
            b1 += b[i] * s[i]
            b2 += b[i] * t[i]
            b3 += b[i] * u[i]
        to_a[j] += a0
        to_a[j + 1] += a1
        to_a[j + 2] += a2
        to_a[j + 3] += a3
        to_b[j] += b0
        to_b[j + 1] += b1
        to_b[j + 2] += b2
        to_b[j + 3] += b3
    _dots_of_one(to_a[fours:], a, right, at[fours:])
    _dots_of_one(to_b[fours:], b, right, at[fours:])


@kernel(fastmath=FAST_SUMS)
def _dots_of_one(to, a, right, at):
    for j in range(at.shape[0]):
        r, total = right[at[j]:], a.dtype.type(0)
        for i in range(a.shape[0]):
            total += a[i] * r[i]
        to[j] += total
