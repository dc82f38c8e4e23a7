"""MindSpore's older name of `dataset.vision`: the same classes, but here Normalize takes (C, H, W), after ToTensor."""
from minispore.dataset.vision import *  # noqa: F403
from minispore.dataset.vision import pixels


class Normalize(pixels.Normalize):
    """`vision.Normalize` with is_hwc=False."""

    def __init__(self, mean, std):
        super().__init__(mean, std, is_hwc=False)
