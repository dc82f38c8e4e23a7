"""E1: what the gradient of a matrix product must do."""
from unittest.mock import patch

import numpy as np

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.grade import plain, points
from minispore.lab.differences import finite_differences

TAKEN_AWAY = ["minispore.ops.linear:MatMul.gradient", "minispore.ops.linear:BatchMatMul.gradient",
              "minispore.ops.linear:Contract.gradient"]
# of the steps of `trained`, with the library's gradient
LOSSES = [1.195230712754, 1.113760332367, 1.056282809832, 1.014147400504, 0.982267849384]


def in_use(answer):
    """The library, with the answer in the place of MatMul's gradient."""
    return patch.object(ops.MatMul, "gradient", answer.matmul_gradient)


def compare(answer, x_shape, w_shape, **transposed):
    """Gradients of Σ dout · MatMul(x, w) by the answer, and by trying out."""
    draw = np.random.default_rng(len(x_shape) + sum(x_shape) + sum(w_shape))
    op = ops.MatMul(**transposed)
    x, w = draw.normal(size=x_shape), draw.normal(size=w_shape)
    dout = Tensor(draw.normal(size=op(Tensor(x), Tensor(w)).shape))

    def loss(x, w):
        return ops.sum(op(x, w) * dout)
    with in_use(answer):
        got = ms.grad(loss, (0, 1))(Tensor(x), Tensor(w))
    expected = finite_differences(lambda x, w: loss(Tensor(x), Tensor(w)), x, w)
    case = f"x {x_shape}, w {w_shape}" + "".join(f", {name}" for name in transposed)
    for name, g, e in zip("xw", got, expected, strict=True):
        close(f"{case}: the gradient to {name}", plain(g), e)


def close(what, got, expected, tolerance=1e-6):
    assert got.shape == expected.shape, f"{what} should have shape {expected.shape}, it has {got.shape}"
    off = np.abs(got - expected) > tolerance * (1 + np.abs(expected))
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        raise AssertionError(f"{what} should be {expected[at]:.6g} at {list(at)}, it is {got[at]:.6g} "
                             f"({off.sum()} of {off.size} values differ)")


@points(3, hint=1)
def test_two_matrices(answer):
    for m, k, n in (1, 1, 1), (2, 3, 4), (3, 2, 2), (4, 1, 3), (1, 5, 2):
        compare(answer, (m, k), (k, n))


@points(2, hint=2)
def test_transposed_inputs(answer):
    compare(answer, (2, 2), (2, 2), transpose_b=True)
    compare(answer, (2, 3), (4, 3), transpose_b=True)
    compare(answer, (3, 2), (3, 4), transpose_a=True)
    compare(answer, (3, 2), (4, 3), transpose_a=True, transpose_b=True)


@points(2, hint=3)
def test_dims_in_front(answer):
    compare(answer, (2, 3, 4), (4, 5))
    compare(answer, (3, 2, 1, 4), (4, 2))
    compare(answer, (2, 3, 4), (5, 4), transpose_b=True)


@points(2, hint=4)
def test_the_gradients_gradient(answer):
    draw = np.random.default_rng(4)
    x, w = draw.normal(size=(2, 3)), draw.normal(size=(3, 2))

    def bent(x, w):
        return ops.sum(ops.sin(ms.grad(lambda x, w: ops.sum(ops.tanh(ops.matmul(x, w))))(x, w)))
    with in_use(answer):
        got = ms.grad(bent, (0, 1))(Tensor(x), Tensor(w))
        expected = finite_differences(lambda x, w: bent(Tensor(x), Tensor(w)), x, w)
    for name, g, e in zip("xw", got, expected, strict=True):
        close(f"the gradient to {name} of a function of the gradient", plain(g), e)


@points(1, hint=1)
def test_a_network_trains_the_same(answer):
    with in_use(answer):
        losses = trained()
    close("5 steps of a network with two Dense layers: the losses", np.array(losses), np.array(LOSSES), 1e-9)


def trained():
    """The losses of two Dense layers in 5 steps; weights and data are the same each time."""
    ms.set_seed(3)
    draw = np.random.default_rng(3)
    net = nn.SequentialCell(nn.Dense(4, 6, dtype=ms.float64), nn.Tanh(), nn.Dense(6, 2, dtype=ms.float64))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    x, y = Tensor(draw.normal(size=(8, 4))), Tensor(draw.normal(size=(8, 2)))
    return [float(step(x, y)) for _ in range(5)]
