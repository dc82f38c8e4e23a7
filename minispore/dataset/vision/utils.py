"""Words that transforms of images take, as `mindspore.dataset.vision.utils`, and what these transforms share."""
from enum import IntEnum, StrEnum

import numpy as np

from minispore.dataset import checks
from minispore.dataset.draws import uniform
from minispore.dataset.transforms import Transform


class Inter(IntEnum):
    """How a pixel between pixels is found. Here there are NEAREST, BILINEAR and BICUBIC, as OpenCV has them."""

    NEAREST = 0
    ANTIALIAS = 1
    BILINEAR = LINEAR = 2
    BICUBIC = CUBIC = 3
    AREA = 4
    PILCUBIC = 5


class Border(StrEnum):
    """What stands around an image.

    CONSTANT: one value; EDGE: the outermost pixels; REFLECT: the image mirrored at its outermost pixels, which
    stand there once; SYMMETRIC: mirrored, and they stand there twice.
    """

    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"


class SliceMode(IntEnum):
    """What becomes of pixels that don't make a whole patch."""

    PAD = 0
    DROP = 1


class ImageOp(Transform):
    """A transform given by one formula for images (n, height, width, channels): `images` of a subclass.

    It takes images (H, W, C) and (H, W), and batches or videos (..., H, W, C).
    """

    def images(self, images: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        raise NotImplementedError

    def rows(self, block: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        result = self.images(self.as_images(block))
        if isinstance(result, tuple):
            return tuple(as_before(part, block) for part in result)
        return as_before(result, block)

    def as_images(self, block: np.ndarray) -> np.ndarray:
        if block.ndim < 3:
            raise ValueError(f"{type(self).__name__} takes images, (H, W, C) or (H, W); this one has shape {block.shape[1:]}")
        return block[..., None] if block.ndim == 3 else block.reshape(-1, *block.shape[-3:])


class RandomImageOp(ImageOp):
    """An ImageOp that draws `each` numbers for an image.

    Given several columns (an image and its mask), it does the same to all of them.
    """

    takes, each = None, 1

    def images(self, images: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def rows(self, *blocks: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        columns = [self.as_images(block) for block in blocks]
        shapes = [images.shape[:3] for images in columns]
        if len(set(shapes)) > 1:
            raise ValueError(f"{type(self).__name__}: the images in the columns differ, their heights and widths are "
                             f"{[shape[1:] for shape in shapes]}; only images of one size can be changed alike")
        numbers = uniform(len(columns[0]), self.each)
        result = tuple(as_before(self.images(images, numbers), block) for images, block in zip(columns, blocks, strict=True))
        return result if len(result) > 1 else result[0]


def as_before(images: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Images (n, H, W, C) as rows like those of `block`, from which they came."""
    if block.ndim == 3 and images.shape[-1] == 1:
        return images[..., 0]
    return images.reshape(*block.shape[:-3], *images.shape[1:]) if block.ndim > 3 else images


def height_width(who: str, size) -> tuple[int, int]:
    """A size as (height, width): an integer for both, or two of them."""
    both = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    if len(both) != 2:
        raise ValueError(f"{who}: size must be an integer or (height, width), got {size!r}")
    return tuple(checks.integer(f"{who}: size", side, 1, "give pixels, e.g. 32 or (32, 48)") for side in both)


def borders(who: str, padding) -> tuple[int, int, int, int]:
    """Padding as (left, top, right, bottom): one number, (left and right, top and bottom), or all four."""
    four = tuple(padding) if isinstance(padding, (list, tuple)) else (padding,)
    if len(four) not in (1, 2, 4):
        raise ValueError(f"{who}: padding must be one number, (left and right, top and bottom) or "
                         f"(left, top, right, bottom), got {padding!r}")
    return tuple(checks.integer(f"{who}: padding", side, 0, "give pixels") for side in (four * 4)[:4])


def fill_of(who: str, value) -> np.ndarray:
    """A pixel's value: one number, or one for each of three channels."""
    values = np.array(value if isinstance(value, (list, tuple)) else [value])
    if values.shape not in ((1,), (3,)) or values.dtype.kind not in "iu" or (values < 0).any() or (values > 255).any():
        raise ValueError(f"{who}: fill_value must be an integer in [0, 255] or three of them, got {value!r}")
    return values


def border_mode(who: str, mode) -> Border:
    if not isinstance(mode, Border):
        raise TypeError(f"{who}: padding_mode must be a Border, got {mode!r}; e.g. Border.CONSTANT")
    return mode


def padded(who: str, images: np.ndarray, sides: tuple[int, int, int, int], fill: np.ndarray, mode: Border) -> np.ndarray:
    """Images (n, H, W, C) with so many pixels (left, top, right, bottom) around them."""
    if not any(sides):
        return images
    left, top, right, bottom = sides
    around = ((0, 0), (top, bottom), (left, right), (0, 0))
    height, width, channels = images.shape[1:]
    if mode is not Border.CONSTANT:
        if mode is Border.REFLECT and (max(top, bottom) >= height or max(left, right) >= width):
            raise ValueError(f"{who}: an image of {height} x {width} can't be reflected into a border {sides} "
                             "(left, top, right, bottom) as wide as itself; use less padding or Border.SYMMETRIC")
        return np.pad(images, around, mode.value)
    if len(fill) == 3 and channels != 3:
        raise ValueError(f"{who}: fill_value {tuple(fill.tolist())} is for three channels, the image has {channels}; "
                         "give one number")
    out = np.empty((len(images), height + top + bottom, width + left + right, channels), images.dtype)
    out[...] = fill.astype(images.dtype)
    out[:, top:top + height, left:left + width] = images
    return out
