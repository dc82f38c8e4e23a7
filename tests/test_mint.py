"""mint: the same values under PyTorch-like names and arguments."""
import numpy as np
import pytest

from minispore import Tensor, mint, ops
from minispore.mint.nn import functional as F

X = np.random.default_rng(0).normal(size=(2, 3, 4))
T = Tensor(X)
IMAGE, WEIGHT = Tensor(X[:, None]), Tensor(np.ones((2, 1, 2, 2)))

CASES = {
    "add": (lambda: mint.add(T, T, alpha=3), 4 * X), "sub": (lambda: mint.sub(T, T, alpha=3), -2 * X),
    "div floor": (lambda: mint.div(T, 0.3, rounding_mode="floor"), np.floor(X / 0.3)),
    "div trunc": (lambda: mint.div(T, 0.3, rounding_mode="trunc"), np.trunc(X / 0.3)),
    "mean": (lambda: mint.mean(T, dim=(0, 2), keepdim=True), X.mean((0, 2), keepdims=True)),
    "sum": (lambda: mint.sum(T, dim=1), X.sum(1)), "any": (lambda: mint.any(T > 1, dim=0), (X > 1).any(0)),
    "all": (lambda: mint.all(T > -1, 0, True), (X > -1).all(0, keepdims=True)),
    "amax": (lambda: mint.amax(T, dim=2), X.max(2)), "amin": (lambda: mint.amin(T, (0, 1)), X.min((0, 1))),
    "argmin": (lambda: mint.argmin(T, 1), X.argmin(1)), "max": (lambda: mint.max(T), X.max()),
    "max dim": (lambda: mint.max(T, 1)[0], X.max(1)), "min dim": (lambda: mint.min(T, -1, True)[1], X.argmin(-1, keepdims=True)),
    "var": (lambda: mint.var(T, 1), X.var(1, ddof=1)), "std": (lambda: mint.std(T, 1, correction=0), X.std(1)),
    "norm": (lambda: mint.norm(T, dim=1), np.linalg.norm(X, axis=1)),
    "logsumexp": (lambda: mint.logsumexp(T, 1, True), np.logaddexp.reduce(X, 1, keepdims=True)),
    "cat": (lambda: mint.cat((T, T), dim=2), np.concatenate((X, X), 2)),
    "stack": (lambda: mint.stack((T, T), 1), np.stack((X, X), 1)),
    "split": (lambda: mint.split(T, 2, dim=1)[1], X[:, 2:]), "chunk": (lambda: mint.chunk(T, 2, dim=2)[1], X[..., 2:]),
    "unbind": (lambda: mint.unbind(T, 1)[2], X[:, 2]), "permute": (lambda: mint.permute(T, (2, 0, 1)), X.transpose(2, 0, 1)),
    "transpose": (lambda: mint.transpose(T, 0, 2), X.swapaxes(0, 2)), "squeeze": (lambda: mint.squeeze(T[:1], 0), X[0]),
    "cumsum": (lambda: mint.cumsum(T, 1), X.cumsum(1)),
    "sort": (lambda: mint.sort(T, dim=1, descending=True)[0], -np.sort(-X, 1)),
    "argsort": (lambda: mint.argsort(T, 1), X.argsort(1)),
    "gather": (lambda: mint.gather(T[0], 1, Tensor([[0], [1], [-1]])), np.array([[X[0, 0, 0]], [X[0, 1, 1]], [X[0, 2, -1]]])),
    "index_select": (lambda: mint.index_select(T, 1, Tensor([2, 0])), X[:, [2, 0]]),
    "repeat_interleave": (lambda: mint.repeat_interleave(T, 2, dim=1), X.repeat(2, 1)),
    "softmax": (lambda: ops.sum(F.softmax(T, dim=1), 1), np.ones((2, 4))),
    "log_softmax": (lambda: mint.exp(F.log_softmax(T, 1)), F.softmax(T, 1).asnumpy()),
    "leaky_relu": (lambda: F.leaky_relu(T), np.where(X > 0, X, 0.01 * X)),
    "linear": (lambda: F.linear(T, Tensor(np.ones((5, 4))), Tensor(np.ones(5))), np.repeat(X.sum(-1, keepdims=True), 5, -1) + 1),
    "embedding": (lambda: F.embedding(Tensor([1, 0]), T), X[[1, 0]]),
    "one_hot": (lambda: F.one_hot(Tensor([1, 0]), 2), np.eye(2)[[1, 0]]),
    "smooth_l1": (lambda: F.smooth_l1_loss(T, T + 3.0), 2.5),
    "bce": (lambda: F.binary_cross_entropy_with_logits(Tensor([0.0]), Tensor([1.0]), pos_weight=2), 2 * np.log(np.float32(2))),
    "conv2d": (lambda: F.conv2d(IMAGE, WEIGHT, padding=1)[:, 0, 1:-1, 1:-1],
               X[:, :-1, :-1] + X[:, 1:, :-1] + X[:, :-1, 1:] + X[:, 1:, 1:]),
    "conv2d same": (lambda: F.conv2d(IMAGE, WEIGHT, padding="same")[0, 0, -1, -1], X[0, -1, -1]),
    "avg_pool2d": (lambda: F.avg_pool2d(IMAGE, (3, 2)), X.reshape(2, 1, 1, 3, 2, 2).mean((3, 5))),
    "max_pool2d": (lambda: F.max_pool2d(IMAGE, (3, 2)), X.reshape(2, 1, 1, 3, 2, 2).max((3, 5))),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    make, want = CASES[name]
    np.testing.assert_allclose(make().asnumpy(), want, rtol=1e-6, atol=1e-9)


def test_a_wrong_rounding_mode():
    with pytest.raises(ValueError, match="rounding_mode 'up' must be"):
        mint.div(T, 2, rounding_mode="up")
