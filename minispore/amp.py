"""Mixed precision under MindSpore's short name, `mindspore.amp`; see train/amp.py."""
from minispore.train.amp import *  # noqa: F403
