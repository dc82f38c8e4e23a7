"""Functional forms: `ops.relu(x)` for `ops.ReLU()(x)`, with MindSpore's names and defaults.

Gathered here from `function`. The ops themselves use them under the name F, for their gradients.
"""
from minispore.ops.function.math import *       # isort: skip  (the others build on it)
from minispore.ops.function.array import *
from minispore.ops.function.creation import *
from minispore.ops.function.nn import *
from minispore.ops.function.reduction import *
