"""Max pooling, its gradient, and the gradient's gradient.

The first maximum in row-major window order wins; padding never does; a NaN wins against every number, so that it is
seen. The gradients ask again who wins: keeping the winners would take as much memory as the image.

Arrays are float32 or float64, NCHW, contiguous; kernel (kh, kw), stride (sh, sw), pads (top, bottom, left, right).
`out` and `dx` are overwritten. A window of nothing but padding has no winner: -inf, and no gradient.
"""
import numpy as np

from .jit import kernel


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
    height, width = images.shape[1:]
    for c in range(images.shape[0]):
        image, to = images[c].reshape(-1), _planes(dx)[c].reshape(-1)
        to[:] = 0
        for p in range(grads.shape[1]):
            for q in range(grads.shape[2]):
                at = _winner(image, height, width, p * stride[0] - pads[0], q * stride[1] - pads[2], kernel)
                if at >= 0:
                    to[at] += grads[c, p, q]


@kernel
def max_pool_gather(x, g, out, kernel, stride, pads):
    """out[n,c,p,q] = g[winner of window n,c,p,q in x], the transpose of max_pool_grad"""
    images, results = _planes(x), _planes(out)
    height, width = images.shape[1:]
    for c in range(images.shape[0]):
        image, source = images[c].reshape(-1), _planes(g)[c].reshape(-1)
        for p in range(results.shape[1]):
            for q in range(results.shape[2]):
                at = _winner(image, height, width, p * stride[0] - pads[0], q * stride[1] - pads[2], kernel)
                results[c, p, q] = source[at] if at >= 0 else 0


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
def _winner(image, height, width, y, z, kernel):
    """Place of the first maximum of the window whose corner is (y, z); -1 if all of it is padding.

    Written without a branch in the loop: which value wins is random, and a mispredicted branch costs more than the rest.
    """
    best, at = image[0], -1
    first, last = max(0, z), min(width, z + kernel[1])
    for row in range(max(0, y), min(height, y + kernel[0])):
        for i in range(row * width + first, row * width + last):
            value = image[i]
            wins = (at < 0) | (value > best) | ((value != value) & (best == best))
            best = value if wins else best
            at = i if wins else at
    return at
