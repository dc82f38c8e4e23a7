"""Loss scales as plain objects that Model and build_train_network take (MindSpore: `mindspore.train.loss_scale_manager`)."""
from abc import ABC, abstractmethod

from minispore.nn.wrap.loss_scale import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell


class LossScaleManager(ABC):
    """Base: a scale, and what becomes of it after each step."""

    @abstractmethod
    def get_loss_scale(self):
        """The scale now."""

    @abstractmethod
    def update_loss_scale(self, overflow) -> None:
        """Tell whether a step's gradients overflowed."""

    @abstractmethod
    def get_update_cell(self):
        """The cell that does the same inside a training step, or None."""


class FixedLossScaleManager(LossScaleManager):
    """One scale for ever (MindSpore: `amp.FixedLossScaleManager`).

    drop_overflow_update=False: steps that overflow aren't left out, and the optimizer must be given the same loss_scale.
    """

    def __init__(self, loss_scale=128.0, drop_overflow_update=True):
        if isinstance(loss_scale, bool) or not isinstance(loss_scale, (int, float)) or not loss_scale >= 1:
            raise ValueError(f"FixedLossScaleManager: loss_scale {loss_scale!r} must be a number ≥ 1")
        self._loss_scale, self._drop_overflow_update = loss_scale, drop_overflow_update

    def get_loss_scale(self):
        return self._loss_scale

    def get_drop_overflow_update(self) -> bool:
        """Whether steps that overflow are left out."""
        return self._drop_overflow_update

    def update_loss_scale(self, overflow) -> None:
        pass

    def get_update_cell(self):
        return FixedLossScaleUpdateCell(self._loss_scale) if self._drop_overflow_update else None


class DynamicLossScaleManager(LossScaleManager):
    """Divides the scale after an overflow, multiplies it after scale_window steps without (MindSpore's name, in `amp`).

    >>> manager = DynamicLossScaleManager(8.0, scale_factor=2, scale_window=2)
    >>> for overflow in (True, False, False):
    ...     manager.update_loss_scale(overflow)
    ...     print(manager.get_loss_scale())
    4.0
    4.0
    8.0
    """

    def __init__(self, init_loss_scale=2 ** 24, scale_factor=2, scale_window=2000):
        DynamicLossScaleUpdateCell(init_loss_scale, scale_factor, scale_window)         # checks the arguments
        self.loss_scale, self.scale_factor, self.scale_window = init_loss_scale, scale_factor, scale_window
        self.cur_iter, self.last_overflow_iter = 1, 0

    def get_loss_scale(self):
        return self.loss_scale

    def get_drop_overflow_update(self) -> bool:
        """True: steps that overflow are left out."""
        return True

    def update_loss_scale(self, overflow) -> None:
        if overflow:
            self.loss_scale = max(self.loss_scale / self.scale_factor, 1)
        elif self.cur_iter - self.last_overflow_iter >= self.scale_window:
            self.loss_scale *= self.scale_factor
        if overflow or self.cur_iter - self.last_overflow_iter >= self.scale_window:
            self.last_overflow_iter = self.cur_iter
        self.cur_iter += 1

    def get_update_cell(self):
        return DynamicLossScaleUpdateCell(self.loss_scale, self.scale_factor, self.scale_window)
