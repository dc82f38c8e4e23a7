"""Optimizers against their formulas, written out in numpy, in float64: alone, in groups, with decay and schedules."""
import numpy as np
import pytest

import minispore as ms
from minispore import Parameter, Tensor, nn, ops

STEPS, RATE = 5, 0.1
BOTH_MODES = pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])


# ---- the formulas: new p from p, the gradient g, the step number t, the states s and the rate lr -------------------

def plain(p, g, t, s, lr):
    return p - lr * g


def sgd(p, g, t, s, lr, mu=0.9, damp=0.0, nesterov=False):
    s["accum"] = g if t == 0 else mu * s["accum"] + (1 - damp) * g
    return p - lr * (g + mu * s["accum"] if nesterov else s["accum"])


def momentum(p, g, t, s, lr, mu=0.9, nesterov=False):
    s["moments"] = mu * s.get("moments", 0) + g
    return p - lr * (g + mu * s["moments"] if nesterov else s["moments"])


def means(s, g, m, v, b1=0.9, b2=0.999):
    s[m] = b1 * s.get(m, 0) + (1 - b1) * g
    s[v] = b2 * s.get(v, 0) + (1 - b2) * g * g
    return s[m], s[v]


def adam(p, g, t, s, lr, b1=0.9, b2=0.999, eps=1e-8, amsgrad=False, nesterov=False):
    m, v = means(s, g, "moment1", "moment2", b1, b2)
    if amsgrad:
        s["vhat"] = v = np.maximum(s.get("vhat", 0), v)
    m = b1 * m + (1 - b1) * g if nesterov else m
    return p - lr * np.sqrt(1 - b2 ** (t + 1)) / (1 - b1 ** (t + 1)) * m / (np.sqrt(v) + eps)


def adam_weight_decay(p, g, t, s, lr, d=0.0):
    m, v = means(s, g, "adam_m", "adam_v")
    return p - lr * (m / (np.sqrt(v) + 1e-6) + d * p)


def lamb(p, g, t, s, lr, d=0.0):
    m, v = means(s, g, "lamb_m", "lamb_v")
    r = m / (1 - 0.9 ** (t + 1)) / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 1e-6) + d * p
    return p - lr * min(np.linalg.norm(p) / np.linalg.norm(r), 10) * r


def adamax(p, g, t, s, lr):
    s["moment1"] = 0.9 * s.get("moment1", 0) + 0.1 * g
    s["moment2"] = np.maximum(0.999 * s.get("moment2", 0), abs(g))
    return p - lr / (1 - 0.9 ** (t + 1)) * s["moment1"] / (s["moment2"] + 1e-8)


def adagrad(p, g, t, s, lr, start=0.1, slots=True):
    s["accum"] = s.get("accum", start) + (g * g if slots else 0)
    return p - lr * g / np.sqrt(s["accum"] + 1e-6)


def proximal_adagrad(p, g, t, s, lr, l1=0.3, l2=0.2):
    s["accum"] = s.get("accum", 0.1) + g * g
    q = p - lr * g / np.sqrt(s["accum"])
    return np.sign(q) * np.maximum(abs(q) - lr * l1, 0) / (1 + lr * l2)


def ftrl(p, g, t, s, lr, l1=0.5, l2=0.2):
    old = s.get("moments", 0.1)
    s["moments"] = old + g * g
    s["linear"] = s.get("linear", 0) + g - (np.sqrt(s["moments"]) - np.sqrt(old)) / lr * p
    z = s["linear"]
    return np.where(abs(z) > l1, (np.sign(z) * l1 - z) / (np.sqrt(s["moments"]) / lr + 2 * l2), 0)


def adadelta(p, g, t, s, lr):
    s["accum"] = 0.9 * s.get("accum", 0) + 0.1 * g * g
    d = np.sqrt(s.get("accum_update", 0) + 1e-6) / np.sqrt(s["accum"] + 1e-6) * g
    s["accum_update"] = 0.9 * s.get("accum_update", 0) + 0.1 * d * d
    return p - lr * d


def rmsprop(p, g, t, s, lr, mu=0.0, centered=False):
    s["mean_square"] = 0.9 * s.get("mean_square", 1.0) + 0.1 * g * g
    inside = s["mean_square"]
    if centered:
        s["mean_grad"] = 0.9 * s.get("mean_grad", 0.0) + 0.1 * g
        inside = inside - s["mean_grad"] ** 2
    s["moment"] = mu * s.get("moment", 0) + lr * g / np.sqrt(inside + 1e-10)
    return p - s["moment"]


def rprop(p, g, t, s, lr):
    size, kept = s.get("step_size", lr + 0 * g), s.get("prev", 0 * g) * g
    s["step_size"] = size = np.clip(np.where(kept > 0, size * 1.2, np.where(kept < 0, size * 0.5, size)), 1e-6, 50)
    s["prev"] = np.where(kept < 0, 0, g)
    return p - np.sign(s["prev"]) * size


FORMULAS = {        # name: (how it is made, its formula)
    "sgd": (nn.SGD, {}, plain),
    "sgd momentum": (nn.SGD, {"momentum": 0.9}, sgd),
    "sgd dampening": (nn.SGD, {"momentum": 0.9, "dampening": 0.3}, lambda *a: sgd(*a, damp=0.3)),
    "sgd nesterov": (nn.SGD, {"momentum": 0.9, "nesterov": True}, lambda *a: sgd(*a, nesterov=True)),
    "momentum": (nn.Momentum, {"momentum": 0.9}, momentum),
    "momentum nesterov": (nn.Momentum, {"momentum": 0.9, "use_nesterov": True}, lambda *a: momentum(*a, nesterov=True)),
    "adam": (nn.Adam, {}, adam),
    "adam amsgrad": (nn.Adam, {"use_amsgrad": True}, lambda *a: adam(*a, amsgrad=True)),
    "adam nesterov": (nn.Adam, {"use_nesterov": True}, lambda *a: adam(*a, nesterov=True)),
    "adam other": (nn.Adam, {"beta1": 0.8, "beta2": 0.99, "eps": 1e-3}, lambda *a: adam(*a, b1=0.8, b2=0.99, eps=1e-3)),
    "adam weight decay": (nn.AdamWeightDecay, {}, adam_weight_decay),
    "lamb": (nn.Lamb, {}, lamb),
    "adamax": (nn.AdaMax, {}, adamax),
    "adagrad": (nn.Adagrad, {}, adagrad),
    "adagrad fixed": (nn.Adagrad, {"accum": 0.5, "update_slots": False}, lambda *a: adagrad(*a, start=0.5, slots=False)),
    "proximal adagrad": (nn.ProximalAdagrad, {"l1": 0.3, "l2": 0.2}, proximal_adagrad),
    "ftrl": (nn.FTRL, {"l1": 0.5, "l2": 0.2}, ftrl),
    "adadelta": (nn.Adadelta, {}, adadelta),
    "rmsprop": (nn.RMSProp, {}, rmsprop),
    "rmsprop momentum": (nn.RMSProp, {"momentum": 0.8}, lambda *a: rmsprop(*a, mu=0.8)),
    "rmsprop centered": (nn.RMSProp, {"momentum": 0.8, "centered": True}, lambda *a: rmsprop(*a, mu=0.8, centered=True)),
    "rprop": (nn.Rprop, {}, rprop),
}
DECOUPLED = {"adam weight decay", "lamb"}


class Halving(nn.Cell):
    """A weight decay that changes: start / 2^step."""

    def __init__(self, start):
        super().__init__()
        self.start = start

    def construct(self, step):
        return self.start * ops.pow(0.5, ops.cast(step, ms.float32))


DECAYING = nn.ExponentialDecayLR(0.1, 0.5, 2)
VARIANTS = {    # name: (arguments, the rates of w and bn.gamma at step t, their weight decays: names with gamma are spared)
    "plain": ({"learning_rate": RATE}, lambda t: (RATE, RATE), lambda t: (0, 0)),
    "decay": ({"learning_rate": RATE, "weight_decay": 0.01}, lambda t: (RATE, RATE), lambda t: (0.01, 0)),
    "decay schedule": ({"learning_rate": RATE, "weight_decay": Halving(0.5)}, lambda t: (RATE, RATE),
                       lambda t: (0.5 / 2 ** t, 0)),
    "list": ({"learning_rate": [0.1, 0.05, 0.02]}, lambda t: [[0.1, 0.05, 0.02][min(t, 2)]] * 2, lambda t: (0, 0)),
    "schedule": ({"learning_rate": DECAYING}, lambda t: [float(DECAYING(Tensor(t)))] * 2, lambda t: (0, 0)),
    "groups": ({"learning_rate": RATE, "weight_decay": 0.2}, lambda t: (0.3, RATE), lambda t: (0.03, 0.2)),
    "groups schedule": ({"learning_rate": [0.1, 0.05]}, lambda t: (float(DECAYING(Tensor(t))), [0.1, 0.05][min(t, 1)]),
                        lambda t: (0, 0.25 / 2 ** t)),
}
GROUPS = {
    "groups": lambda w, gamma: [{"params": [gamma]}, {"params": [w], "lr": 0.3, "weight_decay": 0.03},
                                {"order_params": [w, gamma]}],
    "groups schedule": lambda w, gamma: [{"params": [w], "lr": DECAYING}, {"params": [gamma], "weight_decay": Halving(0.25)}],
}


@BOTH_MODES
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name, variant, mode):
    ms.set_context(mode=mode)
    (kind, more, formula), (arguments, rates, decays) = FORMULAS[name], VARIANTS[variant]
    rng = np.random.default_rng(0)
    params = [Parameter(rng.normal(size=(2, 3)), name="w"), Parameter(rng.normal(size=3), name="bn.gamma")]
    want, states = [p.asnumpy() for p in params], [{}, {}]
    optimizer = kind(GROUPS[variant](*params) if variant in GROUPS else params, **more, **arguments)
    for t in range(STEPS):
        grads, decay = [rng.normal(size=p.shape) for p in params], decays(t)
        if kind is nn.SGD and variant not in GROUPS:        # it spares no name
            decay = (decay[0], decay[0])
        optimizer(tuple(map(Tensor, grads)))
        for i, (g, d, rate) in enumerate(zip(grads, decay, rates(t), strict=True)):
            extra = {"d": d} if name in DECOUPLED else {}
            g = g if name in DECOUPLED else g + d * want[i]
            want[i] = formula(want[i], g, t, states[i], float(np.float32(rate)), **extra)
            np.testing.assert_allclose(params[i].asnumpy(), want[i], rtol=1e-12, atol=1e-12)
    kept = optimizer.parameters_dict()          # the states have MindSpore's names and the formula's values
    for p, s in zip(params, states, strict=True):
        for prefix, value in s.items():
            np.testing.assert_allclose(kept[f"{prefix}.{p.name}"].asnumpy(), value, rtol=1e-12, atol=1e-12)
    assert kept["global_step"].tolist() == [STEPS]


def test_lamb_multiplies_the_rate_by_10_at_most():
    w = Parameter(np.full(2, 1000.0), name="w")
    nn.Lamb([w], 0.5)((Tensor(np.ones(2)),))
    np.testing.assert_allclose(w.asnumpy(), 1000 - 0.5 * 10, rtol=1e-7)


def test_lamb_leaves_the_rate_alone_where_a_norm_is_0():
    w = Parameter(np.zeros(2), name="w")
    nn.Lamb([w], 0.5)((Tensor(np.ones(2)),))
    np.testing.assert_allclose(w.asnumpy(), -0.5, rtol=1e-5)
    still = Parameter(np.ones(2), name="w")
    nn.Lamb([still], 0.5)((Tensor(np.zeros(2)),))
    assert still.tolist() == [1, 1]


# ---- rates, groups, what callbacks do ------------------------------------------------------------------------------

def test_rates_a_step_groups_and_loss_scale():
    a, b = (Parameter(np.zeros(2), name=n) for n in "ab")
    optimizer = nn.SGD([{"params": [a], "lr": [1.0, 2.0]}, {"params": [b], "weight_decay": 0.5}], 0.1, loss_scale=2.0)
    for _ in range(3):
        optimizer((Tensor(np.full(2, 2.0)), Tensor(np.full(2, 2.0))))
    np.testing.assert_allclose(a.asnumpy(), -5)                         # 1 + 2 + 2, the last rate goes on
    x = 0.0
    for _ in range(3):
        x -= 0.1 * (1 + 0.5 * x)
    np.testing.assert_allclose(b.asnumpy(), x, rtol=1e-6)
    assert [float(r) for r in optimizer.get_lr()] == [2.0, np.float32(0.1)]
    assert optimizer.get_lr_parameter(a).name == "learning_rate_group_0"
    assert [p.name for p in optimizer.get_lr_parameter([b])] == ["learning_rate"]
    assert optimizer.params is optimizer.parameters
    with pytest.raises(ValueError, match=r"parameter c is not one of optimizer\.parameters"):
        optimizer.get_lr_parameter(Parameter(np.zeros(1), name="c"))


def test_get_lr_of_one_rate():
    w = Parameter(np.zeros(2), name="w")
    assert float(nn.SGD([w], 0.25).get_lr()) == 0.25
    assert nn.SGD([w], [0.5, 0.25]).get_lr().shape == ()
    assert float(nn.SGD([w], Tensor(0.5)).get_lr()) == 0.5
    assert float(nn.SGD([w], nn.WarmUpLR(0.5, 2)).get_lr()) == 0


@BOTH_MODES
def test_a_rate_assigned_between_steps_counts(mode):
    ms.set_context(mode=mode)
    w = Parameter(np.zeros(1), name="w")
    optimizer = nn.SGD([w], 1.0)
    step = nn.TrainOneStepCell(Sum(w), optimizer)
    step(Tensor(np.ones(1)))
    ops.assign(optimizer.learning_rate, Tensor(0.5))
    step(Tensor(np.ones(1)))
    optimizer.learning_rate.set_data(Tensor(0.25))
    step(Tensor(np.ones(1)))
    optimizer.learning_rate = 0.125
    step(Tensor(np.ones(1)))
    optimizer.learning_rate = Tensor(2.0)
    step(Tensor(np.ones(1)))
    np.testing.assert_allclose(w.asnumpy(), -3.875)
    assert isinstance(optimizer.learning_rate, Parameter)


def test_rates_that_are_set():
    a, b = (Parameter(np.zeros(1), name=n) for n in "ab")
    optimizer = nn.SGD([{"params": [a], "lr": [0.1, 0.2]}, {"params": [b], "lr": nn.WarmUpLR(0.1, 2)}], 1.0)
    optimizer.learning_rate_group_0 = 0.5
    assert float(optimizer.get_lr()[0]) == 0.5 and optimizer.get_lr_parameter(a).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="learning_rate -1 must be ≥ 0"):
        optimizer.learning_rate = -1
    with pytest.raises(TypeError, match="learning_rate 'a' is a str"):
        optimizer.learning_rate = "a"
    with pytest.raises(TypeError, match="learning_rate_group_1 is a WarmUpLR, .* a number can't take its place"):
        optimizer.learning_rate_group_1 = 0.5


class Sum(nn.Cell):
    def __init__(self, w):
        super().__init__()
        self.w = w

    def construct(self, x):
        return ops.sum(self.w * x)


def test_the_order_of_gradients_is_order_params():
    a, b, c = (Parameter(np.zeros(1), name=n) for n in "abc")
    optimizer = nn.SGD([{"params": [c], "lr": 1.0}, {"params": [a, b]}, {"order_params": [a, b, c]}], 0.5)
    optimizer(tuple(Tensor(np.full(1, v)) for v in (1.0, 2.0, 3.0)))
    assert [p.item() for p in (a, b, c)] == [-0.5, -1.0, -3.0]


@BOTH_MODES
def test_centralized_gradients_have_mean_0_in_every_row(mode):
    ms.set_context(mode=mode)
    w, b = Parameter(np.zeros((2, 3, 2)), name="w"), Parameter(np.zeros(3), name="b")
    rng = np.random.default_rng(3)
    g, gb = rng.normal(size=w.shape), rng.normal(size=3)
    nn.SGD([{"params": [w, b], "grad_centralization": True}], 1.0)((Tensor(g), Tensor(gb)))
    np.testing.assert_allclose(w.asnumpy(), -(g - g.mean((1, 2), keepdims=True)), rtol=1e-12)
    np.testing.assert_allclose(b.asnumpy(), -gb)        # one dim: nothing to centralize


@BOTH_MODES
def test_an_optimizer_of_ones_own(mode):
    """A subclass with a whole construct, as MindSpore's documents write them."""
    class Mine(nn.Optimizer):
        def __init__(self, params, learning_rate, momentum=0.9):
            super().__init__(learning_rate, params, weight_decay=0.1, loss_scale=4.0)
            self.momentum = Parameter(np.array(momentum), name="momentum")
            self.moments = self.parameters.clone(prefix="moments", init="zeros")

        def construct(self, gradients):
            gradients = self.scale_grad(self.gradients_centralization(self.decay_weight(self.flatten_gradients(gradients))))
            lr = self.get_lr()
            for p, m, g in zip(self._parameters, self.moments, gradients, strict=True):
                ops.assign(m, m * self.momentum + g)
                ops.assign(p, p - m * lr)
            return True
    ms.set_context(mode=mode)
    w = Parameter(np.ones(2), name="w")
    optimizer, want, v = Mine([w], 0.5), np.ones(2), 0
    for _ in range(3):
        optimizer((Tensor(np.full(2, 4.0)),))
        v = 0.9 * v + 1 + 0.1 * want
        want = want - 0.5 * v
    np.testing.assert_allclose(w.asnumpy(), want, rtol=1e-12)


@BOTH_MODES
@pytest.mark.parametrize("name", ["sgd momentum", "adam", "adam weight decay", "lamb", "rmsprop", "adagrad"])
def test_half_precision_parameters_stay_half(name, mode):
    ms.set_context(mode=mode)
    kind, more, formula = FORMULAS[name]
    w, s = Parameter(np.array([1.0, -2.0], np.float16), name="w"), {}
    optimizer = kind([w], learning_rate=RATE, **more)
    want = w.asnumpy().astype(float)
    for t in range(3):
        optimizer((Tensor(np.array([0.5, 0.25], np.float16)),))
        want = formula(want, np.array([0.5, 0.25]), t, s, RATE)
    assert w.dtype == ms.float16
    np.testing.assert_allclose(w.asnumpy(), want, rtol=5e-3)


P = Parameter
@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda p: nn.SGD([]), ValueError, "no parameters given"),
    (lambda p: nn.SGD(3), TypeError, "parameters is a int"),
    (lambda p: nn.SGD([np.zeros(2)]), TypeError, "optimizers take Parameters"),
    (lambda p: nn.SGD([p, p]), ValueError, "parameter w is given twice"),
    (lambda p: nn.SGD([p, {"params": [p]}]), TypeError, "mixes groups with a Parameter"),
    (lambda p: nn.SGD([p], -1.0), ValueError, "learning_rate -1.0 must be ≥ 0 and finite"),
    (lambda p: nn.SGD([p], float("nan")), ValueError, "learning_rate nan must be ≥ 0 and finite"),
    (lambda p: nn.SGD([p], [0.1, float("inf")]), ValueError, "must be ≥ 0 and finite"),
    (lambda p: nn.SGD([p], "a"), TypeError, "learning_rate 'a' is a str; it must be a number, a sequence"),
    (lambda p: nn.SGD([p], None), TypeError, "learning_rate None is a NoneType"),
    (lambda p: nn.SGD([p], []), ValueError, r"learning_rate \[\] has shape \(0,\)"),
    (lambda p: nn.SGD([p], [[0.1]]), ValueError, r"has shape \(1, 1\); it must be one number or a sequence"),
    (lambda p: nn.SGD([p], momentum=-1), ValueError, "momentum -1 must be ≥ 0"),
    (lambda p: nn.SGD([p], momentum="a"), ValueError, "momentum 'a' must be ≥ 0"),
    (lambda p: nn.SGD([p], nesterov=True), ValueError, "nesterov needs momentum > 0"),
    (lambda p: nn.Momentum([p], 0.1, -0.9), ValueError, "must be ≥ 0"),
    (lambda p: nn.Adam([p], beta1=1.0), ValueError, "beta1 1.0 must be between 0 and 1"),
    (lambda p: nn.Adam([p], eps=0), ValueError, "eps 0 must be > 0"),
    (lambda p: nn.Adam([p], use_lazy=True), TypeError, "use_lazy and use_offload must be False"),
    (lambda p: nn.RMSProp([p], epsilon=0.0), ValueError, "RMSProp: epsilon 0.0 must be > 0"),
    (lambda p: nn.Adagrad([p], accum=-1.0), ValueError, "Adagrad: accum -1.0 must be ≥ 0"),
    (lambda p: nn.Rprop([p], etas=(1.5, 1.2)), ValueError, r"etas\[0\] 1.5 must be between 0 and 1"),
    (lambda p: nn.SGD([p], weight_decay=-0.1), ValueError, "weight_decay -0.1"),
    (lambda p: nn.SGD([p], weight_decay="a"), ValueError, "weight_decay 'a' must be a number ≥ 0, or a Cell"),
    (lambda p: nn.SGD([p], loss_scale=0), ValueError, "loss_scale 0 must be a number > 0"),
    (lambda p: nn.SGD([{"params": [p], "rate": 1}]), ValueError, "a parameter group has the keys"),
    (lambda p: nn.SGD([{"params": []}]), ValueError, "all parameter groups are empty"),
    (lambda p: nn.SGD([{"params": [p], "grad_centralization": 1}]), TypeError, "grad_centralization 1 must be True or False"),
    (lambda p: nn.SGD([{"params": [p]}, {"order_params": [P(1.0, name="q")]}]), ValueError, "only one of the two has q, w"),
    (lambda p: nn.SGD([p])((Tensor(np.zeros(3)),)), ValueError, r"gradient for w has shape \(3,\)"),
    (lambda p: nn.SGD([p])(()), ValueError, "got 0 gradients for 1 parameters"),
    (lambda p: nn.Optimizer(0.1, [p])((Tensor(np.zeros(2)),)), NotImplementedError, "defines no update"),
])
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make(Parameter(np.zeros(2), name="w"))
