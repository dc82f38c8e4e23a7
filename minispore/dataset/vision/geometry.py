"""Transforms that move pixels: cropping, padding, mirroring, cutting into patches."""
import numpy as np

from minispore.dataset import checks
from minispore.dataset.transforms.choice import probability
from minispore.dataset.vision.utils import (
    Border,
    ImageOp,
    RandomImageOp,
    SliceMode,
    border_mode,
    borders,
    fill_of,
    height_width,
    padded,
)


class Pad(ImageOp):
    """Pixels added around an image (MindSpore: `mindspore.dataset.vision.Pad`).

    Args:
        padding: how many: one number, (left and right, top and bottom) or (left, top, right, bottom).
        fill_value: their value where `padding_mode` is Border.CONSTANT, an integer in [0, 255] or one for
            each of three channels.
        padding_mode: see `Border`.

    >>> Pad(1, fill_value=9)(np.zeros((1, 1, 1), np.uint8))[..., 0].tolist()
    [[9, 9, 9], [9, 0, 9], [9, 9, 9]]
    """

    def __init__(self, padding, fill_value=0, padding_mode: Border = Border.CONSTANT):
        self.sides = borders("Pad", padding)
        self.fill, self.mode = fill_of("Pad", fill_value), border_mode("Pad", padding_mode)

    def images(self, images: np.ndarray) -> np.ndarray:
        return padded("Pad", images, self.sides, self.fill, self.mode)


class Crop(ImageOp):
    """The part of `size` whose upper left corner is at `coordinates`, (top, left) (MindSpore: `vision.Crop`).

    ValueError if it doesn't lie within the image.

    >>> Crop((1, 0), (1, 2))(np.arange(6).reshape(2, 3)).tolist()
    [[3, 4]]
    """

    def __init__(self, coordinates, size):
        if not isinstance(coordinates, (list, tuple)) or len(coordinates) != 2:
            raise TypeError(f"Crop: coordinates must be (top, left), got {coordinates!r}")
        self.top, self.left = (checks.integer("Crop: coordinates", at, 0, "give pixels") for at in coordinates)
        self.size = height_width("Crop", size)

    def images(self, images: np.ndarray) -> np.ndarray:
        bottom, right = self.top + self.size[0], self.left + self.size[1]
        if bottom > images.shape[1] or right > images.shape[2]:
            raise ValueError(f"Crop: {self.size} pixels from {(self.top, self.left)} on reach to {(bottom, right)}, outside "
                             f"the image of {images.shape[1:3]}; use a smaller size or Pad before")
        return images[:, self.top:bottom, self.left:right]


class CenterCrop(ImageOp):
    """The middle part of `size`, with zeros around an image that is smaller (MindSpore: `vision.CenterCrop`).

    >>> CenterCrop(1)(np.arange(9).reshape(3, 3)).tolist()
    [[4]]
    """

    def __init__(self, size):
        self.size = height_width("CenterCrop", size)

    def images(self, images: np.ndarray) -> np.ndarray:
        (height, width), (h, w) = images.shape[1:3], self.size
        down, right = max(0, h - height), max(0, w - width)
        images = padded("CenterCrop", images, (right - right // 2, down - down // 2, right // 2, down // 2), np.array([0]),
                        Border.CONSTANT)
        top, left = (images.shape[1] - h) // 2, (images.shape[2] - w) // 2
        return images[:, top:top + h, left:left + w]


class RandomCrop(RandomImageOp):
    """A part of `size` at a random position (MindSpore: `mindspore.dataset.vision.RandomCrop`).

    Args:
        size: (height, width), or an integer for both.
        padding: pixels put around the image first, as in `Pad`; none if left out.
        pad_if_needed: put as many more on both sides as a smaller image lacks.
        fill_value, padding_mode: what these pixels are, as in `Pad`.

    ValueError if the image is smaller than `size`.

    >>> RandomCrop(3)(np.zeros((5, 6, 1))).shape
    (3, 3, 1)
    """

    each = 2

    def __init__(self, size, padding=None, pad_if_needed: bool = False, fill_value=0,
                 padding_mode: Border = Border.CONSTANT):
        self.size = height_width("RandomCrop", size)
        self.sides = borders("RandomCrop", 0 if padding is None else padding)
        self.pad_if_needed = checks.flag("pad_if_needed", pad_if_needed)
        self.fill, self.mode = fill_of("RandomCrop", fill_value), border_mode("RandomCrop", padding_mode)

    def images(self, images: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        images = padded("RandomCrop", images, self.sides, self.fill, self.mode)
        h, w = self.size
        if self.pad_if_needed:
            down, right = max(0, h - images.shape[1]), max(0, w - images.shape[2])
            images = padded("RandomCrop", images, (right, down, right, down), self.fill, self.mode)
        height, width = images.shape[1:3]
        if h > height or w > width:
            raise ValueError(f"RandomCrop: size {self.size} is larger than the image of {(height, width)} with its padding; "
                             "use a smaller size, more padding or pad_if_needed=True")
        top, left = np.floor(numbers * (height - h + 1, width - w + 1)).astype(int).T
        rows, columns = top[:, None] + np.arange(h), left[:, None] + np.arange(w)
        return images[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]


class HorizontalFlip(ImageOp):
    """Mirrored, left is right (MindSpore: `mindspore.dataset.vision.HorizontalFlip`)."""

    def images(self, images: np.ndarray) -> np.ndarray:
        return images[:, :, ::-1]


class VerticalFlip(ImageOp):
    """Upside down (MindSpore: `mindspore.dataset.vision.VerticalFlip`)."""

    def images(self, images: np.ndarray) -> np.ndarray:
        return images[:, ::-1]


class RandomHorizontalFlip(RandomImageOp):
    """Mirrored with probability `prob` (MindSpore: `mindspore.dataset.vision.RandomHorizontalFlip`).

    >>> RandomHorizontalFlip(1.0)(np.arange(2).reshape(1, 2, 1))[..., 0].tolist()
    [[1, 0]]
    """

    flip = HorizontalFlip()

    def __init__(self, prob: float = 0.5):
        self.prob = probability(type(self).__name__, prob)

    def images(self, images: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        flipped = numbers[:, 0] < self.prob
        out = images.copy()
        out[flipped] = self.flip.images(images[flipped])
        return out


class RandomVerticalFlip(RandomHorizontalFlip):
    """Upside down with probability `prob` (MindSpore: `mindspore.dataset.vision.RandomVerticalFlip`)."""

    flip = VerticalFlip()


class SlicePatches(ImageOp):
    """num_height x num_width equally large patches, row by row (MindSpore: `vision.SlicePatches`).

    It returns so many columns, which `output_columns` names; a single patch is the image. Where the image
    doesn't divide, SliceMode.PAD adds pixels of `fill_value` at the right and the bottom, SliceMode.DROP
    leaves pixels out there.

    >>> [part.tolist() for part in SlicePatches(1, 2)(np.arange(4).reshape(2, 2))]
    [[[0], [2]], [[1], [3]]]
    """

    def __init__(self, num_height: int = 1, num_width: int = 1, slice_mode: SliceMode = SliceMode.PAD, fill_value: int = 0):
        self.down = checks.integer("SlicePatches: num_height", num_height, 1, "it is the number of patches down the image")
        self.across = checks.integer("SlicePatches: num_width", num_width, 1, "it is the number of patches across")
        if not isinstance(slice_mode, SliceMode):
            raise TypeError(f"SlicePatches: slice_mode must be a SliceMode, got {slice_mode!r}; e.g. SliceMode.PAD")
        self.mode, self.fill = slice_mode, fill_of("SlicePatches", fill_value)

    def images(self, images: np.ndarray) -> tuple[np.ndarray, ...]:
        height, width = images.shape[1:3]
        if self.down > height or self.across > width:
            raise ValueError(f"SlicePatches: an image of {height} x {width} can't be cut into {self.down} x {self.across} "
                             "patches; ask for fewer")
        h, w = height // self.down, width // self.across
        if self.mode is SliceMode.PAD:
            h, w = -(-height // self.down), -(-width // self.across)
            images = padded("SlicePatches", images, (0, 0, w * self.across - width, h * self.down - height), self.fill,
                            Border.CONSTANT)
        patches = tuple(images[:, y * h:(y + 1) * h, x * w:(x + 1) * w] for y in range(self.down) for x in range(self.across))
        return patches if len(patches) > 1 else patches[0]
