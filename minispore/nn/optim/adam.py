"""Adam and its relatives: AdamWeightDecay, AdaMax, Lamb. All keep moving means of the gradient and of its size."""
import numpy as np

from minispore import ops
from minispore.common.parameter import Parameter, ParameterTuple
from minispore.nn.optim.optimizer import Optimizer, check_numbers


class _Moments(Optimizer):
    """Base: beta1, beta2, eps, and the two moving means under the names MindSpore gives them."""

    names = ("moment1", "moment2")

    def __init__(self, params, learning_rate, beta1, beta2, eps, weight_decay, loss_scale=1.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_numbers(self, beta1=(beta1, 0, 1), beta2=(beta2, 0, 1), eps=(eps, 0, np.inf))
        self.beta1, self.beta2, self.eps = float(beta1), float(beta2), float(eps)
        self.first, self.second = (self.state(name) for name in self.names)

    def means(self, i, g):
        """m = β₁·m + (1-β₁)·g and v = β₂·v + (1-β₂)·g², moved on."""
        m = ops.assign(self.first[i], self.beta1 * self.first[i] + (1 - self.beta1) * g)
        v = ops.assign(self.second[i], self.beta2 * self.second[i] + (1 - self.beta2) * ops.square(g))
        return m, v

    def _power(self, name):
        # float64: 1 - 0.999 in float32 is wrong in the fourth digit
        return Parameter(np.ones(1), name=name, requires_grad=False)

    def _grown(self, power, beta):
        """βᵗ of this step, a scalar."""
        return ops.reshape(ops.assign(power, power * beta), ())


class Adam(_Moments):
    """Adam (Kingma and Ba, 2015) in MindSpore's form (`nn.Adam`).

    m = β₁·m + (1-β₁)·g; v = β₂·v + (1-β₂)·g²; p -= lr·√(1-β₂ᵗ)/(1-β₁ᵗ) · m / (√v + eps).
    use_nesterov: m above is replaced by β₁·m + (1-β₁)·g; use_amsgrad: v by its maximum so far.
    """

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, use_locking=False,
                 use_nesterov=False, weight_decay=0.0, loss_scale=1.0, use_amsgrad=False, **kwargs):
        super().__init__(params, learning_rate, beta1, beta2, eps, weight_decay, loss_scale)
        unknown = set(kwargs) - {"use_lazy", "use_offload"}
        if unknown or any(kwargs.values()):
            raise TypeError(f"Adam: {kwargs} isn't there; use_lazy and use_offload must be False")
        self.use_nesterov, self.use_amsgrad = use_nesterov, use_amsgrad
        self.moment1, self.moment2 = self.first, self.second
        self.beta1_power, self.beta2_power = self._power("beta1_power"), self._power("beta2_power")
        self.vhat = self.state("vhat") if use_amsgrad else ParameterTuple()

    def before(self):
        power1, power2 = self._grown(self.beta1_power, self.beta1), self._grown(self.beta2_power, self.beta2)
        self.correction = ops.sqrt(1 - power2) / (1 - power1)

    def update(self, i, p, g, lr):
        m, v = self.means(i, g)
        if self.use_amsgrad:
            v = ops.assign(self.vhat[i], ops.maximum(self.vhat[i], v))
        if self.use_nesterov:
            m = self.beta1 * m + (1 - self.beta1) * g
        return p - lr * ops.cast(self.correction, p.dtype) * m / (ops.sqrt(v) + self.eps)


class AdamWeightDecay(_Moments):
    """Adam without correction of the start, weight decay apart from the gradient (MindSpore: `nn.AdamWeightDecay`).

    m = β₁·m + (1-β₁)·g; v = β₂·v + (1-β₂)·g²; p -= lr·(m / (√v + eps) + weight_decay·p).

    >>> from minispore import Parameter, Tensor, nn
    >>> w = Parameter(Tensor([1.0]), name="w")
    >>> _ = nn.AdamWeightDecay([w], learning_rate=0.1, weight_decay=0.5)((Tensor([0.0]),))
    >>> round(w.item(), 6)
    0.95
    """

    decoupled, names = True, ("adam_m", "adam_v")

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0):
        super().__init__(params, learning_rate, beta1, beta2, eps, weight_decay)
        self.moments1, self.moments2 = self.first, self.second

    def before(self):
        self.decay = self.decays_now()

    def update(self, i, p, g, lr):
        m, v = self.means(i, g)
        return p - lr * self.decayed(i, p, m / (ops.sqrt(v) + self.eps))

    def decayed(self, i, p, step):
        """step + weight_decay·p."""
        none = isinstance(self.decay[i], float) and not self.decay[i]
        return step if none else step + self.decay[i] * p


class Lamb(AdamWeightDecay):
    """Layer-wise adaptive moments for large batches (You et al., 2020; MindSpore: `nn.Lamb`).

    r = m/(1-β₁ᵗ) / (√(v/(1-β₂ᵗ)) + eps) + weight_decay·p; p -= lr·φ·r with φ = ‖p‖/‖r‖, at most 10, and 1 where either
    norm is 0.
    """

    names = ("lamb_m", "lamb_v")

    def __init__(self, params, learning_rate, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0):
        super().__init__(params, learning_rate, beta1, beta2, eps, weight_decay)

    def before(self):
        super().before()
        step = ops.cast(ops.reshape(self.global_step, ()) + 1, np.dtype("float64"))
        self.corrections = [1 - ops.pow(ops.full((), beta, dtype=step.dtype), step) for beta in (self.beta1, self.beta2)]

    def update(self, i, p, g, lr):
        m, v = self.means(i, g)
        first, second = (ops.cast(c, p.dtype) for c in self.corrections)
        r = self.decayed(i, p, m / first / (ops.sqrt(v / second) + self.eps))
        own, step = _norm(p), _norm(r)
        ratio = ops.minimum(own / ops.select(step > 0, step, ops.ones_like(step)), 10.0)
        return p - lr * ops.select(ops.logical_and(own > 0, step > 0), ratio, ops.ones_like(ratio)) * r


class AdaMax(_Moments):
    """Adam with the largest gradient in place of the mean square (Kingma and Ba, 2015; MindSpore: `nn.AdaMax`).

    m = β₁·m + (1-β₁)·g; v = max(β₂·v, |g|); p -= lr/(1-β₁ᵗ) · m / (v + eps).
    """

    def __init__(self, params, learning_rate=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, loss_scale=1.0):
        super().__init__(params, learning_rate, beta1, beta2, eps, weight_decay, loss_scale)
        self.moment1, self.moment2 = self.first, self.second
        self.beta1_power = self._power("beta1_power")

    def before(self):
        self.correction = 1 - self._grown(self.beta1_power, self.beta1)

    def update(self, i, p, g, lr):
        m = ops.assign(self.first[i], self.beta1 * self.first[i] + (1 - self.beta1) * g)
        v = ops.assign(self.second[i], ops.maximum(self.beta2 * self.second[i], ops.abs(g)))
        return p - lr / ops.cast(self.correction, p.dtype) * m / (v + self.eps)


def _norm(x):
    return ops.sqrt(ops.sum(ops.square(x)))
