"""Learning-rate schedules as cells of the step number (MindSpore: `mindspore.nn.learning_rate_schedule`).

An optimizer that gets one as its learning_rate calls it with global_step, the number of steps made so far, inside its own
graph. `nn.dynamic_lr` has the same curves as lists.

>>> from minispore import Tensor, nn
>>> warm = nn.WarmUpLR(0.1, warmup_steps=4)
>>> [round(float(warm(Tensor(step))), 3) for step in range(6)]
[0.0, 0.025, 0.05, 0.075, 0.1, 0.1]
"""
from math import pi

from minispore import ops
from minispore.common.dtype import float32
from minispore.nn.cell import Cell
from minispore.nn.dynamic_lr import check


class LearningRateSchedule(Cell):
    """Base of schedules: construct(global_step) gives the rate of that step, a scalar (MindSpore's name)."""

    def construct(self, global_step):
        raise NotImplementedError(f"{type(self).__name__} defines no construct(self, global_step): say there which rate the "
                                  "step has")


class _Decay(LearningRateSchedule):
    """What the decays with a rate have in common; p = step / decay_steps, rounded down if is_stair."""

    def __init__(self, learning_rate, decay_rate, decay_steps, is_stair=False):
        super().__init__()
        check(type(self).__name__, positive={"learning_rate": learning_rate, "decay_rate": decay_rate},
              whole={"decay_steps": decay_steps}, flags={"is_stair": is_stair})
        self.learning_rate, self.decay_rate = learning_rate, decay_rate
        self.decay_steps, self.is_stair = decay_steps, is_stair

    def progress(self, global_step):
        p = ops.cast(global_step, float32) / self.decay_steps
        return ops.floor(p) if self.is_stair else p


class ExponentialDecayLR(_Decay):
    """learning_rate · decay_rate^p, p = step / decay_steps, rounded down if is_stair."""

    def construct(self, global_step):
        return self.learning_rate * ops.pow(self.decay_rate, self.progress(global_step))


class NaturalExpDecayLR(_Decay):
    """learning_rate · e^(-decay_rate · step); is_stair: of step rounded down to a multiple of decay_steps."""

    def construct(self, global_step):
        step = ops.cast(global_step, float32)
        if self.is_stair:
            step = self.progress(global_step) * self.decay_steps
        return self.learning_rate * ops.exp(-self.decay_rate * step)


class InverseDecayLR(_Decay):
    """learning_rate / (1 + decay_rate · p), p = step / decay_steps, rounded down if is_stair."""

    def construct(self, global_step):
        return self.learning_rate / (1 + self.decay_rate * self.progress(global_step))


class CosineDecayLR(LearningRateSchedule):
    """min_lr + (max_lr - min_lr)/2 · (1 + cos(π·min(step, decay_steps) / decay_steps))."""

    def __init__(self, min_lr, max_lr, decay_steps):
        super().__init__()
        check("CosineDecayLR", positive={"max_lr": max_lr}, not_negative={"min_lr": min_lr}, whole={"decay_steps": decay_steps})
        if min_lr >= max_lr:
            raise ValueError(f"CosineDecayLR: max_lr {max_lr} must be greater than min_lr {min_lr}")
        self.min_lr, self.max_lr, self.decay_steps = min_lr, max_lr, decay_steps

    def construct(self, global_step):
        p = ops.cast(ops.minimum(global_step, self.decay_steps), float32) / self.decay_steps
        return self.min_lr + 0.5 * (self.max_lr - self.min_lr) * (1 + ops.cos(pi * p))


class PolynomialDecayLR(LearningRateSchedule):
    """(learning_rate - end_learning_rate) · (1 - min(step, n)/n)^power + end_learning_rate with n = decay_steps.

    update_decay_steps: n = decay_steps · ceil(step / decay_steps), so that the decay begins anew at a lower height.
    """

    def __init__(self, learning_rate, end_learning_rate, decay_steps, power, update_decay_steps=False):
        super().__init__()
        check("PolynomialDecayLR", positive={"learning_rate": learning_rate, "power": power},
              not_negative={"end_learning_rate": end_learning_rate}, whole={"decay_steps": decay_steps},
              flags={"update_decay_steps": update_decay_steps})
        self.learning_rate, self.end_learning_rate = learning_rate, end_learning_rate
        self.decay_steps, self.power, self.update_decay_steps = decay_steps, power, update_decay_steps

    def construct(self, global_step):
        step, n = ops.cast(global_step, float32), self.decay_steps
        if self.update_decay_steps:
            p = step / (n * ops.maximum(ops.ceil(step / n), 1.0))
        else:
            p = ops.minimum(step, float(n)) / n
        return (self.learning_rate - self.end_learning_rate) * ops.pow(1 - p, self.power) + self.end_learning_rate


class WarmUpLR(LearningRateSchedule):
    """learning_rate · min(step, warmup_steps) / warmup_steps."""

    def __init__(self, learning_rate, warmup_steps):
        super().__init__()
        check("WarmUpLR", not_negative={"learning_rate": learning_rate}, whole={"warmup_steps": warmup_steps})
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps

    def construct(self, global_step):
        return self.learning_rate * ops.cast(ops.minimum(global_step, self.warmup_steps), float32) / self.warmup_steps
