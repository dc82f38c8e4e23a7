"""Optimizer, the base of all: parameter groups, learning rates, weight decay; a subclass says one update rule.

What an optimizer does with the gradients is ops like any other, so it compiles, differentiates and shards.
"""
from numbers import Real

import numpy as np

from minispore import ops
from minispore.common.dtype import promote
from minispore.common.parameter import Parameter, ParameterTuple
from minispore.common.tensor import Tensor
from minispore.nn.cell import Cell
from minispore.nn.optim.groups import read_groups


class Optimizer(Cell):
    """Base of optimizers (MindSpore: `nn.Optimizer`). Called with a tuple of gradients, it changes the parameters.

    Args:
        learning_rate: a number; a sequence or 1-D tensor with one number a step (the last one goes on); or a
            LearningRateSchedule, a Cell called with global_step.
        parameters: Parameters, or groups: dicts with "params" and, where they differ, "lr", "weight_decay" and
            "grad_centralization"; {"order_params": …} says in which order the gradients will come.
        weight_decay: a number ≥ 0, or a Cell called with global_step. Without groups it leaves out parameters whose name
            contains "beta" or "gamma"; a group's decay concerns all of the group (both as in MindSpore).
        loss_scale: gradients are divided by it.

    A subclass defines `update`, or a whole `construct` of its own with the steps `decay_weight`,
    `gradients_centralization`, `scale_grad` and `get_lr`.
    """

    decoupled = False           # True: the update rule itself decays the weights, their decay isn't part of the gradient
    spares_norms = True         # without groups, "beta" and "gamma" aren't decayed

    def __init__(self, learning_rate, parameters, weight_decay=0.0, loss_scale=1.0):
        super().__init__(auto_prefix=False)
        name = type(self).__name__
        if isinstance(loss_scale, bool) or not isinstance(loss_scale, Real) or not loss_scale > 0:
            raise ValueError(f"{name}: loss_scale {loss_scale!r} must be a number > 0")
        self.loss_scale, self.weight_decay = loss_scale, _checked_decay(name, weight_decay)
        self._rates = {}                # all rates by name
        self.learning_rate = self._rate("learning_rate", learning_rate)
        members, groups = read_groups(name, parameters)
        self.is_group, self.is_group_lr = groups is not None, any("lr" in g for g in groups or ())
        self.parameters = self.params = self._parameters = ParameterTuple(members)      # MindSpore has all three names
        rates, decays = {}, {}          # of the groups that have their own
        for i, g in enumerate(groups or ()):
            if "lr" in g:
                rates[i] = self._rate(f"learning_rate_group_{i}", g["lr"])
                setattr(self, f"learning_rate_group_{i}", rates[i])
            if "weight_decay" in g:
                decays[i] = _checked_decay(name, g["weight_decay"])
                if isinstance(decays[i], Cell):
                    setattr(self, f"weight_decay_group_{i}", decays[i])
        self.rates = [rates.get(i, self.learning_rate) for i in members.values()]
        self.decays = [decays.get(i, self.weight_decay) for i in members.values()]
        if not self.is_group and self.spares_norms:
            self.decays = [0.0 if "beta" in p.name or "gamma" in p.name else d
                           for p, d in zip(members, self.decays, strict=True)]
        self.centralized = [bool(groups) and groups[i].get("grad_centralization", False) for i in members.values()]
        self.global_step = Parameter(np.zeros(1, np.int32), name="global_step", requires_grad=False)

    # ---- learning rate -----------------------------------------------------------------------------

    def _rate(self, name, rate):
        """A schedule as it is; a number or a sequence as a Parameter, so that callbacks can assign to it."""
        self._rates[name] = rate if isinstance(rate, Cell) else Parameter(self._rate_values(rate), name, requires_grad=False)
        return self._rates[name]

    def _rate_values(self, rate) -> np.ndarray:
        asked = f"{type(self).__name__}: learning_rate {rate!r}"
        try:
            values = np.asarray(rate._data() if isinstance(rate, Tensor) else rate if isinstance(rate, Real) else list(rate),
                                np.float32)
        except (TypeError, ValueError):
            raise TypeError(f"{asked} is a {type(rate).__name__}; it must be a number, a sequence of numbers or a "
                            "LearningRateSchedule") from None
        if values.ndim > 1 or not values.size:
            raise ValueError(f"{asked} has shape {values.shape}; it must be one number or a sequence of them, one a step")
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(f"{asked} must be ≥ 0 and finite")
        return values

    def __setattr__(self, name, value):
        """`optimizer.learning_rate = 0.01` changes the rate; otherwise as in any Cell."""
        rate = self.__dict__.get("_rates", {}).get(name)
        if rate is None or name not in {*self._params, *self._cells} or isinstance(value, (Tensor, Cell)):
            super().__setattr__(name, value)
            return
        if isinstance(rate, Cell):
            raise TypeError(f"{type(self).__name__}: {name} is a {type(rate).__name__}, which makes the rate of the step number; "
                            "a number can't take its place. Give the optimizer a number or a list to begin with")
        rate.set_data(np.broadcast_to(self._rate_values(value), rate.shape).copy())

    def _now(self, rate) -> Tensor:
        """The rate of this step, a scalar."""
        if isinstance(rate, Cell):
            return ops.reshape(rate(self.global_step), ())
        if rate.ndim:
            return ops.reshape(ops.gather(rate, ops.minimum(self.global_step, rate.shape[0] - 1), 0), ())
        return rate

    def _rates_now(self) -> list[Tensor]:
        now = {rate: self._now(rate) for rate in dict.fromkeys(self.rates)}
        return [now[rate] for rate in self.rates]

    def get_lr(self):
        """The learning rate of the next step; with rates of groups a tuple, one a parameter."""
        return tuple(self._rates_now()) if self.is_group_lr else self._now(self.learning_rate)

    def get_lr_parameter(self, param):
        """The Parameter or schedule that holds the rate of a parameter; of a list of parameters, a list."""
        if isinstance(param, (list, tuple)):
            return [self.get_lr_parameter(p) for p in param]
        for p, rate in zip(self.parameters, self.rates, strict=True):
            if p is param:
                return rate
        what = f"parameter {param.name}" if isinstance(param, Parameter) else f"a {type(param).__name__}"
        raise ValueError(f"{type(self).__name__}.get_lr_parameter: {what} is not one of optimizer.parameters")

    # ---- the steps before the update -----------------------------------------------------------------

    def get_weight_decay(self):
        """The weight decay of the next step, a number or a scalar; with groups a tuple, one a parameter."""
        if self.is_group:
            return tuple(self.decays_now())
        decay = self.weight_decay
        return ops.reshape(decay(self.global_step), ()) if isinstance(decay, Cell) else decay

    def decays_now(self) -> list:
        """A decay for each parameter; 0.0 where there is none."""
        now = {d: ops.reshape(d(self.global_step), ()) for d in dict.fromkeys(self.decays) if isinstance(d, Cell)}
        return [now.get(d, d) for d in self.decays]

    def decay_weight(self, gradients) -> tuple:
        """g + weight_decay · loss_scale · p; `scale_grad`, which comes after, takes the loss_scale out again."""
        return tuple(g if isinstance(d, float) and not d else g + p * (d * self.loss_scale)
                     for g, p, d in zip(gradients, self.parameters, self.decays_now(), strict=True))

    def gradients_centralization(self, gradients) -> tuple:
        """g - its mean over all dims but the first (Yong et al., 2020), in groups with grad_centralization."""
        return tuple(g - ops.mean(g, tuple(range(1, g.ndim)), True) if on and g.ndim > 1 else g
                     for g, on in zip(gradients, self.centralized, strict=True))

    def scale_grad(self, gradients) -> tuple:
        """g / loss_scale."""
        return tuple(gradients) if self.loss_scale == 1 else tuple(g / self.loss_scale for g in gradients)

    def flatten_gradients(self, gradients) -> tuple:
        """The gradients as they are; there so that MindSpore's own subclasses find it."""
        return tuple(gradients)

    # ---- the step ------------------------------------------------------------------------------------

    def construct(self, gradients):
        gradients = self._checked(gradients)
        if not self.decoupled:
            gradients = self.decay_weight(gradients)
        gradients = self.scale_grad(self.gradients_centralization(gradients))
        self.before()
        for i, (p, g, lr) in enumerate(zip(self.parameters, gradients, self._rates_now(), strict=True)):
            lr = ops.cast(lr, promote(lr.dtype, p.dtype))       # so that lr · l1 is exact for float64 parameters too
            ops.assign(p, self.update(i, p, g, lr))
        ops.assign(self.global_step, self.global_step + 1)
        return True

    def before(self) -> None:
        """What is done once a step, before the parameters; `global_step` still counts the steps made so far."""

    def update(self, i: int, p: Parameter, g: Tensor, lr: Tensor) -> Tensor:
        """The new value of parameter number i."""
        raise NotImplementedError(f"{type(self).__name__} defines no update(i, parameter, gradient, lr)")

    def state(self, prefix: str, value: float = 0.0) -> ParameterTuple:
        """One tensor filled with `value` for every parameter, named `prefix.<parameter>`."""
        states = self.parameters.clone(prefix, value)
        for s, p in zip(states, self.parameters, strict=True):
            s.requires_grad, s.state_of = False, p
        return states

    def _checked(self, gradients) -> tuple:
        gradients = tuple(gradients)
        if len(gradients) != len(self.parameters):
            raise ValueError(f"{type(self).__name__}: got {len(gradients)} gradients for {len(self.parameters)} parameters; "
                             "pass one for each, in the order of optimizer.parameters")
        for p, g in zip(self.parameters, gradients, strict=True):
            if g.shape != p.shape:
                raise ValueError(f"{type(self).__name__}: the gradient for {p.name} has shape {g.shape}, the parameter "
                                 f"has {p.shape}; pass the gradients in the order of optimizer.parameters")
        return gradients


def _checked_decay(name, decay):
    if isinstance(decay, Cell):
        return decay
    if isinstance(decay, bool) or not isinstance(decay, Real) or not 0 <= decay < np.inf:
        raise ValueError(f"{name}: weight_decay {decay!r} must be a number ≥ 0, or a Cell that makes one of global_step")
    return float(decay)


def check_numbers(optimizer, **limits) -> None:
    """Each `name=(value, lowest, highest)` a number in between; the limits count where they are given as [lowest]."""
    for name, (value, low, high) in limits.items():
        least, top = (x[0] if isinstance(x, list) else x for x in (low, high))
        good = isinstance(value, Real) and not isinstance(value, bool)
        good = good and (value >= least if isinstance(low, list) else value > least)
        if not (good and (value <= top if isinstance(high, list) else value < top)):
            room = (f"≥ {least}" if isinstance(low, list) else f"> {least}") if top == np.inf else f"between {least} and {top}"
            raise ValueError(f"{type(optimizer).__name__}: {name} {value!r} must be {room}")
