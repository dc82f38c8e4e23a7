"""Parallel programs of logical ones: layouts, strategies, the compiler, and looking at what it makes (`mindspore.parallel`)."""
from minispore.ops.strategy import Layout
from minispore.parallel.lockstep import LockStep
from minispore.parallel.placement import Placement
from minispore.parallel.simulate import LocalProgram, compile
