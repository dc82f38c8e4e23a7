"""Algorithm parameters: what auto parallel's search may choose among (MindSpore: `mindspore.parallel.set_algo_parameters`).

A strategy that the script gives is kept, whatever is set here.
"""
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minispore.common.state import ALGORITHM_DEFAULTS, current
from minispore.graph.ir import Node
from minispore.parallel.layout import local_shape

if TYPE_CHECKING:
    from minispore.parallel.search.choices import Choice
    from minispore.parallel.search.task import Task


def set_algo_parameters(**kwargs) -> None:
    """Set parameters of auto parallel's search, for the programs that this rank compiles from now on.

    Args:
        fully_use_devices (bool): ops that can use all devices consider only such strategies; else also to repeat work.
        elementwise_op_strategy_follow (bool): accepted. Here an elementwise op leaves its predecessor's layout only where the
            redistribution pays, since the search prices it.
        enable_algo_approxi (bool): search_mode="ilp" may stop at a plan that is proved to be near the best one.
        algo_approxi_epsilon (float): how near, in (0, 1]: 0.1 is at most 10 % dearer.
        tensor_slice_align_enable (bool): a tensor whose last dim is split gets pieces of a multiple of tensor_slice_align_size
            there, in ops that can do so.
        tensor_slice_align_size (int): in 1 … 1024.

    Raises: ValueError for an unknown name or a value out of range, TypeError for one of another type; then nothing is changed.

    >>> set_algo_parameters(fully_use_devices=True, tensor_slice_align_size=32)
    >>> get_algo_parameters("tensor_slice_align_size")
    32
    >>> reset_algo_parameters()
    >>> get_algo_parameters("fully_use_devices")
    False
    """
    for key, value in kwargs.items():
        kind = type(ALGORITHM_DEFAULTS[known(key, "set_algo_parameters")])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise TypeError(f"set_algo_parameters: {key}={value!r} is a {type(value).__name__}; it must be a {kind.__name__}")
    epsilon, size = kwargs.get("algo_approxi_epsilon", 0.1), kwargs.get("tensor_slice_align_size", 16)
    if not 0 < epsilon <= 1:
        raise ValueError(f"set_algo_parameters: algo_approxi_epsilon={epsilon} must be above 0 and at most 1")
    if not 1 <= size <= 1024:
        raise ValueError(f"set_algo_parameters: tensor_slice_align_size={size} must be in 1 … 1024")
    current().algorithm = {**current().algorithm, **kwargs}


def get_algo_parameters(attr_key: str):
    """The value of a parameter (MindSpore: `mindspore.parallel.get_algo_parameters`). ValueError for an unknown name."""
    return current().algorithm[known(attr_key, "get_algo_parameters")]


def reset_algo_parameters() -> None:
    """All parameters as they were at the start (MindSpore: `mindspore.parallel.reset_algo_parameters`)."""
    current().algorithm = dict(ALGORITHM_DEFAULTS)


def known(key: str, who: str) -> str:
    if key not in ALGORITHM_DEFAULTS:
        raise ValueError(f"{who}: there is no parameter {key!r}; they are {', '.join(ALGORITHM_DEFAULTS)}")
    return key


# ---- what they do ------------------------------------------------------------------------------------------


def considered(task: "Task", node: Node, choices: Sequence["Choice"]) -> list["Choice"]:
    """The choices of a node that the parameters allow; all, where there are none."""
    if task.algorithm["fully_use_devices"]:
        choices = [c for c in choices if all(role is not None for _, role in c.roles)] or choices
    if task.algorithm["tensor_slice_align_enable"]:
        choices = [c for c in choices if aligned(task, node, c)] or choices
    return list(choices)


def aligned(task: "Task", node: Node, choice: "Choice") -> bool:
    """Whether the pieces of each last dim that is split are of a multiple of the size that is set."""
    size = task.algorithm["tensor_slice_align_size"]
    pairs = zip((*node.ins, *node.outs), (*choice.ins, *choice.outs), strict=True)
    return all(local_shape(task.mesh, v.shape, lay)[-1] % size == 0 for v, lay in pairs if lay.dims and lay.dims[-1])


def nearness(algorithm: dict) -> float:
    """How far above the bound a proved plan may be."""
    return float(algorithm["algo_approxi_epsilon"]) if algorithm["enable_algo_approxi"] else 0.0
