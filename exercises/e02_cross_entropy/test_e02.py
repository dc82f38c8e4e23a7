"""E2: what softmax cross-entropy must do."""
from contextlib import contextmanager
from math import exp, log
from unittest.mock import patch

import numpy as np

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.grade import plain, points
from minispore.lab.differences import finite_differences

TAKEN_AWAY = ["minispore.ops.softmax:SparseSoftmaxCrossEntropyWithLogits.forward",
              "minispore.ops.softmax:SparseSoftmaxCrossEntropyWithLogits.gradient",
              "minispore.ops.softmax:NegativeLogLikelihood.forward", "minispore.ops.softmax:NegativeLogLikelihood.gradient"]
OP = ops.SparseSoftmaxCrossEntropyWithLogits
# of the steps of `trained`, with the library's op
LOSSES = [1.145129783186, 1.121379443693, 1.099487515322, 1.079183481585, 1.060244440942]


@contextmanager
def in_use(answer):
    """The library, with the answer in the place of the op's value and gradient."""
    def forward(op, logits, labels):
        with patch.object(ops.LogSoftmax, "forward", no_numpy):      # ops.softmax is made of it, too
            return plain(answer.cross_entropy(op, logits, labels))

    with patch.object(OP, "forward", forward), patch.object(OP, "gradient", answer.cross_entropy_gradient):
        yield


def no_numpy(*_):
    raise AssertionError("cross_entropy calls the library's softmax; its value is to be made with numpy")


def value(answer, logits, labels, dtype=np.float64):
    logits, labels = np.array(logits, dtype), np.array(labels)
    with np.errstate(all="ignore"):
        got = plain(answer.cross_entropy(OP(), logits.copy(), labels.copy()))
    assert got.shape == labels.shape, (f"logits {logits.shape}, labels {labels.shape}: the losses should have shape "
        f"{labels.shape}, "
                                       f"one value a row; they have {got.shape}")
    return got


def close(what, got, expected, tolerance=1e-6):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, f"{what} should have shape {expected.shape}, it has {got.shape}"
    off = ~(np.abs(got - expected) <= tolerance * (1 + np.abs(expected)))       # also where it is NaN
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        raise AssertionError(f"{what} should be {expected[at]:.6g}{f' at {list(at)}' if at else ''}, it is {got[at]:.6g} "
                             f"({off.sum()} of {off.size} values differ)")


def compare(answer, shape):
    """Gradient of Σ dout · cross_entropy by the answer, and by trying out."""
    draw = np.random.default_rng(sum(shape))
    logits, labels = draw.normal(size=shape), Tensor(draw.integers(shape[-1], size=shape[:-1]))
    dout = Tensor(draw.normal(size=shape[:-1]))

    def loss(logits):
        return ops.sum(OP()(logits, labels) * dout)
    with in_use(answer):
        got = ms.grad(loss)(Tensor(logits))
        expected, = finite_differences(lambda z: loss(Tensor(z)), logits)
    close(f"logits {shape}: the gradient", plain(got), expected)


@points(2, hint=1)
def test_value(answer):
    close("logits [[0, 0]], label 1: the loss", value(answer, [[0, 0]], [1]), [log(2)])
    close("logits [[2, -1, 0]], label 0: the loss", value(answer, [[2, -1, 0]], [0]), [log(exp(2) + exp(-1) + 1) - 2])
    close("logits [[5]], label 0, the only class: the loss", value(answer, [[5]], [0]), [0])
    got = value(answer, [[1, 2], [0, 3], [1, 0]], [1, 0, 1])
    close("logits [[1, 2], [0, 3], [1, 0]], labels [1, 0, 1]: the losses", got, [log(1 + exp(a)) for a in (-1, 3, 1)])


@points(3, hint=2)
def test_gradient_of_each_row(answer):
    for shape in (1, 2), (3, 2), (2, 5), (4, 1):
        compare(answer, shape)


@points(2, hint=3)
def test_large_logits(answer):
    for dtype in np.float64, np.float32:
        name = np.dtype(dtype).name
        close(f"logits [[1000, 0]] ({name}), label 0: the loss", value(answer, [[1000, 0]], [0], dtype), [0])
        close(f"logits [[1000, 0]] ({name}), label 1: the loss", value(answer, [[1000, 0]], [1], dtype), [1000])
        close(f"logits [[-1000, -1000]] ({name}), label 0: the loss", value(answer, [[-1000, -1000]], [0], dtype), [log(2)], 1e-4)
    with in_use(answer):
        slope = ms.grad(lambda z: ops.sum(OP()(z, Tensor([1]))))(Tensor(np.array([[1000.0, 0.0]])))
    close("logits [[1000, 0]], label 1: the gradient", plain(slope), [[1, -1]])


@points(1, hint=4)
def test_dims_in_front(answer):
    close("logits [0, 0] (no dim in front), label 1: the loss", value(answer, [0, 0], 1), log(2))
    for shape in (2, 3, 4), (2, 1, 2, 3), (3,):
        compare(answer, shape)


@points(1, hint=2)
def test_the_gradients_gradient(answer):
    logits, labels = np.random.default_rng(5).normal(size=(2, 3)), Tensor([2, 0])

    def bent(z):
        return ops.sum(ops.sin(ms.grad(lambda z: ops.sum(OP()(z, labels)))(z)))
    with in_use(answer):
        got = ms.grad(bent)(Tensor(logits))
        expected, = finite_differences(lambda z: bent(Tensor(z)), logits)
    close("the gradient of a function of the gradient", plain(got), expected)


@points(1, hint=2)
def test_a_network_trains_the_same(answer):
    with in_use(answer):
        losses = trained()
    close("5 steps of a network with nn.CrossEntropyLoss: the losses", losses, LOSSES, 1e-9)


def trained():
    """The losses of a network in 5 steps; weights and data are the same each time."""
    ms.set_seed(3)
    draw = np.random.default_rng(3)
    net = nn.SequentialCell(nn.Dense(4, 6, dtype=ms.float64), nn.Tanh(), nn.Dense(6, 3, dtype=ms.float64))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 0.1))
    x, y = Tensor(draw.normal(size=(8, 4))), Tensor(draw.integers(3, size=8))
    return [float(step(x, y)) for _ in range(5)]
