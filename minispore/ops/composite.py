"""The older path `mindspore.ops.composite`."""
from functools import partial

from minispore.common.errors import missing
from minispore.ops.functional import *
from minispore.ops.multitype import HyperMap, Map, MultitypeFuncGraph

__getattr__ = missing(__name__, globals(), {"GradOperation": "minispore.graph.api"})
