"""Images in another size, as OpenCV's `resize` makes them."""
import numpy as np

from minispore.dataset import checks
from minispore.dataset.vision.utils import ImageOp, Inter, height_width

_BICUBIC = -0.75        # the kernel's free parameter, OpenCV's choice


class Resize(ImageOp):
    """An image in another size (MindSpore: `mindspore.dataset.vision.Resize`).

    Args:
        size: (height, width), or an integer for the shorter side: the other one keeps the ratio.
        interpolation: Inter.NEAREST, Inter.BILINEAR or Inter.BICUBIC. Pixels' centres lie at half numbers, and
            nothing is smoothed beforehand when an image gets smaller. uint8 values are rounded; they
            differ by 1 at most from OpenCV's, which computes with fewer bits.

    The type stays. ValueError for another interpolation.

    >>> Resize((1, 4))(np.array([[0.0, 1.0]])).tolist()
    [[0.0, 0.25, 0.75, 1.0]]
    """

    def __init__(self, size, interpolation: Inter = Inter.BILINEAR):
        self.size = height_width("Resize", size) if isinstance(size, (list, tuple)) \
            else checks.integer("Resize: size", size, 1, "give the shorter side's pixels, or (height, width)")
        if not isinstance(interpolation, Inter):
            raise TypeError(f"Resize: interpolation must be an Inter, got {interpolation!r}; e.g. Inter.BILINEAR")
        if interpolation not in _TAPS:
            raise ValueError(f"Resize: Inter.{interpolation.name} isn't there in minispore; use Inter.NEAREST, BILINEAR or "
                             "BICUBIC")
        self.taps = _TAPS[interpolation]

    def images(self, images: np.ndarray) -> np.ndarray:
        height, width = images.shape[1:3]
        if min(height, width) == 0:
            raise ValueError(f"Resize: an image of {height} x {width} pixels has nothing to be resized")
        out = images
        for axis, size in zip((1, 2), self._size(height, width), strict=True):
            if size != out.shape[axis]:
                out = _along(out, axis, *self.taps(out.shape[axis], size))
        if out.dtype == images.dtype:
            return out
        if images.dtype.kind in "iu":
            limits = np.iinfo(images.dtype)
            out = np.clip(np.rint(out), limits.min, limits.max)
        return out.astype(images.dtype)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        if isinstance(self.size, tuple):
            return self.size
        longer = int(np.floor(max(height, width) / min(height, width) * self.size + 0.5))
        return (self.size, longer) if height < width else (longer, self.size)


def _along(images: np.ndarray, axis: int, pixels: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Each new pixel along an axis: the sum of its old pixels, (new, taps), by their weights."""
    if weights is None:
        return images.take(pixels[:, 0], axis)
    shape = [1] * images.ndim
    shape[axis] = len(pixels)
    dtype = np.float64 if images.dtype.itemsize > 2 else np.float32
    weights = weights.astype(dtype)
    return sum(images.take(pixels[:, tap], axis) * weights[:, tap].reshape(shape) for tap in range(pixels.shape[1]))


def _nearest(old: int, new: int):
    scale = 1 / (new / old)         # rounded as OpenCV rounds it: a pixel may hang on that
    return np.minimum(np.floor(np.arange(new) * scale).astype(int), old - 1)[:, None], None


def _bilinear(old: int, new: int):
    begin, part = _between(old, new)
    return _within(begin, 0, 2, old), np.stack([1 - part, part], 1)


def _bicubic(old: int, new: int):
    """Keys, "Cubic convolution interpolation for digital image processing", 1981."""
    begin, part = _between(old, new)
    a, distance = _BICUBIC, np.abs(part[:, None] - np.array([-1, 0, 1, 2]))
    near = ((a + 2) * distance - (a + 3)) * distance ** 2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return _within(begin, -1, 3, old), np.where(distance <= 1, near, far)


def _between(old: int, new: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the new pixels' centres lie among the old ones': the one before, and how far behind it."""
    at = (np.arange(new) + 0.5) * (old / new) - 0.5
    begin = np.floor(at).astype(int)
    return begin, at - begin


def _within(begin: np.ndarray, first: int, end: int, old: int) -> np.ndarray:
    return np.clip(begin[:, None] + np.arange(first, end), 0, old - 1)


_TAPS = {Inter.NEAREST: _nearest, Inter.BILINEAR: _bilinear, Inter.BICUBIC: _bicubic}
