"""Optimizers against their formulas, written out in numpy."""
import numpy as np
import pytest

import minispore as ms
from minispore import Parameter, Tensor, nn

STEPS, RATE = 5, 0.1


def sgd(p, g, t, s, mu=0.9, damp=0.0, nesterov=False):
    s["v"] = g if t == 0 else mu * s["v"] + (1 - damp) * g
    return p - RATE * (g + mu * s["v"] if nesterov else s["v"])


def momentum(p, g, t, s, mu=0.9, nesterov=False):
    s["v"] = mu * s.get("v", 0) + g
    return p - RATE * (g + mu * s["v"] if nesterov else s["v"])


def adam(p, g, t, s, b1=0.9, b2=0.999, eps=1e-8, amsgrad=False, nesterov=False):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    s["top"] = np.maximum(s.get("top", 0), s["v"])
    m, v = (b1 * s["m"] + (1 - b1) * g if nesterov else s["m"]), (s["top"] if amsgrad else s["v"])
    return p - RATE * np.sqrt(1 - b2 ** (t + 1)) / (1 - b1 ** (t + 1)) * m / (np.sqrt(v) + eps)


CASES = {
    "sgd": (lambda p: nn.SGD(p, RATE), lambda *a: a[0] - RATE * a[1], 0.0),
    "sgd momentum": (lambda p: nn.SGD(p, RATE, 0.9), sgd, 0.0),
    "sgd dampening": (lambda p: nn.SGD(p, RATE, 0.9, dampening=0.3), lambda *a: sgd(*a, damp=0.3), 0.0),
    "sgd nesterov": (lambda p: nn.SGD(p, RATE, 0.9, nesterov=True, weight_decay=0.01), lambda *a: sgd(*a, nesterov=True), 0.01),
    "momentum": (lambda p: nn.Momentum(p, RATE, 0.9, weight_decay=0.01), momentum, 0.01),
    "momentum nesterov": (lambda p: nn.Momentum(p, RATE, 0.9, use_nesterov=True), lambda *a: momentum(*a, nesterov=True), 0.0),
    "adam": (lambda p: nn.Adam(p, RATE, weight_decay=0.02), adam, 0.02),
    "adam amsgrad": (lambda p: nn.Adam(p, RATE, use_amsgrad=True), lambda *a: adam(*a, amsgrad=True), 0.0),
    "adam nesterov": (lambda p: nn.Adam(p, RATE, use_nesterov=True), lambda *a: adam(*a, nesterov=True), 0.0),
    "adam other": (lambda p: nn.Adam(p, RATE, 0.8, 0.99, 1e-3), lambda *a: adam(*a, b1=0.8, b2=0.99, eps=1e-3), 0.0),
}


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("name", CASES)
def test_formula(name, mode):
    ms.set_context(mode=mode)
    make, formula, decay = CASES[name]
    rng = np.random.default_rng(0)
    params = [Parameter(rng.normal(size=(2, 3)), name="w"), Parameter(rng.normal(size=3), name="bn.gamma")]
    want, states = [p.asnumpy() for p in params], [{}, {}]
    optimizer = make(params)
    for t in range(STEPS):
        grads = [rng.normal(size=p.shape) for p in params]
        optimizer(tuple(map(Tensor, grads)))
        for i, (g, d) in enumerate(zip(grads, (decay, 0.0), strict=True)):      # gamma isn't decayed
            want[i] = formula(want[i], g + d * want[i], t, states[i])
            np.testing.assert_allclose(params[i].asnumpy(), want[i], rtol=1e-5, atol=1e-6)


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
    assert float(optimizer.get_lr()) == np.float32(0.1)
    assert "learning_rate_group_0" in optimizer.parameters_dict()


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda p: nn.SGD([]), ValueError, "no parameters given"),
    (lambda p: nn.SGD([np.zeros(2)]), TypeError, "optimizers take Parameters"),
    (lambda p: nn.SGD([p, p]), ValueError, "parameter w is given twice"),
    (lambda p: nn.SGD([p], -1.0), ValueError, "must be a number ≥ 0"),
    (lambda p: nn.SGD([p], momentum=-1), ValueError, "momentum -1 .* must be ≥ 0"),
    (lambda p: nn.SGD([p], nesterov=True), ValueError, "nesterov needs momentum > 0"),
    (lambda p: nn.Momentum([p], 0.1, -0.9), ValueError, "must be ≥ 0"),
    (lambda p: nn.Adam([p], beta1=1.0), ValueError, "between 0 and 1"),
    (lambda p: nn.Adam([p], use_lazy=True), TypeError, "use_lazy and use_offload must be False"),
    (lambda p: nn.SGD([p], weight_decay=-0.1), ValueError, "weight_decay -0.1"),
    (lambda p: nn.SGD([p], loss_scale=0), ValueError, "loss_scale 0 must be > 0"),
    (lambda p: nn.SGD([{"params": [p], "rate": 1}]), ValueError, "a parameter group has the keys"),
    (lambda p: nn.SGD([p])((Tensor(np.zeros(3)),)), ValueError, r"gradient for w has shape \(3,\)"),
    (lambda p: nn.SGD([p])(()), ValueError, "got 0 gradients for 1 parameters"),
])
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make(Parameter(np.zeros(2), name="w"))
