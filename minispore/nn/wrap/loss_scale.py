"""Training with a scaled loss, so that small gradients survive 16 bits (MindSpore: `mindspore.nn.wrap.loss_scale`).

Gradients of loss · scale are divided by the scale again. If one isn't finite, the step is left out and the scale shrinks.
That is judged after the reduction over the ranks, where an infinity of one rank is everyone's, so all ranks agree.
"""
from collections.abc import Callable

from minispore import ops
from minispore.common.dtype import bool_, float32, int32, is_float
from minispore.common.parameter import Parameter
from minispore.common.recorder import recorder
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten
from minispore.graph.trace import tracing
from minispore.nn.cell import Cell
from minispore.nn.wrap.cell_wrapper import TrainOneStepCell
from minispore.ops.communication import AllReduce


class DynamicLossScaleUpdateCell(Cell):
    """Called with (loss_scale, overflow), moves the scale, a Parameter (MindSpore: `nn.DynamicLossScaleUpdateCell`).

    After an overflow: loss_scale / scale_factor, at least 1. After scale_window steps in a row without one:
    loss_scale · scale_factor. Returns overflow.

    >>> from minispore import Parameter, Tensor, nn
    >>> scale, update = Parameter(Tensor(8.0), name="scale"), nn.DynamicLossScaleUpdateCell(8, scale_factor=2, scale_window=2)
    >>> for overflow in (True, False, False, False):
    ...     _ = update(scale, Tensor(overflow))
    ...     print(scale.item())
    4.0
    4.0
    8.0
    8.0
    """

    def __init__(self, loss_scale_value, scale_factor, scale_window):
        super().__init__()
        for name, value, least in (("loss_scale_value", loss_scale_value, 1), ("scale_factor", scale_factor, 1),
                                   ("scale_window", scale_window, 1)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
                raise ValueError(f"DynamicLossScaleUpdateCell: {name} {value!r} must be a number ≥ {least}")
        self.loss_scale_value, self.scale_factor, self.scale_window = loss_scale_value, scale_factor, scale_window
        self.cur_iter = Parameter(Tensor(1, int32), name="current_iterator_step", requires_grad=False)
        self.last_overflow_iter = Parameter(Tensor(0, int32), name="last_overflow_iterator_step", requires_grad=False)

    def get_loss_scale(self):
        """The scale to begin with."""
        return self.loss_scale_value

    def construct(self, loss_scale, overflow):
        long_enough = self.cur_iter - self.last_overflow_iter >= self.scale_window
        less = ops.maximum(loss_scale / float(self.scale_factor), 1.0)
        more = loss_scale * float(self.scale_factor)
        more = ops.select(ops.logical_and(long_enough, ops.isfinite(more)), more, loss_scale)
        ops.assign(loss_scale, ops.select(overflow, less, more))
        ops.assign(self.last_overflow_iter, ops.select(ops.logical_or(overflow, long_enough), self.cur_iter,
                                                       self.last_overflow_iter))
        ops.assign(self.cur_iter, self.cur_iter + 1)
        return overflow


class FixedLossScaleUpdateCell(Cell):
    """Leaves the scale as it is and returns overflow (MindSpore: `nn.FixedLossScaleUpdateCell`)."""

    def __init__(self, loss_scale_value):
        super().__init__()
        if isinstance(loss_scale_value, bool) or not isinstance(loss_scale_value, (int, float)) or not loss_scale_value > 0:
            raise ValueError(f"FixedLossScaleUpdateCell: loss_scale_value {loss_scale_value!r} must be a number > 0")
        self.loss_scale_value = loss_scale_value

    def get_loss_scale(self):
        """The scale."""
        return self.loss_scale_value

    def construct(self, loss_scale, overflow):
        return overflow


class TrainOneStepWithLossScaleCell(TrainOneStepCell):
    """A training step with a scaled loss (MindSpore: `nn.TrainOneStepWithLossScaleCell`).

    Called with the network's inputs it returns (loss, overflow, the scale of this step). After an overflow no parameter, no
    state and no step count of the optimizer has changed.

    Args:
        network: a cell that returns the loss. optimizer: changes its parameters.
        scale_sense: a Dynamic- or FixedLossScaleUpdateCell, or a Tensor of shape () or (1,), see set_sense_scale.

    A subclass's construct is written as in MindSpore, with start_overflow_check, get_overflow_status and
    process_loss_scale; for `if not overflow: self.optimizer(grads)`, a Python branch, which only PYNATIVE_MODE has, stands
    self.optimize_unless(overflow, grads), which runs in both modes.
    """

    def __init__(self, network, optimizer, scale_sense):
        super().__init__(network, optimizer)
        self.loss_scaling_manager = scale_sense if isinstance(scale_sense, Cell) else None
        if self.loss_scaling_manager is not None:
            scale_sense = Tensor(float(scale_sense.get_loss_scale()))
        if not isinstance(scale_sense, Tensor):
            raise TypeError(f"TrainOneStepWithLossScaleCell: scale_sense is a {type(scale_sense).__name__}; it must be a "
                            "DynamicLossScaleUpdateCell, a FixedLossScaleUpdateCell or a Tensor")
        if scale_sense.shape not in ((), (1,)):
            raise ValueError(f"TrainOneStepWithLossScaleCell: scale_sense has shape {scale_sense.shape}; it must be () or (1,)")
        self.scale_sense = Parameter(scale_sense, name="scale_sense", requires_grad=False)

    def construct(self, *inputs):
        scale = ops.identity(self.scale_sense)              # this step's, while scale_sense may change
        status, scale = self.start_overflow_check(None, scale)
        number = ops.reshape(scale, ())
        loss, grads = self.loss_and_gradients(inputs, number)
        grads = self.grad_reducer([unscaled(g, number) for g in grads])
        cond = self.get_overflow_status(status, grads)
        self.optimize_unless(self.process_loss_scale(cond), grads)
        return loss, cond, scale

    def set_sense_scale(self, sens) -> None:
        """Another scale from now on: a Tensor of scale_sense's shape."""
        if not isinstance(sens, Tensor):
            raise TypeError(f"set_sense_scale: sens is a {type(sens).__name__}; it must be a Tensor")
        self.scale_sense.set_data(sens)

    def start_overflow_check(self, pre_cond, compute_input) -> tuple:
        """(a status to pass to get_overflow_status, compute_input); here overflow is seen in the gradients alone."""
        return Tensor(False), compute_input

    def get_overflow_status(self, status, compute_output) -> Tensor:
        """Whether a value of compute_output, the reduced gradients, isn't finite; the same on all ranks."""
        overflow = ops.logical_not(all_finite(compute_output))
        if self.reducer_flag and not all(self.grad_reducer.reduced):        # some gradients are this rank's alone
            overflow = AllReduce("max", self.grad_reducer.group)(ops.cast(overflow, float32)) > 0
        return overflow

    def process_loss_scale(self, overflow) -> Tensor:
        """Tell the scale's cell, if there is one; returns overflow."""
        return overflow if self.loss_scaling_manager is None else self.loss_scaling_manager(self.scale_sense, overflow)

    def optimize_unless(self, overflow, grads) -> None:
        """The optimizer's step; after an overflow, nothing."""
        unless(overflow, lambda: self.optimizer(grads), [*self.optimizer.get_parameters(), *self.weights])


def all_finite(inputs) -> Tensor:
    """Whether no float in a tensor, or in (nested) tuples of tensors, is infinite or NaN; a bool (MindSpore: `amp.all_finite`).

    >>> from minispore import Tensor
    >>> bool(all_finite((Tensor([1.0]), Tensor([2.0])))), bool(all_finite(Tensor([1.0, float("inf")])))
    (True, False)
    """
    floats = [t for t in flatten(inputs, is_tensor)[0] if is_float(t.dtype)]
    if not floats:
        return Tensor(True, bool_)
    zero = sum(ops.cast(ops.sum(t * 0), float32) for t in floats)       # inf · 0 and NaN · 0 are NaN
    return ops.equal(zero, 0.0)


def unless(skip: Tensor, run: Callable, parameters: list[Parameter]) -> None:
    """Call run; where skip is true, none of the parameters has changed afterwards.

    Values decide nothing while a graph is traced, so there both ways are computed, and each parameter takes one of them.
    """
    if not tracing():
        if not skip:
            run()
        return
    listener = recorder()
    before = {p: listener.value_of(p) for p in parameters}
    run()
    for p, value in before.items():
        if listener.value_of(p) is not value:
            ops.assign(p, ops.select(skip, Tensor._symbol(value), p))


def unscaled(gradient, scale) -> Tensor:
    """gradient / scale, computed in scale's dtype, float32, if that is the wider one."""
    return ops.cast(gradient * (1 / scale), gradient.dtype)
