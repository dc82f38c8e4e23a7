"""Every algorithm on thread ranks: values, bits, the messages its docstring promises; and how one is chosen."""
import json
import os
import threading
from functools import reduce
from itertools import chain
from math import ceil, log2
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minispore.communication import communicator, init, selection
from minispore.communication.algorithms import ALGORITHMS, ring_all_reduce
from minispore.communication.backends.threads import ThreadTransport
from minispore.communication.communicator import Communicator, Endpoint
from minispore.lab import run_ranks

NUMPY = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
RANKS = st.sampled_from([*range(1, 10), 16, 33])
NODES = st.sampled_from(["", "1", "2", "3", "4", "7", "64"])       # 7: nodes of very different size


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def on_ranks(n, fn, node_size=""):
    """fn(communicator) on n thread ranks, node_size of them a node."""
    def program():
        init()
        return fn(communicator())
    with mock.patch.dict(os.environ, MINISPORE_NODE_SIZE=node_size):
        return run_ranks(program, n)


def by_all(op, call, c):
    """What call(c) gives with each algorithm of the op, twice."""
    results = []
    for name in chain(*[ALGORITHMS[op]] * 2):
        with selection.algorithm(name):
            results.append(call(c).wait())
        assert c.endpoint.record.collectives()[-1].algorithm == name
    return results


def data(rank, shape, dtype, op="sum"):
    """Floats are such that no sum or product overflows and that rounding shows."""
    rng, dtype = np.random.default_rng(rank), dtype_of(dtype)
    if dtype.kind in "biu":
        return rng.integers(0, 100, shape).astype(dtype)
    return (1 + (rng.random(shape) - 0.5) / 8 if op == "prod" else rng.standard_normal(shape)).astype(dtype)


def bits(x):
    return x.dtype, x.shape, x.tobytes()


def assert_reduction(got, xs, op):
    """Integers, max and min exactly; sums and products within the bound of any order of summation."""
    if got.dtype.kind in "biu" or op in ("max", "min"):
        assert bits(got) == bits(reduce(NUMPY[op], xs))
        return
    wide = np.array(xs).astype(np.float64)
    eps = float(ml_dtypes.finfo(got.dtype).eps)
    room = np.abs(wide).sum(0) if op == "sum" else 2 * np.prod(wide, 0)
    assert (np.abs(got - NUMPY[op].reduce(wide, 0)) <= len(xs) * max(eps, 1e-16) * room).all()


@st.composite
def cases(draw):
    n = draw(RANKS)
    length = draw(st.one_of(st.sampled_from([0, 1, n - 1, n, n + 1, 13, 97]), st.integers(0, 40)))
    return n, length, draw(st.sampled_from(INTEGERS + FLOATS)), draw(NODES)


@settings(max_examples=70)
@given(cases(), st.sampled_from(sorted(NUMPY)))
def test_all_reduce(case, op):
    n, length, dtype, node_size = case
    xs = [data(r, length, dtype, op) for r in range(n)]
    outs = on_ranks(n, lambda c: by_all("AllReduce", lambda c: c.all_reduce(xs[c.rank], op), c), node_size)
    for of_ranks in zip(*outs, strict=True):
        assert len(set(map(bits, of_ranks))) == 1
        assert_reduction(of_ranks[0], xs, op)
    assert list(map(bits, outs[0][:len(outs[0]) // 2])) == list(map(bits, outs[0][len(outs[0]) // 2:]))


@settings(max_examples=45)
@given(cases(), st.sampled_from(sorted(NUMPY)), st.integers(0, 40))
def test_reduce_scatter_and_reduce(case, op, root):
    n, length, dtype, node_size = case
    k, root = length // n, root % n
    xs = [data(r, (n * k, 2), dtype, op) for r in range(n)]
    def program(c):
        return (by_all("ReduceScatter", lambda c: c.reduce_scatter(xs[c.rank], op), c),
                by_all("Reduce", lambda c: c.reduce(xs[c.rank], root, op), c))
    for r, (parts, wholes) in enumerate(on_ranks(n, program, node_size)):
        for results in (parts, wholes) if r == root else (parts,):
            half = len(results) // 2
            assert list(map(bits, results[:half])) == list(map(bits, results[half:]))
            for got in results:
                assert_reduction(got, xs if results is wholes else [x[r * k:(r + 1) * k] for x in xs], op)


@settings(max_examples=45)
@given(cases(), st.integers(0, 40))
def test_data_that_are_only_moved(case, root):
    n, length, dtype, node_size = case
    k, root = length // n, root % n
    xs = [data(r, (n * k, 2), dtype) for r in range(n)]
    flat = [data(r, length, dtype) for r in range(n)]               # no multiple of n
    before = [x.tobytes() for x in xs]
    def program(c):
        mine = xs[c.rank]
        return (by_all("AllGather", lambda c: c.all_gather(mine), c),
                by_all("Broadcast", lambda c: c.broadcast(flat[c.rank], root), c),
                by_all("AlltoAll", lambda c: c.all_to_all(mine), c),
                by_all("Gather", lambda c: c.gather(mine, root), c),
                by_all("Scatter", lambda c: c.scatter(mine, root), c),
                by_all("Barrier", lambda c: c.barrier(), c))
    for r, outs in enumerate(on_ranks(n, program, node_size)):
        here = slice(r * k, (r + 1) * k)
        wants = (np.concatenate(xs), flat[root], np.concatenate([x[here] for x in xs]),
                 np.concatenate(xs) if r == root else None, xs[root][here], None)
        for results, want in zip(outs, wants, strict=True):
            for got in results:
                assert got is want if want is None else bits(got) == bits(want)
    assert before == [x.tobytes() for x in xs]                      # nobody's array was worked in


@pytest.mark.parametrize("n", [4, 7])
@pytest.mark.parametrize("name", ALGORITHMS["AllReduce"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_nans_infinities_and_signed_zeros_are_the_same_bits_everywhere(n, name, dtype):
    values = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, 3e38], "float32")
    x = np.stack([np.roll(values, r) for r in range(8)]).reshape(-1)
    def program(c):
        with np.errstate(all="ignore"), selection.algorithm(name):
            return [c.all_reduce(np.roll(x, 3 * c.rank).astype(dtype), op).wait().tobytes() for op in NUMPY]
    with np.errstate(all="ignore"):
        outs = on_ranks(n, program, "2")
    assert all(out == outs[0] for out in outs)


@settings(max_examples=6)
@given(st.sampled_from([3, 4, 8]))
def test_large(n):
    xs = [data(r, 100_003, "float32") for r in range(n)]
    for outs in on_ranks(n, lambda c: by_all("AllReduce", lambda c: c.all_reduce(xs[c.rank]), c), "2"):
        for got in outs:
            assert_reduction(got, xs, "sum")


def test_any_order_of_waiting():
    """Two hierarchical collectives under way at once, waited for backwards, among others."""
    def program(c):
        with selection.algorithm("hierarchical"):
            handles = [c.all_reduce(np.full(5, c.rank)), c.all_gather(np.array([c.rank])), c.barrier(),
                       c.all_reduce(np.full(7, 2 * c.rank))]
        return [h.wait() for h in reversed(handles)]
    for last, _, gathered, first in on_ranks(6, program, "3"):
        assert (first == 15).all() and (last == 30).all() and gathered.tolist() == list(range(6))


# ---- structure, from the record ------------------------------------------------------------------------

def messages(n, name, call, node_size=""):
    """Each rank's sent messages."""
    def program(c):
        with selection.algorithm(name):
            call(c).wait()
        return c.endpoint.record.messages()
    return on_ranks(n, program, node_size)


def reduced(count):
    return lambda c: c.all_reduce(np.ones(count))


@pytest.mark.parametrize("n", [2, 3, 5, 8, 16])
def test_the_ring(n):
    sent = messages(n, "ring", reduced(6 * n))
    assert sum(map(len, sent)) == 2 * n * (n - 1)
    assert {(m.rank, m.peers[0]) for m in chain(*sent)} == {(r, (r + 1) % n) for r in range(n)}
    assert all(sum(m.bytes for m in of_rank) == 2 * (n - 1) * 6 * 8 for of_rank in sent)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_recursive_algorithms_take_log_p_rounds(n):
    rounds, count = int(log2(n)), 6 * n
    for of_rank in messages(n, "recursive_doubling", reduced(count)):
        assert [m.bytes for m in of_rank] == [count * 8] * rounds
        assert [m.peers[0] ^ m.rank for m in of_rank] == [1 << i for i in range(rounds)]
    for of_rank in messages(n, "rabenseifner", reduced(count)):
        down = [count * 8 >> i for i in range(1, rounds + 1)]
        assert [m.bytes for m in of_rank] == down + down[::-1]
    for of_rank in messages(n, "recursive_halving", lambda c: c.reduce_scatter(np.ones(count))):
        assert [m.bytes for m in of_rank] == down
    for name in ("recursive_doubling", "bruck"):
        for of_rank in messages(n, name, lambda c: c.all_gather(np.ones(6))):
            assert [m.bytes for m in of_rank] == down[::-1]


@pytest.mark.parametrize("n", [3, 5, 6, 7, 9])
def test_surplus_ranks_fold_in_and_out(n):
    left = 1 << n.bit_length() - 1
    for name, rounds in (("recursive_doubling", int(log2(left))), ("rabenseifner", 2 * int(log2(left)))):
        counts = sorted(map(len, messages(n, name, reduced(64))))
        assert counts == sorted([1] * (n - left) + [rounds + 1] * (n - left) + [rounds] * (2 * left - n))


@pytest.mark.parametrize("n", [2, 3, 5, 8, 9])
def test_trees_and_doubling_distances(n):
    rounds, x = ceil(log2(n)), np.ones(4)
    for name, call, total in (("tree", lambda c: c.broadcast(x, 1), n - 1), ("tree", lambda c: c.reduce(x, 1), n - 1),
                              ("tree", lambda c: c.gather(x, 1), n - 1), ("tree", lambda c: c.scatter(np.ones(4 * n), 1), n - 1),
                              ("tree", reduced(4), 2 * (n - 1)), ("bruck", lambda c: c.all_gather(x), n * rounds),
                              ("bruck", lambda c: c.all_to_all(np.ones(n)), n * rounds),
                              ("dissemination", lambda c: c.barrier(), n * rounds),
                              ("pairwise", lambda c: c.reduce_scatter(np.ones(n)), n * (n - 1)),
                              ("pairwise", lambda c: c.all_to_all(np.ones(n)), n * (n - 1))):
        sent = messages(n, name, call)
        assert sum(map(len, sent)) == total, (name, n)
        if name == "tree":
            assert max(map(len, sent)) <= 2 * rounds
    sent = messages(n, "van_de_geijn", lambda c: c.broadcast(np.ones(10 * n), 1))
    assert sum(m.bytes for m in sent[1]) <= 2 * (n - 1) * 80        # 2(p-1)/p of the array; a tree's root sends log2 p of it


@pytest.mark.parametrize(("n", "k"), [(4, 2), (8, 4), (9, 3), (12, 4)])
def test_hierarchical_sends_little_between_nodes(n, k):
    """N nodes of k ranks: what crosses, next to what it would be if all ranks' arrays crossed."""
    nodes, count = n // k, 12 * n
    def crossing(call):
        sent = messages(n, "hierarchical", call, str(k))
        return [[m for m in of_rank if m.rank // k != m.peers[0] // k] for of_rank in sent]
    def total(crossed):
        return sum(m.bytes for m in chain(*crossed)) // 8
    crossed = crossing(reduced(count))
    whole = nodes & (nodes - 1) == 0                                 # else ranks fold in between
    if whole:
        assert total(crossed) == 2 * (nodes - 1) * count             # as if the nodes were the ranks …
        assert all(sum(m.bytes for m in c) == 2 * (nodes - 1) * count * 8 // nodes // k for c in crossed)   # … in k pieces
    assert all((m.peers[0] - m.rank) % k == 0 for m in chain(*crossed))
    assert total(crossing(lambda c: c.reduce_scatter(np.ones(count)))) == (nodes - 1) * count
    assert total(crossing(lambda c: c.all_gather(np.ones(12)))) == (nodes - 1) * count
    for call in (lambda c: c.broadcast(np.ones(count), 1), lambda c: c.reduce(np.ones(count), 1)):
        crossed = crossing(call)
        assert total(crossed) == (nodes - 1) * count                 # each other node's leader once
        assert {r for m in chain(*crossed) for r in (m.rank, m.peers[0])} == {1, *range(k, n, k)}
    assert sum(map(len, crossing(lambda c: c.barrier()))) == nodes * ceil(log2(nodes))


def test_nodes_of_different_size():
    """7 ranks, 3 a node: the last node has one, so one leader a node speaks for it."""
    sent = messages(7, "hierarchical", reduced(20), "3")
    assert {r for m in chain(*sent) if m.rank // 3 != m.peers[0] // 3 for r in (m.rank, m.peers[0])} == {0, 3, 6}


def test_a_handle_that_failed_fails_again():
    begun = threading.Event()
    def fails(link, x, accumulate):
        if link.rank:
            assert begun.wait(10)
        yield [link.send(x, 1 - link.rank), link.receive(x, 1 - link.rank)]
        raise ArithmeticError("no sum")
    def program(c):
        if c.rank:
            with pytest.raises(ArithmeticError):
                c.all_reduce(np.ones(2)).wait()
            return
        handle = c.all_reduce(np.ones(2))
        begun.set()
        for _ in range(2):
            with pytest.raises(ArithmeticError):
                handle.wait()
        assert not c.endpoint.pending
    with selection.use(ring_all_reduce=fails):
        on_ranks(2, program)


def test_ranks_of_several_machines_choose_hierarchical(monkeypatch):
    monkeypatch.setattr(ThreadTransport, "host", lambda self, rank: 10 + rank // 2)
    def program(c):
        return c.nodes, c.locality, c.all_reduce(np.ones(3)).wait()[0], c.endpoint.record.collectives()[0].algorithm
    assert on_ranks(4, program) == [(((0, 1), (2, 3)), "nodes", 4.0, "hierarchical")] * 4


def test_a_link_among_some_places():
    def program(c):
        def steps(link, token):
            inner = link.within([3, 1, 2]) if link.rank else link.within([0])
            assert (inner.rank, inner.size) == ({0: 0, 1: 1, 2: 2, 3: 0}[link.rank], 3 if link.rank else 1)
            assert inner.nodes == (((0,),) if link.rank == 0 else ((1,), (2, 0)))
            twice = inner.within(range(inner.size - 1, -1, -1))
            yield from ring_all_reduce(twice, token, lambda dst, src: np.add(dst, src, out=dst))
        with selection.use(hierarchical_broadcast=lambda link, x, root: steps(link, x)):
            return c.broadcast(np.array([c.rank]), 0).wait()[0]
    assert on_ranks(4, program, "2") == [0, 6, 6, 6]


# ---- which one runs ------------------------------------------------------------------------------------

def ran(n, node_size=""):
    """The algorithm of one call of each op."""
    def program(c):
        x = np.ones(n)
        for handle in (c.all_reduce(x), c.reduce_scatter(x), c.all_gather(x), c.broadcast(x, 0), c.reduce(x, 0),
                       c.all_to_all(x), c.gather(x, 0), c.scatter(x, 0), c.barrier()):
            handle.wait()
        return {e.op: e.algorithm for e in c.endpoint.record.collectives()}
    out = on_ranks(n, program, node_size)
    assert all(o == out[0] for o in out)
    return out[0]


PLAIN = {"AllReduce": "ring", "ReduceScatter": "ring", "AllGather": "ring", "Broadcast": "tree", "Reduce": "tree",
         "AlltoAll": "pairwise", "Gather": "linear", "Scatter": "linear", "Barrier": "dissemination"}


def test_default_choices():
    assert ran(4) == PLAIN == ran(4, "1") == ran(4, "4") == ran(4, "3")        # the last: a node of one rank
    levels = {op: "hierarchical" if "hierarchical" in ALGORITHMS[op] else name for op, name in PLAIN.items()}
    assert ran(4, "2") == levels
    for op, name in PLAIN.items():
        assert selection.choose(op, 8, 1 << 20, "shared") == "shared"
        assert selection.choose(op, 8, 1 << 20, "messages") == selection.choose(op, 8, 0, "threads") == name


def test_a_group_sees_its_own_nodes():
    world = [Communicator(Endpoint(mock.Mock(rank=r, size=8, locality="threads", node=None)), range(8), "w") for r in (0, 5)]
    with mock.patch.dict(os.environ, MINISPORE_NODE_SIZE="4"):
        assert world[0].nodes == ((0, 1, 2, 3), (4, 5, 6, 7)) and world[0].locality == "nodes"
        group = world[1].split((5, 0, 1, 7), "g")
        assert group.nodes == ((0, 3), (1, 2)) and group.locality == "nodes"
        assert world[0].split((0, 2), "h").locality == "threads"
        assert world[0].split((0, 4), "i").locality == "threads"


def test_forced_by_environment(monkeypatch):
    monkeypatch.setenv("MINISPORE_ALGORITHM", "tree")
    assert ran(3) == PLAIN | dict.fromkeys(("AllReduce", "Broadcast", "Reduce", "Gather", "Scatter", "Barrier"), "tree")
    with selection.algorithm("ring"):                                # what stands in the program is nearer
        assert ran(3) == PLAIN
    monkeypatch.setenv("MINISPORE_ALGORITHM", "rings")
    with pytest.raises(ValueError, match=r"MINISPORE_ALGORITHM: there is no algorithm 'rings'; near: ring. There are: bruck, "):
        ran(3)


def test_forced_around_and_inside_ranks():
    with selection.algorithm("recursive_doubling"):
        assert ran(3)["AllReduce"] == "recursive_doubling"
        with selection.algorithm("tree"):
            assert ran(3)["AllReduce"] == "tree"
        assert ran(3)["AllReduce"] == "recursive_doubling"
    assert ran(3) == PLAIN
    with pytest.raises(ValueError, match="algorithm: there is no algorithm 'comet'. There are: bruck, .*tree"), \
            selection.algorithm("comet"):
        pass


def test_an_algorithm_of_ones_own():
    calls = []
    def mine(link, x, accumulate):
        calls.append(link.rank)
        yield from ring_all_reduce(link, x, accumulate)
        x += 1
    with selection.use(ring_all_reduce=mine):
        assert [out[0] for out in on_ranks(3, lambda c: c.all_reduce(np.ones(2)).wait())] == [4, 4, 4]
        with selection.use(tree_broadcast=lambda link, x, root: iter(())), selection.algorithm("tree"):
            out = on_ranks(2, lambda c: (c.all_reduce(np.ones(1)).wait()[0], c.broadcast(np.array([c.rank]), 0).wait()[0]))
            assert out == [(2, 0), (2, 1)]
    assert sorted(calls) == [0, 1, 2]
    assert on_ranks(2, lambda c: c.all_reduce(np.ones(2)).wait()[0]) == [2, 2]
    near = "no algorithm function 'ring_allreduce'; near: ring_all_reduce, .*There are: bruck_all"
    with pytest.raises(ValueError, match=near), \
            selection.use(ring_allreduce=mine):
        pass
    with pytest.raises(TypeError, match="ring_all_reduce is replaced by a int, which can't be called"), \
            selection.use(ring_all_reduce=3):
        pass


def test_a_table_of_ones_own(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    table = selection.checked({"AllReduce": [[2, None, "any", "tree"], [None, 64, "threads", "recursive_doubling"],
                                             [None, 1024, "nodes", "hierarchical"], [None, None, "any", "rabenseifner"]]})
    selection.save(table, path)
    assert selection.load(path) == table
    kinds = [selection.Selection(t) for t in (selection.load(path), table, selection.DEFAULT)]
    assert selection.fingerprint(kinds[0]) == selection.fingerprint(kinds[1]) != selection.fingerprint(kinds[2])
    monkeypatch.setenv("MINISPORE_ALGORITHM_TABLE", str(path))
    want = {(2, 999, "threads"): "tree", (3, 64, "threads"): "recursive_doubling", (3, 65, "threads"): "rabenseifner",
            (3, 64, "messages"): "rabenseifner", (4, 1024, "nodes"): "hierarchical", (4, 1025, "nodes"): "rabenseifner"}
    assert {case: selection.choose("AllReduce", *case) for case in want} == want
    assert ran(3) == PLAIN | {"AllReduce": "recursive_doubling"}
    assert ran(9) == PLAIN | {"AllReduce": "rabenseifner"}


@pytest.mark.parametrize(("text", "message"), [
    ("{", "is no JSON"), ("[1]", "must map some of AllReduce"), ('{"AllSum": []}', "must map some of AllReduce"),
    ('{"Reduce": []}', "Reduce must have a list of rows"), ('{"Reduce": [[1, 2]]}', "most ranks, most bytes, locality"),
    ('{"Reduce": [["2", null, "any", "tree"]]}', "whole numbers, or null"),
    ('{"Reduce": [[null, null, "moon", "tree"]]}', "locality must be one of shared, nodes, messages, threads, any"),
    ('{"Reduce": [[null, null, "any", "ring"]]}', "Reduce has the algorithms tree, rabenseifner, hierarchical"),
    ('{"Reduce": [[null, null, "any", "shared"]]}', 'needs the locality "shared"'),
    ('{"Reduce": [[4, null, "any", "tree"]]}', "last row must be"),
])
def test_bad_tables(tmp_path, text, message):
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        selection.load(path)


def test_bad_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MINISPORE_ALGORITHM_TABLE", str(tmp_path / "absent.json"))
    with pytest.raises(ValueError, match=r"algorithm table .*absent.json: No such file"):
        run_ranks(lambda: None, 2)
    monkeypatch.delenv("MINISPORE_ALGORITHM_TABLE")
    for size in ("0", "-1", "two"):
        monkeypatch.setenv("MINISPORE_NODE_SIZE", size)
        with pytest.raises(ValueError, match="MINISPORE_NODE_SIZE='.*' must be a whole number of ranks"):
            run_ranks(lambda: None, 2)


def test_rank_0s_selection_is_everybodys():
    """As in init() of a job of processes, whose environments may differ."""
    table = selection.checked({"AllReduce": [[None, None, "any", "tree"]]})
    def program(c):
        selection.enter(selection.Selection(table, "bruck", 2) if c.rank == 0 else
                        selection.Selection(selection.DEFAULT, "van_de_geijn"))
        agreed = selection.agreed(c)
        selection.enter(agreed)
        return json.dumps(agreed.table), agreed.forced, agreed.node_size, selection.choose("AllReduce", 5, 9, "threads")
    assert on_ranks(5, program) == [(json.dumps(table), "bruck", 2, "tree")] * 5
