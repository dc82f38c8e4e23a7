"""Transforms of images, as `mindspore.dataset.vision`. An image is (height, width, channels): HWC."""
from numbers import Real

import numpy as np

from minispore.dataset.transforms import Transform


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


def _number(op: str, name: str, value) -> np.float32:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{op}: {name} must be a number, got {value!r}")
    return np.float32(value)


def _channels(op: str, name: str, values) -> np.ndarray:
    if not isinstance(values, (list, tuple, np.ndarray)):
        raise TypeError(f"{op}: {name} must be a tuple, a number for each channel, got {values!r}")
    return np.array([_number(op, name, value) for value in values], np.float32)
