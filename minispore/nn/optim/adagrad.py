"""Rates that adapt to the gradients seen: Adagrad, ProximalAdagrad, FTRL, Adadelta, RMSProp, Rprop."""
import numpy as np

from minispore import ops
from minispore.common.parameter import ParameterTuple
from minispore.nn.optim.optimizer import Optimizer, check_numbers


class Adagrad(Optimizer):
    """a += g²; p -= lr·g / √(a + 1e-6) (Duchi et al., 2011; MindSpore: `nn.Adagrad`, 1e-6 as on its CPU).

    accum: what a begins with. update_slots=False: a stays as it is.
    """

    def __init__(self, params, accum=0.1, learning_rate=0.001, update_slots=True, loss_scale=1.0, weight_decay=0.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_numbers(self, accum=(accum, [0], np.inf))
        self.accum, self.update_slots = self.state("accum", accum), update_slots

    def update(self, i, p, g, lr):
        a = self.accum[i]
        if self.update_slots:
            a = ops.assign(a, a + ops.square(g))
        return p - lr * g / ops.sqrt(a + 1e-6)


class ProximalAdagrad(Optimizer):
    """Adagrad with l1 and l2 regularisation (Duchi and Singer, 2009; MindSpore: `nn.ProximalAdagrad`).

    a += g²; q = p - lr·g/√a; p = sign(q)·max(|q| - lr·l1, 0) / (1 + lr·l2).
    """

    def __init__(self, params, accum=0.1, learning_rate=0.001, l1=0.0, l2=0.0, use_locking=False, loss_scale=1.0,
                 weight_decay=0.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_numbers(self, accum=(accum, [0], np.inf), l1=(l1, [0], np.inf), l2=(l2, [0], np.inf))
        self.accum, self.l1, self.l2 = self.state("accum", accum), float(l1), float(l2)

    def update(self, i, p, g, lr):
        a = ops.assign(self.accum[i], self.accum[i] + ops.square(g))
        q = p - lr * g / ops.sqrt(a)
        return ops.sign(q) * ops.maximum(ops.abs(q) - lr * self.l1, 0.0) / (1 + lr * self.l2)


class FTRL(Optimizer):
    """Follow the regularised leader (McMahan et al., 2013; MindSpore: `nn.FTRL`).

    b = a + g²; z += g - (b^-lr_power - a^-lr_power)/lr·p; a = b;
    p = (sign(z)·l1 - z) / (b^-lr_power/lr + 2·l2) where |z| > l1, else 0.
    """

    def __init__(self, params, initial_accum=0.1, learning_rate=0.001, lr_power=-0.5, l1=0.0, l2=0.0, use_locking=False,
                 loss_scale=1.0, weight_decay=0.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_numbers(self, initial_accum=(initial_accum, [0], np.inf), lr_power=(lr_power, -np.inf, [0]),
                      l1=(l1, [0], np.inf), l2=(l2, [0], np.inf))
        self.moments, self.linear = self.state("moments", initial_accum), self.state("linear")
        self.power, self.l1, self.l2 = -float(lr_power), float(l1), float(l2)

    def update(self, i, p, g, lr):
        a, b = ops.pow(self.moments[i], self.power), self.moments[i] + ops.square(g)
        b_power = ops.pow(ops.assign(self.moments[i], b), self.power)
        z = ops.assign(self.linear[i], self.linear[i] + g - (b_power - a) / lr * p)
        new = (ops.sign(z) * self.l1 - z) / (b_power / lr + 2 * self.l2)
        return ops.select(ops.abs(z) > self.l1, new, ops.zeros_like(new))


class Adadelta(Optimizer):
    """Steps in the parameter's own unit (Zeiler, 2012; MindSpore: `nn.Adadelta`).

    a = ρ·a + (1-ρ)·g²; d = √(u + eps)/√(a + eps)·g; u = ρ·u + (1-ρ)·d²; p -= lr·d.
    """

    def __init__(self, params, learning_rate=1.0, rho=0.9, epsilon=1e-6, loss_scale=1.0, weight_decay=0.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_numbers(self, rho=(rho, [0], [1]), epsilon=(epsilon, 0, np.inf))
        self.rho, self.epsilon = float(rho), float(epsilon)
        self.accum, self.accum_update = self.state("accum"), self.state("accum_update")

    def update(self, i, p, g, lr):
        a = ops.assign(self.accum[i], self.rho * self.accum[i] + (1 - self.rho) * ops.square(g))
        d = ops.sqrt(self.accum_update[i] + self.epsilon) / ops.sqrt(a + self.epsilon) * g
        ops.assign(self.accum_update[i], self.rho * self.accum_update[i] + (1 - self.rho) * ops.square(d))
        return p - lr * d


class RMSProp(Optimizer):
    """Steps divided by the moving root mean square of the gradient (Hinton, 2012; MindSpore: `nn.RMSProp`).

    s = decay·s + (1-decay)·g², beginning with 1; m = momentum·m + lr·g / √(s + epsilon); p -= m.
    centered: a moving mean a of g is kept too, and s - a² stands for s in the root.
    """

    def __init__(self, params, learning_rate=0.1, decay=0.9, momentum=0.0, epsilon=1e-10, use_locking=False, centered=False,
                 loss_scale=1.0, weight_decay=0.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_numbers(self, decay=(decay, [0], np.inf), momentum=(momentum, [0], np.inf), epsilon=(epsilon, 0, np.inf))
        self.decay, self.momentum, self.epsilon, self.centered = float(decay), float(momentum), float(epsilon), centered
        self.ms, self.moment = self.state("mean_square", 1.0), self.state("moment")
        self.mg = self.state("mean_grad") if centered else ParameterTuple()

    def update(self, i, p, g, lr):
        s = ops.assign(self.ms[i], self.decay * self.ms[i] + (1 - self.decay) * ops.square(g))
        if self.centered:
            s = s - ops.square(ops.assign(self.mg[i], self.decay * self.mg[i] + (1 - self.decay) * g))
        return p - ops.assign(self.moment[i], self.momentum * self.moment[i] + lr * g / ops.sqrt(s + self.epsilon))


class Rprop(Optimizer):
    """Steps by the gradient's sign alone (Riedmiller and Braun, 1993; MindSpore: `nn.Rprop`).

    A step's size, learning_rate at first, is multiplied by etas[1] where the gradient keeps its sign, by etas[0] where it
    turns (and then p stays and the next sign counts as new), and stays within step_sizes. p -= sign(g)·size.
    """

    def __init__(self, params, learning_rate=0.1, etas=(0.5, 1.2), step_sizes=(1e-6, 50.0), weight_decay=0.0):
        super().__init__(learning_rate, params, weight_decay)
        (less, more), (least, most) = etas, step_sizes
        check_numbers(self, **{"etas[0]": (less, 0, 1), "etas[1]": (more, 1, np.inf), "step_sizes[0]": (least, [0], [most])})
        self.etas, self.step_sizes = (float(less), float(more)), (float(least), float(most))
        self.prev, self.step_size = self.state("prev"), self.state("step_size")

    def update(self, i, p, g, lr):
        started = ops.reshape(self.global_step, ()) > 0
        size = ops.select(started, self.step_size[i], ops.zeros_like(g) + lr)
        kept = self.prev[i] * g
        size = ops.select(kept > 0, size * self.etas[1], ops.select(kept < 0, size * self.etas[0], size))
        size = ops.assign(self.step_size[i], ops.minimum(ops.maximum(size, self.step_sizes[0]), self.step_sizes[1]))
        g = ops.assign(self.prev[i], ops.select(kept < 0, ops.zeros_like(g), g))
        return p - ops.sign(g) * size
