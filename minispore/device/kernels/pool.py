"""Max pooling, its gradient, and the gradient's gradient: three uses of one question, who wins each window?

The first maximum in row-major window order wins; padding never does; a NaN wins against every number, so that
it is seen. Asking again is cheaper than keeping the winners: they'd take as much memory as the image.

Arrays are float32 or float64, NCHW, contiguous; kernel (kh, kw), stride (sh, sw), pads (top, bottom, left,
right). `out` and `dx` are overwritten. A window of nothing but padding has no winner: -inf, and no gradient.
"""
import numpy as np

from .jit import kernel


@kernel
def max_pool(x, out, kernel, stride, pads):
    """out[n,c,p,q] = max_kl x[n, c, p·sh + k - top, q·sw + l - left]"""
    images, results = _planes(x), _planes(out)
    best, at = _row(out)
    for c in range(images.shape[0]):
        for p in range(results.shape[1]):
            _winners(best, at, images[c], p, kernel, stride, pads)
            results[c, p] = best


@kernel
def max_pool_grad(x, dout, dx, kernel, stride, pads):
    """dx[winner of window n,c,p,q] += dout[n,c,p,q], where windows overlap more than once"""
    images, grads = _planes(x), _planes(dout)
    best, at = _row(dout)
    for c in range(images.shape[0]):
        to = _planes(dx)[c].reshape(-1)
        to[:] = 0
        for p in range(grads.shape[1]):
            _winners(best, at, images[c], p, kernel, stride, pads)
            for q in range(at.shape[0]):
                if at[q] >= 0:
                    to[at[q]] += grads[c, p, q]


@kernel
def max_pool_gather(x, g, out, kernel, stride, pads):
    """out[n,c,p,q] = g[winner of window n,c,p,q in x], the transpose of max_pool_grad"""
    images, values, results = _planes(x), _planes(g), _planes(out)
    best, at = _row(out)
    for c in range(images.shape[0]):
        source = values[c].reshape(-1)
        for p in range(results.shape[1]):
            _winners(best, at, images[c], p, kernel, stride, pads)
            for q in range(at.shape[0]):
                results[c, p, q] = source[at[q]] if at[q] >= 0 else 0


@kernel
def _planes(images):
    """(N, C, H, W) seen as (N·C, H, W)"""
    return images.reshape((images.shape[0] * images.shape[1], images.shape[2], images.shape[3]))


@kernel
def _row(out):
    """Room for one row of windows: each one's best value so far and where in the plane it stands."""
    return np.empty(out.shape[3], out.dtype), np.empty(out.shape[3], np.int32)


@kernel
def _winners(best, at, image, p, kernel, stride, pads):
    """best[q], at[q] = max and first argmax of window (p, q), for a whole row of windows.

    for each place k, l in a window, for each window q:
        x[p·sh + k - top, q·sw + l - left] challenges the window's best so far
    """
    height, width = image.shape
    best[:] = -np.inf
    at[:] = -1
    step = stride[1]
    for k in range(kernel[0]):
        y = p * stride[0] + k - pads[0]
        if 0 <= y < height:
            for l in range(kernel[1]):
                shift = l - pads[2]
                first = max(0, (-shift + step - 1) // step)     # windows before have padding at this place
                last = min(best.shape[0], (width - shift + step - 1) // step)
                if first < last:
                    z = first * step + shift
                    b, a, line, place = best[first:last], at[first:last], image[y, z:], y * width + z
                    # The usual steps stand as literals: then the compiler knows how to load them as vectors.
                    if step == 1:
                        _challenge(b, a, line, place, 1)
                    elif step == 2:
                        _challenge(b, a, line, place, 2)
                    else:
                        _challenge(b, a, line, place, step)


@kernel
def _challenge(best, at, line, place, step):
    for q in range(best.shape[0]):
        value, champion, where = line[q * step], best[q], at[q]
        wins = (where < 0) | (not value <= champion) & (champion == champion)   # NaN <= x is false
        best[q] = value if wins else champion
        at[q] = place + q * step if wins else where
