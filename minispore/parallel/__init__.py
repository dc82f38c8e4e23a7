"""Parallel programs of logical ones: layouts, strategies, the compiler, and looking at what it makes (`mindspore.parallel`)."""
from minispore.common.errors import missing
from minispore.ops.strategy import Layout
from minispore.parallel.lockstep import LockStep
from minispore.parallel.placement import Placement
from minispore.parallel.shard import shard
from minispore.parallel.simulate import LocalProgram, compile

__getattr__ = missing(__name__, globals(), {"auto_parallel": "minispore.parallel.auto_parallel",
                                            "AutoParallel": "minispore.parallel.auto_parallel"})
