"""Collectives on thread ranks: values, order, record, gradients, and how a communication that can't complete ends."""
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
from minispore import Tensor, ops
from minispore.common.errors import CollectiveError
from minispore.communication import communicator, create_group, get_group_size, get_rank, get_record, init
from minispore.communication.backends.threads import ThreadTransport, World
from minispore.communication.communicator import Communicator
from minispore.communication.endpoint import Endpoint
from minispore.communication.record import Record
from minispore.lab import run_ranks

RANKS = st.integers(1, 9)
NUMPY = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def on_ranks(n, fn):
    """fn(communicator) on n thread ranks."""
    def program():
        init()
        return fn(communicator())
    return run_ranks(program, n)


def data(rank, shape, dtype):
    rng = np.random.default_rng(rank)
    return rng.integers(-3, 4, shape).astype(dtype) if dtype != "bool" else rng.random(shape) > 0.5


@settings(max_examples=60)
@given(RANKS, st.integers(0, 20), st.sampled_from(sorted(NUMPY)),
       st.sampled_from(["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]))
def test_all_reduce(n, length, op, dtype):
    want = reduce(NUMPY[op], [data(r, length, dtype) for r in range(n)])
    for out in on_ranks(n, lambda c: c.all_reduce(data(c.rank, length, dtype), op).wait()):
        np.testing.assert_array_equal(out, want)
        assert out.dtype == want.dtype


@settings(max_examples=25)
@given(RANKS, st.integers(0, 3), st.integers(0, 8))
def test_the_other_collectives(n, k, root):
    root %= n
    x = [data(r, (n * k, 2), "float64") for r in range(n)]
    total = np.sum(x, 0)
    def program(c):
        mine = x[c.rank]
        handles = [c.reduce_scatter(mine), c.all_gather(mine), c.broadcast(mine, root), c.reduce(mine, root),
                   c.all_to_all(mine), c.gather(mine, root), c.scatter(mine, root), c.barrier()]
        return [h.wait() for h in reversed(handles)][::-1]         # in any order
    for r, (rs, ag, bc, rd, aa, ga, sc, ba) in enumerate(on_ranks(n, program)):
        np.testing.assert_array_equal(rs, total[r * k:(r + 1) * k])
        np.testing.assert_array_equal(ag, np.concatenate(x))
        np.testing.assert_array_equal(bc, x[root])
        if r == root:
            np.testing.assert_array_equal(rd, total)
        np.testing.assert_array_equal(aa, np.concatenate([x[s][r * k:(r + 1) * k] for s in range(n)]))
        np.testing.assert_array_equal(ga, np.concatenate(x) if r == root else None)
        np.testing.assert_array_equal(sc, x[root][r * k:(r + 1) * k])
        assert ba is None


@settings(max_examples=25)
@given(RANKS, st.integers(0, 20), st.sampled_from(["float16", "float32", "float64", "int8", "int64", "uint8"]))
def test_avg_is_the_sum_divided_whole_numbers_towards_zero(n, length, dtype):
    x = [data(r, (n * length,), dtype) for r in range(n)]
    total = reduce(np.add, x)
    want = (np.trunc(total / n) if total.dtype.kind in "iu" else total / np.asarray(n, dtype)).astype(dtype)
    def program(c):
        mine = x[c.rank]
        return [c.all_reduce(mine, "avg").wait(), c.reduce_scatter(mine, "avg").wait(), c.reduce(mine, 0, "avg").wait()]
    for r, (everywhere, part, at_root) in enumerate(on_ranks(n, program)):
        np.testing.assert_array_equal(everywhere, want)
        np.testing.assert_array_equal(part, want[r * length:(r + 1) * length])
        if r == 0:
            np.testing.assert_array_equal(at_root, want)


def test_avg_of_whole_numbers_is_exact():
    many = [2**53 + 1, -2**53 - 1, 2**60 + 7]
    assert [r.tolist() for r in on_ranks(3, lambda c: c.all_reduce(np.array(many), "avg").wait())] == [many] * 3


def test_sums_are_the_same_bits_on_every_rank_and_every_time():
    def program(c):
        return c.all_reduce(np.random.default_rng(c.rank).random(1000).astype(np.float32)).wait()
    outs = on_ranks(7, program) + on_ranks(7, program)
    assert all((o == outs[0]).all() for o in outs)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8])
def test_the_ring_sends_2_p_p_minus_1_messages_over_p_links(n):
    def program(c):
        c.all_reduce(np.ones(n * 3)).wait()
        return get_record()
    records = on_ranks(n, program)
    assert sum(len(r.messages()) for r in records) == 2 * n * (n - 1)
    assert set.union(*(r.links() for r in records)) == {(r, (r + 1) % n) for r in range(n)}
    for r in records:
        (call,) = r.collectives()
        assert (call.op, call.algorithm, call.sequence, call.count, call.dtype) == ("AllReduce", "ring", 1, n * 3, "float64")
        assert call.begin <= call.end and all(call.begin <= m.begin <= m.end <= call.end for m in r.messages())
        assert sum(m.bytes for m in r.messages()) == 2 * (n - 1) * 3 * 8       # 2(p-1)/p of the vector


def test_record_is_saved_loaded_and_shown(tmp_path):
    def program(c):
        c.all_reduce(np.ones(4), name="grads").wait()
        get_record().save(tmp_path / f"{c.rank}.json")
        return get_record()
    for r, record in enumerate(on_ranks(2, program)):
        loaded = Record.load(tmp_path / f"{r}.json")
        assert loaded.rank == r and list(loaded.events) == list(record.events)
        assert "AllReduce" in loaded.table() and loaded.seconds() > 0
    record.clear()
    assert record.table() == "no communication recorded"


def test_groups():
    def program():
        init()
        me, group = get_rank(), "evens" if get_rank() % 2 == 0 else "odds"
        ranks = list(range(me % 2, 5, 2))
        create_group(group, ranks)
        comm = communicator(group)
        out = comm.all_reduce(np.array([me])).wait()
        assert ms.communication.get_world_rank_from_group_rank(group, comm.rank) == me
        assert ms.communication.get_group_rank_from_world_rank(me, group) == comm.rank == get_rank(group)
        assert ms.communication.get_process_group_ranks(group) == ranks and get_group_size(group) == len(ranks)
        ms.destroy_group(group)
        with pytest.raises(ValueError, match=rf"group '{group}' does not exist on rank {me}"):
            communicator(group)
        return int(out[0])
    assert run_ranks(program, 5) == [6, 4, 6, 4, 6]


def test_messages_by_tag():
    def program(c):
        if c.rank == 0:
            for tag in (1, 2):
                c.send(np.full(3, tag), 1, tag)
            return None
        late = c.receive(3, "int64", 0, 2)
        return [c.receive(3, "int64", 0, 1).wait()[0], late.wait()[0]]
    assert on_ranks(2, program)[1] == [1, 2]


def test_without_a_launcher_there_is_one_rank():
    assert (get_rank(), get_group_size()) == (0, 1)
    init()
    assert ms.communication.GlobalComm.INITED and ms.communication.GlobalComm.WORLD_COMM_GROUP == "hccl_world_group"
    assert communicator().all_reduce(np.arange(3)).wait().tolist() == [0, 1, 2]
    ms.release()
    with pytest.raises(RuntimeError, match=r"release\(\): init\(\) has not been called"):
        ms.release()


# ---- gradients: those of the sum of all ranks' losses ------------------------------------------------

def loss_gradients(n, build, shape, mode):
    """Each rank's gradient, and difference quotients of the sum of all ranks' losses."""
    xs = [np.random.default_rng(r + 7).permutation(np.linspace(0.5, 2, int(np.prod(shape)))).reshape(shape) + 0.01 * r
          for r in range(n)]
    def program(inputs, grads):
        def run():
            init()
            ms.set_context(mode=mode)
            me = get_rank()
            f = build(me, n)
            x = Tensor(inputs[me])
            return ms.grad(f)(x).asnumpy() if grads else float(f(x))
        return run
    exact = run_ranks(program(xs, True), n)
    for r in range(n):
        for i in np.ndindex(shape):
            ends = []
            for sign in (1, -1):
                moved = [x.copy() for x in xs]
                moved[r][i] += sign * 1e-6
                ends.append(sum(run_ranks(program(moved, False), n)))
            assert abs((ends[0] - ends[1]) / 2e-6 - exact[r][i]) < 1e-6 * (1 + abs(exact[r][i])), (r, i)


def weigh(t, me):
    """A scalar that differs from rank to rank."""
    return ops.sum(t * t * Tensor(np.cos(np.arange(t.size) + me).reshape(t.shape)))


def ring_of_neighbours(me, n):
    """Twice x to the next rank and x to the one before."""
    there, back = (me + 1) % n, (me - 1) % n
    def f(x):
        op = ops.NeighborExchange((there, back), (back, there), (x.shape, x.shape), (x.shape, x.shape), ms.float64)
        a, b = op((2 * x, x * x))
        return weigh(a, me) + weigh(b, me + 1)
    return f


def one_way(me, n):
    """Rank 0 only sends, rank 1 only receives, the others have nobody."""
    def f(x):
        to, of = ((1,) if me == 0 else ()), ((0,) if me == 1 else ())
        got = ops.NeighborExchange(to, of, [x.shape] * len(of), [x.shape] * len(to), ms.float64)((x,) * len(to))
        return weigh(got[0] if of else x, me)
    return f


BUILDS = {
    "NeighborExchange": ring_of_neighbours, "NeighborExchange one way": one_way,
    **{f"AllReduce {op}": (lambda op: lambda me, n: lambda x: weigh(ops.AllReduce(op)(x), me))(op) for op in NUMPY},
    **{f"ReduceScatter {op}": (lambda op: lambda me, n: lambda x: weigh(ops.ReduceScatter(op)(x), me))(op) for op in NUMPY},
    "AllGather": lambda me, n: lambda x: weigh(ops.AllGather()(x), me),
    "Broadcast": lambda me, n: lambda x: weigh(ops.Broadcast(1)((x,))[0], me),
    "Reduce": lambda me, n: lambda x: weigh(ops.Reduce(1)(x), me),
    "AlltoAll": lambda me, n: lambda x: weigh(ops.AlltoAll(n, 0, 1)(x), me),
    "Send": lambda me, n: lambda x: weigh(ops.Send(5, (me + 1) % n)(x) * 0 + x, me) + weigh(
        ops.Receive(5, (me - 1) % n, x.shape, ms.float64)(), me),
}


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("name", BUILDS)
def test_gradient_of_a_collective(name, mode):
    loss_gradients(3, BUILDS[name], (3, 1), mode)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_a_barrier_holds_all_ranks(mode):
    from time import perf_counter, sleep
    def program():
        init()
        ms.set_context(mode=mode)
        barrier = ops.Barrier()
        f = ms.jit(lambda x: (barrier(), x + 1)[1])
        f(Tensor([1.0]))
        sleep(0.1 if get_rank() == 1 else 0)
        before = perf_counter()
        f(Tensor([1.0]))
        return before, perf_counter()
    times = run_ranks(program, 3)
    assert max(begin for begin, _ in times) <= min(end for _, end in times)


def test_ties_and_zeros_over_ranks():
    def program():
        init()
        me = get_rank()
        tie = ms.grad(lambda x: ops.AllReduce("max")(x))(Tensor([1.0 if me < 2 else 0.0]))
        product = ms.grad(lambda x: ops.AllReduce("prod")(x))(Tensor([0.0 if me == 1 else 2.0]))
        return tie.tolist() + product.tolist()
    # three losses, each the maximum: 3 shared by the two that tie
    assert run_ranks(program, 3) == [[1.5, 0], [1.5, 12], [0, 0]]


# ---- no hang -------------------------------------------------------------------------------------------

def fails(n, fn, message, error=ms.CollectiveError):
    with pytest.raises(error, match=message) as e:
        on_ranks(n, fn)
    return e.value


def test_a_failing_rank_is_the_one_that_is_shown():
    def program(c):
        if c.rank == 1:
            raise KeyError("the cause")
        c.all_reduce(np.ones(3)).wait()
    assert "on rank 1 of 3" in fails(3, program, "the cause", KeyError).__notes__


def test_a_rank_that_ends_early():
    def program(c):
        for _ in range(3 + (c.rank != 1)):
            c.all_reduce(np.ones(3)).wait()
    e = fails(3, program, "rank 1 can't come any more")
    assert "rank 1: has ended after 3 communications" in str(e)
    assert ("rank 0: waits in AllReduce(sum) number 4 of group hccl_world_group, 3 × float64 by ring, "
            "test_communication.py:") in str(e)


def test_a_circle_of_receives():
    fails(3, lambda c: c.receive(2, "float32", (c.rank + 1) % 3).wait(), "all ranks wait for one another")


def test_two_groups_crossed():
    def program(c):
        create_group("a", [0, 1])
        create_group("b", [0, 1])
        for name in ("ab", "ba")[c.rank]:
            communicator(name).all_reduce(np.ones(2)).wait()
    fails(2, program, "all ranks wait for one another")


@pytest.mark.parametrize("other", [
    lambda c: c.broadcast(np.ones(6), 0), lambda c: c.all_reduce(np.ones(6, np.float32)), lambda c: c.all_reduce(np.ones(9)),
    lambda c: c.all_reduce(np.ones(6), "max"), lambda c: c.all_gather(np.ones(6)),
], ids=["op", "dtype", "count", "reduction", "gather"])
def test_ranks_in_different_operations(other):
    def program(c):
        (other(c) if c.rank == 1 else c.all_reduce(np.ones(6))).wait()
    fails(3, program, "op, dtype, count, root and algorithm must agree on all ranks")


def test_a_message_of_another_size_never_arrives():
    def program(c):
        if c.rank == 0:
            c.send(np.ones(2, np.float32), 1)
        else:
            c.receive(4, "float32", 0).wait()
    fails(2, program, "rank 0 can't come any more")


def test_waiting_for_different_messages_is_no_mistake():
    """Ranks 0 and 1 wait long, with one tag, for messages of different sizes."""
    import time
    def program(c):
        if c.rank < 2:
            return c.receive(3 + c.rank, "float64", 2, 7).wait().size
        time.sleep(0.4)
        for to in range(2):
            c.send(np.ones(3 + to), to, 7)
    assert on_ranks(3, program) == [3, 4, None]


def test_time_runs_out(monkeypatch):
    monkeypatch.setenv("MINISPORE_TIMEOUT", "0.2")
    import time
    def program(c):
        if c.rank == 0:
            time.sleep(1)
            return
        c.all_reduce(np.ones(3), name="weights").wait()
    fails(2, program, r"rank 1 waits in AllReduce\(weights\).* for 0.2 s .*MINISPORE_TIMEOUT.* from rank 0")


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda c: create_group("g", 3), TypeError, "rank_ids is a int; give a list"),
    (lambda c: create_group("g", []), ValueError, "at least one rank"),
    (lambda c: create_group("g", [0, 0]), ValueError, "name a rank twice"),
    (lambda c: create_group("g", [1]), ValueError, "rank 0 calls it but is not in"),
    (lambda c: create_group("g", [0, 5]), ValueError, r"all in 0 … 1"),
    (lambda c: create_group(7, [0]), TypeError, "must be a non-empty string"),
    (lambda c: ms.destroy_group("hccl_world_group"), ValueError, "group of all ranks"),
    (lambda c: ms.destroy_group("nobody"), ValueError, "'nobody' does not exist"),
    (lambda c: get_rank("nobody"), ValueError, "'nobody' does not exist"),
    (lambda c: init("smoke"), type(None), ""),
    (lambda c: ops.AllReduce("mean"), ValueError, "op 'mean' must be one of"),
    (lambda c: ops.ReduceScatter()(Tensor(np.ones(3))), ValueError, "must divide by 2"),
    (lambda c: ops.AllGather()(Tensor(1.0)), ValueError, "scalar has no dim 0"),
    (lambda c: ops.Broadcast(2)((Tensor([1.0]),)), ValueError, "root_rank 2 is not in 0 … 1"),
    (lambda c: ops.Send(0, 9)(Tensor([1.0])), ValueError, "rank 9 is not in 0 … 1"),
    (lambda c: ops.NeighborExchange((0,), (), (), (), ms.float32), ValueError, "send_rank_ids names 1 ranks"),
    (lambda c: ops.NeighborExchange((1,), (), (), ((2,),), ms.float32)((Tensor([1.0]),)), ValueError, "send_shapes says"),
    (lambda c: ops.NeighborExchange((7,), (), (), ((1,),), ms.float32)((Tensor([1.0]),)), ValueError, "rank 7 is not in"),
    (lambda c: ops.AlltoAll(3)(Tensor(np.ones(6))), ValueError, "split_count 3 must be the group's size, 2"),
    (lambda c: c.all_reduce(np.ones(2), "mean"), ValueError, "not 'mean'"),
    (lambda c: c.all_reduce(np.ones(2, bool), "avg"), ValueError, "bools have no avg; cast them"),
    (lambda c: c.broadcast(np.ones(2), 2), ValueError, r"Broadcast: root 2 must be a place in group .*, 0 … 1"),
    (lambda c: c.broadcast(np.ones(2), "1"), ValueError, "root '1' must be a place"),
    (lambda c: c.send(np.ones(2), 7), ValueError, "Send: rank 7 must be a place in group .*, 0 … 1"),
    (lambda c: c.receive((2,), np.float64, -1), ValueError, "Receive: rank -1 must be a place"),
    (lambda c: c.all_reduce([1.0]), TypeError, "numpy arrays, not a list"),
    (lambda c: c.all_reduce_now(1.0), TypeError, "numpy arrays, not a float"),
    (lambda c: c.gather(np.ones(2), -1), ValueError, "Gather: root -1 must be a place"),
    (lambda c: c.all_reduce(np.ones(2), out=np.ones(3)), ValueError, r"contiguous array of shape \(2,\) and float64"),
    (lambda c: c.all_reduce_now(np.ones(2), out=np.ones(2, int)), ValueError, "not one of shape .*int64"),
    (lambda c: c.all_gather(np.ones(2), np.ones((4, 2))[:, 0]), ValueError, "that can be written, not one"),
    (lambda c: c.all_reduce((b := np.ones(9))[:4], out=b[2:6]), ValueError, "out overlaps .* 16 bytes .* at 0 only"),
    (lambda c: c.all_reduce_now((b := np.ones(9))[:4], out=b[2:6]), ValueError, "out overlaps"),
    (lambda c: c.broadcast((b := np.ones(9))[:4], 0, b[2:6]), ValueError, "out overlaps"),
    (lambda c: c.reduce_scatter((b := np.ones(8)), out=b[1:5]), ValueError, "8 bytes .* at 0 only"),
    (lambda c: c.all_gather((b := np.ones(8))[4:], b), ValueError, "-32 bytes .* at 0 only"),
    (lambda c: c.all_to_all((b := np.ones(8)), b[:]), ValueError, "it mustn't here"),
    (lambda c: c.empty((-1,), "f4"), ValueError, "negative dimensions"),
    (lambda c: c.all_reduce(np.ones(2, complex)), TypeError, "an array of complex128 can't be sent"),
])
def test_bad_arguments(call, error, message):
    def program(c):
        if c.rank == 0 and error is not type(None):
            with pytest.raises(error, match=message):
                call(c)
    on_ranks(2, program)


def test_before_init():
    with pytest.raises(RuntimeError, match=r"before init\(\).*call minispore.communication.init"):
        ops.AllReduce()(Tensor([1.0]))
    with pytest.raises(RuntimeError, match=r"before init\(\)"):
        create_group("g", [0])
    with pytest.raises(ValueError, match="backend_name 'smoke' is unknown"):
        init("smoke")


@pytest.mark.parametrize("n", [0, -1, 2.5, 1000])
def test_bad_number_of_ranks(n):
    with pytest.raises(ValueError, match="whole number of ranks from 1 to 256"):
        run_ranks(lambda: None, n)


def test_64_ranks():
    assert on_ranks(64, lambda c: int(c.all_reduce(np.array([c.rank])).wait()[0])) == [2016] * 64


def test_a_rank_that_sent_and_ended_is_not_missed():
    """Between our last look at the mail and the one at the board its message came."""
    world = World(2)
    ends = [Endpoint(ThreadTransport(world, r)) for r in range(2)]
    comms = [Communicator(e, (0, 1), "both") for e in ends]
    late = comms[1].receive((3,), "float32", 0)
    comms[0].send(np.ones(3, np.float32), 1).wait()
    ends[0].transport.end(failed=False)
    ends[1].look(late, waited=1.0)
    assert late.done and late.wait().sum() == 3
    with pytest.raises(CollectiveError, match="for rank 0, which can't come any more"):
        ends[1].look(comms[1].receive((3,), "float32", 0), waited=1.0)
