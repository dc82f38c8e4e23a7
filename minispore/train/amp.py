"""Mixed precision: which cells compute in 16 bits, and the loss scale that goes with it (MindSpore: `mindspore.amp`).

Parameters, their gradients and the optimizer's states stay float32; parameters are cast where they are used (Cell.to_float).
"""
from abc import ABC, abstractmethod

import numpy as np

from minispore import nn, ops
from minispore.common.dtype import float16, float32, int32, is_float, to_dtype
from minispore.common.parameter import Parameter
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.nn.cell import Cell
from minispore.nn.wrap.cell_wrapper import TrainOneStepCell, WithLossCell, widened
from minispore.nn.wrap.loss_scale import TrainOneStepWithLossScaleCell, all_finite, unscaled
from minispore.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager

__all__ = ["DynamicLossScaleManager", "DynamicLossScaler", "FixedLossScaleManager", "LossScaleManager", "LossScaler",
           "StaticLossScaler", "all_finite", "auto_mixed_precision", "build_train_network", "custom_mixed_precision",
           "get_black_list", "get_white_list"]

# Names of cells: products, which gain from 16 bits, and means over many values, which lose by them.
WHITE = ("Conv1d", "Conv2d", "Conv3d", "Conv1dTranspose", "Conv2dTranspose", "Conv3dTranspose", "Dense", "LSTMCell", "RNNCell",
         "GRUCell")
BLACK = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "LayerNorm", "GroupNorm", "RMSNorm")
LEVELS = ("O0", "O1", "O2", "O3", "auto")


def get_white_list() -> list[type]:
    """The classes of cells that level O1 runs in 16 bits."""
    return [getattr(nn, name) for name in WHITE if hasattr(nn, name)]


def get_black_list() -> list[type]:
    """The classes of cells that level O2 keeps in float32."""
    return [getattr(nn, name) for name in BLACK if hasattr(nn, name)]


def auto_mixed_precision(network, amp_level="O0", dtype=float16) -> Cell:
    """Let a network compute in `dtype` where amp_level says so, and return it (MindSpore: `amp.auto_mixed_precision`).

    - O0: nowhere. O1: in the cells of get_white_list(), whose outputs go on as float32.
    - O2: everywhere but in the cells of get_black_list(). O3: everywhere. In both the network's outputs become float32.
    - auto: in the cells of get_white_list(), those of get_black_list() in float32, others in what comes to them.

    >>> from minispore import Tensor, nn
    >>> net = auto_mixed_precision(nn.SequentialCell(nn.Dense(2, 1), nn.ReLU()), "O1")
    >>> net[0](Tensor([[1.0, 2.0]])).dtype.name, net(Tensor([[1.0, 2.0]])).dtype.name
    ('float16', 'float32')
    """
    if not isinstance(network, Cell):
        raise TypeError(f"auto_mixed_precision: network is a {type(network).__name__}; it must be a Cell")
    if amp_level not in LEVELS:
        raise ValueError(f"auto_mixed_precision: amp_level {amp_level!r} must be one of {', '.join(LEVELS)}")
    dtype = to_dtype(dtype)
    if not is_float(dtype) or dtype.itemsize != 2:
        raise ValueError(f"auto_mixed_precision: dtype {dtype} must be a float of 16 bits, e.g. ms.float16")
    if amp_level == "O1":
        _set(network.to_float(float32), get_white_list(), dtype)
    elif amp_level == "O2":
        _all_but(network, get_black_list(), dtype)
    elif amp_level == "O3":
        _all_but(network, [], dtype)
    elif amp_level == "auto":
        _set(network, get_white_list(), dtype)
        _set(network, get_black_list(), float32)
    return network


def custom_mixed_precision(network, *, white_list=None, black_list=None, dtype=float16) -> Cell:
    """As level O1 with a white_list of one's own, or as O2 with a black_list: lists of classes of cells."""
    if (white_list is None) == (black_list is None):
        raise ValueError("custom_mixed_precision: give either white_list or black_list, a list of classes of cells")
    for c in black_list if white_list is None else white_list:
        if not (isinstance(c, type) and issubclass(c, Cell)):
            raise TypeError(f"custom_mixed_precision: {c!r} is not a class of cells, e.g. nn.Dense")
    if white_list is not None:
        _set(network.to_float(float32), white_list, dtype)
    else:
        _all_but(network, black_list, dtype)
    return network


def _set(network, kinds, dtype):
    for _, cell in network.cells_and_names():
        if isinstance(cell, tuple(kinds)):
            cell.to_float(dtype)


def _all_but(network, kinds, dtype):
    _set(network.to_float(dtype), kinds, float32)
    network.register_forward_hook(_widen)


def _widen(cell, args, output):
    return widened(output)


def build_train_network(network, optimizer, loss_fn=None, level="O0", boost_level="O0", **kwargs) -> Cell:
    """A training step of the network at a level of auto_mixed_precision (MindSpore: `amp.build_train_network`).

    Called with (data, label), or with the network's inputs if there is no loss_fn, it returns the loss, with a loss scale
    (loss, overflow, scale).

    Args:
        level: O2 scales the loss by a DynamicLossScaleManager().
        loss_scale_manager: another one, or None for no scale. cast_model_type: ms.float16 or float32, whatever the level says.
        keep_batchnorm_fp32: whether the cells of get_black_list() stay in float32, whatever the level says.
    """
    unknown = set(kwargs) - {"loss_scale_manager", "cast_model_type", "keep_batchnorm_fp32"}
    if unknown or boost_level != "O0":
        raise ValueError(f"build_train_network: {', '.join(sorted(unknown)) or f'boost_level={boost_level!r}'} isn't there; it "
                         "takes loss_scale_manager, cast_model_type and keep_batchnorm_fp32, and boost_level 'O0'")
    for name, cell in (("network", network), ("optimizer", optimizer)):
        if not isinstance(cell, Cell):
            raise TypeError(f"build_train_network: {name} is a {type(cell).__name__}; it must be a Cell")
    if "cast_model_type" in kwargs or "keep_batchnorm_fp32" in kwargs:
        dtype = kwargs.get("cast_model_type", float16 if level in ("O2", "O3") else float32)
        keep = kwargs.get("keep_batchnorm_fp32", level == "O2")
        custom_mixed_precision(network, black_list=get_black_list() if keep else [], dtype=dtype)
    else:
        auto_mixed_precision(network, level)
    manager = kwargs.get("loss_scale_manager", DynamicLossScaleManager() if level == "O2" else None)
    with_loss = network if loss_fn is None else WithLossCell(network, loss_fn)
    update = manager.get_update_cell() if manager is not None else None
    if update is not None:
        return TrainOneStepWithLossScaleCell(with_loss, optimizer, update).set_train()
    return TrainOneStepCell(with_loss, optimizer, None if manager is None else manager.get_loss_scale()).set_train()


# ---- for training steps written as functions ------------------------------------------------------------------------

class LossScaler(ABC):
    """Base of loss scalers (MindSpore: `amp.LossScaler`). inputs: a tensor, or (nested) tuples of them."""

    scale_value: Parameter | Tensor

    def scale(self, inputs):
        """inputs · scale, in their own dtypes."""
        return _each(inputs, lambda t: ops.cast(t * self.scale_value, t.dtype))

    def unscale(self, inputs):
        """inputs / scale, in their own dtypes."""
        return _each(inputs, lambda t: unscaled(t, self.scale_value))

    @abstractmethod
    def adjust(self, grads_finite) -> bool:
        """Tell whether all gradients were finite, see all_finite; returns whether the scale is one that moves."""


class StaticLossScaler(LossScaler):
    """One scale for ever.

    >>> from minispore import Tensor
    >>> scaler = StaticLossScaler(4.0)
    >>> scaler.scale(Tensor(0.5)).item(), scaler.unscale((Tensor(2.0),))[0].item()
    (2.0, 0.5)
    """

    def __init__(self, scale_value):
        self.scale_value = Tensor(_at_least_1("StaticLossScaler", "scale_value", scale_value))

    def adjust(self, grads_finite) -> bool:
        return False


class DynamicLossScaler(LossScaler):
    """Divides the scale by scale_factor after gradients that weren't finite, at least to 1; multiplies it after scale_window
    steps in a row whose gradients were.

    >>> from minispore import Tensor
    >>> scaler = DynamicLossScaler(8, scale_factor=2, scale_window=2)
    >>> for finite in (False, True, True):
    ...     _ = scaler.adjust(Tensor(finite))
    ...     print(scaler.scale_value.item())
    4.0
    4.0
    8.0
    """

    def __init__(self, scale_value, scale_factor, scale_window):
        self.scale_factor = _at_least_1("DynamicLossScaler", "scale_factor", scale_factor)
        self.scale_window = int(_at_least_1("DynamicLossScaler", "scale_window", scale_window))
        value = _at_least_1("DynamicLossScaler", "scale_value", scale_value)
        self.scale_value = Parameter(Tensor(value), name="scale_value", requires_grad=False)
        self.counter = Parameter(np.zeros((), np.int32), name="counter", requires_grad=False)

    def adjust(self, grads_finite) -> bool:
        long_enough = self.counter + 1 >= self.scale_window
        more, less = self.scale_value * self.scale_factor, ops.maximum(self.scale_value / self.scale_factor, 1.0)
        more = ops.select(ops.logical_and(long_enough, all_finite(more)), more, self.scale_value)
        ops.assign(self.scale_value, ops.select(grads_finite, more, less))
        kept = ops.logical_and(grads_finite, ops.logical_not(long_enough))
        ops.assign(self.counter, (self.counter + 1) * ops.cast(kept, int32))
        return True


def _each(inputs, change):
    leaves, skeleton = flatten(inputs, is_tensor)
    return unflatten(skeleton, [change(t) for t in leaves])


def _at_least_1(owner, name, value) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 1:
        raise ValueError(f"{owner}: {name} {value!r} must be a number ≥ 1")
    return float(value)
