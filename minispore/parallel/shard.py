"""`shard` for any function (MindSpore: `mindspore.shard`)."""
from collections.abc import Callable
from functools import wraps

from minispore.common.recorder import recorder
from minispore.common.state import current
from minispore.graph.compile import Compiled
from minispore.ops.sharded import pinned
from minispore.ops.strategy import strategy_of


def shard(fn: Callable, in_strategy=None, out_strategy=None, parameter_plan=None) -> Callable:
    """fn with its inputs and outputs (and a Cell's parameters) split so in semi-auto and auto parallel mode.

    Args:
        fn: a Cell, which is changed, or a function of tensors.
        in_strategy, out_strategy: an entry for each tensor: a tuple of split counts, a `Layout`'s layout, or None.
        parameter_plan: {parameter: tuple or layout}, of a Cell.

    >>> from minispore import Tensor
    >>> shard(lambda x: x + 1, in_strategy=((2,),))(Tensor([1.0, 2.0])).tolist()
    [2.0, 3.0]
    """
    if hasattr(fn, "construct"):
        return fn.shard(in_strategy, out_strategy, parameter_plan)
    name = getattr(fn, "__name__", "function")
    if parameter_plan is not None:
        raise ValueError(f"shard: {name} is a function, which has no parameters of its own; give parameter_plan with a Cell")
    run = pinned(name, fn, strategy_of(name, in_strategy, out_strategy))
    compiled = Compiled(run)

    @wraps(fn)
    def call(*args, **kwargs):
        alone = recorder() is None and current().compiler is not None
        return (compiled if alone else run)(*args, **kwargs)
    return call
