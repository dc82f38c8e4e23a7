"""MindSpore's older name of `dataset.transforms`: the same classes."""
from minispore.dataset.transforms import *  # noqa: F403
