"""comm_func on thread ranks: values, groups, gradients in both modes, handles, errors."""
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_communication import NUMPY, data, loss_gradients, weigh

import minispore as ms
from minispore import Tensor
from minispore.communication import comm_func as cf
from minispore.communication import create_group, get_rank, init
from minispore.lab import run_ranks

MODES = pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])


def on_ranks(n, fn):
    """fn(rank) on n thread ranks."""
    def program():
        init()
        return fn(get_rank())
    return run_ranks(program, n)


def value(result):
    """Arrays of what a function returned, once its handle was waited for."""
    out, handle = result
    if handle is not None:
        handle.wait()
        assert handle.is_completed()
    return [t.asnumpy() for t in out] if isinstance(out, tuple) else out.asnumpy()


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 4), st.sampled_from(sorted(NUMPY)),
       st.sampled_from(["float32", "float64", "int32"]), st.booleans())
def test_values(n, k, root, op, dtype, async_op):
    root %= n
    x = [data(r, (n * k, 2), dtype) for r in range(n)]
    def program(me):
        mine = Tensor(x[me])
        return (value(cf.all_reduce(mine, op, async_op=async_op)), value(cf.all_gather_into_tensor(mine, async_op=async_op)),
                value(cf.reduce_scatter_tensor(mine, op, async_op=async_op)), cf.broadcast(mine, root).asnumpy(),
                cf.reduce(mine, root, op).asnumpy(), cf.gather_into_tensor(mine, root).asnumpy(),
                cf.scatter_tensor(mine, root).asnumpy(), mine.asnumpy(), cf.barrier())
    total = reduce(NUMPY[op], x)
    for r, (ar, ag, rs, bc, rd, ga, sc, mine, ba) in enumerate(on_ranks(n, program)):
        part = slice(r * k, (r + 1) * k)
        np.testing.assert_array_equal(ar, total)
        np.testing.assert_array_equal(ag, np.concatenate(x))
        np.testing.assert_array_equal(rs, total[part])
        np.testing.assert_array_equal(bc, x[root])
        np.testing.assert_array_equal(rd, total if r == root else 0 * total)
        np.testing.assert_array_equal(ga, np.concatenate(x) if r == root else [0])
        np.testing.assert_array_equal(sc, x[root][part])
        np.testing.assert_array_equal(mine, x[r])
        assert ba is None and {a.dtype.name for a in (ar, ag, rs, bc, rd, ga, sc)} == {dtype}


@settings(max_examples=20)
@given(st.integers(1, 5), st.booleans(), st.data())
def test_all_to_all_of_any_sizes(n, async_op, draw):
    rows = np.array(draw.draw(st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=n, max_size=n)))
    parts = [[data(10 * s + r, (rows[s, r], 2), "float32") for r in range(n)] for s in range(n)]
    def program(me):
        shapes, xs = [p[me].shape for p in parts], [Tensor(p) for p in parts[me]]
        many = value(cf.all_to_all_with_output_shape([Tensor(parts[0][me]), *shapes[1:]], xs, async_op=async_op))
        single = value(cf.all_to_all_single_with_output_shape(
            (int(rows[:, me].sum()), 2), Tensor(np.concatenate(parts[me])), rows[:, me].tolist(), rows[me].tolist(),
            async_op=async_op))
        return many, single
    for r, (many, single) in enumerate(on_ranks(n, program)):
        for got, p in zip(many, parts, strict=True):
            np.testing.assert_array_equal(got, p[r])
        np.testing.assert_array_equal(single, np.concatenate([p[r] for p in parts]))


def test_ranks_in_a_group_are_those_of_the_world():
    def program(me):
        if me == 0:
            return None
        create_group("late", [3, 1])                    # places 0, 1
        if me == 2:
            return None
        x = Tensor([float(me), 10.0 * me])
        return [cf.broadcast(x, 3, "late").tolist(), cf.reduce(x, 1, group="late").tolist(),
                cf.gather_into_tensor(x, 3, "late").tolist(), cf.scatter_tensor(x, 1, "late").tolist()]
    with pytest.raises(ValueError, match="rank 2 calls it but is not in"):
        on_ranks(4, program)
    def members(me):
        return program(me) if me in (1, 3) else None
    _, one, _, three = on_ranks(4, members)
    assert one == [[3, 30], [4, 40], [0], [10]]
    assert three == [[3, 30], [0, 0], [3, 30, 1, 10], [1]]


def ring(me, n, x):
    """x to the next rank, and to this one itself."""
    ops = [cf.P2POp("irecv", x, (me - 1) % n), cf.P2POp(cf.irecv, x.shape, me, tag=3, recv_dtype=x.dtype),
           cf.P2POp("isend", x * 2, (me + 1) % n), cf.P2POp(cf.isend, x * x, me, tag=3)]
    got = cf.batch_isend_irecv(ops)
    return weigh(got[0], me) + weigh(got[1], me)


def pass_on(me, n, x):
    cf.send(x, (me + 1) % n, tag=2)
    return weigh(cf.recv(x, (me - 1) % n, tag=2), me) + weigh(x, me)


def uneven(me, n, x):
    """Rank r gets r of the three rows of each, the last one the rest (n = 3: 0, 1, 2)."""
    return weigh(cf.all_to_all_single_with_output_shape((3 * me, 1), x, [me] * 3, [0, 1, 2])[0], me)


BUILDS = {
    **{f"all_reduce {op}": (lambda op: lambda me, n, x: weigh(cf.all_reduce(x, op)[0], me))(op) for op in NUMPY},
    **{f"reduce {op}": (lambda op: lambda me, n, x: weigh(cf.reduce(x, 1, op), me) if me == 1 else
                        (cf.reduce(x, 1, op), weigh(x, me))[1])(op) for op in NUMPY},
    "reduce_scatter_tensor": lambda me, n, x: weigh(cf.reduce_scatter_tensor(x)[0], me),
    "all_gather_into_tensor": lambda me, n, x: weigh(cf.all_gather_into_tensor(x)[0], me),
    "broadcast": lambda me, n, x: weigh(cf.broadcast(x, 2), me),
    "gather_into_tensor": lambda me, n, x: weigh(cf.gather_into_tensor(x, 1), me),
    "gather, used at its root alone": lambda me, n, x: weigh(cf.gather_into_tensor(x, 1), me) if me == 1 else
        (cf.gather_into_tensor(x, 1), weigh(x, me))[1],
    "scatter_tensor": lambda me, n, x: weigh(cf.scatter_tensor(x * x, 1), me),
    "all_to_all": lambda me, n, x: sum((weigh(t, me) for t in cf.all_to_all_with_output_shape(
        [(3, 1)] * n, [x * (r + 1) for r in range(n)])[0]), start=0 * weigh(x, me)),
    "all_to_all_single": lambda me, n, x: weigh(cf.all_to_all_single_with_output_shape((3, 1), x)[0], me),
    "uneven": uneven, "send": pass_on, "batch_isend_irecv": ring,
}


@MODES
@pytest.mark.parametrize("name", BUILDS)
def test_gradients(name, mode):
    loss_gradients(3, lambda me, n: lambda x: BUILDS[name](me, n, x), (3, 1), mode)


def test_graph_and_pynative_agree():
    def program(me):
        x, results = Tensor(data(me, (3, 1), "float64")), []
        for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
            ms.set_context(mode=mode)
            results.append([float(ms.jit(lambda x, name=name: BUILDS[name](me, 3, x))(x)) for name in BUILDS])
        return results
    for graph, pynative in on_ranks(3, program):
        assert graph == pynative


def test_messages_and_handles():
    def program(me):
        n, x = 3, Tensor([me, 10 * me])
        sent = cf.isend(x, (me + 1) % n)
        got, handle = cf.irecv(x, (me - 1) % n)
        waiting, later = cf.all_reduce(x, async_op=True)
        later.wait()
        later.wait()                                    # a second time is nothing
        handle.wait()
        sent.wait()
        while not handle.is_completed():
            pass
        return got.tolist(), waiting.tolist(), x.tolist()
    assert on_ranks(3, program) == [([2, 20], [3, 30], [0, 0]), ([0, 0], [3, 30], [1, 10]), ([1, 10], [3, 30], [2, 20])]


def test_is_completed_does_not_wait():
    def program(me):
        if me == 1:
            cf.recv(Tensor(0))                          # comes only when rank 0 has asked
            return cf.all_reduce(Tensor(me))[0].item()
        out, handle = cf.all_reduce(Tensor(me), async_op=True)
        early = handle.is_completed()
        cf.send(Tensor(0), 1)
        while not handle.is_completed():
            pass
        return early, out.item()
    assert on_ranks(2, program) == [(False, 1), 1]


@MODES
@pytest.mark.parametrize("call", [lambda x: cf.all_reduce(x, async_op=True)[0], lambda x: cf.irecv(x)[0],
                                  lambda x: (cf.isend(x), x)[1],
                                  lambda x: cf.all_to_all_single_with_output_shape((1,), x, async_op=True)[0]])
def test_handles_are_for_outside_of_graphs(call, mode):
    init()
    ms.set_context(mode=mode)
    with pytest.raises(ms.TraceError, match=r"test_comm_func.py:\d+ is called inside a graph or a gradient"):
        ms.grad(lambda x: call(x).sum())(Tensor([1.0]))


X = Tensor([1.0, 2.0])


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: cf.all_reduce([1.0]), TypeError, "all_reduce: tensor is a list; give a Tensor"),
    (lambda: cf.all_reduce(X, "mean"), ValueError, "op 'mean' must be one of"),
    (lambda: cf.all_reduce(X, group=3), TypeError, "group 3 is a int"),
    (lambda: cf.all_reduce(X, group="nobody"), ValueError, "'nobody' does not exist"),
    (lambda: cf.reduce_scatter_tensor(Tensor(np.ones(3))), ValueError, "must divide by 2"),
    (lambda: cf.broadcast(X, 2), ValueError, r"broadcast: src 2 is not in group .* \[0, 1\]; src is a number in the world"),
    (lambda: cf.broadcast(X, "0"), TypeError, "src '0' is a str"),
    (lambda: cf.reduce(X, True), TypeError, "dst True is a bool"),
    (lambda: cf.gather_into_tensor(Tensor(1.0)), ValueError, "scalar has no dim 0"),
    (lambda: cf.scatter_tensor(Tensor(np.ones(3))), ValueError, "must divide by 2"),
    (lambda: cf.send(X, 7), ValueError, "dst 7 is not in"), (lambda: cf.irecv(X, -1), ValueError, "src -1 is not in"),
    (lambda: cf.all_to_all_with_output_shape([(1,)], [X, X]), ValueError, "output_shape_list has 1 entries; .* 2 ranks"),
    (lambda: cf.all_to_all_with_output_shape([(1,), "ab"], [X, X]), TypeError, "'ab' must say a shape"),
    (lambda: cf.all_to_all_with_output_shape([(2,), (2,)], [X, Tensor([1, 2])]), TypeError, "dtypes float32, int64; use one"),
    (lambda: cf.all_to_all_with_output_shape([(2,), (2,)], X), TypeError, "input_tensor_list is a Tensor"),
    (lambda: cf.all_to_all_single_with_output_shape((2, 2), X), ValueError, "must agree in all dims but the first"),
    (lambda: cf.all_to_all_single_with_output_shape((2,), X, [1, 2]), ValueError, r"output_split_sizes \[1, 2\] .* sum up to 2"),
    (lambda: cf.all_to_all_single_with_output_shape((3,), X), ValueError, "3 rows don't divide by the 2 ranks"),
    (lambda: cf.all_to_all_single_with_output_shape((), Tensor(1.0)), ValueError, "scalar, without a dim 0"),
    (lambda: cf.P2POp("push", X, 0), ValueError, "'push' must be 'isend' or 'irecv'"),
    (lambda: cf.P2POp("irecv", (2,), 0), TypeError, "give recv_dtype"),
    (lambda: cf.P2POp("isend", (2,), 0), TypeError, "tensor is a tuple"),
    (lambda: cf.batch_isend_irecv([]), TypeError, "at least one P2POp"),
    (lambda: cf.batch_isend_irecv([cf.P2POp("isend", X, 5)]), ValueError, "peer 5 is not in"),
    (lambda: cf.batch_isend_irecv([cf.P2POp("isend", X, 0), cf.P2POp("isend", X, 0, "g")]), TypeError, "one group a batch"),
])
def test_bad_arguments(call, error, message):
    def program(me):
        if me == 0:
            with pytest.raises(error, match=message):
                call()
    on_ranks(2, program)


def test_sizes_that_do_not_meet_end_with_an_error():
    def program(me):
        cf.all_to_all_single_with_output_shape((2,), X, [1, 1], [2, 0] if me == 0 else [1, 1])
    with pytest.raises(ms.CollectiveError, match="rank"):
        on_ranks(2, program)


def test_before_init():
    with pytest.raises(RuntimeError, match=r"before init\(\)"):
        cf.all_reduce(X)
