"""Gradient descent with and without momentum: SGD, Momentum."""
import numpy as np

from minispore import ops
from minispore.common import dtype as mstype
from minispore.common.parameter import ParameterTuple
from minispore.nn.optim.optimizer import Optimizer, check_numbers


class SGD(Optimizer):
    """v = momentum·v + (1 - dampening)·g, at the first step v = g; p -= lr·v (MindSpore: `nn.SGD`, PyTorch's form).

    nesterov: p -= lr·(g + momentum·v). weight_decay is added to every parameter's gradient, also to beta's and gamma's:
    unlike the other optimizers', MindSpore's SGD leaves none out.

    >>> import numpy as np
    >>> from minispore import Parameter, Tensor, nn
    >>> w = Parameter(Tensor([1.0, 2.0]), name="w")
    >>> _ = nn.SGD([w], learning_rate=0.5)((Tensor([1.0, 1.0]),))
    >>> w.tolist()
    [0.5, 1.5]
    """

    spares_norms = False

    def __init__(self, params, learning_rate=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False,
                 loss_scale=1.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_numbers(self, momentum=(momentum, [0], np.inf), dampening=(dampening, [0], np.inf))
        if nesterov and (momentum <= 0 or dampening):
            raise ValueError(f"SGD: nesterov needs momentum > 0 and dampening 0; they are {momentum} and {dampening}")
        self.momentum, self.dampening, self.nesterov = float(momentum), float(dampening), nesterov
        self.accum = self.state("accum") if momentum else ParameterTuple()

    def before(self):
        if self.dampening:          # 1 at the first step, afterwards 1 - dampening
            started = ops.cast(ops.reshape(self.global_step, ()) > 0, mstype.float64)
            self.share = 1 - self.dampening * started

    def update(self, i, p, g, lr):
        if not self.momentum:
            return p - lr * g
        part = g * ops.cast(self.share, g.dtype) if self.dampening else g
        v = ops.assign(self.accum[i], self.momentum * self.accum[i] + part)
        return p - lr * (g + self.momentum * v if self.nesterov else v)


class Momentum(Optimizer):
    """v = momentum·v + g; p -= lr·v (MindSpore: `nn.Momentum`). use_nesterov: p -= lr·(g + momentum·v)."""

    def __init__(self, params, learning_rate, momentum, weight_decay=0.0, loss_scale=1.0, use_nesterov=False):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_numbers(self, momentum=(momentum, [0], np.inf))
        self.momentum, self.use_nesterov = float(momentum), use_nesterov
        self.moments = self.state("moments")

    def update(self, i, p, g, lr):
        v = ops.assign(self.moments[i], self.momentum * self.moments[i] + g)
        return p - lr * (g + self.momentum * v if self.use_nesterov else v)
