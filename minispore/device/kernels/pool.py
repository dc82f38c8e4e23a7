"""Max pooling, its gradient, and the gradient's gradient.

The first maximum in row-major window order wins; padding never does; a NaN wins against every number, so that it is
seen. The gradients ask again who wins: keeping the winners would take as much memory as the image.

Arrays are float32 or float64, NCHW, contiguous; window size (kh, kw), stride (sh, sw), pads (top, bottom, left, right).
`out` and `dx` are overwritten. A window of nothing but padding has no winner: -inf, and no gradient.
"""
import numpy as np

from .jit import kernel


@kernel
def max_pool(x, out, size, stride, pads):
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
            for k in range(max(0, -y), min(size[0], height - y)):
                _down(inner, images[c, y + k])
            # The usual sizes stand as literals: then the compiler loads them as vectors.
            if size[1] == 2 and stride[1] == 2:
                _across(results[c, p], tall, 2, 2)
            elif size[1] == 3 and stride[1] == 2:
                _across(results[c, p], tall, 3, 2)
            else:
                _across(results[c, p], tall, size[1], stride[1])


@kernel
def max_pool_grad(x, dout, dx, size, stride, pads):
    """dx[winner of window n,c,p,q] += dout[n,c,p,q], where windows overlap more than once"""
    at = np.empty(dout.shape[2:], np.int64)
    dx[:] = 0
    for n in range(dout.shape[0]):
        for c in range(dout.shape[1]):
            _winners(at, x[n, c], size, stride, pads)
            grads, to = dout[n, c].reshape(-1), dx[n, c].reshape(-1)
            for window, place in enumerate(at.flat):
                if place >= 0:
                    to[place] += grads[window]


@kernel
def max_pool_gather(x, g, out, size, stride, pads):
    """out[n,c,p,q] = g[winner of window n,c,p,q in x], the transpose of max_pool_grad"""
    at = np.empty(out.shape[2:], np.int64)
    for n in range(out.shape[0]):
        for c in range(out.shape[1]):
            _winners(at, x[n, c], size, stride, pads)
            source, to = g[n, c].reshape(-1), out[n, c].reshape(-1)
            for window, place in enumerate(at.flat):
                to[window] = source[place] if place >= 0 else 0


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
def _winners(at, image, size, stride, pads):
    """at[p, q] = where in the flat image the winner of window (p, q) stands, -1 if that is all padding."""
    height, width = image.shape
    pixels = image.reshape(-1)
    for p in range(at.shape[0]):
        y = p * stride[0] - pads[0]
        top, bottom = max(y, 0), min(y + size[0], height)
        for q in range(at.shape[1]):
            z = q * stride[1] - pads[2]
            left, right = max(z, 0), min(z + size[1], width)
            start, rows, cols = top * width + left, bottom - top, right - left
            # The same call twice: with the usual size as literals the compiler unrolls both loops.
            if rows == 2 and cols == 2:
                at[p, q] = _first_max(pixels, start, width, 2, 2)
            else:
                at[p, q] = _first_max(pixels, start, width, rows, cols)


@kernel
def _first_max(pixels, start, width, rows, cols):
    """The first maximum's place among rows x cols pixels from `start` on, -1 if there are none.

    No branch in the loop: who wins is random, and a wrong guess costs more than all the rest.
    """
    if rows <= 0 or cols <= 0:
        return -1
    best, at = pixels[start], start
    for k in range(rows):
        for l in range(cols):
            place = start + k * width + l
            value = pixels[place]
            wins = (not value <= best) & (best == best)     # NaN <= x is false, NaN == NaN too
            best = value if wins else best
            at = place if wins else at
    return at
