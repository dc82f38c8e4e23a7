"""Optimizers: they turn gradients into new parameters, with ops like any other, so they compile and shard.

Weight decay is added to the gradient (L2), except for parameters whose name contains "beta" or "gamma", as in
MindSpore.
"""
import numpy as np

from minispore import ops
from minispore.common import dtype as mstype
from minispore.common.parameter import Parameter, ParameterTuple
from minispore.common.tensor import Tensor
from minispore.nn.cell import Cell


class Optimizer(Cell):
    """Base of optimizers (MindSpore: `nn.Optimizer`). Called with a tuple of gradients, it changes the parameters.

    Args:
        learning_rate: a number, or a sequence with one number a step (the last one goes on).
        parameters: Parameters, or groups: dicts with "params" and, if they differ, "lr" and "weight_decay".
        weight_decay: ≥ 0. loss_scale: gradients are divided by it.
    """

    def __init__(self, learning_rate, parameters, weight_decay=0.0, loss_scale=1.0):
        super().__init__(auto_prefix=False)
        params, rates, decays = _groups(type(self).__name__, parameters, learning_rate, weight_decay)
        if loss_scale <= 0:
            raise ValueError(f"{type(self).__name__}: loss_scale {loss_scale} must be > 0")
        self.parameters = ParameterTuple(params)
        self.loss_scale = loss_scale
        self.learning_rate = self._rate("learning_rate", learning_rate)
        made = {None: self.learning_rate}
        for group, rate in dict(rates).items():         # a group with a rate of its own
            if group is not None:
                made[group] = self._rate(f"learning_rate_group_{group}", rate)
                self.insert_param_to_cell(made[group].name, made[group])
        self.rates = [made[group] for group, _ in rates]
        self.decays = [0.0 if any(w in p.name for w in ("beta", "gamma")) else float(d)
                       for p, d in zip(params, decays, strict=True)]
        self.global_step = Parameter(Tensor(np.zeros((), np.int32)), name="global_step", requires_grad=False)

    def _rate(self, name, rate):
        values = np.asarray(rate._data() if isinstance(rate, Tensor) else rate, np.float32)
        if values.ndim > 1 or not values.size or (values < 0).any():
            raise ValueError(f"{type(self).__name__}: learning_rate {rate!r} must be a number ≥ 0 or a sequence of them")
        return Parameter(values, name=name, requires_grad=False)

    def get_lr(self) -> Tensor:
        """The learning rate of the next step."""
        return self._now(self.learning_rate)

    def _now(self, rate):
        if not rate.ndim:
            return rate
        return ops.gather(rate, ops.minimum(self.global_step, rate.shape[0] - 1), 0)

    def construct(self, gradients):
        gradients = tuple(gradients)
        if len(gradients) != len(self.parameters):
            raise ValueError(f"{type(self).__name__}: got {len(gradients)} gradients for {len(self.parameters)} parameters; "
                             "pass one for each, in the order of optimizer.parameters")
        self.before()
        for i, (p, g) in enumerate(zip(self.parameters, gradients, strict=True)):
            if g.shape != p.shape:
                raise ValueError(f"{type(self).__name__}: the gradient for {p.name} has shape {g.shape}, the parameter "
                                 f"has {p.shape}; pass the gradients in the order of optimizer.parameters")
            g = g if self.loss_scale == 1 else g / self.loss_scale
            g = g + p * self.decays[i] if self.decays[i] else g
            ops.assign(p, self.update(i, p, g, self._now(self.rates[i])))
        ops.assign(self.global_step, self.global_step + 1)
        return True

    def before(self) -> None:
        """What is done once a step, before the parameters."""

    def update(self, i: int, p: Parameter, g: Tensor, lr: Tensor) -> Tensor:
        """The new value of parameter number i."""
        raise NotImplementedError(f"{type(self).__name__} defines no update(i, parameter, gradient, lr)")

    def state(self, prefix: str) -> ParameterTuple:
        """Zeros for every parameter, named `prefix.<parameter>`."""
        states = self.parameters.clone(prefix, "zeros")
        for s in states:
            s.requires_grad = False
        return states


class SGD(Optimizer):
    """v = momentum·v + (1 - dampening)·g, at the first step v = g; p -= lr·v (MindSpore: `nn.SGD`, PyTorch's form).

    nesterov: p -= lr·(g + momentum·v).
    """

    def __init__(self, params, learning_rate=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False,
                 loss_scale=1.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if momentum < 0 or dampening < 0:
            raise ValueError(f"SGD: momentum {momentum} and dampening {dampening} must be ≥ 0")
        if nesterov and (momentum <= 0 or dampening):
            raise ValueError(f"SGD: nesterov needs momentum > 0 and dampening 0; they are {momentum} and {dampening}")
        self.momentum, self.dampening, self.nesterov = float(momentum), float(dampening), nesterov
        self.accum = self.state("accum") if momentum else ParameterTuple()

    def before(self):
        if self.dampening:          # 1 at the first step, afterwards 1 - dampening
            self.share = 1 - self.dampening * ops.cast(self.global_step > 0, mstype.float32)

    def update(self, i, p, g, lr):
        if not self.momentum:
            return p - lr * g
        v = ops.assign(self.accum[i], self.momentum * self.accum[i] + (g * self.share if self.dampening else g))
        return p - lr * (g + self.momentum * v if self.nesterov else v)


class Momentum(Optimizer):
    """v = momentum·v + g; p -= lr·v (MindSpore: `nn.Momentum`). use_nesterov: p -= lr·(g + momentum·v)."""

    def __init__(self, params, learning_rate, momentum, weight_decay=0.0, loss_scale=1.0, use_nesterov=False):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if momentum < 0:
            raise ValueError(f"Momentum: momentum {momentum} must be ≥ 0")
        self.momentum, self.use_nesterov = float(momentum), use_nesterov
        self.moments = self.state("moments")

    def update(self, i, p, g, lr):
        v = ops.assign(self.moments[i], self.momentum * self.moments[i] + g)
        return p - lr * (g + self.momentum * v if self.use_nesterov else v)


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015) in MindSpore's form (`nn.Adam`).

    m = β₁·m + (1-β₁)·g; v = β₂·v + (1-β₂)·g²; p -= lr·√(1-β₂ᵗ)/(1-β₁ᵗ) · m / (√v + eps).
    use_nesterov: m above is replaced by β₁·m + (1-β₁)·g; use_amsgrad: v by its maximum so far.
    """

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, use_locking=False,
                 use_nesterov=False, weight_decay=0.0, loss_scale=1.0, use_amsgrad=False, **kwargs):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if not (0 < beta1 < 1 and 0 < beta2 < 1 and eps > 0):
            raise ValueError(f"Adam: beta1 {beta1} and beta2 {beta2} must be between 0 and 1, eps {eps} > 0")
        unknown = set(kwargs) - {"use_lazy", "use_offload"}
        if unknown or any(kwargs.values()):
            raise TypeError(f"Adam: {kwargs} isn't there; use_lazy and use_offload must be False")
        self.beta1, self.beta2, self.eps = float(beta1), float(beta2), float(eps)
        self.use_nesterov, self.use_amsgrad = use_nesterov, use_amsgrad
        # float64: 1 - 0.999 in float32 is wrong in the fourth digit
        self.beta1_power = Parameter(np.ones(()), name="beta1_power", requires_grad=False)
        self.beta2_power = Parameter(np.ones(()), name="beta2_power", requires_grad=False)
        self.moment1, self.moment2 = self.state("moment1"), self.state("moment2")
        self.vhat = self.state("vhat") if use_amsgrad else ParameterTuple()

    def before(self):
        power1 = ops.assign(self.beta1_power, self.beta1_power * self.beta1)
        power2 = ops.assign(self.beta2_power, self.beta2_power * self.beta2)
        self.correction = ops.sqrt(1 - power2) / (1 - power1)

    def update(self, i, p, g, lr):
        m = ops.assign(self.moment1[i], self.beta1 * self.moment1[i] + (1 - self.beta1) * g)
        v = ops.assign(self.moment2[i], self.beta2 * self.moment2[i] + (1 - self.beta2) * ops.square(g))
        if self.use_amsgrad:
            v = ops.assign(self.vhat[i], ops.maximum(self.vhat[i], v))
        if self.use_nesterov:
            m = self.beta1 * m + (1 - self.beta1) * g
        return p - lr * ops.cast(self.correction, p.dtype) * m / (ops.sqrt(v) + self.eps)


def _groups(name, parameters, learning_rate, weight_decay):
    """(parameters, (group or None, learning rate) each, a weight decay each) from a list of Parameters or of groups."""
    items = list(parameters)
    if not items:
        raise ValueError(f"{name}: no parameters given; pass net.trainable_params()")
    groups = items if all(isinstance(g, dict) for g in items) else [{"params": items}]
    params, rates, decays = [], [], []
    for number, g in enumerate(groups):
        unknown = set(g) - {"params", "lr", "weight_decay"}
        if unknown or "params" not in g:
            raise ValueError(f"{name}: a parameter group has the keys {sorted(g)}; it needs 'params' and may have 'lr' and "
                             "'weight_decay'")
        decay = g.get("weight_decay", weight_decay)
        if not isinstance(decay, (int, float)) or decay < 0:
            raise ValueError(f"{name}: weight_decay {decay!r} must be a number ≥ 0")
        for p in g["params"]:
            if not isinstance(p, Parameter):
                raise TypeError(f"{name}: {p!r} is a {type(p).__name__}; optimizers take Parameters, "
                                "e.g. net.trainable_params()")
            params.append(p)
            rates.append((number, g["lr"]) if "lr" in g else (None, learning_rate))
            decays.append(decay)
    if len(set(params)) < len(params):
        twice = next(p.name for p in params if params.count(p) > 1)
        raise ValueError(f"{name}: parameter {twice} is given twice; each once")
    return params, rates, decays
