"""Functional forms and methods against numpy; bfloat16; ops with effects; shapes that must be refused."""
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.common import dtype as mstype

X = np.random.default_rng(0).normal(size=(3, 4, 5))
A, B = X[0], X[1]
INTS = np.arange(-7, 8).reshape(3, 5)

AGAINST_NUMPY = {
    "floor_mod": (lambda: ops.floor_mod(Tensor(INTS), 3), INTS % 3),
    "floor_div": (lambda: Tensor(INTS) // 4, INTS // 4),
    "mod of floats": (lambda: Tensor(A) % 0.7, A % 0.7),
    "rmod": (lambda: 7 % Tensor(np.array([2, 3])), np.array([1, 1])),
    "floor": (lambda: ops.floor(Tensor(A)), np.floor(A)), "ceil": (lambda: Tensor(A).ceil(), np.ceil(A)),
    "round": (lambda: ops.round(Tensor(np.array([0.5, 1.5, -2.5]))), np.array([0.0, 2.0, -2.0])),
    "trunc": (lambda: Tensor(A).trunc(), np.trunc(A)),
    "erf": (lambda: ops.erf(Tensor(A)), np.vectorize(math.erf)(A)),
    "erf far out": (lambda: ops.erf(Tensor(np.array([-9.0, 30, np.inf, 0]))), np.array([-1.0, 1, 1, 0])),
    "isnan": (lambda: ops.isnan(Tensor(np.array([np.nan, 1, np.inf]))), np.array([True, False, False])),
    "isfinite": (lambda: ops.isfinite(Tensor(np.array([np.nan, 1, np.inf]))), np.array([False, True, False])),
    "isinf": (lambda: Tensor(np.array([np.nan, 1, -np.inf])).isinf(), np.array([False, False, True])),
    "xor": (lambda: Tensor(A > 0) ^ Tensor(B > 0), (A > 0) ^ (B > 0)),
    "any": (lambda: ops.any(Tensor(A > 1), 0), (A > 1).any(0)), "all": (lambda: Tensor(A > -1).all(axis=1), (A > -1).all(1)),
    "var": (lambda: ops.var(Tensor(X), (0, 2), 1, True), X.var((0, 2), ddof=1, keepdims=True)),
    "std": (lambda: Tensor(X).std(axis=1), X.std(1)),
    "norm": (lambda: ops.norm(Tensor(A), dim=1), np.linalg.norm(A, axis=1)),
    "norm 1": (lambda: ops.norm(Tensor(A), 1, 0), np.abs(A).sum(0)),
    "norm inf": (lambda: ops.norm(Tensor(A), math.inf), np.abs(A).max()),
    "norm 3": (lambda: ops.norm(Tensor(A), 3, 1, True), (np.abs(A) ** 3).sum(1, keepdims=True) ** (1 / 3)),
    "norm 0": (lambda: ops.norm(Tensor(np.array([0.0, 2, 3])), 0), np.float64(2)),
    "logsumexp": (lambda: ops.logsumexp(Tensor(A * 500), 1), np.logaddexp.reduce(A * 500, 1)),
    "cumsum": (lambda: ops.cumsum(Tensor(X), 1), X.cumsum(1)),
    "cumsum of int32": (lambda: ops.cumsum(Tensor(INTS.astype(np.int32)), -1), INTS.cumsum(-1).astype(np.int32)),
    "cumsum of bools": (lambda: ops.cumsum(Tensor(A > 0), 0), (A > 0).cumsum(0)),
    "logsumexp of infinities": (lambda: ops.logsumexp(Tensor(np.array([[-np.inf, -np.inf], [np.inf, 0]])), 1),
                                np.array([-np.inf, np.inf])),
    "softmax of nothing": (lambda: ops.softmax(Tensor(np.zeros((2, 0)))), np.zeros((2, 0))),
    "log_softmax of nothing": (lambda: ops.log_softmax(Tensor(np.zeros((0, 2))), 0), np.zeros((0, 2))),
    "var of nothing": (lambda: ops.var(Tensor(np.zeros(0))), np.array(np.nan)),
    "cumsum exclusive": (lambda: ops.CumSum(True)(Tensor(A), 0), np.vstack([np.zeros(5), A.cumsum(0)[:-1]])),
    "cumsum reverse": (lambda: ops.CumSum(reverse=True)(Tensor(A), 0), A[::-1].cumsum(0)[::-1]),
    "stack": (lambda: ops.stack((Tensor(A), Tensor(B)), -1), np.stack((A, B), -1)),
    "unstack": (lambda: ops.unstack(Tensor(X), 1)[2], X[:, 2]),
    "split": (lambda: ops.split(Tensor(X), 3, -1)[1], X[..., 3:]),
    "sections": (lambda: ops.split(Tensor(X), [1, 0, 4], 2)[2], X[..., 1:]),
    "chunk": (lambda: ops.chunk(Tensor(X), 3, 2)[0], X[..., :2]),
    "tile": (lambda: ops.tile(Tensor(A), (2, 1, 3)), np.tile(A, (2, 1, 3))),
    "repeat_interleave": (lambda: ops.repeat_interleave(Tensor(A), 3, 1), A.repeat(3, 1)),
    "repeat": (lambda: Tensor(A).repeat(2), A.repeat(2)),
    "flip": (lambda: ops.flip(Tensor(X), (0, 2)), np.flip(X, (0, 2))),
    "roll": (lambda: ops.roll(Tensor(X), (1, -2), (0, 1)), np.roll(X, (1, -2), (0, 1))),
    "roll flat": (lambda: Tensor(A).roll(7), np.roll(A, 7)),
    "triu": (lambda: ops.triu(Tensor(X), 1), np.triu(X, 1)), "tril": (lambda: ops.Tril(-1)(Tensor(X)), np.tril(X, -1)),
    "swapaxes": (lambda: ops.swapaxes(Tensor(X), 0, -1), X.swapaxes(0, -1)),
    "movedim": (lambda: ops.movedim(Tensor(X), (0, 1), (-1, 0)), np.moveaxis(X, (0, 1), (-1, 0))),
    "permute": (lambda: ops.permute(Tensor(X), (2, 0, 1)), X.transpose(2, 0, 1)),
    "pad": (lambda: ops.pad(Tensor(A), (1, 2, 0, 1), value=3.0), np.pad(A, ((0, 1), (1, 2)), constant_values=3)),
    "pad cuts": (lambda: ops.pad(Tensor(A), (-1, 2)), np.pad(A[:, 1:], ((0, 0), (0, 2)))),
    "arange": (lambda: ops.arange(2, 11, 3), np.arange(2, 11, 3)),
    "arange float": (lambda: ops.arange(0, 1, 0.25), np.float32([0, 0.25, 0.5, 0.75])),
    "range": (lambda: ops.range(Tensor(1, ms.int32), Tensor(6, ms.int32), Tensor(2, ms.int32)), np.int32([1, 3, 5])),
    "linspace": (lambda: ops.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype=np.float32)),
    "eye": (lambda: ops.eye(2, 3), np.eye(2, 3, dtype=np.float32)),
    "meshgrid": (lambda: ops.meshgrid(Tensor(A[0]), Tensor(B[0]))[1], np.meshgrid(A[0], B[0])[1]),
    "meshgrid ij": (lambda: ops.meshgrid(Tensor(A[0]), Tensor(B[0]),
                    indexing="ij")[0], np.meshgrid(A[0], B[0], indexing="ij")[0]),
    "masked_fill": (lambda: ops.masked_fill(Tensor(A), Tensor(A > 0), -1.0), np.where(A > 0, -1, A)),
    "sort": (lambda: ops.sort(Tensor(X), 1, True)[0], -np.sort(-X, 1)),
    "argsort": (lambda: ops.argsort(Tensor(X), 0), np.argsort(X, 0, kind="stable").astype(np.int32)),
    "topk smallest": (lambda: ops.topk(Tensor(X), 2, 1, largest=False)[0], np.sort(X, 1)[:, :2]),
    "ties keep their order": (lambda: ops.TopK()(Tensor(np.array([1.0, 2, 2, 1])), 3)[1], np.int32([1, 2, 0])),
    "gather_elements": (lambda: ops.gather_elements(Tensor(A), 1, Tensor(np.array([[0, -1]] * 4))), A[:, [0, -1]]),
    "GatherD": (lambda: ops.GatherD()(Tensor(A), 1, Tensor(np.array([[0, 2]] * 4))), A[:, [0, 2]]),
    "argmin": (lambda: ops.argmin(Tensor(X), 2), X.argmin(2).astype(np.int32)),
    "argmax flat": (lambda: Tensor(X).argmax(), np.int32(X.argmax())),
    "min": (lambda: ops.min(Tensor(X), 1)[0], X.min(1)),
    "max index": (lambda: ops.max(Tensor(X), 1, True)[1], X.argmax(1, keepdims=True).astype(np.int32)),
    "matmul": (lambda: ops.matmul(Tensor(X), Tensor(B[:, :2].T @ np.ones((4, 5)))[0]), X @ (B[:, :2].T @ np.ones((4, 5)))[0]),
    "vector matmul": (lambda: ops.matmul(Tensor(A[0]), Tensor(X.swapaxes(1, 2))), A[0] @ X.swapaxes(1, 2)),
    "bmm": (lambda: ops.bmm(Tensor(X), Tensor(X.swapaxes(1, 2))), X @ X.swapaxes(1, 2)),
    "rmatmul": (lambda: B.T @ Tensor(A), B.T @ A),
    "outer": (lambda: ops.outer(Tensor(A[0]), Tensor(B[0])), np.outer(A[0], B[0])),
    "dot": (lambda: ops.dot(Tensor(A[0]), Tensor(B[0])), A[0] @ B[0]),
    "addmm": (lambda: ops.addmm(Tensor(np.ones((4, 4))), Tensor(A), Tensor(B.T), beta=2, alpha=3), 2 + 3 * A @ B.T),
    "adaptive": (lambda: ops.adaptive_avg_pool2d(Tensor(X[:, None]), (2, 5)), X.reshape(3, 1, 2, 2, 5).mean(3)),
    "adaptive uneven": (lambda: ops.adaptive_avg_pool2d(Tensor(X[:, None]), (None, 2))[..., 1], X[:, None, :, 2:].mean(-1)),
    "clip": (lambda: Tensor(A).clip(-0.5, 0.5), A.clip(-0.5, 0.5)),
    "clamp": (lambda: ops.clamp(Tensor(A), max=0.1), A.clip(None, 0.1)),
    "clip_by_norm": (lambda: ops.clip_by_norm(Tensor(A), 1.0), A / (np.linalg.norm(A) + 1e-6)),
    "softplus": (lambda: ops.softplus(Tensor(A), 2), np.log1p(np.exp(2 * A)) / 2),
    "celu": (lambda: ops.celu(Tensor(A), 0.5), np.where(A > 0, A, 0.5 * np.expm1(A / 0.5))),
    "kl_div": (lambda: ops.kl_div(Tensor(A), Tensor(np.abs(B)), "batchmean"), (np.abs(B) * (np.log(np.abs(B)) - A)).sum() / 4),
    "huber": (lambda: ops.huber_loss(Tensor(A), Tensor(B)),
              np.where(np.abs(A - B) <= 1, (A - B) ** 2 / 2, np.abs(A - B) - 0.5).mean()),
    "bce": (lambda: ops.binary_cross_entropy(Tensor(np.array([0.0, 0.5])), Tensor(np.array([1.0, 1.0])), reduction="sum"),
            100 + math.log(2)),
    "cosine_similarity": (lambda: ops.cosine_similarity(Tensor(A), Tensor(B)),
                          (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)),
    "layer_norm": (lambda: ops.layer_norm(Tensor(X), (4, 5)), (X - X.mean((1, 2), keepdims=True)) / np.sqrt(X.var((1, 2),
                   keepdims=True) + 1e-5)),
}


@pytest.mark.parametrize("name", AGAINST_NUMPY)
def test_equals_numpy(name):
    make, want = AGAINST_NUMPY[name]
    got = make()
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-12, atol=1e-12)
    assert got.shape == np.shape(want)
    if isinstance(want, np.ndarray):
        assert got.dtype == want.dtype


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda t: ops.squeeze(t, 5), ValueError, "squeeze: axis 5 is outside the 3 dims"),
    (lambda t: ops.squeeze(t, 1), ValueError, "dim 1 of shape .* has size 4"),
    (lambda t: ops.split(t, [1, 1], 2), ValueError, "must be ≥ 0 and add up to 5"),
    (lambda t: ops.Split(1, 3)(t), ValueError, "can't be cut into output_num=3"),
    (lambda t: ops.Unstack(0, 2)(t), ValueError, "num=2, but dim 0 .* has size 3"),
    (lambda t: ops.stack((t, t[0])), ValueError, "input 1 has shape"),
    (lambda t: ops.topk(t, 9), ValueError, "k=9 must be in 0 … 5"),
    (lambda t: ops.tile(t, (2,)), ValueError, "at least one for each of the 3 dims"),
    (lambda t: ops.Slice()(t, (0, 0, 0), (9, 1, 1)), ValueError, "leave dim 0"),
    (lambda t: ops.pad(t, (1,)), ValueError, "must be pairs"),
    (lambda t: ops.pad(t, (1, 1), mode="reflect"), ValueError, "only 'constant'"),
    (lambda t: ops.triu(t[0, 0]), ValueError, "at least two dims"),
    (lambda t: ops.matmul(t, t), ValueError, "has 5 columns but b .* has 4 rows"),
    (lambda t: ops.bmm(t, ops.ones((2, 5, 1), ms.float64)), ValueError, "leading dims of a .* don't broadcast"),
    (lambda t: ops.clip_by_value(t), ValueError, "neither clip_value_min nor"),
    (lambda t: ops.clip_by_global_norm((t,), 0), ValueError, "must be > 0"),
    (lambda t: ops.clip_by_norm(t / 0, 1.0, error_if_nonfinite=True), RuntimeError, "total norm"),
    (lambda t: ops.gather_elements(t, 0, Tensor([[[7]]])), ValueError, "must agree in all dims but 0"),
    (lambda t: ops.gather_elements(t[0, 0], 0, Tensor([7])), IndexError, "outside dim 0 of size 5"),
    (lambda t: ops.dropout(t, 1.5), ValueError, "must be in 0 … 1"),
    (lambda t: ops.Dropout(0.0), ValueError, "0 < keep_prob"),
    (lambda t: ops.GeLU("fast"), ValueError, "must be 'tanh' or 'none'"),
    (lambda t: ops.nll_loss(t[0], Tensor([0, 1, 2, 9])), ValueError, "label 9 is outside 0 … 4"),
    (lambda t: ops.layer_norm(t, (4,)), ValueError, "must be the last dims"),
    (lambda t: ops.LayerNorm(1, 1)(t, t, t), ValueError, r"needs gamma of shape \(4, 5\)"),
    (lambda t: ops.BatchNorm()(t, *(ops.ones((3,)),) * 4), ValueError, "one value for each of dim 1"),
    (lambda t: ops.GroupNorm(3)(t, *(ops.ones((4,)),) * 2), ValueError, "doesn't divide the 4 channels"),
    (lambda t: ops.RmsNorm()(t, ops.ones((4,))), ValueError, "must have the last dims"),
    (lambda t: ops.AvgPool(2)(t), ValueError, "it takes \\(batch, channels, height, width\\)"),
    (lambda t: ops.Conv2D(3, 1, group=2), ValueError, "group 2 must be .* divides out_channel 3"),
    (lambda t: ops.PReLU()(t, ops.ones((3,))), ValueError, "weight of shape"),
    (lambda t: ops.clip_by_global_norm(()), ValueError, "clip_by_global_norm: no tensors given"),
    (lambda t: ops.clip_by_norm(["a"], 1.0), TypeError, "clip_by_norm: item 0 is a str"),
    (lambda t: ops.amax(Tensor(np.ones((2, 0))), 1), ValueError, r"ReduceMax: axis 1 of shape \(2, 0\) is empty"),
    (lambda t: -Tensor([True]), TypeError, r"Neg: a bool tensor of shape \(1,\)"),
    (lambda t: Tensor([True]) - Tensor([False]), TypeError, "Sub: a bool tensor"),
    (lambda t: Tensor([2]) ** -1, ValueError, "Pow: int64 to the power of -1"),
    (lambda t: Tensor(np.ones(2, np.int8)) + 300, OverflowError, "Add: the number 300 doesn't fit into int8"),
    (lambda t: Tensor(np.ones(2, np.longdouble)), TypeError, "can't be a tensor"),
    (lambda t: ops.one_hot(Tensor([1]), -1), ValueError, "OneHot: depth -1 must be"),
    (lambda t: ops.arange("a"), TypeError, "arange: start, end or step 'a' is a str"),
    (lambda t: ops.full((2,), "x"), TypeError, "full: fill_value 'x' is a str"),
    (lambda t: ops.linspace(0, 1, -2), ValueError, "linspace: steps -2"),
    (lambda t: ops.eye(2, -1), ValueError, "eye: the size -1"),
    (lambda t: ops.pad(t, 1), ValueError, r"padding \(1,\) must be pairs"),
    (lambda t: ops.movedim(t, 0, (0, 1)), ValueError, "movedim: 1 dims are to go to 2 places"),
    (lambda t: ops.roll(t, (1,), (0, 1)), ValueError, "roll: 1 shifts for 2 dims"),
    (lambda t: ops.repeat_interleave(t, -1, 0), ValueError, "repeats -1 must be"),
    (lambda t: ops.split(t, 1, 5), ValueError, "split: axis 5 is outside"),
    (lambda t: ops.adaptive_avg_pool2d(t[None], (2,)), ValueError, "output_size .* a pair"),
    (lambda t: ops.assign(Parameter(t, name="w"), t[0, :3]), ValueError, r"the value has shape \(3, 5\), parameter w has"),
    (lambda t: nn.Dropout(p="x"), ValueError, "p='x' must be"),
    (lambda t: nn.MultiheadAttention(4, 2)(t, t, t), ValueError, "query has shape .* the last of size 4"),
    (lambda t: nn.MultiheadAttention(5, 1)(t, t, t, attn_mask=t), ValueError, r"attn_mask has shape .* must be \(3, 3\) or"),
    (lambda t: nn.MultiheadAttention(5, 1)(t, t, t, t[0]), ValueError, r"key_padding_mask has shape .* must be \(4, 3\)"),
    (lambda t: ops.norm(t, "nuc"), ValueError, "'fro' is needed"),
    (lambda t: ops.Print()("only text"), TypeError, "no tensor among the arguments"),
    (lambda t: nn.Dropout(p=1.0), ValueError, "0 ≤ p < 1"),
    (lambda t: nn.Embedding(3, 2, padding_idx=3), ValueError, "padding_idx 3 must be in"),
    (lambda t: nn.BatchNorm2d(4)(t), ValueError, "it takes 4 dims with 4 channels"),
    (lambda t: nn.MultiheadAttention(6, 4), ValueError, "num_heads=4 must divide embed_dim=6"),
    (lambda t: nn.GroupNorm(2, 3), ValueError, "must divide num_channels=3"),
    (lambda t: nn.LayerNorm(5), TypeError, "must be a tuple of sizes"),
    (lambda t: nn.MaxPool2d(2, dilation=2), ValueError, "dilation=2; only"),
    (lambda t: nn.MaxPool2d(2, return_indices=True), ValueError, "return_indices=True"),
    (lambda t: nn.Conv2d(3, 4, 1, group=2), ValueError, "group=2 must divide in_channels=3"),
    (lambda t: nn.get_activation("sine"), ValueError, "'sine' is unknown"),
    (lambda t: ops.amax(t[:0], 0), ValueError, r"ReduceMax: axis 0 of shape \(0, 4, 5\) is empty"),
    (lambda t: nn.BatchNorm2d(1)(Tensor(np.ones((2, 1, 2, 2), np.int32))), TypeError, "it takes float tensors"),
    *((lambda t, f=f: f(t > 0), TypeError, "a bool tensor of shape .*it takes numbers") for f in (
        ops.neg, ops.sign, ops.square, ops.round, ops.relu, ops.relu6, lambda b: b - b, lambda b: b ** b, lambda b: b // b,
        lambda b: b % b)),
])
def test_messages(make, error, message):
    with pytest.raises(error, match=message):
        make(Tensor(X))


def test_gradients_of_a_small_norm_are_not_scaled_up():
    grads = (Tensor([0.3, 0.4]), Tensor([[0.0]]))
    for clip in (lambda g: ops.clip_by_global_norm(g, 1.0), lambda g: ops.clip_by_norm(g, 1.0)):
        np.testing.assert_allclose(clip(grads)[0].asnumpy(), grads[0].asnumpy(), rtol=1e-6)
    assert [t.tolist() for t in ops.clip_by_value(list(grads), -1)] == [t.tolist() for t in grads]


def test_sigmoids_of_far_below_zero_keep_their_digits():
    x = np.array([-700.0, -80, -20, -5])
    for dtype, rtol in ((np.float64, 1e-14), (np.float32, 1e-5)):
        t = Tensor(x[dtype is np.float32:], dtype)
        want = np.exp(t.asnumpy().astype(float)) / (1 + np.exp(t.asnumpy().astype(float)))
        np.testing.assert_allclose(ops.sigmoid(t).asnumpy(), want, rtol=rtol)
        np.testing.assert_allclose(ops.silu(t).asnumpy(), want * t.asnumpy(), rtol=rtol)
        np.testing.assert_allclose(ms.grad(lambda t: ops.sum(ops.sigmoid(t)))(t).asnumpy(), want * (1 - want), rtol=rtol)
        np.testing.assert_allclose(ms.grad(lambda t: ops.sum(ops.softplus(t)))(t).asnumpy(), want, rtol=rtol)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_binary_cross_entropy_of_saturated_probabilities(mode, dtype):
    """A sigmoid becomes exactly 0 or 1; the logarithm's gradient there must not make a NaN of the step."""
    ms.set_context(mode=mode)
    x, y = Tensor([-1000.0, -1000, 1000, 1000, 0], dtype), Tensor([0, 1, 0, 1, 1], dtype)
    loss, grad = ms.value_and_grad(lambda x: nn.BCELoss(reduction="sum")(ops.sigmoid(x), y))(x)
    assert float(loss) == pytest.approx(200 + math.log(2), rel=1e-2)
    np.testing.assert_array_equal(grad.astype(ms.float32).asnumpy(), [0, 0, 0, 0, -0.5])
    if dtype in ("float32", "float64"):
        p = Tensor([0.0, 1.0, 1e-30, 0.25], dtype)
        np.testing.assert_allclose(ms.grad(lambda p: nn.BCELoss(reduction="sum")(p, Tensor([1, 0, 1, 1], dtype)))(p).asnumpy(),
                                   [-1e12, 1e12, -1e12, -4], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gelus_gradient_is_finite_wherever_gelu_is(dtype):
    x = Tensor([-6e4, -1000, 0, 1000, 6e4] + [-1e30, 1e30] * (dtype == "float32"), dtype)
    for approximate in ("tanh", "none"):
        grad = ms.grad(lambda x: ops.sum(ops.gelu(x, approximate)))(x)
        np.testing.assert_array_equal(grad.asnumpy(), [0, 0, 0.5, 1, 1] + [0, 1] * (dtype == "float32"))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize(("f", "x", "want"), [
    (lambda x: ops.norm(x), [0.0, 0.0], [0, 0]),
    (lambda x: ops.sum(ops.norm(x, dim=1)), [[0.0, 0.0], [3.0, 4.0]], [[0, 0], [0.6, 0.8]]),
    (lambda x: ops.std(x), [1.0, 1.0], [0, 0]),
    (lambda x: ops.mean(x), np.zeros((0, 2)), np.zeros((0, 2))),
    (lambda x: nn.MSELoss()(x, x), np.zeros((0, 2)), np.zeros((0, 2))),
    (lambda x: ops.var(x), np.zeros(0), np.zeros(0)),
    (lambda x: ops.sum(x ** 0), [0.0, 2.0], [0, 0]),
    (lambda x: ops.sum(ms.grad(lambda x: ops.sum(ms.grad(lambda x: ops.sum(x ** 2))(x)))(x)), [0.0, 2.0], [0, 0]),
], ids=["norm", "norm of rows", "std", "mean of nothing", "loss of nothing", "var of nothing", "x ** 0", "x ** 2 three times"])
def test_gradients_where_a_formula_says_zero_times_infinity(f, x, want, mode):
    ms.set_context(mode=mode)
    np.testing.assert_allclose(ms.grad(f)(Tensor(x, ms.float64)).asnumpy(), want)


# ---- bfloat16 and float16: computed in float32, rounded once ---------------------------------------------

@pytest.mark.parametrize("narrow", [ms.float16, ms.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_narrow_floats_are_rounded_once(narrow, mode):
    ms.set_context(mode=mode)
    x, w = Tensor(X[0], narrow), Tensor(X[1].T, narrow)
    wide_x, wide_w = x.asnumpy().astype(np.float32), w.asnumpy().astype(np.float32)
    for f, want in ((lambda x, w: ops.matmul(x, w), wide_x @ wide_w), (lambda x, w: ops.softmax(x), None),
                    (lambda x, w: ops.mean(x * 1000, 0), None), (lambda x, w: ops.gelu(x), None)):
        out = ms.jit(f)(x, w)
        assert out.dtype == narrow
        if want is not None:
            np.testing.assert_array_equal(out.asnumpy(), want.astype(narrow))
    net = nn.SequentialCell(nn.Conv2d(1, 2, 3, dtype=narrow), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(8, 3, dtype=narrow))
    image = Tensor(X[:, None, :, :4], narrow)
    loss, grads = ms.value_and_grad(lambda x: ops.mean(ops.square(net(x))), None, net.trainable_params())(image)
    assert loss.dtype == narrow and all(g.dtype == narrow and np.isfinite(g.astype(ms.float32).asnumpy()).all() for g in grads)


def test_bfloat16_is_a_dtype_like_the_others():
    x = Tensor([1.0, 2.5], ms.bfloat16)
    assert (x + 1).dtype == ms.bfloat16 and (x * Tensor([1, 2])).dtype == ms.bfloat16
    assert (x + Tensor(np.ones(2, np.float32))).dtype == ms.float32
    assert (x + Tensor(np.ones(2, np.float16))).dtype == ms.float32 and mstype.is_float(x.dtype)
    assert Parameter(x).clone().dtype == ms.bfloat16
    assert ops.ones((2,), ms.bfloat16).astype(ms.int32).tolist() == [1, 1]
    np.testing.assert_array_equal(ms.grad(lambda t: ops.sum(t * t))(x).astype(ms.float32).asnumpy(), [2, 5])


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_sums_of_narrow_floats_do_not_overflow_on_the_way(narrow):
    many = Tensor(np.ones(100_000), narrow)
    assert float(ops.mean(many)) == 1
    assert float(ops.norm(many * 2)) == pytest.approx(632.5, rel=1e-2) and ops.norm(many).dtype == many.dtype
    assert ops.norm(many, dtype=ms.float32).dtype == ms.float32


BIG = 1000 * X          # float16's squares end at 256

NORMALISING = {
    "layer_norm": lambda x: ops.layer_norm(x, (5,), bias=ops.ones((5,), x.dtype)),
    "LayerNorm": lambda x: ops.LayerNorm(1, 1)(x, ops.ones((4, 5), x.dtype), ops.zeros((4, 5), x.dtype))[0],
    "group_norm": lambda x: ops.group_norm(x, 2), "rms_norm": lambda x: ops.rms_norm(x, ops.ones((5,), x.dtype))[0],
    "batch_norm": lambda x: ops.batch_norm(x, *(f((4,), x.dtype) for f in (ops.zeros, ops.ones, ops.ones, ops.zeros)), True),
    "L2Normalize": ops.L2Normalize(-1), "std": lambda x: ops.std(x, -1), "var": lambda x: ops.var(x * 0.1, (0, 1), True),
    "cosine_similarity": lambda x: ops.cosine_similarity(x, x[::-1], -1),
}


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NORMALISING)
def test_normalisations_of_narrow_floats_are_rounded_once(name, narrow):
    f, x = NORMALISING[name], Tensor(BIG, narrow)
    out, want = f(x), f(x.astype(ms.float32)).asnumpy()
    assert out.dtype == x.dtype
    rtol = {"float16": 2e-3, "bfloat16": 2e-2}[narrow]
    np.testing.assert_allclose(out.astype(ms.float32).asnumpy(), want, rtol=rtol, atol=1e-6)
    weights = Tensor(np.cos(np.arange(out.size)).reshape(out.shape), ms.float32)
    grad, true = (ms.grad(lambda t: ops.sum(ops.cast(f(t), ms.float32) * weights))(t).astype(ms.float32).asnumpy()
                  for t in (x, x.astype(ms.float32)))
    np.testing.assert_allclose(grad, true, rtol=0.2, atol=0.05 * np.abs(true).max())


def test_a_python_float_is_rounded_to_the_dtype_asked_for_only():
    assert float(Tensor(0.9, ms.float64)) == 0.9 and Tensor(0.9).dtype == ms.float32
    assert float(Tensor([[0.1]], np.float64)[0, 0]) == 0.1


def test_a_tensors_bytes_are_in_this_machines_order():
    assert Tensor(np.array([1.5, 2], ">f4")).dtype == ms.float32 and Tensor(np.array([1.5, 2], ">f4")).tolist() == [1.5, 2.0]


def test_batch_norm_answers_in_the_inputs_dtype():
    x = Tensor(X[:, :, None], ms.float16)
    for training in (False, True):
        assert nn.BatchNorm2d(4).set_train(training)(x.reshape(3, 4, 1, 5)).dtype == ms.float16


# ---- ops with effects ------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_print_prints_when_the_program_runs(mode, capfd):
    ms.set_context(mode=mode)
    f = ms.jit(lambda x: ops.print_("sum is", ops.sum(x)) * 2) if mode == ms.GRAPH_MODE else \
        (lambda x: ops.print_("sum is", ops.sum(x)) * 2)
    assert float(f(Tensor([1.0, 2.0]))) == 6
    assert float(f(Tensor([1.0, 4.0]))) == 10
    assert capfd.readouterr().out == "sum is 3.0\nsum is 5.0\n"


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_assign_add_sub_and_depend(mode):
    ms.set_context(mode=mode)
    class Counter(nn.Cell):
        def __init__(self):
            super().__init__()
            self.n = Parameter(np.zeros(2, np.float32), name="n")
        def construct(self, x):
            ops.AssignAdd()(self.n, x)
            return ops.depend(x * 2, (ops.assign_sub(self.n, 0.5), None, [True]))
    net = Counter()
    for _ in range(2):
        assert net(Tensor([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert net.n.tolist() == [1.0, 3.0]


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_grouped_convolution_is_the_convolutions_of_the_groups(group, i, o, same):
    rng = np.random.default_rng(group * 100 + i * 10 + o)
    x, w = rng.normal(size=(2, group * i, 5, 4)), rng.normal(size=(group * o, i, 3, 2))
    mode = "same" if same else "valid"
    whole = ops.Conv2D(group * o, (3, 2), pad_mode=mode, group=group)(Tensor(x), Tensor(w)).asnumpy()
    parts = [ops.Conv2D(o, (3, 2), pad_mode=mode)(Tensor(a), Tensor(b)).asnumpy()
             for a, b in zip(np.split(x, group, 1), np.split(w, group, 0), strict=True)]
    np.testing.assert_allclose(whole, np.concatenate(parts, 1), rtol=1e-12)


@settings(max_examples=60)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(3, 7), st.booleans(), st.booleans())
def test_pooling_in_ceil_mode_is_its_definition(kernel, stride, pad, size, count, average):
    """Windows begin every `stride`; the last one may hang over, if it begins inside the (left-padded) plane."""
    pad = pad if 2 * pad <= kernel else 0
    x = np.random.default_rng(size).normal(size=(1, 1, size, size))
    starts = [s for s in range(-pad, size, stride) if s - stride + kernel < size + pad or s == -pad]
    def window(i, j):
        rows, cols = (slice(max(s, 0), min(s + kernel, size)) for s in (i, j))
        if not average:
            return x[0, 0, rows, cols].max()
        area = [min(s + kernel, size + pad) - s for s in (i, j)] if count and pad else \
            [min(s + kernel, size) - max(s, 0) for s in (i, j)]
        return x[0, 0, rows, cols].sum() / np.prod(area)
    want = [[window(i, j) for j in starts] for i in starts]
    args = (kernel, stride, "pad" if pad else "valid", pad, True)
    got = ops.AvgPool(*args, count) if average else ops.MaxPool(*args)
    np.testing.assert_allclose(got(Tensor(x)).asnumpy()[0, 0], want, rtol=1e-12)


# ---- functions over functions --------------------------------------------------------------------------

@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_gradients_clipped_as_mindspores_scripts_do_it(mode):
    ms.set_context(mode=mode)
    clip = ops.MultitypeFuncGraph("clip")

    @clip.register("Number", "Number", "Tensor")
    def _clip(kind, value, grad):
        return ops.clip_by_value(grad, -value, value) if kind == 0 else ops.clip_by_norm(grad, value)
    f = ms.jit(lambda *grads: ops.HyperMap()(ops.partial(clip, 0, 1.0), grads))
    a, b = f(Tensor([3.0, -0.5]), Tensor([[-2.0]]))
    assert a.tolist() == [1.0, -0.5] and b.tolist() == [[-1.0]]
    with pytest.raises(TypeError, match=r"clip: there is no function for \(str\); registered is: Number, Number, Tensor"):
        clip("x")
    with pytest.raises(ValueError, match="kinds .'Matrix'. are unknown"):
        clip.register("Matrix")
    with pytest.raises(ValueError, match=r"lengths \[1, 2\]"):
        ops.HyperMap()(ops.add, (a,), (a, b))
    assert ops.HyperMap(ops.neg)((a, (b,)))[1][0].tolist() == [[1.0]]
    assert [t.tolist() for t in ops.Map()(lambda pair: pair[0] + pair[1], ((a, a),))] == [[2.0, -1.0]]
