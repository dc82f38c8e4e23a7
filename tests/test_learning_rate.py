"""Learning-rate schedules, as lists and as cells, against their formulas."""
from math import ceil, cos, exp, floor, pi

import numpy as np
import pytest

import minispore as ms
from minispore import Tensor, nn

STEPS = range(13)

CELLS = {       # name: (the cell, its formula of the step)
    "exponential": (nn.ExponentialDecayLR(0.1, 0.9, 4), lambda i: 0.1 * 0.9 ** (i / 4)),
    "exponential stair": (nn.ExponentialDecayLR(0.1, 0.9, 4, True), lambda i: 0.1 * 0.9 ** (i // 4)),
    "natural": (nn.NaturalExpDecayLR(0.1, 0.3, 4), lambda i: 0.1 * exp(-0.3 * i)),
    "natural stair": (nn.NaturalExpDecayLR(0.1, 0.3, 4, True), lambda i: 0.1 * exp(-0.3 * (i // 4 * 4))),
    "inverse": (nn.InverseDecayLR(0.1, 0.5, 4), lambda i: 0.1 / (1 + 0.5 * i / 4)),
    "inverse stair": (nn.InverseDecayLR(0.1, 0.5, 4, True), lambda i: 0.1 / (1 + 0.5 * (i // 4))),
    "cosine": (nn.CosineDecayLR(0.01, 0.1, 6), lambda i: 0.01 + 0.045 * (1 + cos(pi * min(i, 6) / 6))),
    "polynomial": (nn.PolynomialDecayLR(0.1, 0.01, 6, 0.5), lambda i: 0.09 * (1 - min(i, 6) / 6) ** 0.5 + 0.01),
    "polynomial again": (nn.PolynomialDecayLR(0.1, 0.01, 5, 2.0, True),
                         lambda i: 0.09 * (1 - i / (5 * max(ceil(i / 5), 1))) ** 2 + 0.01),
    "warm up": (nn.WarmUpLR(0.1, 5), lambda i: 0.1 * min(i, 5) / 5),
}


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("name", CELLS)
def test_cells(name, mode):
    ms.set_context(mode=mode)
    cell, formula = CELLS[name]
    for i in STEPS:
        for step in (Tensor(i, ms.int32), Tensor([i], ms.int32)):
            rate = cell(step)
            assert rate.shape == step.shape and rate.dtype == ms.float32
            np.testing.assert_allclose(rate.asnumpy().item(), formula(i), rtol=2e-6, atol=1e-9)


LISTS = {       # name: (the list, its formula of the epoch)
    "exponential": (nn.exponential_decay_lr(0.1, 0.9, 13, 2, 3), lambda e: 0.1 * 0.9 ** (e / 3)),
    "exponential stair": (nn.exponential_decay_lr(0.1, 0.9, 13, 2, 3, True), lambda e: 0.1 * 0.9 ** floor(e / 3)),
    "natural": (nn.natural_exp_decay_lr(0.1, 0.9, 13, 2, 3), lambda e: 0.1 * exp(-0.9 * e)),
    "natural stair": (nn.natural_exp_decay_lr(0.1, 0.9, 13, 2, 3, True), lambda e: 0.1 * exp(-0.9 * (e // 3 * 3))),
    "inverse": (nn.inverse_decay_lr(0.1, 0.5, 13, 2, 3), lambda e: 0.1 / (1 + 0.5 * e / 3)),
    "inverse stair": (nn.inverse_decay_lr(0.1, 0.5, 13, 2, 3, True), lambda e: 0.1 / (1 + 0.5 * floor(e / 3))),
    "cosine": (nn.cosine_decay_lr(0.01, 0.1, 13, 2, 3), lambda e: 0.01 + 0.045 * (1 + cos(pi * min(e, 3) / 3))),
    "polynomial": (nn.polynomial_decay_lr(0.1, 0.01, 13, 2, 3, 0.5), lambda e: 0.09 * (1 - min(e, 3) / 3) ** 0.5 + 0.01),
    "polynomial again": (nn.polynomial_decay_lr(0.1, 0.01, 13, 2, 3, 0.5, True),
                         lambda e: 0.09 * (1 - e / (3 * max(ceil(e / 3), 1))) ** 0.5 + 0.01),
    "warm up": (nn.warmup_lr(0.1, 13, 2, 4), lambda e: 0.1 * min(e, 4) / 4),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists(name):
    rates, formula = LISTS[name]
    np.testing.assert_allclose(rates, [formula(i // 2) for i in STEPS], rtol=1e-12)
    assert all(type(r) is float for r in rates)


def test_pieces():
    assert nn.piecewise_constant_lr((2, 5, 10), (0.1, 0.05, 0.01)) == [0.1] * 2 + [0.05] * 3 + [0.01] * 5


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: nn.ExponentialDecayLR(-0.1, 0.9, 4), ValueError, "ExponentialDecayLR: learning_rate=-0.1 must be a number > 0"),
    (lambda: nn.InverseDecayLR(0.1, 0, 4), ValueError, "decay_rate=0 must be a number > 0"),
    (lambda: nn.NaturalExpDecayLR(0.1, 0.9, 0), ValueError, "decay_steps=0 must be a whole number ≥ 1"),
    (lambda: nn.NaturalExpDecayLR(0.1, 0.9, 2.0), TypeError, "decay_steps=2.0 must be a whole number"),
    (lambda: nn.ExponentialDecayLR(0.1, 0.9, 4, 1), TypeError, "is_stair=1 must be True or False"),
    (lambda: nn.CosineDecayLR(0.1, 0.1, 4), ValueError, "max_lr 0.1 must be greater than min_lr 0.1"),
    (lambda: nn.cosine_decay_lr(0.2, 0.1, 4, 2, 1), ValueError, "max_lr 0.1 must be greater than min_lr 0.2"),
    (lambda: nn.WarmUpLR("a", 4), TypeError, "WarmUpLR: learning_rate='a' must be a number ≥ 0"),
    (lambda: nn.warmup_lr(float("nan"), 4, 2, 1), ValueError, "warmup_lr: learning_rate=nan must be"),
    (lambda: nn.polynomial_decay_lr(0.1, -0.1, 4, 2, 1, 2.0), ValueError, "end_learning_rate=-0.1 must be"),
    (lambda: nn.piecewise_constant_lr([2, 5], [0.1]), ValueError, "2 milestones but 1 learning rates"),
    (lambda: nn.piecewise_constant_lr([5, 2], [0.1, 0.2]), ValueError, r"milestone\[1\] = 2 comes before milestone\[0\] = 5"),
    (lambda: nn.learning_rate_schedule.LearningRateSchedule()(Tensor(1)), NotImplementedError, "defines no construct"),
])
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
