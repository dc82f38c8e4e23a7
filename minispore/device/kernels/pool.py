"""Max pooling, its gradient, and the gradient's gradient.

The first maximum in row-major window order wins; padding never does; a NaN wins against every number, so that it is
seen. The gradients ask again who wins: keeping the winners would take as much memory as the image.

Arrays are float32 or float64, NCHW, contiguous; kernel (kh, kw), stride (sh, sw), pads (top, bottom, left, right).
`out` and `dx` are overwritten. A window of nothing but padding has no winner: -inf, and no gradient.
"""
import numpy as np

from .jit import kernel

NOBODY = np.int32(2 ** 31 - 1)          # the row of a column where all is padding

@kernel
def max_pool(x, out, kernel, stride, pads):
    """out[n,c,p,q] = max_kl x[n, c, p·sh + k - top, q·sw + l - left]

    The maximum is separable: first down each column of a band of rows, as one long vector, then across.
    """
    images, results = _planes(x), _planes(out)
    height, width = images.shape[1:]
    tall = np.empty(width + pads[2] + pads[3], x.dtype)         # one band's column maxima, between the padding
    inner = tall[pads[2]:pads[2] + width]
    for c in range(images.shape[0]):
        for p in range(results.shape[1]):
            tall[:] = -np.inf
            y = p * stride[0] - pads[0]
            for k in range(max(0, -y), min(kernel[0], height - y)):
                _down(inner, images[c, y + k])
            # The usual sizes stand as literals: then the compiler loads them as vectors.
            if kernel[1] == 2 and stride[1] == 2:
                _across(results[c, p], tall, 2, 2)
            elif kernel[1] == 3 and stride[1] == 2:
                _across(results[c, p], tall, 3, 2)
            else:
                _across(results[c, p], tall, kernel[1], stride[1])


@kernel
def max_pool_grad(x, dout, dx, kernel, stride, pads):
    """dx[winner of window n,c,p,q] += dout[n,c,p,q], where windows overlap more than once"""
    images, grads = _planes(x), _planes(dout)
    width = images.shape[2] + pads[2] + pads[3]
    tall, rows, at = np.empty(width, x.dtype), np.empty(width, np.int32), np.empty(grads.shape[2], np.int32)
    for c in range(images.shape[0]):
        to = _planes(dx)[c].reshape(-1)
        to[:] = 0
        for p in range(grads.shape[1]):
            _winners(at, tall, rows, images[c], p * stride[0] - pads[0], kernel, stride, pads)
            for q in range(at.shape[0]):
                if at[q] >= 0:
                    to[at[q]] += grads[c, p, q]


@kernel
def max_pool_gather(x, g, out, kernel, stride, pads):
    """out[n,c,p,q] = g[winner of window n,c,p,q in x], the transpose of max_pool_grad"""
    images, results = _planes(x), _planes(out)
    width = images.shape[2] + pads[2] + pads[3]
    tall, rows, at = np.empty(width, x.dtype), np.empty(width, np.int32), np.empty(results.shape[2], np.int32)
    for c in range(images.shape[0]):
        source = _planes(g)[c].reshape(-1)
        for p in range(results.shape[1]):
            _winners(at, tall, rows, images[c], p * stride[0] - pads[0], kernel, stride, pads)
            for q in range(at.shape[0]):
                results[c, p, q] = source[at[q]] if at[q] >= 0 else 0


@kernel
def _planes(images):
    """(N, C, H, W) seen as (N·C, H, W)"""
    return images.reshape((images.shape[0] * images.shape[1], images.shape[2], images.shape[3]))


@kernel
def _down(tall, line):
    """tall[z] = max(tall[z], line[z])"""
    for z in range(tall.shape[0]):
        value, best = line[z], tall[z]
        tall[z] = value if (value > best) | (value != value) else best


@kernel
def _across(row, tall, size, step):
    """row[q] = max of the `size` values of tall from q·step on"""
    for q in range(row.shape[0]):
        best = tall[q * step]
        for l in range(1, size):
            value = tall[q * step + l]
            best = value if (value > best) | (value != value) else best
        row[q] = best


@kernel
def _winners(at, tall, rows, image, y, kernel, stride, pads):
    """at[q] = place in the plane of the first maximum of window q of the band that begins at row y; -1: all padding."""
    height, width = image.shape
    tall[:] = -np.inf
    rows[:] = NOBODY
    for k in range(max(0, -y), min(kernel[0], height - y)):
        _down_at(tall[pads[2]:pads[2] + width], rows[pads[2]:pads[2] + width], image[y + k], np.int32(y + k))
    if kernel[1] == 2 and stride[1] == 2:
        _across_at(at, tall, rows, 2, 2)
    elif kernel[1] == 3 and stride[1] == 2:
        _across_at(at, tall, rows, 3, 2)
    else:
        _across_at(at, tall, rows, kernel[1], stride[1])
    for q in range(at.shape[0]):
        column, row = at[q] - pads[2], rows[at[q]]
        at[q] = -1 if row == NOBODY else row * width + column


@kernel
def _down_at(tall, rows, line, row):
    """As _down, and the row of each column's first maximum. No branch: who wins is random, a wrong guess costs dearly."""
    for z in range(tall.shape[0]):
        value, best = line[z], tall[z]
        wins = (value > best) | (rows[z] == NOBODY) | ((value != value) & (best == best))
        tall[z] = value if wins else best
        rows[z] = row if wins else rows[z]


@kernel
def _across_at(at, tall, rows, size, step):
    """at[q] = column of the first maximum, row by row, of the `size` columns from q·step on."""
    for q in range(at.shape[0]):
        best, row, column = tall[q * step], rows[q * step], q * step
        for l in range(1, size):
            value, other = tall[q * step + l], rows[q * step + l]
            equal = (value == best) | ((value != value) & (best != best))
            wins = (value > best) | ((value != value) & (best == best)) | (equal & (other < row))
            best = value if wins else best
            row = other if wins else row
            column = q * step + l if wins else column
        at[q] = column
