"""Metrics where older MindSpore scripts look for them: `from mindspore.nn.metrics import Accuracy`."""
from minispore.train.metrics import *  # noqa: F403
