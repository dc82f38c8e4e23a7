"""Attention and transformer encoders (Vaswani et al., 2017; MindSpore: `mindspore.nn.layer.transformer`)."""
from copy import deepcopy
from math import sqrt

from minispore import ops
from minispore.common import dtype as mstype
from minispore.common.initializer import Uniform, XavierUniform, initializer
from minispore.common.parameter import Parameter
from minispore.nn.cell import Cell
from minispore.nn.containers import CellList
from minispore.nn.layer.activation import get_activation
from minispore.nn.layer.basic import Dense, Dropout
from minispore.nn.layer.checks import positive
from minispore.nn.layer.normalization import LayerNorm

# Added to the scores of what may not be attended to; softmax makes it 0. Twice (two masks) it is still finite.
HIDDEN, HIDDEN_16 = -1e9, -3e4


class MultiheadAttention(Cell):
    """softmax(q·kᵀ/√d)·v in several heads side by side.

    Args:
        embed_dim: size of query, key, value and output; each of num_heads heads has embed_dim / num_heads.
        dropout: share of attention weights dropped in training. kdim, vdim: sizes of key and value, if they differ.
        batch_first: tensors are (batch, length, size) instead of (length, batch, size).

    Called with (query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True):
    masks are True where a key must not be seen, or numbers that are added to the scores; key_padding_mask (batch, keys),
    attn_mask (queries, keys) or (batch · heads, queries, keys). Returns (output, weights or None), the weights
    (batch, queries, keys) averaged over the heads, or one for each.
    """

    def __init__(self, embed_dim, num_heads, dropout=0.0, has_bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None,
                 vdim=None, batch_first=False, dtype=mstype.float32):
        super().__init__()
        positive("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: num_heads={num_heads} must divide embed_dim={embed_dim}")
        if add_bias_kv or add_zero_attn:
            raise ValueError("MultiheadAttention: add_bias_kv and add_zero_attn aren't there; leave them False")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.batch_first, self.has_bias = batch_first, has_bias
        sizes = (embed_dim, embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim)
        self.sizes, self.same_size = sizes, sizes == (embed_dim,) * 3
        if self.same_size:
            self.in_proj_weight = Parameter(initializer(XavierUniform(), (3 * embed_dim, embed_dim), dtype), "in_proj_weight")
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                Parameter(initializer(XavierUniform(), (embed_dim, n), dtype), name)
                for n, name in zip(sizes, ("q_proj_weight", "k_proj_weight", "v_proj_weight"), strict=True))
        if has_bias:
            self.in_proj_bias = Parameter(initializer("zeros", (3 * embed_dim,), dtype), "in_proj_bias")
        self.out_proj = Dense(embed_dim, embed_dim, Uniform(1 / sqrt(embed_dim)), "zeros", has_bias, dtype=dtype)
        self.dropout = Dropout(p=dropout)

    def construct(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                  average_attn_weights=True):
        if not self.batch_first:
            query, key, value = (ops.swapaxes(t, 0, 1) for t in (query, key, value))
        for name, t, size in zip(("query", "key", "value"), (query, key, value), self.sizes, strict=True):
            if t.ndim != 3 or t.shape[-1] != size:
                raise ValueError(f"MultiheadAttention: {name} has shape {t.shape}; it takes batches of sequences, three dims, "
                                 f"the last of size {size}")
        batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
        shapes = {"key_padding_mask": (key_padding_mask, [(batch, keys)]),
                  "attn_mask": (attn_mask, [(queries, keys), (batch * self.num_heads, queries, keys)])}
        for name, (mask, fitting) in shapes.items():
            if mask is not None and mask.shape not in fitting:
                raise ValueError(f"MultiheadAttention: {name} has shape {mask.shape}; for {queries} queries and {keys} keys in "
                                 f"batches of {batch} it must be {' or '.join(map(str, fitting))}")
        q, k, v = (self._heads(t) for t in self._project(query, key, value))
        scores = ops.BatchMatMul(False, True)(q * (1 / sqrt(self.head_dim)), k)         # (batch, heads, queries, keys)
        if attn_mask is not None:
            shape = attn_mask.shape if attn_mask.ndim == 2 else (batch, self.num_heads, queries, keys)
            scores = scores + ops.reshape(_bias(attn_mask, q.dtype), shape)
        if key_padding_mask is not None:
            scores = scores + ops.reshape(_bias(key_padding_mask, q.dtype), (batch, 1, 1, keys))
        weights = ops.softmax(scores, -1)
        mixed = ops.BatchMatMul()(self.dropout(weights), v)
        out = self.out_proj(ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (batch, queries, self.embed_dim)))
        out = out if self.batch_first else ops.swapaxes(out, 0, 1)
        if not need_weights:
            return out, None
        return out, (ops.mean(weights, 1) if average_attn_weights else weights)

    def _project(self, query, key, value):
        if self.same_size:
            weights = ops.split(self.in_proj_weight, self.embed_dim)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = ops.split(self.in_proj_bias, self.embed_dim) if self.has_bias else (None,) * 3
        return [ops.dense(t, w, b) for t, w, b in zip((query, key, value), weights, biases, strict=True)]

    def _heads(self, t):
        """(batch, length, size) -> (batch, heads, length, size / heads)"""
        return ops.transpose(ops.reshape(t, (*t.shape[:2], self.num_heads, self.head_dim)), (0, 2, 1, 3))


def _bias(mask, dtype):
    """What is added to the scores."""
    bias = ops.cast(mask, dtype)
    return bias * (HIDDEN_16 if dtype == mstype.float16 else HIDDEN) if mask.dtype == mstype.bool_ else bias


class TransformerEncoderLayer(Cell):
    """Self-attention and a network of two Dense layers, each with a residual connection and LayerNorm.

    Args:
        d_model: size of each position's vector. nhead: number of heads. dim_feedforward: width between the Dense layers.
        activation: name or function. norm_first: normalise before attention and Dense instead of behind.
        batch_first: tensors are (batch, length, d_model) instead of (length, batch, d_model).
    """

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, dtype=mstype.float32):
        super().__init__()
        # Inside, the batch always comes first: it is the rows that ranks share out, and by which values are dropped.
        self.batch_first = batch_first
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=True, dtype=dtype)
        self.linear1 = Dense(d_model, dim_feedforward, dtype=dtype)
        self.dropout = Dropout(p=dropout)
        self.linear2 = Dense(dim_feedforward, d_model, dtype=dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype)
        self.norm2 = LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype)
        self.dropout1, self.dropout2 = Dropout(p=dropout), Dropout(p=dropout)
        self.activation = get_activation(activation)

    def construct(self, src, src_mask=None, src_key_padding_mask=None):
        x = src if self.batch_first else ops.swapaxes(src, 0, 1)
        if self.norm_first:
            x = x + self._attend(self.norm1(x), src_mask, src_key_padding_mask)
            x = x + self._feed(self.norm2(x))
        else:
            x = self.norm1(x + self._attend(x, src_mask, src_key_padding_mask))
            x = self.norm2(x + self._feed(x))
        return x if self.batch_first else ops.swapaxes(x, 0, 1)

    def _attend(self, x, mask, padding):
        return self.dropout1(self.self_attn(x, x, x, padding, False, mask)[0])

    def _feed(self, x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Cell):
    """num_layers copies of an encoder layer, one after the other; `norm` behind them."""

    def __init__(self, encoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = CellList([encoder_layer, *(deepcopy(encoder_layer) for _ in range(num_layers - 1))])
        self.norm = norm

    def construct(self, src, src_mask=None, src_key_padding_mask=None):
        for layer in self.layers:
            src = layer(src, src_mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)
