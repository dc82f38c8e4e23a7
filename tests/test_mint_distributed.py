"""mint.distributed on thread ranks and under MPI: values in place, uneven ones, objects, groups, handles, errors."""
import subprocess
import sys
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_communication import NUMPY, data
from test_mpi import msrun

import minispore as ms
from minispore import Parameter, Tensor
from minispore.lab import run_ranks
from minispore.mint import distributed as dist


def on_ranks(n, fn):
    """fn(rank) on n thread ranks."""
    def program():
        dist.init_process_group()
        return fn(dist.get_rank())
    return run_ranks(program, n)


def zeros(shape, dtype):
    return Tensor(np.zeros(shape, dtype))


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 4), st.sampled_from(sorted(NUMPY)),
       st.sampled_from(["float32", "float64", "int32"]), st.booleans())
def test_values(n, k, root, op, dtype, async_op):
    root %= n
    x = [data(r, (n * k, 2), dtype) for r in range(n)]
    total = reduce(NUMPY[op], x)
    def program(me):
        works = []
        def call(fn, *args, **kwargs):
            work = fn(*args, **kwargs, async_op=async_op)
            assert (work is None) is not async_op
            works.append(work)
        def mine(): return Tensor(x[me])
        def rows(): return [zeros((n * k, 2), dtype) for _ in range(n)]
        def cut(a): return [Tensor(p) for p in np.split(a, n)]
        summed, cast, reduced, whole, part = mine(), mine(), mine(), zeros((n * n * k, 2), dtype), zeros((k, 2), dtype)
        listed, gathered, scattered, row = rows(), rows(), zeros((k, 2), dtype), zeros((k, 2), dtype)
        swapped, single = cut(x[me] * 0), zeros((n * k, 2), dtype)
        call(dist.all_reduce, summed, op)
        call(dist.broadcast, cast, root)
        call(dist.reduce, reduced, root, op)
        call(dist.all_gather_into_tensor, whole, mine())
        call(dist.all_gather, listed, mine())
        call(dist.gather, mine(), gathered if me == root else None, root)
        call(dist.scatter, scattered, cut(x[me]) if me == root else [], root)
        call(dist.reduce_scatter_tensor, part, mine(), op)
        call(dist.reduce_scatter, row, cut(x[me]), op)
        call(dist.all_to_all, swapped, cut(x[me]))
        call(dist.all_to_all_single, single, mine())
        call(dist.barrier)
        for work in reversed(works) if async_op else ():       # in any order
            work.wait()
        mypart = slice(me * k, (me + 1) * k)
        np.testing.assert_array_equal(summed.asnumpy(), total)
        np.testing.assert_array_equal(cast.asnumpy(), x[root])
        np.testing.assert_array_equal(reduced.asnumpy(), total if me == root else x[me])
        np.testing.assert_array_equal(whole.asnumpy(), np.concatenate(x))
        for r in range(n):
            np.testing.assert_array_equal(listed[r].asnumpy(), x[r])
            np.testing.assert_array_equal(gathered[r].asnumpy(), x[r] if me == root else 0 * x[r])
            np.testing.assert_array_equal(swapped[r].asnumpy(), x[r][mypart])
        np.testing.assert_array_equal(scattered.asnumpy(), x[root][mypart])
        np.testing.assert_array_equal(part.asnumpy(), total[mypart])
        np.testing.assert_array_equal(row.asnumpy(), total[mypart])
        np.testing.assert_array_equal(single.asnumpy(), np.concatenate([a[mypart] for a in x]))
        assert {t.dtype.name for t in (summed, cast, whole, part, row, single)} == {dtype}
    on_ranks(n, program)


@settings(max_examples=20)
@given(st.integers(1, 5), st.sampled_from(sorted(NUMPY)), st.booleans(), st.data())
def test_uneven_ones(n, op, async_op, draw):
    table = draw.draw(st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=n, max_size=n))
    rows = np.array(table)
    sizes = table[0]
    x = [data(r, (sum(sizes), 2), "float32") for r in range(n)]
    own = [data(r, (sizes[r], 2), "int32") for r in range(n)]
    parts = [[data(10 * s + r, (rows[s, r], 2), "float32") for r in range(n)] for s in range(n)]
    total = np.split(reduce(NUMPY[op], x), np.cumsum(sizes)[:-1])
    def program(me):
        out, whole = zeros((sizes[me], 2), "float32"), zeros((sum(sizes), 2), "int32")
        single = zeros((int(rows[:, me].sum()), 2), "float32")
        works = [dist.reduce_scatter_tensor_uneven(out, Tensor(x[me]), sizes, op, async_op=async_op),
                 dist.all_gather_into_tensor_uneven(whole, Tensor(own[me]), sizes, async_op=async_op),
                 dist.all_to_all_single(single, Tensor(np.concatenate(parts[me])), rows[:, me].tolist(), table[me],
                                        async_op=async_op)]
        for work in works if async_op else ():
            work.wait()
        return out.asnumpy(), whole.asnumpy(), single.asnumpy()
    for r, (out, whole, single) in enumerate(on_ranks(n, program)):
        np.testing.assert_array_equal(out, total[r])
        np.testing.assert_array_equal(whole, np.concatenate(own))
        np.testing.assert_array_equal(single, np.concatenate([p[r] for p in parts]))


def test_scalars_and_parameters():
    def program(me):
        one, parameter = Tensor(float(me)), Parameter(Tensor([1.0 * me]), name="w")
        memory = parameter._data()
        dist.all_reduce(one)
        dist.all_reduce(parameter)
        listed = [Tensor(0.0) for _ in range(3)]
        dist.all_gather(listed, Tensor(float(me)))
        got = Tensor(0.0)
        dist.scatter(got, [Tensor(float(r)) for r in range(3)] if me == 2 else None, src=2)
        assert parameter._data() is memory and one.shape == got.shape == ()
        return one.item(), parameter.item(), [t.item() for t in listed], got.item()
    assert on_ranks(3, program) == [(3, 3, [0, 1, 2], r) for r in range(3)]


def test_copies_do_not_change():
    def program(me):
        x = Tensor([1.0])
        y, z = Tensor(x), x.reshape(1, 1)
        dist.all_reduce(x)
        return x.item(), y.item(), z.item()
    assert on_ranks(2, program) == [(2, 1, 1)] * 2


@pytest.mark.parametrize("n", [1, 2, 4])
def test_objects(n):
    def program(me):
        obj = {"rank": me, "text": "x" * (me * 100), "array": np.arange(me)}
        everybody, here, cast, mine = [None] * n, [None] * n, [me, obj, None][:2], [None, "kept"]
        dist.all_gather_object(everybody, obj)
        dist.gather_object(obj, here if me == n - 1 else None, dst=n - 1)
        dist.broadcast_object_list(cast, src=n - 1)
        dist.scatter_object_list(mine, [Tensor([r]) if r % 2 else None for r in range(n)] if me == 0 else None)
        return [o["rank"] for o in everybody], [o and len(o["text"]) for o in here], cast[0], cast[1]["rank"], \
            mine[0] if mine[0] is None else mine[0].tolist(), mine[1]
    for r, got in enumerate(on_ranks(n, program)):
        gathered = [100 * s for s in range(n)] if r == n - 1 else [None] * n
        assert got == (list(range(n)), gathered, n - 1, n - 1, [r] if r % 2 else None, "kept")


def test_messages():
    def program(me):
        n, x, got, own = 3, Tensor([me, me]), Tensor([9, 9]), Tensor([9])
        to, source = (me + 1) % n, (me - 1) % n
        work = dist.irecv(got, source, tag=4)
        assert got.tolist() == [9, 9]
        sent = dist.isend(x, to, tag=4)
        work.wait()
        sent.wait()
        batch = dist.batch_isend_irecv([dist.P2POp("irecv", own, me), dist.P2POp(dist.isend, Tensor([7 * me]), me)])
        assert len(batch) == 1
        batch[0].wait()
        dist.send(x * 2, to)
        assert dist.recv(x, source) == 0
        return got.tolist(), own.tolist(), x.tolist()
    assert on_ranks(3, program) == [([2, 2], [0], [4, 4]), ([0, 0], [7], [0, 0]), ([1, 1], [14], [2, 2])]


def test_groups():
    def program(me):
        assert dist.is_available() and dist.is_initialized() and dist.get_backend() == "hccl"
        assert dist.new_group() == "hccl_world_group" and dist.get_process_group_ranks() == [0, 1, 2, 3]
        first, again, other = dist.new_group([3, 1]), dist.new_group([3, 1]), dist.new_group([0, 2, 1])
        if me == 0:
            assert first == "" and dist.get_rank(first) == dist.get_world_size(first) == -1
            dist.destroy_process_group(first)
        got = None
        if first:
            assert again not in ("", first) and dist.get_global_rank(first, 0) == 3 and dist.get_group_rank(first, 1) == 1
            x = Tensor([me])
            dist.broadcast(x, 3, first)
            dist.all_reduce(x, group=again)
            got = x.item(), dist.get_rank(first), dist.get_process_group_ranks(first)
            dist.destroy_process_group(first)
            with pytest.raises(ValueError, match="does not exist"):
                dist.barrier(first)
        if other:
            x = Tensor([me])
            dist.all_reduce(x, group=other)
            assert x.item() == 3
        dist.barrier()
        dist.destroy_process_group()
        assert not dist.is_initialized()
        return got
    assert on_ranks(4, program) == [None, (6, 1, [3, 1]), None, (6, 0, [3, 1])]


def test_joining():
    def program():
        dist.init_process_group(world_size=2, rank=ms.get_rank())
        with pytest.raises(ValueError, match="world_size=3, but the launcher gave this process world_size 2"):
            dist.init_process_group(world_size=3)
        with pytest.raises(ValueError, match="rank=5, but"):
            dist.init_process_group(rank=5)
    run_ranks(program, 2)
    with pytest.raises(RuntimeError, match=r"before init\(\)"):
        dist.all_reduce(X)


X, Y, I = Tensor([1.0, 2.0]), Tensor([[1.0, 2.0]]), Tensor([1, 2])


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: dist.all_reduce(1.0), TypeError, "all_reduce: tensor is a float; give a Tensor"),
    (lambda: dist.all_reduce(X, "mean"), ValueError, "op 'mean' must be one of"),
    (lambda: dist.all_reduce(X, group="nobody"), ValueError, "'nobody' does not exist"),
    (lambda: dist.broadcast(X, 2), ValueError, r"src 2 is not in group .* \[0, 1\]"),
    (lambda: dist.reduce(X, "1"), TypeError, "dst '1' is a str"),
    (lambda: dist.all_gather([X], X), ValueError, "tensor_list has 1 entries; .* 2 ranks"),
    (lambda: dist.all_gather([X, Y], X), ValueError, r"tensor_list\[1\] has shape \(1, 2\); here it must have \(2,\)"),
    (lambda: dist.all_gather([X, I], X), TypeError, r"tensor_list\[1\] is int64, its partner float32"),
    (lambda: dist.all_gather(X, X), TypeError, "tensor_list is a Tensor; give a list"),
    (lambda: dist.all_gather_into_tensor(X, X), ValueError, r"output_tensor has shape \(2,\); here it must have \(4,\)"),
    (lambda: dist.all_gather_into_tensor_uneven(X, Tensor([1.0]), [2, 0]), ValueError, "input has shape"),
    (lambda: dist.all_gather_into_tensor_uneven(X, X, [2, 1]), ValueError, "sum up to 2"),
    (lambda: dist.all_gather_into_tensor_uneven(X, X, [2]), ValueError, "output_split_sizes has 1 entries"),
    (lambda: dist.gather(X, None), TypeError, "gather_list is a NoneType"),
    (lambda: dist.scatter(X, [X]), ValueError, "scatter_list has 1 entries"),
    (lambda: dist.reduce_scatter(X, [X, 3]), TypeError, r"input_list\[1\] is a int"),
    (lambda: dist.reduce_scatter_tensor(X, X), ValueError, r"input has shape \(2,\); here it must have \(4,\)"),
    (lambda: dist.reduce_scatter_tensor_uneven(X, X, [1, 1]), ValueError, "output has shape"),
    (lambda: dist.all_to_all([X, X], [X, I]), TypeError, "a tensor is int64, its partner float32"),
    (lambda: dist.all_to_all([X, X], [3, X]), TypeError, "an entry of a list is a int"),
    (lambda: dist.all_to_all([X], [X, X]), ValueError, "output_tensor_list has 1 entries"),
    (lambda: dist.all_to_all_single(Y, X), ValueError, "output has shape"),
    (lambda: dist.all_to_all_single(X, Tensor([1.0, 2, 3])), ValueError, "3 rows don't divide by the 2 ranks"),
    (lambda: dist.irecv(X, 9), ValueError, "src 9 is not in"), (lambda: dist.send(3), TypeError, "send: tensor is a int"),
    (lambda: dist.P2POp("irecv", (2,), 0), TypeError, "tensor is a tuple"),
    (lambda: dist.batch_isend_irecv([3]), TypeError, "at least one P2POp"),
    (lambda: dist.all_gather_object([None], 1), ValueError, "object_list has 1 entries"),
    (lambda: dist.gather_object(1, [None]), ValueError, "object_gather_list has 1 entries"),
    (lambda: dist.broadcast_object_list([]), TypeError, "must be a list that isn't empty"),
    (lambda: dist.scatter_object_list([], [1, 2]), TypeError, "at least one entry"),
    (lambda: dist.scatter_object_list([None], [1]), ValueError, "the input list has 1 entries"),
    (lambda: dist.new_group(3), TypeError, "ranks is a int"), (lambda: dist.new_group([0, 0]), ValueError, "a rank twice"),
    (lambda: dist.new_group([1, 7]), ValueError, "all in 0 … 1"),
    (lambda: dist.get_group_rank(None, 5), ValueError, "world rank 5 is not in"),
])
def test_bad_arguments(call, error, message):
    def program(me):
        if me == 0:
            with pytest.raises(error, match=message):
                call()
    on_ranks(2, program)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("call", [lambda x: dist.all_reduce(x), lambda x: dist.barrier(), lambda x: dist.send(x),
                                  lambda x: dist.all_gather_object([None], 3)])
def test_not_in_a_graph(call, mode):
    dist.init_process_group()
    ms.set_context(mode=mode)
    with pytest.raises(ms.TraceError, match=r"mint.distributed.\w+ at test_mint_distributed.py:\d+ is called inside a graph"):
        ms.grad(lambda x: (call(x), x.sum())[1])(X)


def test_import_minispore_stays_light():
    code = ("import sys, minispore as ms\nassert not [m for m in sys.modules if 'distributed' in m and 'mint' in m "
            "or 'comm_func' in m]\nassert ms.mint.distributed.is_available() and ms.communication.comm_func.all_reduce")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


MPI = """
import numpy as np
from mindspore import Tensor
from mindspore.communication import comm_func as cf, create_group
from mindspore.mint import distributed as dist
dist.init_process_group()
n, me = dist.get_world_size(), dist.get_rank()
root, x, total = n - 1, Tensor(np.arange(n) + me), np.arange(n) * n + n * (n - 1) // 2
def same(a, b): assert np.array_equal(a.asnumpy(), b), (a, b)
for later in (False, True):
    def value(result):
        if later: result[1].wait()
        return result[0]
    same(value(cf.all_reduce(x, async_op=later)), total)
    same(value(cf.all_gather_into_tensor(x, async_op=later)), np.add.outer(np.arange(n), np.arange(n)).ravel())
    same(value(cf.reduce_scatter_tensor(x, async_op=later)), total[me:me + 1])
    same(value(cf.all_to_all_single_with_output_shape((n,), x, async_op=later)), np.arange(n) + me)
    same(value(cf.all_to_all_with_output_shape([(n,)] * n, [x] * n, async_op=later))[root], np.arange(n) + root)
    def done(work):
        if later: work.wait()
    y, out, big = Tensor(x), Tensor([0]), Tensor(np.zeros(n * n, np.int64))
    done(dist.all_reduce(y, async_op=later)); same(y, total)
    done(dist.reduce_scatter_tensor(out, x, async_op=later)); same(out, total[me:me + 1])
    done(dist.all_gather_into_tensor(big, x, async_op=later)); same(big[me * n:me * n + n], x.asnumpy())
    done(dist.broadcast(y, root, async_op=later))
    y = Tensor(x); done(dist.reduce(y, root, async_op=later)); same(y, total if me == root else x.asnumpy())
    rows = [Tensor(x) for _ in range(n)]
    done(dist.all_gather(rows, x, async_op=later)); same(rows[root], np.arange(n) + root)
    rows = [Tensor(x) for _ in range(n)]
    done(dist.gather(x, rows, root, async_op=later)); same(rows[0], np.arange(n) + (0 if me == root else me))
    done(dist.scatter(y, [x] * n, root, async_op=later)); same(y, np.arange(n) + root)
    done(dist.reduce_scatter(y, [x] * n, async_op=later)); same(y, total)
    done(dist.all_to_all(rows, [x] * n, async_op=later)); same(rows[0], np.arange(n))
    done(dist.all_to_all_single(y, x, async_op=later)); same(y, np.arange(n) + me)
    sizes, mine, some = list(range(n)), Tensor(np.full(me, me)), Tensor(np.zeros(n * (n - 1) // 2, np.int64))
    done(dist.all_gather_into_tensor_uneven(some, mine, sizes, async_op=later)); same(some, np.repeat(sizes, sizes))
    done(dist.reduce_scatter_tensor_uneven(mine, some, sizes, async_op=later)); same(mine, np.full(me, n * me))
    done(dist.barrier(async_op=later))
same(cf.broadcast(x, root), np.arange(n) + root)
same(cf.reduce(x, root), total if me == root else 0 * total)
same(cf.scatter_tensor(x, root), [root + me])
assert cf.gather_into_tensor(x, root).shape == ((n * n,) if me == root else (1,))
cf.send(x, (me + 1) % n); same(cf.recv(x, (me - 1) % n), np.arange(n) + (me - 1) % n)
sent = cf.isend(x, (me + 1) % n); got, work = cf.irecv(x, (me - 1) % n); work.wait(); sent.wait()
same(got, np.arange(n) + (me - 1) % n)
large = Tensor(np.full(1 << 18, me))            # larger than MPI sends without asking first, also to itself
same(cf.batch_isend_irecv([cf.P2POp("irecv", large, me), cf.P2POp("isend", large, me)])[0], large.asnumpy())
back = Tensor(np.zeros(1 << 18, np.int64))
dist.batch_isend_irecv([dist.P2POp("irecv", back, (me - 1) % n), dist.P2POp("isend", large, (me + 1) % n)])[0].wait()
same(back, np.full(1 << 18, (me - 1) % n))
dist.isend(x, me); dist.recv(y, me); same(y, x.asnumpy())
names, one = [None] * n, [None]
dist.all_gather_object(names, "rank" * me); assert names == ["rank" * r for r in range(n)]
dist.gather_object(me, names, root); assert me != root or names == list(range(n))
dist.scatter_object_list(one, [{r: r} for r in range(n)], root); assert one == [{me: me}]
dist.broadcast_object_list(one, root); assert one == [{root: root}]
group = dist.new_group([root, 0])
if group:
    dist.broadcast(y, root, group); same(y, np.arange(n) + root)
cf.barrier()
dist.destroy_process_group()
print("all right")
"""


@pytest.mark.parametrize("n", [2, 3])
def test_under_mpi(tmp_path, n):
    assert msrun(tmp_path, n, MPI).count("all right") == n
