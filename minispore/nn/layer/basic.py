"""Dense, Flatten, Embedding, Dropout and other plain layers, with MindSpore's parameter names and defaults."""
from math import sqrt

from minispore import ops
from minispore.common import dtype as mstype
from minispore.common.initializer import HeUniform, Uniform, initializer
from minispore.common.parameter import Parameter
from minispore.nn.cell import Cell
from minispore.nn.explain import explain_features
from minispore.nn.layer.activation import get_activation
from minispore.nn.layer.checks import positive


class Dense(Cell):
    """y (…, out_channels) = x (…, in_channels) · weightᵀ + bias, then an activation (MindSpore: `nn.Dense`).

    Args:
        in_channels, out_channels: sizes of the last dim in and out.
        weight_init: what `initializer` takes; uniform ±1/√in_channels by default. weight is (out, in).
        bias_init: the same; bias is (out,).
        activation: a name ("relu", "gelu", …: see `nn.get_activation`), a Cell or an op, or None.

    >>> from minispore import Tensor, nn
    >>> nn.Dense(3, 4, weight_init="ones", bias_init="zeros")(Tensor([[1.0, 2.0, 3.0]])).tolist()
    [[6.0, 6.0, 6.0, 6.0]]
    """

    def __init__(self, in_channels, out_channels, weight_init=None, bias_init=None, has_bias=True, activation=None,
                 dtype=mstype.float32):
        super().__init__()
        positive("Dense", in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        init = HeUniform(sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(init, (out_channels, in_channels), dtype), name="weight")
        if has_bias:
            init = Uniform(1 / sqrt(in_channels)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(init, (out_channels,), dtype), name="bias")
        self.activation = get_activation(activation)
        self.matmul, self.bias_add = ops.MatMul(transpose_b=True), ops.Add()        # to be sharded by these names

    def construct(self, x):
        if not x.shape or x.shape[-1] != self.in_channels:
            raise ValueError(f"Dense(in_channels={self.in_channels}, out_channels={self.out_channels}): "
                             + explain_features(x, self.in_channels))
        x = self.matmul(x, self.weight)
        x = self.bias_add(x, self.bias) if self.has_bias else x
        return x if self.activation is None else self.activation(x)

    def extend_repr(self):
        return f"input_channels={self.in_channels}, output_channels={self.out_channels}, has_bias={self.has_bias}"


class Flatten(Cell):
    """The dims start_dim … end_dim made one (MindSpore: `nn.Flatten`)."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def construct(self, x):
        return ops.flatten(x, start_dim=self.start_dim, end_dim=self.end_dim)


class Identity(Cell):
    """What it is given."""

    def construct(self, input):
        return input


class Embedding(Cell):
    """Row `id` of a table for each id: ids (…) of integers -> (…, embedding_size) (MindSpore: `nn.Embedding`).

    Args:
        vocab_size, embedding_size: the table's shape. embedding_table: what `initializer` takes, or a Tensor.
        use_one_hot: look up by a product with one-hot rows.
        padding_idx: the row that starts as zeros.

    >>> from minispore import Tensor, nn
    >>> nn.Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(self, vocab_size, embedding_size, use_one_hot=False, embedding_table="normal", dtype=mstype.float32,
                 padding_idx=None):
        super().__init__()
        positive("Embedding", vocab_size=vocab_size, embedding_size=embedding_size)
        self.vocab_size, self.embedding_size = vocab_size, embedding_size
        self.use_one_hot, self.padding_idx = use_one_hot, padding_idx
        table = initializer(embedding_table, (vocab_size, embedding_size), dtype)
        if padding_idx is not None:
            if not 0 <= padding_idx < vocab_size:
                raise ValueError(f"Embedding: padding_idx {padding_idx} must be in 0 … {vocab_size - 1}")
            table = ops.concat((table[:padding_idx], ops.zeros((1, embedding_size), dtype), table[padding_idx + 1:]))
        self.embedding_table = Parameter(table, name="embedding_table")
        self.gather = ops.Gather()

    def construct(self, ids):
        if not self.use_one_hot:
            return self.gather(self.embedding_table, ids, 0)
        hot = ops.cast(ops.one_hot(ids, self.vocab_size), self.embedding_table.dtype)
        return ops.matmul(hot, self.embedding_table)

    def extend_repr(self):
        return (f"vocab_size={self.vocab_size}, embedding_size={self.embedding_size}, use_one_hot={self.use_one_hot}, "
                f"padding_idx={self.padding_idx}")


class Dropout(Cell):
    """In training each value becomes 0 with probability p, the others are divided by 1 - p (Srivastava et al., 2014).

    Args:
        keep_prob: 1 - p, MindSpore's older argument (0.5). p: takes its place if it is given.

    What is dropped follows from the seed, the cell's place in the network, the step and the *global* row: it doesn't depend
    on the number of ranks, nor on the mode (MindSpore: `nn.Dropout`).
    """

    def __init__(self, keep_prob=0.5, p=None, dtype=mstype.float32):
        super().__init__()
        if p is None and not (isinstance(keep_prob, (int, float)) and 0 < keep_prob <= 1):
            raise ValueError(f"Dropout: keep_prob={keep_prob!r} must be in 0 < keep_prob ≤ 1")
        if p is not None and not (isinstance(p, (int, float)) and 0 <= p < 1):
            raise ValueError(f"Dropout: p={p!r} must be in 0 ≤ p < 1")
        self.p = 1 - keep_prob if p is None else p
        self.keep_prob = 1 - self.p

    def construct(self, x):
        return ops.dropout(x, self.p, self.training)

    def extend_repr(self):
        return f"p={self.p}"


class Norm(Cell):
    """√Σ x² over an axis (all if ()), at least epsilon under the root (MindSpore: `nn.Norm`)."""

    def __init__(self, axis=(), keep_dims=False, epsilon=1e-12):
        super().__init__()
        self.axis, self.keep_dims, self.epsilon = axis, keep_dims, epsilon

    def construct(self, x):
        return ops.sqrt(ops.maximum(ops.sum(ops.square(x), self.axis or None, self.keep_dims), self.epsilon))


class ClipByNorm(Cell):
    """x scaled down so that its norm is at most clip_norm: `ClipByNorm()(x, clip_norm)` (MindSpore: `nn.ClipByNorm`)."""

    def __init__(self, axis=None):
        super().__init__()
        self.axis = axis

    def construct(self, x, clip_norm):
        norm = ops.sqrt(ops.sum(ops.square(x), self.axis, self.axis is not None))
        return x * clip_norm / ops.maximum(norm, clip_norm)
