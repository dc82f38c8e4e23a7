"""Transforms of pixels' values and of their order in memory."""
import io
from numbers import Real

import numpy as np

from minispore.common.dtype import to_dtype
from minispore.dataset.transforms import Transform
from minispore.dataset.vision.utils import ImageOp


class Rescale(Transform):
    """float32(image) * rescale + shift, of any shape and number type (MindSpore: `vision.Rescale`).

    >>> Rescale(1 / 255, 0)(np.array([0, 255], np.uint8)).tolist()
    [0.0, 1.0]
    """

    def __init__(self, rescale: float, shift: float):
        self.rescale, self.shift = _number("Rescale", "rescale", rescale), _number("Rescale", "shift", shift)

    def rows(self, block: np.ndarray) -> np.ndarray:
        out = np.multiply(block, self.rescale, dtype=np.float32)
        if self.shift:
            out += self.shift
        return out


class Normalize(Transform):
    """(float32(image) - mean) / std, channel by channel (MindSpore: `vision.Normalize`).

    Args:
        mean, std: a number for each channel; std greater than 0.
        is_hwc: is the image (height, width, channels), or (channels, height, width)?
            An image (height, width) has one channel.

    ValueError if mean and std differ in length, a std isn't positive, or the image has other channels.

    >>> Normalize((1.0, 2.0), (1.0, 4.0))(np.full((1, 1, 2), 4)).tolist()
    [[[3.0, 0.5]]]
    """

    def __init__(self, mean, std, is_hwc: bool = True):
        self.mean, self.std = _channels("Normalize", "mean", mean), _channels("Normalize", "std", std)
        self.is_hwc = is_hwc
        if len(self.mean) != len(self.std):
            raise ValueError(f"Normalize: mean has {len(self.mean)} values, std has {len(self.std)}; "
                             "give one of each a channel")
        if (self.std <= 0).any():
            raise ValueError(f"Normalize: std must be greater than 0, got {self.std.tolist()}")

    def rows(self, block: np.ndarray) -> np.ndarray:
        shape = block.shape[1:]
        # mean and std at full size: numpy runs through whole images at a time, not channel by channel
        mean, std = (np.ascontiguousarray(np.broadcast_to(self._along_channels(v, shape), shape))
                     for v in (self.mean, self.std))
        out = np.subtract(block, mean, dtype=np.float32)
        out /= std
        return out

    def _along_channels(self, values: np.ndarray, shape: tuple) -> np.ndarray:
        if len(shape) < 2:
            raise ValueError(f"Normalize takes images, (H, W, C) or (H, W); this one has shape {shape}")
        axis = -1 if self.is_hwc else -3
        channels = 1 if len(shape) == 2 else shape[axis]
        if channels != len(values):
            raise ValueError(
                f"Normalize: mean and std are for {len(values)} channels, but the image of shape {shape} has "
                f"{channels} (is_hwc={self.is_hwc}); give a value for each channel, "
                "is_hwc=False after HWC2CHW")
        return values if len(shape) == 2 or self.is_hwc else values[:, None, None]


class HWC2CHW(Transform):
    """(..., height, width, channels) to (..., channels, height, width); the type stays (`vision.HWC2CHW`).

    ValueError if the image hasn't three dims.

    >>> HWC2CHW()(np.zeros((28, 20, 3))).shape
    (3, 28, 20)
    """

    def rows(self, block: np.ndarray) -> np.ndarray:
        if block.ndim < 4:
            raise ValueError(f"HWC2CHW takes images (H, W, C); this one has shape {block.shape[1:]}; "
                             "an image (H, W) needs a channel axis first: image[..., None]")
        return np.ascontiguousarray(np.moveaxis(block, -1, -3))


class ToTensor(Transform):
    """(height, width, channels) to (channels, height, width), divided by 255 (MindSpore: `vision.ToTensor`).

    An image (height, width) becomes (1, height, width). The result is float32, or `output_type`.

    ValueError if the image hasn't two or three dims.

    >>> ToTensor()(np.array([[[0], [255]]], np.uint8)).tolist()
    [[[0.0, 1.0]]]
    """

    def __init__(self, output_type=np.float32):
        self.dtype = to_dtype(output_type)

    def rows(self, block: np.ndarray) -> np.ndarray:
        if block.ndim not in (3, 4):
            raise ValueError(f"ToTensor takes images, (H, W, C) or (H, W); this one has shape {block.shape[1:]}; "
                             "in a batch use map() before batch()")
        out = block[:, None] if block.ndim == 3 else np.moveaxis(block, -1, 1)
        return np.multiply(out, np.float32(1 / 255), dtype=np.float32, order="C").astype(self.dtype, copy=False)


class Grayscale(ImageOp):
    """A colour image in grey, 0.299 R + 0.587 G + 0.114 B as Pillow computes it (MindSpore: `vision.Grayscale`).

    uint8 (H, W, 3) to (H, W), or with num_output_channels=3 to (H, W, 3), the channels equal.

    >>> Grayscale()(np.array([[[255, 0, 0]]], np.uint8)).tolist()
    [[76]]
    """

    def __init__(self, num_output_channels: int = 1):
        if num_output_channels not in (1, 3):
            raise ValueError(f"Grayscale: num_output_channels must be 1 or 3, got {num_output_channels!r}")
        self.channels = num_output_channels

    def rows(self, block: np.ndarray) -> np.ndarray:
        grey = super().rows(block)
        return grey[..., 0] if self.channels == 1 else grey

    def images(self, images: np.ndarray) -> np.ndarray:
        if images.shape[-1] != 3 or images.dtype != np.uint8:
            raise ValueError(f"Grayscale takes uint8 images of three channels, this one is {images.dtype} of "
                             f"shape {images.shape[1:]}")
        grey = (images.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32) + 0x8000) >> 16
        return np.repeat(grey[..., None].astype(np.uint8), self.channels, -1)


class Invert(ImageOp):
    """255 minus the value, for uint8 images (MindSpore: `mindspore.dataset.vision.Invert`)."""

    def images(self, images: np.ndarray) -> np.ndarray:
        if images.dtype != np.uint8:
            raise ValueError(f"Invert takes uint8 images, this one is {images.dtype}")
        return 255 - images


class Decode:
    """The bytes of an image file (JPEG, PNG, BMP, …) as an RGB image (MindSpore: `mindspore.dataset.vision.Decode`).

    uint8 (bytes,) to uint8 (H, W, 3). Needs Pillow. ValueError if the bytes are no image. Pillow's own images
    (to_pil=True) are not what flows here: NotImplementedError.
    """

    def __init__(self, to_pil: bool = False):
        if to_pil:
            raise NotImplementedError("Decode: to_pil=True isn't there in minispore; images are numpy arrays: leave it out")

    def __call__(self, data) -> np.ndarray:
        data = np.asarray(data)
        if data.ndim != 1 or data.dtype != np.uint8:
            raise TypeError(f"Decode takes the bytes of a file, uint8 of one dim; this is {data.dtype} of shape {data.shape}")
        image = pillow("Decode")
        try:
            with image.open(io.BytesIO(data.tobytes())) as opened:
                return np.array(opened.convert("RGB"))
        except OSError as error:
            raise ValueError(f"Decode: these {len(data)} bytes are no image that Pillow can read ({error})") from None


def pillow(who: str):
    """The module PIL.Image."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{who} reads image files with Pillow, which isn't there: pip install pillow") from None
    return Image


def _number(op: str, name: str, value) -> np.float32:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{op}: {name} must be a number, got {value!r}")
    return np.float32(value)


def _channels(op: str, name: str, values) -> np.ndarray:
    if not isinstance(values, (list, tuple, np.ndarray)):
        raise TypeError(f"{op}: {name} must be a tuple, a number for each channel, got {values!r}")
    return np.array([_number(op, name, value) for value in values], np.float32)
