"""MindSpore's older name of `dataset.vision`: the same classes."""
from minispore.dataset.vision import *  # noqa: F403
