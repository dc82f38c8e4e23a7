"""Convolutions with split rows or columns: they get their neighbours' rows by a halo exchange, and equal one device."""
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import minispore as ms
from minispore import Tensor, lab, nn, ops
from minispore.graph.compile import trace_call
from minispore.graph.passes import simplify
from minispore.ops.primitive import Piece
from minispore.ops.window import Line
from minispore.parallel.collectives import HaloOver, sent_values
from minispore.parallel.lockstep import LockStep
from minispore.parallel.logical import compile_graph
from minispore.parallel.mesh import Mesh


def weighted(y):
    return ops.sum(y * Tensor(np.cos(np.arange(y.size)).reshape(y.shape)))


def cut(fn, arrays, n):
    graph = simplify(trace_call(fn, *map(Tensor, arrays)))
    return graph, compile_graph(graph, Mesh(n))


def equals_one_device(fn, arrays, n):
    """fn's results on n ranks in lock-step; the program."""
    ms.set_context(mode=ms.GRAPH_MODE)
    whole = fn(*map(Tensor, arrays))
    graph, program = cut(fn, arrays, n)
    mine = LockStep(program, dict(zip(graph.inputs, arrays, strict=True))).run()
    flat = [whole[0], *whole[1]] if isinstance(whole, tuple) else [whole]
    for a, b in zip(mine, flat, strict=True):
        np.testing.assert_allclose(a, b.asnumpy(), rtol=1e-10, atol=1e-10)
    return program


def values(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=s) for s in shapes]


def step_of(op):
    """Value and both gradients."""
    return ms.value_and_grad(lambda x, w: weighted(op(x, w)), (0, 1))


CONVOLUTIONS = {
    # ranks, strategy of x, plane, kernel, the rest
    "same": (2, (1, 1, 2, 1), (8, 5), 3, dict(pad_mode="same")),
    "columns": (3, (1, 1, 1, 3), (4, 9), (1, 3), dict(pad_mode="same")),
    "all dims": (8, (2, 1, 2, 2), (8, 8), 3, dict(pad_mode="same")),
    "six": (6, (1, 1, 3, 2), (6, 8), 3, dict(pad_mode="same")),
    "channels too": (8, (1, 2, 4, 1), (8, 5), 3, dict(pad_mode="same")),
    "stride": (4, (1, 1, 4, 1), (16, 6), 3, dict(pad_mode="same", stride=2)),
    "stride over the kernel": (4, (1, 1, 2, 2), (12, 12), 2, dict(pad_mode="valid", stride=3)),
    "stride, no halo": (2, (1, 1, 2, 1), (8, 4), 1, dict(pad_mode="valid", stride=2)),
    "valid": (2, (1, 1, 2, 1), (10, 4), 3, dict(pad_mode="valid")),
    "valid, offsets grow": (4, (1, 1, 4, 1), (12, 3), (5, 1), dict(pad_mode="valid")),
    "dilation": (3, (1, 1, 3, 1), (9, 5), 3, dict(pad_mode="same", dilation=2)),
    "uneven padding": (4, (1, 1, 4, 1), (8, 4), (4, 2), dict(pad_mode="pad", pad=(3, 0, 1, 2))),
    "over several pieces": (8, (1, 1, 8, 1), (8, 4), (9, 1), dict(pad_mode="pad", pad=(4, 4, 0, 0))),
    "more padding than pieces": (4, (1, 1, 4, 1), (4, 2), (3, 1), dict(pad_mode="pad", pad=(5, 5, 0, 0))),
    "as one pixel": (4, (1, 1, 4, 1), (4, 4), 1, {}),
    "dilated over stride": (2, (1, 1, 2, 1), (12, 6), 3, dict(pad_mode="pad", pad=3, stride=2, dilation=3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_equals_one_device(name):
    n, strategy, plane, kernel, rest = CONVOLUTIONS[name]
    op = ops.Conv2D(4, kernel, **rest).shard((strategy, (1, strategy[1], 1, 1)))
    program = equals_one_device(step_of(op), values((2, 2, *plane), (4, 2, *op.kernel_size)), n)
    if strategy[:2] == (1, 1):              # x's rows serve the filter's gradient too; the others are those of out's gradient
        dims = sum(k > 1 for k in strategy[2:])
        assert program.collectives()["halo"] == {"as one pixel": 0, "stride, no halo": 1}.get(name, 2 * dims)


@pytest.mark.parametrize("strategy", [((1, 4, 2, 1), (4, 1, 1, 1)), ((1, 2, 2, 2), (2, 1, 1, 1)), ((2, 1, 1, 4), (1, 1, 1, 1))])
@pytest.mark.parametrize("out", [4, 8])
def test_groups(strategy, out):
    op = ops.Conv2D(out, 3, pad_mode="same", group=4).shard(strategy)
    equals_one_device(step_of(op), values((2, 4, 4, 8), (out, 1, 3, 3)), 8)


@settings(max_examples=200)
@given(st.data())
def test_any_geometry(data):
    """Any window, on 2 … 8 ranks: legal exactly if rows and columns of input and output are divisible, and then equal."""
    draw = data.draw
    n = draw(st.sampled_from([2, 3, 4, 6, 8]))
    cuts = draw(st.sampled_from([(a, b) for a in range(1, n + 1) for b in range(1, n + 1) if n % (a * b) == 0 and a * b > 1]))
    mode = draw(st.sampled_from(["same", "valid", "pad"]))
    op = ops.Conv2D(2, (draw(st.integers(1, 4)), draw(st.integers(1, 4))), pad_mode=mode,
                    pad=tuple(draw(st.integers(0, 3)) for _ in range(4)) if mode == "pad" else 0,
                    stride=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
                    dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2))))
    plane = tuple(c * draw(st.integers(1, 12 // c)) for c in cuts)
    top, bottom, left, right = op.window.pads(plane)
    assume(all(p + a >= s for p, a, s in zip(plane, (top + bottom, left + right), op.window.spans(), strict=True)))
    x, w = values((1, 2, *plane), (2, 2, *op.kernel_size))
    out = op.window.plane(plane, op, x.shape)
    step = step_of(op.shard(((1, 1, *cuts), (1, 1, 1, 1))))
    if any(p % c for p, c in zip(out, cuts, strict=True)):
        with pytest.raises(ValueError, match="for these shapes this op can split it only by"):
            cut(step, [x, w], n)
    else:
        equals_one_device(step, [x, w], n)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.integers(0, 5))
def test_lines(count, inner, outer, span, stride, low):
    """What a piece of the places sees, and which places see a piece of the values: by looking at each."""
    line = Line(count * inner, count * outer, span, stride, low)
    sizes = set()
    for k in range(count):
        first, many = line.seen(Piece(k, count))
        seen = [p * stride - low + t for p in range(k * outer, (k + 1) * outer) for t in range(span)]
        assert (first, first + many - 1) == (min(seen), max(seen))
        start, places = line.seeing(Piece(k, count))
        mine = set(range(k * inner, (k + 1) * inner))
        seeing = {p for p in range(-50, 100) if mine & set(range(p * stride - low, p * stride - low + span))}
        assert seeing <= set(range(start, start + places))
        before, after = line.padding(Piece(k, count))
        assert before >= 0 and after >= 0
        assert start * stride - low == k * inner - before                   # the local window begins where the whole one does
        assert (places - 1) * stride + span <= before + inner + after
        sizes.add((many, places))
    assert len(sizes) == 1


def test_second_derivative():
    op = ops.Conv2D(2, 3, pad_mode="same").shard(((1, 1, 4, 1), (1, 1, 1, 1)))
    slope = ms.grad(lambda x, w: weighted(op(x, w) * op(x, w)), (0, 1))
    equals_one_device(ms.value_and_grad(lambda x, w: sum(weighted(g) for g in slope(x, w)), (0, 1)),
                      values((1, 2, 8, 4), (2, 2, 3, 3)), 4)


def test_a_partial_image_stays_partial():
    """A convolution is linear: what is still to be summed over other ranks can be fetched as it is."""
    def net(x, w, k):
        a = ops.MatMul().shard(((1, 2), (2, 1)))(x, w)
        return ops.Conv2D(1, 3, pad_mode="same").shard(((1, 1, 2, 1), (1, 1, 1, 1)))(ops.reshape(a, (1, 1, 8, 6)), k)
    equals_one_device(lambda *xs: weighted(net(*xs)), values((8, 4), (4, 6), (1, 1, 3, 3)), 4)


def test_split_rows_pass_on():
    """An image whose rows are split is convolved as it lies: exchanging rows is cheaper than gathering it, and thriftier."""
    def net(x, w):
        x = ops.ReLU().shard(((1, 1, 4, 1),))(x)
        return ops.relu(ops.Conv2D(4, 3, pad_mode="same")(ops.relu(ops.Conv2D(4, 3, pad_mode="same")(x, w)), w))
    program = equals_one_device(lambda x, w: weighted(net(x, w)), values((1, 4, 16, 16), (4, 4, 3, 3)), 4)
    assert program.collectives() == {"halo": 2, "all_reduce": 1}


def test_pooling_keeps_its_plane_whole():
    with pytest.raises(ValueError, match=r"^MaxPool .* splits dim 2 of input 0 .* by 2, but this op needs that dim whole"):
        cut(ops.MaxPool(2, 2).shard(((1, 1, 2, 1),)), values((1, 1, 8, 8)), 2)

    def net(x, w):
        y = ops.Conv2D(2, 3, pad_mode="same").shard(((1, 1, 2, 1), (1, 1, 1, 1)))(x, w)
        return ops.MaxPool(2, 2)(y)
    equals_one_device(ms.value_and_grad(lambda x, w: weighted(net(x, w)), (0, 1)), values((1, 2, 8, 8), (2, 2, 3, 3)), 2)


@pytest.mark.parametrize(("plane", "cuts", "says"), [
    ((8, 8), (4, 1), r"dim 2 of input 0 \(shape \(2, 3, 8, 8\)\) by 4, but for these shapes this op can split it only by 1 or 2"),
    ((9, 8), (2, 1), "by 2, which does not divide 9"),
    ((9, 8), (1, 4), "dim 3 of input 0 .* by 4, but for these shapes this op can split it only by 1 or 2: what belongs to it in "
                     "the op's other tensors must be divisible too"),
])
def test_where_the_geometry_forbids_it(plane, cuts, says):
    op = ops.Conv2D(4, 3).shard(((1, 1, *cuts), (1, 1, 1, 1)))
    with pytest.raises(ValueError, match=rf"^Conv2D \(test_halo.py:\d+\): strategy .*{says}"):
        cut(op, values((2, 3, *plane), (4, 3, 3, 3)), 4)
    with pytest.raises(ValueError, match="input 1 .* by 3, but this op needs that dim whole"):
        cut(ops.Conv2D(4, 3).shard(((1, 1, 1, 1), (1, 1, 3, 1))), values((2, 3, *plane), (4, 3, 3, 3)), 3)


def test_only_neighbours_send_and_only_their_rows():
    op = ops.Conv2D(4, 3, pad_mode="same").shard(((1, 1, 4, 1), (1, 1, 1, 1)))
    _, program = cut(op, values((2, 3, 16, 5), (4, 3, 3, 3)), 4)
    for rank, rows in enumerate([1, 2, 2, 1]):
        node, = (n for n in program.for_rank(rank).nodes if isinstance(n.op, HaloOver))
        assert node.outs[0].shape == (2, 3, 6, 5)
        assert sent_values(node.op, node.outs[0].shape) == rows * 2 * 3 * 5


class Net(nn.Cell):
    def __init__(self, *strategies):
        super().__init__()
        self.first, self.second = (ops.Conv2D(3, 3, pad_mode="same", stride=s) for s in (1, 2))
        for op, strategy in zip((self.first, self.second), strategies, strict=False):
            op.shard(strategy)
        a, b = values((3, 2, 3, 3), (3, 3, 3, 3))
        self.a, self.b = ms.Parameter(a, name="a"), ms.Parameter(b, name="b")

    def construct(self, x):
        return weighted(self.second(ops.tanh(self.first(x, self.a)), self.b))


def test_on_thread_ranks():
    """Rows and columns split, so that corners travel too: three steps of SGD equal one rank's."""
    x, = values((2, 2, 8, 12))

    def train(net):
        step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.01))
        return [float(step(Tensor(x)).asnumpy()) for _ in range(3)], [p.full().asnumpy() for p in net.trainable_params()]

    def rank():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
        return train(Net(((1, 1, 2, 3), (1, 1, 1, 1)), ((1, 1, 2, 3), (1, 1, 1, 1))))
    losses, weights = train(Net())
    for mine, their_weights in lab.run_ranks(rank, 6):
        np.testing.assert_allclose(mine, losses, rtol=1e-10)
        for a, b in zip(their_weights, weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
