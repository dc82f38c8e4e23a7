"""Transforms of images, as `mindspore.dataset.vision`. An image is (height, width, channels): HWC."""
from minispore.dataset.vision.geometry import (
    CenterCrop,
    Crop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    SlicePatches,
    VerticalFlip,
)
from minispore.dataset.vision.pixels import HWC2CHW, Decode, Grayscale, Invert, Normalize, Rescale, ToTensor
from minispore.dataset.vision.resize import Resize
from minispore.dataset.vision.utils import Border, Inter, SliceMode

__all__ = [
    "HWC2CHW",
    "Border",
    "CenterCrop",
    "Crop",
    "Decode",
    "Grayscale",
    "HorizontalFlip",
    "Inter",
    "Invert",
    "Normalize",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "Rescale",
    "Resize",
    "SliceMode",
    "SlicePatches",
    "ToTensor",
    "VerticalFlip",
]
