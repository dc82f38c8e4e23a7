"""The primitives under MindSpore's older path: `from mindspore.ops import operations as P`, then `P.MatMul()`."""
from minispore.ops import *
