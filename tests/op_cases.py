"""One case an op: a function of float64 tensors that uses it, with inputs drawn by hypothesis.

Inputs keep clear of kinks (ReLU at 0, ties of a maximum), where a difference quotient means nothing.
"""
from functools import partial

import numpy as np
from hypothesis import strategies as st

from minispore import Tensor, ops

SIZES = st.integers(1, 4)
FEW = st.integers(1, 2)
KERNEL = st.integers(1, 3)
SHAPES = st.lists(SIZES, min_size=0, max_size=3).map(tuple)
LONG = st.lists(SIZES, min_size=1, max_size=3).map(tuple)


def values(draw, shape, low=-2.0, high=2.0):
    """Distinct values, none nearer than 0.01 to another or to 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2 ** 20)))
    n = int(np.prod(shape, dtype=int))
    grid = np.linspace(low, high, 2 * n + 3)
    grid = grid[np.abs(grid) > (high - low) / (8 * n + 16)]
    return rng.permutation(grid)[:n].reshape(shape)


def positive(draw, shape):
    return values(draw, shape, 0.3, 2.0)


def broadcastable(draw):
    """Two shapes that meet."""
    shape = draw(SHAPES)
    pair = [tuple(1 if draw(st.booleans()) else n for n in shape)[draw(st.integers(0, len(shape))):] for _ in range(2)]
    return pair if draw(st.booleans()) else [shape, pair[1]]


def axis_of(draw, shape):
    return draw(st.integers(-len(shape), len(shape) - 1))


def axes_of(draw, shape):
    return draw(st.one_of(st.just(()), st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True).map(tuple),
                          st.integers(-len(shape), len(shape) - 1)))


def unary(op, make=values):
    return lambda draw: (op, [make(draw, draw(SHAPES))])


def binary(op, left=values, right=values):
    def case(draw):
        a, b = broadcastable(draw)
        return op, [left(draw, a), right(draw, b)]
    return case


def reduction(cls, make=values):
    def case(draw):
        shape = draw(LONG)
        axis, keep = axes_of(draw, shape), draw(st.booleans())
        return lambda x: cls(keep)(x, axis), [make(draw, shape)]
    return case


def extreme(op):
    """Two inputs that are never equal."""
    def case(draw):
        a, b = broadcastable(draw)
        both = values(draw, (int(np.prod(a, dtype=int)) + int(np.prod(b, dtype=int)),))
        n = int(np.prod(a, dtype=int))
        return op, [both[:n].reshape(a), both[n:].reshape(b)]
    return case


def matmul(draw):
    ta, tb = draw(st.booleans()), draw(st.booleans())
    m, k, n = (draw(SIZES) for _ in range(3))
    return ops.MatMul(ta, tb), [values(draw, (k, m) if ta else (m, k)), values(draw, (n, k) if tb else (k, n))]


def matmul_nd(draw):
    lead, k, n = draw(LONG), draw(SIZES), draw(SIZES)
    tb = draw(st.booleans())
    return ops.MatMul(False, tb), [values(draw, (*lead, k)), values(draw, (n, k) if tb else (k, n))]


def contract(draw):
    lead = draw(SHAPES)
    return ops.Contract(), [values(draw, (*lead, draw(SIZES))), values(draw, (*lead, draw(SIZES)))]


def bias_add(draw):
    shape = (draw(SIZES), draw(SIZES), *draw(SHAPES)[:2])
    return ops.bias_add, [values(draw, shape), values(draw, shape[1:2])]


def window(draw):
    """Keyword arguments of a convolution, and a plane it fits on."""
    k, s = (draw(KERNEL), draw(KERNEL)), (draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    mode = draw(st.sampled_from(["same", "valid", "pad"]))
    pad = tuple(draw(st.integers(0, 2)) for _ in range(4)) if mode == "pad" else 0
    d = draw(st.sampled_from([(1, 1), (2, 1), (2, 2)]))
    plane = tuple((n - 1) * e + 1 + draw(st.integers(0, 3)) for n, e in zip(k, d, strict=True))
    return dict(kernel_size=k, stride=s, pad_mode=mode, pad=pad, dilation=d), plane


def conv(draw):
    kw, plane = window(draw)
    n, i, o = draw(FEW), draw(FEW), draw(SIZES)
    return ops.Conv2D(o, **kw), [values(draw, (n, i, *plane)), values(draw, (o, i, *kw["kernel_size"]))]


def conv_input(draw):
    op, (x, w) = conv(draw)
    out = op.infer(Tensor(x), Tensor(w)).shape
    return ops.Conv2DBackpropInput(op, x.shape), [values(draw, out), w]


def conv_filter(draw):
    op, (x, w) = conv(draw)
    out = op.infer(Tensor(x), Tensor(w)).shape
    return ops.Conv2DBackpropFilter(op, w.shape), [values(draw, out), x]


def pooling(draw):
    kernel = (draw(KERNEL), draw(KERNEL))
    stride, mode = (draw(st.integers(1, 3)), draw(st.integers(1, 2))), draw(st.sampled_from(["same", "valid", "pad"]))
    pad = (kernel[0] // 2, 0, 0, kernel[1] // 2) if mode == "pad" else 0
    shape = (draw(FEW), draw(FEW), *(k + draw(st.integers(0, 4)) for k in kernel))
    return (kernel, stride, mode, pad, mode != "same" and draw(st.booleans())), shape


def max_pool(draw):
    args, shape = pooling(draw)
    return ops.MaxPool(*args), [values(draw, shape)]


def max_pool_grad(draw):
    args, shape = pooling(draw)
    x = Tensor(values(draw, shape))
    return lambda d: ops.MaxPoolGrad(*args)(x, d), [values(draw, ops.MaxPool(*args).infer(x).shape)]


def max_pool_gather(draw):
    args, shape = pooling(draw)
    x = Tensor(values(draw, shape))
    return lambda g: ops.MaxPoolGather(*args)(x, g), [values(draw, shape)]


def reshape(draw):
    shape = draw(LONG)
    new = draw(st.permutations(shape).map(tuple))
    new = draw(st.sampled_from([new, (-1,), (*new, 1), (1, -1), (*new[:-1], -1)]))
    return lambda x: ops.Reshape()(x, new), [values(draw, shape)]


def transpose(draw):
    shape = draw(LONG)
    perm = tuple(draw(st.permutations(range(len(shape)))))
    return lambda x: ops.Transpose()(x, perm), [values(draw, shape)]


def broadcast_to(draw):
    shape = draw(SHAPES)
    source = tuple(1 if draw(st.booleans()) else n for n in shape)[draw(st.integers(0, len(shape))):]
    return lambda x: ops.BroadcastTo(shape)(x), [values(draw, source)]


def concat(draw):
    shape = draw(LONG)
    axis = axis_of(draw, shape)
    pieces = [values(draw, (*shape[:axis % len(shape)], draw(SIZES), *shape[axis % len(shape) + 1:]))
              for _ in range(draw(st.integers(1, 3)))]
    return lambda *xs: ops.Concat(axis)(xs), pieces


def basic_index(draw, shape):
    """An index of integers, slices, None and at most one '...' that fits the shape."""
    def one(n):
        return draw(st.one_of(st.integers(-n, n - 1), st.slices(n)))
    front = draw(st.integers(0, len(shape)))
    back = draw(st.integers(front, len(shape)))
    index = [one(n) for n in shape[:front]]
    if back > front or draw(st.booleans()):
        index += [Ellipsis, *(one(n) for n in shape[back:])]
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), None)
    return tuple(index)


def slicing(draw):
    shape = draw(LONG)
    index = basic_index(draw, shape)
    return lambda x: x[index], [values(draw, shape)]


def strided_grad(draw):
    n, m = draw(st.integers(2, 5)), draw(SIZES)
    begin, end, step = draw(st.sampled_from([(0, n, 1), (1, n, 2), (n - 1, None, -1), (0, n - 1, 1)]))
    op = ops.StridedSliceGrad((begin, 0), (end, m), (step, 1), (n, m))
    return op, [values(draw, (len(range(n)[begin:end:step]), m))]


def gather(draw):
    shape = draw(LONG)
    axis = axis_of(draw, shape)
    index = Tensor(np.array(draw(st.lists(st.integers(-shape[axis], shape[axis] - 1), min_size=1, max_size=4))))
    return lambda x: ops.Gather(axis)(x, index), [values(draw, shape)]


def scatter_add(draw):
    rows, m = draw(SIZES), draw(SIZES)
    index = Tensor(np.array(draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=5))))
    return lambda d: ops.ScatterAdd(0, rows)(index, d), [values(draw, (index.size, m))]


def along_axis(cls):
    def case(draw):
        shape = draw(LONG)
        return cls(axis_of(draw, shape)), [values(draw, shape)]
    return case


def sparse_cross_entropy(draw):
    lead, classes = draw(SHAPES), draw(SIZES)
    labels = Tensor(np.random.default_rng(draw(st.integers(0, 99))).integers(0, classes, lead))
    return lambda x: ops.SparseSoftmaxCrossEntropyWithLogits()(x, labels), [values(draw, (*lead, classes))]


def dense_cross_entropy(draw):
    shape = (draw(SIZES), draw(SIZES))
    return lambda x, p: ops.SoftmaxCrossEntropyWithLogits()(x, p), [values(draw, shape), positive(draw, shape)]


def select(draw):
    shape = draw(SHAPES)
    condition = Tensor(np.random.default_rng(draw(st.integers(0, 99))).random(shape) > 0.5)
    return lambda x, y: ops.Select()(condition, x, y), [values(draw, broadcastable(draw)[0] and shape), values(draw, shape)]


def batch_matmul(draw):
    ta, tb = draw(st.booleans()), draw(st.booleans())
    m, k, n = (draw(SIZES) for _ in range(3))
    lead = [tuple(1 if draw(st.booleans()) else n for n in (2, 3))[draw(st.integers(0, 2)):] for _ in range(2)]
    a, b = (k, m) if ta else (m, k), (n, k) if tb else (k, n)
    return ops.BatchMatMul(ta, tb), [values(draw, (*lead[0], *a)), values(draw, (*lead[1], *b))]


def grouped(make):
    """A convolution (or one of its gradients) in groups: of 1, 2 or as many as there are channels."""
    def case(draw):
        kw, plane = window(draw)
        group, i, o = draw(st.integers(2, 3)), draw(FEW), draw(FEW)
        op = ops.Conv2D(group * o, group=group, **kw)
        x, w = values(draw, (draw(FEW), group * i, *plane)), values(draw, (group * o, i, *kw["kernel_size"]))
        return make(op, x, w, values(draw, op.infer(Tensor(x), Tensor(w)).shape))
    return case


def avg_pooling(draw):
    args, shape = pooling(draw)
    extra = draw(st.sampled_from([(True, None), (False, None), (True, 3)]))
    return (*args, *extra), shape


def avg_pool(draw):
    args, shape = avg_pooling(draw)
    return ops.AvgPool(*args), [values(draw, shape)]


def avg_pool_grad(draw):
    args, shape = avg_pooling(draw)
    out = ops.AvgPool(*args).infer(Tensor(np.zeros(shape))).shape
    return ops.AvgPoolGrad(*args, shape[2:]), [values(draw, out)]


def cumsum(draw):
    shape = draw(LONG)
    axis, op = axis_of(draw, shape), ops.CumSum(draw(st.booleans()), draw(st.booleans()))
    return lambda x: op(x, axis), [values(draw, shape)]


def picks(draw, shape, axis):
    """An index tensor of x's shape but along the axis."""
    n = shape[axis]
    target = list(shape)
    target[axis] = draw(SIZES)
    return Tensor(np.random.default_rng(draw(st.integers(0, 99))).integers(-n, n, target))


def gather_d(draw):
    shape = draw(LONG)
    axis = axis_of(draw, shape)
    index = picks(draw, shape, axis)
    return lambda x: ops.GatherD(axis)(x, index), [values(draw, shape)]


def gather_d_grad(draw):
    shape = draw(LONG)
    axis = axis_of(draw, shape)
    index = picks(draw, shape, axis)
    return lambda d: ops.GatherDGrad(axis, shape[axis])(index, d), [values(draw, index.shape)]


def log_likelihood(draw):
    lead, classes = draw(SHAPES), draw(SIZES)
    labels = Tensor(np.random.default_rng(draw(st.integers(0, 99))).integers(0, classes, lead))
    return lambda x: ops.NegativeLogLikelihood()(x, labels), [values(draw, (*lead, classes))]


def shaped(make, least=1):
    """A case from a function (draw, shape) -> function of x."""
    def case(draw):
        shape = draw(st.lists(SIZES, min_size=least, max_size=3).map(tuple))
        return make(draw, shape), [values(draw, shape)]
    return case


def channels(op, vectors, make=values):
    """x (n, c, …) and some vectors (c,)."""
    def case(draw):
        shape = (draw(SIZES), draw(FEW) * 2, *draw(SHAPES)[:2])
        return op, [values(draw, shape), *(make(draw, shape[1:2]) for _ in range(vectors))]
    return case


def batch_norm(draw):
    training = draw(st.booleans())
    shape = (draw(st.integers(2, 4)), draw(SIZES), *draw(SHAPES)[:2])
    mean, variance = Tensor(values(draw, shape[1:2])), Tensor(positive(draw, shape[1:2]))
    op = ops.BatchNorm(training, epsilon=0.1)
    return (lambda x, g, b: op(x, g, b, mean, variance)[0]), [values(draw, s) for s in (shape, shape[1:2], shape[1:2])]


def layer_norm(draw):
    shape = draw(LONG)
    axis = axis_of(draw, shape)
    tail = shape[axis:]
    op = ops.LayerNorm(axis, axis, 0.1)
    return op, [values(draw, shape), values(draw, tail), values(draw, tail)]


def rms_norm(draw):
    shape = draw(LONG)
    return ops.RmsNorm(0.1), [values(draw, shape), values(draw, shape[axis_of(draw, shape):])]


def prelu(draw):
    shape = (draw(SIZES), draw(SIZES), *draw(SHAPES)[:1])
    return ops.PReLU(), [values(draw, shape), values(draw, draw(st.sampled_from([(1,), shape[1:2]])))]


def masked(draw):
    shape = draw(SHAPES)
    mask = Tensor(np.random.default_rng(draw(st.integers(0, 99))).random(shape) > 0.5)
    return lambda x: ops.MaskedFill()(x, mask, 0.5), [values(draw, shape)]


def dropout(draw):
    """With the numbers of a fixed step, as a difference quotient needs it."""
    from minispore.ops.random import Keep, Random
    shape = draw(SHAPES)
    mask = Random(shape, Keep(0.5), np.dtype("float64"), ("test", 1))()
    return lambda x: x * mask, [values(draw, shape)]


def topk(k, x):
    return ops.TopK()(x, k)[0]


def tile(multiples, x):
    return ops.Tile()(x, multiples)


def between(low, high):
    return lambda draw, shape: values(draw, shape, low, high)


CASES = {
    "Abs": unary(ops.abs), "Neg": unary(ops.neg), "Exp": unary(ops.exp), "Log": unary(ops.log, positive),
    "Sqrt": unary(ops.sqrt, positive), "Square": unary(ops.square), "Tanh": unary(ops.tanh),
    "Sigmoid": unary(ops.sigmoid), "ReLU": unary(ops.relu),
    "ReLUGrad": binary(lambda d, y: ops.ReLUGrad()(d + 0 * y, ops.stop_gradient(y) + 0 * ops.stop_gradient(d))),
    "Add": binary(ops.add), "Sub": binary(ops.sub), "Mul": binary(ops.mul), "Div": binary(ops.div, values, positive),
    "Pow": binary(ops.pow, positive), "Maximum": extreme(ops.maximum), "Minimum": extreme(ops.minimum),
    "Cast": unary(lambda x: ops.cast(x * 2, np.dtype("float64"))), "Select": select,
    "ReduceSum": reduction(ops.ReduceSum), "ReduceMean": reduction(ops.ReduceMean), "ReduceMax": reduction(ops.ReduceMax),
    "ReduceMin": reduction(ops.ReduceMin), "ReduceProd": reduction(ops.ReduceProd),
    "MatMul": matmul, "MatMul_nd": matmul_nd, "Contract": contract, "BiasAdd": bias_add, "Conv2D": conv,
    "Conv2DBackpropInput": conv_input, "Conv2DBackpropFilter": conv_filter, "MaxPool": max_pool,
    "MaxPoolGrad": max_pool_grad, "MaxPoolGather": max_pool_gather, "Reshape": reshape, "Transpose": transpose,
    "BroadcastTo": broadcast_to, "Concat": concat, "StridedSlice": slicing, "StridedSliceGrad": strided_grad,
    "Gather": gather, "ScatterAdd": scatter_add, "Softmax": along_axis(ops.Softmax),
    "LogSoftmax": along_axis(ops.LogSoftmax), "SparseSoftmaxCrossEntropyWithLogits": sparse_cross_entropy,
    "SoftmaxCrossEntropyWithLogits": dense_cross_entropy, "Identity": unary(ops.identity),

    "Expm1": unary(ops.expm1), "ClampedLog": unary(ops.ClampedLog(), positive),
    "Log1p": unary(ops.log1p, positive), "Log2": unary(ops.log2, positive),
    "Rsqrt": unary(ops.rsqrt, positive), "Reciprocal": unary(ops.reciprocal, positive), "Erf": unary(ops.erf),
    "Sin": unary(ops.sin), "Cos": unary(ops.cos), "Tan": unary(ops.tan, between(-1.2, 1.2)),
    "Asin": unary(ops.asin, between(-0.8, 0.8)), "ACos": unary(ops.acos, between(-0.8, 0.8)), "Atan": unary(ops.atan),
    "Sinh": unary(ops.sinh), "Cosh": unary(ops.cosh), "Asinh": unary(ops.asinh),
    "Acosh": unary(ops.acosh, between(1.3, 3)), "Atanh": unary(ops.atanh, between(-0.8, 0.8)),
    "FloorMod": binary(ops.floor_mod, between(0.1, 0.4), between(1.5, 2)),

    "ReLU6": unary(ops.relu6), "LeakyReLU": unary(ops.leaky_relu), "Elu": unary(ops.elu), "GeLU": unary(ops.GeLU()),
    "GeLU_erf": unary(ops.gelu), "SiLU": unary(ops.silu), "Softplus": unary(ops.softplus), "PReLU": prelu,
    "SeLU": unary(ops.selu), "HSigmoid": unary(ops.hardsigmoid), "HSwish": unary(ops.hardswish), "Mish": unary(ops.mish),
    "LogSigmoid": unary(ops.logsigmoid), "Softsign": unary(ops.softsign),

    "BatchMatMul": batch_matmul, "Conv2D_groups": grouped(lambda op, x, w, d: (op, [x, w])),
    "Conv2DBackpropInput_groups": grouped(lambda op, x, w, d: (ops.Conv2DBackpropInput(op, x.shape), [d, w])),
    "Conv2DBackpropFilter_groups": grouped(lambda op, x, w, d: (ops.Conv2DBackpropFilter(op, w.shape), [d, x])),
    "AvgPool": avg_pool, "AvgPoolGrad": avg_pool_grad, "NegativeLogLikelihood": log_likelihood,
    "CumSum": cumsum, "GatherD": gather_d, "GatherDGrad": gather_d_grad,
    "Sort": along_axis(lambda a: lambda x: ops.Sort(a, True)(x)[0]), "Sort_up": along_axis(lambda a: lambda x: ops.Sort(a)(x)[0]),
    "TopK": shaped(lambda draw, s: partial(topk, draw(st.integers(1, s[-1])))),
    "ArgMaxWithValue": along_axis(lambda a: lambda x: ops.ArgMaxWithValue(a)(x)[1]),
    "ArgMinWithValue": along_axis(lambda a: lambda x: ops.ArgMinWithValue(a, True)(x)[1]),

    "BatchNorm": batch_norm, "LayerNorm": layer_norm, "RmsNorm": rms_norm,
    "GroupNorm": channels(ops.GroupNorm(2, 0.1), 2),
    "L2Normalize": along_axis(lambda a: ops.L2Normalize(a, 0.01)), "Dropout": dropout,

    "ExpandDims": along_axis(lambda a: lambda x: ops.ExpandDims()(x, a)),
    "Squeeze": unary(lambda x: ops.Squeeze(0)(ops.expand_dims(x, 0))),
    "Stack": along_axis(lambda a: lambda x: ops.Stack(a)((x, 2 * x, x * x))), "Unstack": along_axis(ops.Unstack),
    "Split": along_axis(lambda a: lambda x: ops.Split(a, x.shape[a])(x)),
    "Tile": shaped(lambda draw, s: partial(tile, tuple(draw(st.integers(1, 3)) for _ in range(len(s) + 1)))),
    "ReverseV2": along_axis(ops.ReverseV2),
    "Slice": shaped(lambda draw, s: lambda x: ops.Slice()(x, (s[0] - 1, *(0 for _ in s[1:])), (1, *(-1 for _ in s[1:])))),
    "Triu": shaped(lambda draw, s: ops.Triu(draw(st.integers(-2, 2))), 2),
    "Tril": shaped(lambda draw, s: ops.Tril(draw(st.integers(-2, 2))), 2), "MaskedFill": masked,
    "Depend": binary(lambda x, y: ops.depend(x, y) * 2 + 0 * y),
}

# Ops without a gradient to test: their values are integers, bools or constants, or they only carry others' gradients.
NOT_DIFFERENTIABLE = {
    "Argmax", "Argmin", "ArgSort", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd",
    "LogicalNot", "LogicalOr", "LogicalXor", "IsNan", "IsInf", "IsFinite", "OneHot", "Sign", "Floor", "Ceil", "Round", "Trunc",
    "FloorDiv", "ReduceAny", "ReduceAll", "StopGradient", "Fill", "Random", "Range", "ZerosLike", "OnesLike", "Assign",
    "AssignAdd", "AssignSub", "CustomGradient", "Print"}
COMMUNICATION = {"AllGather", "AllReduce", "AlltoAll", "Barrier", "Broadcast", "CollectiveGather", "CollectiveScatter",
                 "NeighborExchange", "Receive", "Reduce", "ReduceScatter", "Send"}
