"""Strategies that are wrong: each message says which op and line, which input, what was asked, what there is, and what would do.

And strategies that are right though they look odd, and composites, which are sharded by pinning their inputs.
"""
import re
import warnings

import numpy as np
import pytest

import minispore as ms
from minispore import Tensor, lab, nn, ops
from minispore.common.state import current
from minispore.graph.compile import trace_call
from minispore.graph.passes import simplify
from minispore.ops.primitive import Primitive
from minispore.ops.strategy import Layout
from minispore.parallel.layout import device_arrangement, local_shape
from minispore.parallel.lockstep import LockStep
from minispore.parallel.logical import compile_graph
from minispore.parallel.mesh import Mesh

LINE = r"\(test_layout_messages\.py:\d+\)"
NAMED = Layout((2, 2, 2), ("dp", "sp", "mp"))


def cut(fn, *shapes, n=8):
    """fn of tensors of these shapes, compiled for n devices."""
    arrays = [np.ones(s) if isinstance(s, tuple) else s for s in shapes]
    return compile_graph(simplify(trace_call(fn, *map(Tensor, arrays))), Mesh(n))


def input_layouts(program):
    return [str(program.plan.layout[v]) for v in program.graph.inputs]


def matmul(ins, outs=None, transpose_b=False):
    return lambda x, w: ops.MatMul(False, transpose_b).shard(ins, outs)(x, w)


def semi_auto(fn, n=2):
    """fn on thread ranks in semi-auto mode."""
    def rank():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
        return fn()
    return lab.run_ranks(rank, n)


def refused(match, fn, *shapes, n=8, kind=ValueError):
    with pytest.raises(kind, match=match):
        cut(fn, *shapes, n=n)


# ---- what is wrong before any shape is known -------------------------------------------------------------

@pytest.mark.parametrize(("strategy", "kind", "says"), [
    ([(2, 1), (1, 1)], TypeError, r"in_strategy \[\(2, 1\), \(1, 1\)\] is a list; give a tuple with one tuple an input"),
    ("x", TypeError, "is a str; give a tuple"),
    ((2, 1), TypeError, r"entry 0 of in_strategy \(2, 1\) is 2; .*mind the outer tuple: \(\(2, 1\),\) for one input"),
    (((2, 1), [1, 1]), TypeError, r"entry 1 .* is \[1, 1\]; each must be a tuple"),
    (((2.0, 1), (1, 1)), TypeError, r"entry 0 .* holds 2.0; split counts are whole numbers"),
    (((True, 1), (1, 1)), TypeError, "entry 0 .* holds True; split counts are whole numbers"),
    (((2, None), (1, 1)), TypeError, "entry 0 .* holds None; split counts are whole numbers"),
    (((1, 1), (0, 1)), ValueError, r"entry 1 .* holds 0; a split count is at least 1 \(1: not split\)"),
    (((1, 1), (1, -2)), ValueError, "entry 1 .* holds -2; a split count is at least 1"),
    ((NAMED("dp", "None"), (1, 1)), TypeError, "mixes tuples and layouts; use one kind"),
])
@pytest.mark.parametrize("op", [ops.MatMul, ops.LayerNorm], ids=["primitive", "composite"])
def test_form(op, strategy, kind, says):
    with pytest.raises(kind, match=f"^{op.__name__}.shard: .*{says}"):
        op().shard(strategy)


def test_form_of_the_out_strategy():
    with pytest.raises(TypeError, match="out_strategy .* is a list; give a tuple with one tuple an output"):
        ops.ReLU().shard(((2, 1),), [(2, 1)])


def test_an_input_that_nothing_is_asked_of():
    assert input_layouts(cut(matmul(((2, 1), None)), (32, 32), (32, 64)))[0] == "(a, -)"
    assert input_layouts(cut(matmul((None, (1, 4))), (32, 32), (32, 64)))[1] == "(-, ab)"


@pytest.mark.parametrize(("args", "kind", "says"), [
    (([2, 2], ("a", "b")), TypeError, r"device_matrix \[2, 2\] is a list; give a tuple"),
    (((2, 2), ["a", "b"]), TypeError, "alias_name .* is a list; give a tuple"),
    (((2, 2.0), ("a", "b")), TypeError, "device_matrix .* holds 2.0; it takes ints"),
    (((2, 2), ("a", 1)), TypeError, "alias_name .* holds 1; it takes strs"),
    (((2, 2), ("a",)), ValueError, "has 2 axes, alias_name .* 1; give each axis one name"),
    (((2, 0), ("a", "b")), ValueError, "must be whole numbers ≥ 1"),
    (((2, 2), ("a", "")), ValueError, "must be different names, none empty and none 'None'"),
    (((2, 2), ("a", "None")), ValueError, "must be different names"),
    (((2, 2), ("a", "a")), ValueError, "must be different names"),
    (((2, 2), ("a", "b"), (0, 2, 1, 3)), ValueError, "only the ranks 0 … 3 in order"),
])
def test_layout_constructor(args, kind, says):
    with pytest.raises(kind, match=f"^Layout: .*{says}"):
        Layout(*args)


@pytest.mark.parametrize(("entries", "kind", "says"), [
    (("dp", "tp"), ValueError, "'tp' in .* is unknown; the axes are dp, sp, mp"),
    (("dp", "dp"), ValueError, "axis 'dp' splits the tensor twice"),
    ((("dp", "sp"), "sp"), ValueError, "axis 'sp' splits the tensor twice"),
    (("dp", 1), TypeError, "holds 1; each dim takes a name, a tuple of names or 'None'"),
    (("dp", None), TypeError, "holds None; each dim takes"),
])
def test_layout_of_a_tensor(entries, kind, says):
    with pytest.raises(kind, match=says):
        NAMED(*entries)


# ---- what is wrong for these shapes and devices ----------------------------------------------------------

@pytest.mark.parametrize(("ins", "says"), [
    (((2, 1),), r"\(\(2, 1\),\) has 1 entries for 2 inputs of shape \(32, 32\), \(32, 64\); give one tuple an input"),
    (((2, 1, 1), (1, 1)), r"gives input 0 of shape \(32, 32\) the 3 counts \(2, 1, 1\); give one count a dim"),
    (((3, 1), (1, 1)), r"splits dim 0 of input 0 \(shape \(32, 32\)\) by 3, which does not divide 32"),
    (((1, 1), (1, 5)), r"splits dim 1 of input 1 \(shape \(32, 64\)\) by 5, which does not divide 64"),
    (((4, 1), (1, 4)), "needs 16 devices, which does not divide the 8 there are"),
    (((2, 2), (4, 1)), r"splits dim 0 of input 1 \(shape \(32, 64\)\) by 4, but dim 1 of input 0, which belongs to it, by 2; "
                       "they must agree"),
    ((NAMED("dp", "sp"), NAMED("mp", "None")),
     r"splits dim 0 of input 1 \(shape \(32, 64\)\) over 'mp', but dim 1 of input 0, which belongs to it, otherwise; they must"),
    ((NAMED("dp", "sp"), NAMED("sp", "dp")),
     r"splits dim 1 of input 1 \(shape \(32, 64\)\) over 'dp', an axis that splits dim 0 of input 0 already; an axis can"),
    ((NAMED("dp"), NAMED("sp", "mp")), r"gives input 0 of shape \(32, 32\) the layout .* of 1 dims; give each dim an entry"),
    ((Layout((2, 2), ("a", "b"))("a", "None"), None),
     "whose device matrix has 4 devices; make their product the number of devices"),
])
def test_strategy_that_does_not_fit(ins, says):
    refused(rf"^MatMul {LINE}: strategy .*{says}.* On 8 devices the nearest legal strategy is \(\(", matmul(ins),
            (32, 32), (32, 64))


@pytest.mark.parametrize(("outs", "says"), [
    (((2, 1), (2, 1)), "has 2 entries for 1 outputs; give one tuple an output"),
    (((2, 1, 1),), r"gives output 0 of shape \(32, 64\) the 3 counts \(2, 1, 1\); give one count a dim"),
    (((3, 1),), r"splits output 0 of shape \(32, 64\) by \(3, 1\): that needs 3 devices, which does not divide the 8 there are"),
    (((4, 4),), "that needs 16 devices"),
    ((NAMED("dp"),), r"gives output 0 of shape \(32, 64\) the layout .* of 1 dims"),
])
def test_out_strategy_that_does_not_fit(outs, says):
    refused(f"^MatMul {LINE}: strategy .*{says}", matmul(((2, 1), (1, 1)), outs), (32, 32), (32, 64))


def test_out_strategy_that_does_not_divide():
    refused(r"splits output 0 of shape \(6, 8\) by \(4, 1\), which does not divide it", matmul(((2, 1), (1, 1)), ((4, 1),)),
            (6, 8), (8, 8))


@pytest.mark.parametrize(("asked", "near"), [
    (((2, 2), (4, 1)), ((2, 2), (2, 1))), (((4, 1), (1, 4)), ((2, 1), (1, 4))), (((3, 1), (1, 1)), ((4, 1), (1, 1))),
    ((NAMED("dp", "sp"), NAMED("mp", "None")), ((2, 2), (2, 1))),
])
def test_the_nearest_legal_strategy_is_near_and_legal(asked, near):
    with pytest.raises(ValueError) as e:
        cut(matmul(asked), (32, 32), (32, 64))
    assert str(e.value).endswith(f"the nearest legal strategy is {near}")
    cut(matmul(near), (32, 32), (32, 64))


def test_a_dim_that_must_be_whole():
    whole = r"splits dim 1 of input 0 \(shape \(32, 8\)\) by 2, but this op needs that dim whole"
    nearest = r"the nearest legal strategy is \(\(4, 1\),\)"
    refused(rf"^Softmax {LINE}: .*{whole}. On 8 devices {nearest}", lambda x: ops.Softmax().shard(((4, 2),))(x), (32, 8))
    refused(rf"^LogSoftmax {LINE}: .*{whole}", lambda x: ops.LogSoftmax().shard(((4, 2),))(x), (32, 8))
    refused(rf"^SoftmaxCrossEntropyWithLogits {LINE}: .*{whole}",
            lambda x, y: ops.SoftmaxCrossEntropyWithLogits().shard(((4, 2), (4, 2)))(x, y)[0], (32, 8), (32, 8))
    refused(rf"^L2Normalize {LINE}: .*{whole}. On 8 devices {nearest}", lambda x: ops.L2Normalize(1).shard(((4, 2),))(x), (32, 8))
    refused(rf"^TopK {LINE}: .*{whole}", lambda x: ops.TopK().shard(((4, 2),))(x, 3)[0], (32, 8))


def test_a_parameter_with_two_layouts():
    w = ms.Parameter(np.ones((32, 32)), name="w")

    def net(x):
        return ops.MatMul().shard(((2, 1), (1, 4)))(ops.MatMul().shard(((2, 1), (1, 2)))(x, w), w)
    refused(rf"^parameter w of shape \(32, 32\) would need two layouts on 8 devices: \(-, b\) by MatMul {LINE} with strategy "
            rf"\(\(2, 1\), \(1, 2\)\), and \(-, bc\) by MatMul {LINE} with strategy \(\(2, 1\), \(1, 4\)\). Give both strategies",
            net, (32, 32))


def test_a_parameter_tied_through_a_cast():
    w = ms.Parameter(np.ones((32, 32)), name="w")

    def net(x):
        a = ops.MatMul().shard(((1, 2), (2, 1)))(x, w)
        return ops.MatMul(transpose_b=True).shard(((1, 4), (1, 4)))(ops.cast(a, ms.float32), ops.cast(w, ms.float32))
    refused("parameter w .* would need two layouts", net, (32, 32))


def test_equal_counts_over_different_axes_agree():
    """Row-major, the two strategies alone would take axis a and axis b for the parameter; one of them can take the other's."""
    w = ms.Parameter(np.ones((32, 32)), name="w")
    program = cut(lambda x: ops.MatMul().shard(((2, 2), (2, 1)))(ops.MatMul().shard(((1, 2), (2, 1)))(x, w), w), (32, 32))
    layout, = (program.plan.layout[v] for v in program.graph.parameters.values())
    assert layout.dims[0] and all(node_wants == layout for node, wants in program.plan.want.items() for v, node_wants
                                  in zip(node.ins, wants, strict=True) if v in program.graph.parameters.values())


class Odd(Primitive):
    def forward(self, x):
        return x


def test_an_op_without_a_rule():
    with pytest.warns(UserWarning) as seen:
        program = cut(lambda x: Odd()(Odd()(ops.ReLU().shard(((8, 1),))(x))), (32, 8))
    assert len(seen) == 1
    assert re.match(f"Odd {LINE} has no sharding rule, so it is computed on whole tensors on every rank", str(seen[0].message))
    assert program.collectives() == {"all_gather": 1}


def test_ranks_warn_once():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert semi_auto(lambda: ms.jit(lambda x: Odd()(x))(Tensor(np.ones((4, 4)))).shape) == [(4, 4)] * 2
    assert sum("no sharding rule" in str(w.message) for w in seen) == 1


@pytest.mark.parametrize("op", [ops.AllReduce, ops.AllGather, ops.ReduceScatter], ids=lambda op: op.__name__)
def test_communication_in_a_logical_program(op):
    with pytest.raises(TypeError, match=rf"^{op.__name__} {LINE}: a communication op inside a logical program; .* use "
                                        "hybrid_parallel mode"):
        semi_auto(lambda: ms.jit(lambda x: op()(x))(Tensor(np.ones((8, 8)))))


class Branching(nn.Cell):
    def construct(self, x):
        if ops.sum(x) > 0:
            x = -x
        return x


def test_a_branch_on_a_tensor():
    with pytest.raises(ms.TraceError, match=r"branch .* at test_layout_messages.py:\d+ on the output of Greater, a tensor of "
                                            r"shape \(\), .* ops.select\(condition, a, b\), or use hybrid_parallel or"):
        semi_auto(lambda: Branching()(Tensor(np.ones((4, 4)))))


def test_messages_name_the_cell_and_reach_the_script():
    class Net(nn.Cell):
        def __init__(self, inner=None):
            super().__init__()
            self.softmax, self.inner = ops.Softmax().shard(((1, 2),)), inner

        def construct(self, x):
            return self.inner(x) if self.inner else self.softmax(x)
    with pytest.raises(ValueError, match=rf"^Softmax of cell Net.inner {LINE}: strategy .* dim 1 of input 0 .* whole. On 2"):
        semi_auto(lambda: Net(Net())(Tensor(np.ones((4, 8)))))


# ---- what is right ---------------------------------------------------------------------------------------

def test_layout_of_a_transposed_weight():
    program = cut(matmul(((2, 1), (4, 1)), transpose_b=True), (32, 32), (64, 32))
    w = program.plan.layout[program.graph.inputs[1]]
    assert (*device_arrangement(Mesh(8), w), list(local_shape(Mesh(8), (64, 32), w))) == ([2, 4], [0, -1], [16, 32])


def test_24_devices():
    assert input_layouts(cut(matmul(((3, 8), (8, 1))), (24, 32), (32, 64), n=24)) == ["(d, abc)", "(abc, -)"]


def test_layer_norm():
    def norm(*ins):
        return lambda x, gamma, beta: ops.LayerNorm(3, 1).shard(ins)(x, gamma, beta)[0]
    shapes = (16, 64, 32, 16), (64, 32, 16), (64, 32, 16)
    assert input_layouts(cut(norm((2, 8, 1, 1), (8, 1, 1), (8, 1, 1)), *shapes, n=16)) == \
        ["(a, bcd, -, -)", "(bcd, -, -)", "(bcd, -, -)"]
    refused(rf"^LayerNorm {LINE}: strategy .* splits dim 3 of input 0 \(shape \(16, 64, 32, 16\)\) by 2, but this op needs that "
            r"dim whole. On 16 devices the nearest legal strategy is \(\(2, 4, 1, 1\), \(4, 1, 1\), \(4, 1, 1\)\)",
            norm((2, 4, 1, 2), (4, 1, 2), (4, 1, 2)), *shapes, n=16)
    refused(r"splits dim 0 of input 1 \(shape \(64, 32, 16\)\) by 4, but dim 1 of input 0, which belongs to it, by 8",
            norm((2, 8, 1, 1), (4, 1, 1), (8, 1, 1)), *shapes, n=16)


def test_out_layout_makes_a_reduce_scatter():
    def out(*outs):
        program = cut(matmul((NAMED("dp", "sp"), NAMED("sp", "mp")), *outs), (32, 32), (32, 64))
        v, = program.graph.outputs
        return str(program.plan.settle[v]), [m.op for m in program.moves() if m.op != "all_gather"]
    assert out() == ("(a, c)", ["all_reduce"])
    assert out((NAMED(("dp", "sp"), "mp"),)) == ("(ab, c)", ["reduce_scatter"])
    assert out(((4, 2),)) == ("(ab, c)", ["reduce_scatter"])


# ---- composites ------------------------------------------------------------------------------------------

COMPOSITES = {
    "LayerNorm": (lambda x, g, b: ops.LayerNorm(2, 2).shard(((2, 2, 1), (1,), (1,)))(x, g, b)[0], (4, 6, 8), (8,), (8,)),
    "LayerNorm_out": (lambda *xs: ops.LayerNorm(2, 2).shard(((2, 2, 1), (1,), (1,)), ((1, 2, 4), (2, 2, 1), None))(*xs)[0],
                      (4, 6, 8), (8,), (8,)),
    "RmsNorm": (lambda x, g: ops.RmsNorm().shard(((4, 2, 1), (1,)))(x, g)[0], (4, 6, 8), (8,)),
    "GroupNorm": (lambda x, g, b: ops.GroupNorm(2).shard(((4, 1, 1, 1), (1,), (1,)))(x, g, b)[0], (4, 6, 2, 2), (6,), (6,)),
    "BatchNorm": (lambda x, g, b, m, v: ops.BatchNorm(True).shard(((2, 2, 2, 1), (2,), (2,), (2,), (2,)))(x, g, b, m, v)[0],
                  (4, 6, 2, 2), (6,), (6,), (6,), (6,)),
    "L2Normalize": (lambda x: ops.L2Normalize(1).shard(((2, 1, 4),))(x), (4, 6, 8)),
    "Dropout": (lambda x: ops.Dropout(0.5).shard(((2, 4),))(x)[0], (8, 8)),
    "TopK": (lambda x: ops.TopK().shard(((4, 1),))(x, 3)[0], (8, 8)),
    "Sort": (lambda x: ops.Sort(0).shard(((1, 4),))(x)[0], (8, 8)),
    "PReLU": (lambda x, w: ops.PReLU().shard(((2, 4), (4,)))(x, w), (8, 8), (8,)),
    "HSwish": (lambda x: ops.HSwish().shard(((2, 4),))(x), (8, 8)),
    "Stack": (lambda x, y: ops.Stack(1).shard(((2, 4), (2, 4)))((x, y)), (8, 8), (8, 8)),
    "Split": (lambda x: ops.Split(1, 2).shard(((4, 1),))(x)[1], (8, 8)),
    "Tile": (lambda x: ops.Tile().shard(((4, 2),))(x, (2, 1)), (8, 8)),
    "MaskedFill": (lambda x, y: ops.MaskedFill().shard(((2, 4), (2, 4)))(x, y > 0, 3.0), (8, 8), (8, 8)),
    "ArgMaxWithValue": (lambda x: ops.ArgMaxWithValue(1).shard(((8, 1),))(x)[1], (8, 8)),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_are_pinned_and_equal_one_device(name):
    fn, *shapes = COMPOSITES[name]
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=s) for s in shapes]

    def loss(*xs):
        out = fn(*xs)
        return ops.sum(out * Tensor(np.cos(np.arange(out.size)).reshape(out.shape)))
    step = ms.value_and_grad(loss, tuple(range(len(shapes))))
    ms.set_context(mode=ms.GRAPH_MODE)
    value, grads = step(*map(Tensor, arrays))
    current().steps = 0                     # the masks of the first step again
    graph = simplify(trace_call(step, *map(Tensor, arrays)))
    program = compile_graph(graph, Mesh(8))
    pinned = next(node for node in graph.nodes if node.op.name == name.split("_")[0])
    strategy = pinned.op.strategy.ins
    for v, layout, counts in zip(pinned.ins, program.plan.want[pinned], strategy, strict=True):
        assert tuple(Mesh(8).count(axes) for axes in layout.dims) == counts, v
    results = LockStep(program, dict(zip(graph.inputs, arrays, strict=True))).run()
    for mine, whole in zip(results, [value, *grads], strict=True):
        np.testing.assert_allclose(mine, whole.asnumpy(), rtol=1e-10, atol=1e-10)
    assert not any(node.op.name == pinned.op.name for node in program.for_rank(0).nodes)       # a pin costs nothing


def test_out_strategy_of_a_composite():
    def norm(*outs):
        return lambda x: ops.L2Normalize(1).shard(((4, 1),), outs)(x)
    program = cut(norm((1, 4)), (8, 8))
    assert program.collectives()["all_to_all"] == 1
    refused(r"^L2Normalize.shard: out_strategy \(\(1, 4\), None\) has 2 entries for 1 outputs", norm((1, 4), None), (8, 8))
    refused(rf"^L2Normalize, output 0 {LINE}: strategy \(\(3, 1\),\) splits dim 0 of input 0 \(shape \(8, 8\)\) by 3",
            norm((3, 1)), (8, 8))


def test_moving_statistics_of_a_sharded_batch_norm():
    """The moving mean is a Parameter that the op assigns: it is laid out as asked, and still gets its new value."""
    x = np.random.default_rng(0).normal(size=(4, 6, 3, 3))

    def rank():
        scale, bias, mean, variance = (ms.Parameter(np.full(6, v, float), name=n) for n, v in
                                       (("gamma", 1), ("beta", 0), ("mean", 0), ("variance", 1)))
        norm = ops.BatchNorm(True).shard(((2, 2, 1, 1), (2,), (2,), (2,), (2,)))
        y = ms.jit(lambda x: norm(x, scale, bias, mean, variance)[0])(Tensor(x))
        return y.asnumpy(), mean.shape, mean.full().asnumpy()
    for y, shape, mean in semi_auto(rank, 4):
        assert shape == (3,)
        np.testing.assert_allclose(mean, 0.1 * x.mean((0, 2, 3)), rtol=1e-12)
        np.testing.assert_allclose(y.mean((0, 2, 3)), 0, atol=1e-12)
