"""Every op: its gradient against difference quotients, its rule against slices, eager against graph, portable against CPU."""
import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import CASES, COMMUNICATION, NOT_DIFFERENTIABLE, basic_index

import minispore as ms
from minispore import Tensor, ops
from minispore.graph.compile import trace_call
from minispore.ops.primitive import Composite, Piece, Primitive, specs

EXAMPLES = settings(max_examples=40)


def weighted(fn):
    """fn's outputs times fixed numbers, summed: a scalar whose gradient sees every output element."""
    def scalar(*xs):
        out, total = fn(*xs), 0
        for t in out if isinstance(out, tuple) else (out,):
            total = total + ops.sum(t * Tensor(np.cos(np.arange(t.size, dtype=float)).reshape(t.shape)))
        return total
    return scalar


def numeric_gradient(f, arrays, k, eps=1e-6):
    x, grad = arrays[k], np.zeros_like(arrays[k])
    for i in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[k][i] += sign * eps
            ends.append(float(f(*map(Tensor, moved))))
        grad[i] = (ends[0] - ends[1]) / (2 * eps)
    return grad


@pytest.mark.parametrize("name", CASES)
@EXAMPLES
@given(st.data())
def test_gradient_is_the_difference_quotient(name, data):
    fn, arrays = CASES[name](data.draw)
    f = weighted(fn)
    grads = ms.grad(f, tuple(range(len(arrays))))(*map(Tensor, arrays))
    for k, g in enumerate(grads):
        np.testing.assert_allclose(g.asnumpy(), numeric_gradient(f, arrays, k), rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(st.data())
def test_second_derivative_is_the_difference_quotient_of_the_first(name, data):
    fn, arrays = CASES[name](data.draw)
    slope = ms.grad(weighted(fn))
    f = weighted(slope)
    g = ms.grad(f)(*map(Tensor, arrays))
    np.testing.assert_allclose(g.asnumpy(), numeric_gradient(f, arrays, 0), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(st.data())
def test_graph_equals_eager(name, data):
    fn, arrays = CASES[name](data.draw)
    step = ms.value_and_grad(weighted(fn), tuple(range(len(arrays))))
    results = []
    for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
        ms.set_context(mode=mode)
        value, grads = step(*map(Tensor, arrays))
        results.append([value.asnumpy(), *(g.asnumpy() for g in grads)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def nodes_with_data(fn, arrays):
    """(node, input arrays, output arrays) of the graph of fn and its gradient."""
    graph = trace_call(ms.value_and_grad(weighted(fn), tuple(range(len(arrays)))), *map(Tensor, arrays))
    at = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        ins = [at[v] if v in at else v.array for v in node.ins]
        out = node.op.compute(node.op.infer(*node.ins), ins)
        outs = [out] if node.single else out
        at.update(zip(node.outs, outs, strict=True))
        yield node, ins, outs


# Cases whose functions hold float64 tensors of their own.
OF_FLOAT64 = {"MaxPoolGrad", "MaxPoolGather", "BatchNorm", "Dropout", "Cast"}


@pytest.mark.parametrize(("dtype", "close"), [(ms.float32, 1e-4), (ms.float16, 2e-2), (ms.bfloat16, 1e-1)],
                         ids=["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(set(CASES) - OF_FLOAT64))
@settings(max_examples=4)
@given(st.data())
def test_other_dtypes_stay_what_they_are_and_are_near(name, dtype, close, data):
    fn, arrays = CASES[name](data.draw)
    arrays = [Tensor(a, dtype) for a in arrays]
    wide = [a.astype(ms.float64) for a in arrays]
    def results(xs):
        out = fn(*xs)
        first = out[0] if isinstance(out, tuple) else out
        return [*(out if isinstance(out, tuple) else [out]),
                *ms.grad(lambda *xs: ops.sum(f[0] if isinstance(f := fn(*xs), tuple) else f), tuple(range(len(xs))))(*xs)], first
    (mine, first), (exact, _) = results(arrays), results(wide)
    assert first.dtype == dtype
    for a, b in zip(mine, exact, strict=True):
        assert a.dtype in (dtype, b.dtype if b.dtype.kind != "f" else dtype)
        b = b.asnumpy()
        np.testing.assert_allclose(a.asnumpy().astype(float), b, rtol=close, atol=close * max(1.0, np.abs(b).max(initial=0)))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(st.data())
def test_rules_hold_on_slices(name, data):
    """Split one factor: the pieces' results, joined or reduced as the rule says, are the whole's."""
    for node, ins, outs in nodes_with_data(*CASES[name](data.draw)):
        op = node.op
        rule = op.bound_rule([x.shape for x in ins], [o.shape for o in outs])
        for factor in rule.factors():
            terms = [*rule.ins, *rule.outs]
            if rule.sizes[factor] < 2 or any(factor in dim[1:] for term in terms for dim in term):
                continue                    # inner factors of a compound dim aren't contiguous slices
            count = next(p for p in range(2, 99) if rule.sizes[factor] % p == 0)
            parts = [split_run(op, rule, factor, Piece(i, count), ins) for i in range(count)]
            for k, (term, whole) in enumerate(zip(rule.outs, outs, strict=True)):
                where = [d for d, dim in enumerate(term) if dim and dim[0] == factor]
                pieces = [p[k] for p in parts]
                joined = np.concatenate(pieces, where[0]) if where else combine(op, rule, factor, pieces)
                np.testing.assert_allclose(joined, whole, rtol=1e-9, atol=1e-9, err_msg=f"{op} factor {factor}")


def split_run(op, rule, factor, piece, ins):
    local, windows = op.local(rule, {factor: piece}), op.windows(rule, {factor: piece})
    cut = []
    for i, (x, term) in enumerate(zip(ins, rule.ins, strict=True)):
        for d, dim in enumerate(term):
            if (i, d) in windows:
                x = window_of(x, d, *windows[i, d])
            elif dim and dim[0] == factor:
                x = np.split(x, piece.count, d)[piece.index]
        cut.append(np.array(x, order="C"))
    out = local.compute(local.infer(*map(Tensor.from_numpy, cut)), cut)
    return out if isinstance(out, list) else [out]


def window_of(x, d, first, many):
    """`many` entries of dim d from `first` on, zeros outside."""
    before, after = max(-first, 0), max(first + many - x.shape[d], 0)
    wide = np.pad(x, [(before, after) if k == d else (0, 0) for k in range(x.ndim)])
    return wide.take(range(first + before, first + before + many), d)


def combine(op, rule, factor, pieces):
    kinds = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
    return kinds[op.reduction].reduce(pieces)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5)
@given(st.data())
def test_declared_linearity_holds(name, data):
    """op(a + b) = op(a) + op(b) in each group of inputs that may be partial together."""
    for node, ins, outs in nodes_with_data(*CASES[name](data.draw)):
        for group in node.op.linear:
            group = [i for i in group if i < len(ins)]
            if any(ins[i].dtype.kind != "f" for i in group):
                continue
            halves = [[x * share if i in group else x for i, x in enumerate(ins)] for share in (0.25, 0.75)]
            sums = [node.op.compute(node.op.infer(*node.ins), h) for h in halves]
            for k, whole in enumerate(outs):
                a, b = (s if node.single else s[k] for s in sums)
                np.testing.assert_allclose(a + b, whole, rtol=1e-9, atol=1e-12, err_msg=str(node.op))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5)
@given(st.data())
def test_ops_that_may_overwrite_an_input_do_it_well(name, data):
    for node, ins, outs in nodes_with_data(*CASES[name](data.draw)):
        for i, x in enumerate(ins) if node.op.overwrites else ():
            if x.shape == outs[0].shape and x.dtype == outs[0].dtype:
                mine = [a.copy() for a in ins]
                with np.errstate(all="ignore"):
                    node.op.runner((*mine, *outs))(mine[i], *mine)
                np.testing.assert_array_equal(mine[i], outs[0], err_msg=f"{node.op} over input {i}")


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5)
@given(st.data())
def test_portable_forward_equals_the_cpu_kernel(name, data):
    """forward under the strict array API, where nothing of numpy's own works, gives what the CPU's kernel gives."""
    for node, ins, outs in nodes_with_data(*CASES[name](data.draw)):
        if not ins:
            continue
        result = node.op.forward(*map(array_api_strict.asarray, ins))
        for r, o in zip([result] if node.single else result, outs, strict=True):
            assert np.asarray(r).shape == o.shape
            assert np.asarray(r).dtype == o.dtype, node.op
            np.testing.assert_allclose(np.asarray(r), o, rtol=1e-12, atol=1e-12, err_msg=str(node.op))


def all_ops():
    bases = (Primitive, Composite)
    return {c.__name__ for c in vars(ops).values() if isinstance(c, type) and issubclass(c, bases) and c not in bases}


def test_every_op_has_a_case():
    """A case is named after its op, perhaps with a word behind: "Conv2D_groups"."""
    assert all_ops() == {name.split("_")[0] for name in CASES} | NOT_DIFFERENTIABLE | COMMUNICATION


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5)
@given(st.data())
def test_costs_are_counted(name, data):
    for node, ins, _outs in nodes_with_data(*CASES[name](data.draw)):
        flops = node.op.flops(*map(Tensor.from_numpy, ins))
        assert isinstance(int(flops), int) and flops >= 0
        assert all(s.shape == o.shape for s, o in zip(specs(node.op.infer(*node.ins)), node.outs, strict=True))


# ---- values numpy knows ---------------------------------------------------------------------------

@EXAMPLES
@given(st.data())
def test_indexing_is_numpys(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    x = np.arange(np.prod(shape)).reshape(shape)
    index = basic_index(data.draw, shape)
    np.testing.assert_array_equal(Tensor(x)[index].asnumpy(), x[index])


def test_integer_tensors_index_like_numpys():
    x = np.arange(60).reshape(3, 4, 5)
    i, j = np.array([[0, -1], [2, 1]]), np.array([[3, 0], [-4, 2]])
    t = Tensor(x)
    for mine, theirs in ((t[Tensor(i)], x[i]), (t[:, Tensor(j)], x[:, j]), (t[Tensor(i), Tensor(j)], x[i, j]),
                         (t[1, [0, 2]], x[1, [0, 2]]), (t[..., Tensor(i)], x[..., i])):
        np.testing.assert_array_equal(mine.asnumpy(), theirs)
    with pytest.raises(IndexError, match="outside axis"):
        t[Tensor(np.array([0, 1])), Tensor(np.array([0, 9]))]
    with pytest.raises(IndexError, match="index 3 is outside dim 0 of size 3"):
        t[3]
    with pytest.raises(IndexError, match="float64 tensor can't index"):
        t[Tensor(np.array([0.5]))]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("other", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
def test_dtypes_meet_as_in_mindspore(kind, other):
    out = ops.add(Tensor(np.ones(2, kind)), Tensor(np.ones(2, other))).dtype
    floats = [d for d in (kind, other) if d.startswith("float")]
    if floats:
        assert out == max(floats, key=lambda d: int(d[5:]))
    else:
        assert out == np.promote_types(kind, other)


def test_numbers_take_the_tensors_dtype():
    assert (Tensor(np.ones(2, np.float16)) * 0.5).dtype == np.float16
    assert (2 - Tensor(np.ones(2, np.int32))).dtype == np.int32
    assert (Tensor(np.ones(2, np.int32)) * 0.5).dtype == np.float32
    assert (Tensor(np.ones(2, np.int32)) / 2).dtype == np.float32


def test_one_hot_and_argmax():
    hot = ops.OneHot()(Tensor([0, 2, 5]), 3, 1.0, 0.0)
    np.testing.assert_array_equal(hot.asnumpy(), [[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(ops.OneHot(axis=0)(Tensor([0, 2]), 3, 5, -1).asnumpy(), [[5, -1], [-1, -1], [-1, 5]])
    np.testing.assert_array_equal(ops.argmax(Tensor([[1, 3, 3], [9, 2, 1]]), 1).asnumpy(), [1, 0])


def test_nan_and_infinity_pass_through():
    x = Tensor(np.array([np.nan, np.inf, -np.inf, -1.0]))
    np.testing.assert_array_equal(ops.relu(x).asnumpy(), [np.nan, np.inf, 0, 0])
    assert np.isnan(float(ops.amax(x)))
    assert np.isnan(ops.MaxPool(2, 1)(Tensor(np.array([[[[1.0, np.nan], [2, 3]]]]))).asnumpy()).all()


def test_float16_runs_through_the_portable_path():
    x, w = Tensor(np.ones((1, 1, 4, 4), np.float16)), Tensor(np.ones((1, 1, 3, 3), np.float16))
    out = ops.Conv2D(1, 3)(x, w)
    assert out.dtype == np.float16 and (out.asnumpy() == 9).all()


def test_a_float16_mean_does_not_overflow():
    assert float(ops.mean(Tensor(np.ones(100_000, np.float16)))) == 1
    np.testing.assert_array_equal(ops.mean(Tensor(np.full((2, 40_000), 2, np.float16)), 1).asnumpy(), [2, 2])


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_product_with_zeros(zeros):
    x = np.array([2.0, 3.0, 4.0, 5.0])
    x[:zeros] = 0
    g = ms.grad(lambda t: ops.prod(t))(Tensor(x)).asnumpy()
    np.testing.assert_allclose(g, [np.prod(np.delete(x, i)) for i in range(4)])


def test_ties_of_a_maximum_share():
    assert ms.grad(lambda t: ops.amax(t))(Tensor([1.0, 3.0, 3.0])).tolist() == [0.0, 0.5, 0.5]
    assert ms.grad(lambda t: ops.sum(ops.maximum(t, 1.0)))(Tensor([1.0, 3.0])).tolist() == [0.5, 1.0]
