"""Every layer and loss: gradients to inputs and parameters against difference quotients, graph against eager."""
import inspect

import numpy as np
import pytest
from layer_cases import LAYERS, SEQUENCE

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.nn.loss import LossBase


def scalar(layer):
    """The layer's first output times fixed numbers, summed."""
    def f(*xs):
        out = layer(*xs)
        out = out[0] if isinstance(out, tuple) else out
        return ops.sum(out * Tensor(np.cos(np.arange(out.size, dtype=float)).reshape(out.shape)))
    return f


@pytest.mark.parametrize("name", LAYERS)
def test_gradients(name):
    ms.set_seed(1)
    make, inputs = LAYERS[name]
    layer, results = make(), []
    f, params = scalar(layer), layer.trainable_params()
    floats = [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        ms.set_context(mode=mode)
        to_inputs, to_params = ms.grad(f, tuple(floats), params)(*map(Tensor, inputs)) if floats else \
            ((), ms.grad(f, None, params)(*map(Tensor, inputs)))
        results.append([g.asnumpy() for g in (*to_inputs, *to_params)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for i, g in zip(floats, results[0], strict=False):
        check(g, inputs[i].copy(), lambda x, i=i: float(f(*map(Tensor, [*inputs[:i], x, *inputs[i + 1:]]))))
    for p, g in zip(params, results[0][len(floats):], strict=True):
        check(g, p.asnumpy(), lambda x, p=p: float((p.set_data(Tensor(x)), f(*map(Tensor, inputs)))[1]))
    assert results[0], "nothing was differentiated"


def check(gradient, at, f, eps=1e-6):
    for i in np.ndindex(at.shape):
        ends = []
        for sign in (1, -1):
            moved = at.copy()
            moved[i] += sign * eps
            ends.append(f(moved))
        assert abs((ends[0] - ends[1]) / (2 * eps) - gradient[i]) < 1e-6 * (1 + abs(gradient[i])), i
    f(at)                   # a parameter gets its value back


def test_every_layer_has_a_case():
    layers = {n for n, c in vars(nn).items() if inspect.isclass(c) and issubclass(c, nn.Cell)
              and (c.__module__.startswith("minispore.nn.layer.") or issubclass(c, LossBase)) and c is not LossBase}
    assert layers == set(LAYERS)


# ---- attention ------------------------------------------------------------------------------------------

def attention(x, layer, mask=None):
    """Multi-head attention written out in numpy, for x (batch, length, size)."""
    w, b = layer.in_proj_weight.asnumpy(), layer.in_proj_bias.asnumpy()
    d, h = layer.embed_dim, layer.num_heads
    q, k, v = (x @ w[i * d:(i + 1) * d].T + b[i * d:(i + 1) * d] for i in range(3))
    heads = []
    for i in range(h):
        s = slice(i * d // h, (i + 1) * d // h)
        scores = q[..., s] @ k[..., s].swapaxes(1, 2) / np.sqrt(d / h)
        scores = scores if mask is None else np.where(mask, -np.inf, scores)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append((e / e.sum(-1, keepdims=True), v[..., s]))
    mixed = np.concatenate([p @ v for p, v in heads], -1)
    out = mixed @ layer.out_proj.weight.asnumpy().T + layer.out_proj.bias.asnumpy()
    return out, np.mean([p for p, _ in heads], 0)


@pytest.mark.parametrize("masked", ["no", "causal", "padding"])
def test_attention_is_its_formula(masked):
    layer = nn.MultiheadAttention(4, 2, batch_first=True, dtype=ms.float64)
    layer.in_proj_bias.set_data(Tensor(np.linspace(-1, 1, 12)))
    causal = np.triu(np.ones((3, 3), bool), 1)
    padding = np.array([[False, False, True], [False, True, True]])
    mask = {"no": None, "causal": causal, "padding": padding[:, None, :]}[masked]
    kwargs = {"no": {}, "causal": {"attn_mask": Tensor(causal)}, "padding": {"key_padding_mask": Tensor(padding)}}[masked]
    x = Tensor(SEQUENCE)
    out, weights = layer(x, x, x, **kwargs)
    want, share = attention(SEQUENCE, layer, mask)
    np.testing.assert_allclose(out.asnumpy(), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(weights.asnumpy(), share, rtol=1e-12, atol=1e-12)
    turned = nn.MultiheadAttention(4, 2, dtype=ms.float64)
    for p, q in zip(turned.get_parameters(), layer.get_parameters(), strict=True):
        p.set_data(q)
    first = ops.swapaxes(x, 0, 1)
    np.testing.assert_allclose(turned(first, first, first, **kwargs)[0].asnumpy().swapaxes(0, 1), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("narrow", [ms.float16, ms.bfloat16], ids=["float16", "bfloat16"])
def test_masks_in_16_bits(narrow):
    """Also of two masks at once, and where a row sees nothing."""
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    x, causal = Tensor(SEQUENCE, ms.float32), Tensor(np.triu(np.ones((3, 3), bool), 1))
    padding = Tensor(np.array([[True, False, True], [False, True, True]]))
    want = layer(x, x, x, padding, attn_mask=causal)[1].asnumpy()[:, 1:]        # row 0 of the first sees nothing
    weights = layer.to_float(narrow)(x, x, x, padding, attn_mask=causal)[1].astype(ms.float32).asnumpy()
    np.testing.assert_allclose(weights[:, 1:], want, rtol=2e-2, atol=1e-3)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-2)


def test_attention_of_other_sizes_and_per_head_weights():
    layer = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True)
    q, k, v = (Tensor(np.ones((2, n, d), np.float32)) for n, d in ((3, 4), (6, 3), (6, 5)))
    out, weights = layer(q, k, v, average_attn_weights=False)
    assert out.shape == (2, 3, 4) and weights.shape == (2, 2, 3, 6)
    np.testing.assert_allclose(weights.asnumpy(), 1 / 6, rtol=1e-6)
    assert layer(q, k, v, need_weights=False)[1] is None


def test_embedding_by_one_hot_is_the_same():
    ids = Tensor(np.array([[0, 3], [2, 3]]))
    table = Tensor(np.arange(12.0).reshape(4, 3))
    a, b = (nn.Embedding(4, 3, one_hot, table)(ids).asnumpy() for one_hot in (False, True))
    np.testing.assert_array_equal(a, b)
    assert (nn.Embedding(4, 3, padding_idx=2).embedding_table.asnumpy()[2] == 0).all()
