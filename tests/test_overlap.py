"""Collectives that overlap with computing: when they begin; results, order and memory are right; what a failure leaves."""
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_networks import Network
from test_parity_networks import drawn_by
from transformer import Split, batches, training_step

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.common.state import current
from minispore.communication import create_group, get_rank, get_record, init
from minispore.communication.buckets import MEGABYTE, buckets, limits
from minispore.communication.management import communicator
from minispore.graph import execute, memory
from minispore.graph.compile import trace_call
from minispore.graph.execute import Program
from minispore.graph.overlap import Start, Wait, overlap, progress
from minispore.graph.passes import simplify
from minispore.lab import run_ranks
from minispore.ops.primitive import Primitive, Spec

ONE_MB = {"comm_fusion": {"allreduce": {"mode": "size", "config": 1}}}


@pytest.fixture
def programs(monkeypatch):
    """The programs that ranks make, as (rank, program)."""
    seen, make = [], Program.__init__

    def noting(self, *args):
        make(self, *args)
        seen.append((current().rank, self))
    monkeypatch.setattr(Program, "__init__", noting)
    return seen


def mlp_step(layers=3, width=12, dtype=ms.float32, **parallel):
    """A data-parallel training step, and a batch of this rank's own."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, **parallel)
    ms.set_seed(1)
    net = nn.SequentialCell(*(nn.Dense(width, width, dtype=dtype, activation="tanh") for _ in range(layers)))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    x = np.random.default_rng(get_rank()).normal(size=(4, width)).astype(dtype)
    return net, step, Tensor(x)


def weights(net):
    return [p.asnumpy() for p in net.get_parameters()]


def assert_same(ranks, others):
    for mine, other in zip(ranks, others, strict=True):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_array_equal(a, b)


# ---- when they begin --------------------------------------------------------------------------------------

def test_buckets_go_out_while_backward_runs(programs):
    """Three buckets, one a layer: each begins behind the last gradient in it, the last layer's first."""
    def program():
        init()
        _, step, x = mlp_step(all_reduce_fusion_config=[2, 4])
        step(x, x)
        return [e.count for e in get_record().collectives()]
    assert run_ranks(program, 2) == [[156] * 3] * 2
    for _, made in programs:
        nodes = [node for *_, node in made.calls]
        kinds = [type(node.op) for node in nodes]
        begins, ends = ([i for i, kind in enumerate(kinds) if kind is which and made.calls[i][0] is not progress]
                        for which in (Start, Wait))
        backward = [i for i, node in enumerate(nodes) if kinds[i].__name__ == "MatMul" and node.op.transpose_a]
        assert len(begins) == len(ends) == len(backward) == 3
        assert backward[0] < begins[0] < backward[1] < begins[1] < backward[2] < begins[2] < ends[0]
        for a, b in zip(begins, ends, strict=True):
            assert nodes[b].op.begun is nodes[a].op
            assert any(call is progress for call, *_ in made.calls[a:b])


def test_the_record_shows_it():
    """The first is still open when the last begins: rank 1 comes to its step only after rank 0 has begun all three."""
    def program():
        init()
        _, step, x = mlp_step(all_reduce_fusion_config=[2, 4])
        step(x, x)
        communicator().barrier().wait()
        get_record().events.clear()
        if get_rank() == 1:
            communicator().receive((1,), np.float32, 0, 7).wait()
        else:
            begin, begun = communicator().all_reduce, []

            def counting(*args, **kwargs):
                begun.append(begin(*args, **kwargs))
                if len(begun) == 3:
                    communicator().send(np.ones(1, np.float32), 1, 7)
                return begun[-1]
            communicator().all_reduce = counting
        step(x, x)
        first, _, last = (e for e in get_record().collectives() if e.op == "AllReduce")
        return first.end > last.begin
    assert run_ranks(program, 2)[0]


def test_without_collectives_nothing_changes():
    def f(x):
        return ops.sum(ops.tanh(x @ x) + x.reshape((-1,)).reshape(x.shape))
    graph = simplify(trace_call(f, Tensor(np.ones((3, 3)))))
    nodes = list(graph.nodes)
    program = Program(graph)
    assert graph.nodes == nodes
    assert [node for *_, node in program.calls] == [n for n in nodes if not n.op.view]


def test_what_can_not_overlap_stays_one_call():
    init()
    program = Program(trace_call(lambda x: ops.AllReduce()(x * 2) + 1, Tensor(np.ones(3))))
    assert [node.op.name for *_, node in program.calls] == ["Mul", "AllReduce", "Add"]


def test_effects_keep_their_order():
    """The second collective can't pass the Barrier, nor the Print its own place."""
    init()

    def f(x):
        a = ops.AllReduce()(x)
        ops.Barrier()()
        b = ops.AllGather()(x)
        y = ops.matmul(x, x)
        y = ops.Print()("y", y)
        c = ops.ReduceScatter()(x)
        return ops.matmul(y, y) + a + b + c
    graph = overlap(trace_call(f, Tensor(np.ones((2, 2)))))
    effects = [n.op.op.name if isinstance(n.op, Start) else n.op.name for n in graph.nodes
               if n.op.effect and not isinstance(n.op, Wait)]
    assert effects == ["AllReduce", "Barrier", "AllGather", "Print", "ReduceScatter"]
    text = graph.show()
    assert text.index("Start(op=AllGather") < text.index("MatMul") < text.index("Wait(begun=Start(op=AllReduce")


# ---- results ----------------------------------------------------------------------------------------------

def local_training(seed, n, fusion):
    """A drawn network in data parallel."""
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, all_reduce_fusion_config=fusion)
    net = Network(drawn_by(seed, n))
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.01, 0.9))
    losses = [step(Tensor(net.drawn.x * (1 + get_rank()))).asnumpy() for _ in range(2)]
    return [*losses, *weights(net), calls()]


def logical_training(seed, n, fusion):
    """The same in semi-auto parallel, with its strategies."""
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", all_reduce_fusion_config=fusion)
    net = Network(drawn_by(seed, n))
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.01, 0.9))
    losses = [step(Tensor(net.drawn.x)).asnumpy() for _ in range(2)]
    return [*losses, *weights(net), calls()]


def calls():
    """This rank's collectives as numbers that tell op, group, place and size."""
    return [hash((e.op, e.group, e.sequence, e.count, e.dtype)) for e in get_record().collectives()]


def poisoned(prepare):
    """`prepare`, with what no value lives in overwritten after every node."""
    def wrapped(self):
        prepare(self)
        nodes, root, size = self.graph.nodes, self.root, self.plan.size
        first, last = {}, {root.get(v, v): len(nodes) for v in self.graph.results()}
        for i, node in enumerate(nodes):
            for v in (*node.outs, *node.ins):
                v = root.get(v, v)
                first.setdefault(v, i)
                last[v] = max(last.get(v, i), i)
        free = {}
        for i, node in enumerate(nodes):
            free[node] = np.ones(size, bool)
            for v, at in self.plan.offset.items():
                if first[v] <= i < last[v]:
                    free[node][at:at + memory.bytes_of(v)] = False

        def poison(arena, where):
            arena[where] = 0xFF
        done = []
        for call in self.calls:
            done.append(call)
            if call[0] is not progress:
                done.append((poison, self.arena[:size], (free[call[3]],), call[3]))
        self.calls = done
    return wrapped


@settings(max_examples=40)
@given(seed=st.integers(0, 400), n=st.integers(1, 4), fusion=st.sampled_from([[], [1], [1, 2], [2, 4]]), logical=st.booleans())
def test_results_and_order_are_those_without_overlap(seed, n, fusion, logical):
    training = logical_training if logical else local_training
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "overlap", lambda graph: graph)
        apart = run_ranks(training, n, seed, n, fusion)
    assert_same(run_ranks(training, n, seed, n, fusion), apart)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "prepare", poisoned(Program.prepare))
        assert_same(run_ranks(training, n, seed, n, fusion), apart)


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16, ms.float64])
def test_narrow_gradients(dtype):
    """As float32 in the message, or not."""
    def program(wide):
        init()
        net, step, x = mlp_step(dtype=dtype, gradient_fp32_sync=wide, all_reduce_fusion_config=[2])
        return [step(x, x).asnumpy(), step(x, x).asnumpy(), *weights(net)]
    for wide in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execute, "overlap", lambda graph: graph)
            apart = run_ranks(program, 3, wide)
        assert_same(run_ranks(program, 3, wide), apart)


@pytest.mark.parametrize("parallel", [{}, {"enable_parallel_optimizer": True,
                                           "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}])
def test_transformer_in_semi_auto(programs, parallel):
    def program():
        init()
        ms.set_context(mode=ms.GRAPH_MODE)
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", dataset_strategy="full_batch", **parallel)
        step = training_step(Split(2, 2, 1))
        return [step(*batch).asnumpy() for batch in batches(2)] + weights(step.network)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "overlap", lambda graph: graph)
        apart = run_ranks(program, 4)
    programs.clear()
    assert_same(run_ranks(program, 4), apart)
    assert all(any(isinstance(n.op, Start) for n in made.graph.nodes) for _, made in programs)


def test_groups():
    """Two groups whose collectives mix, of all kinds."""
    def program():
        init()
        ms.set_context(mode=ms.GRAPH_MODE)
        me = get_rank()
        create_group("half", [me // 2 * 2, me // 2 * 2 + 1])
        create_group("other", [me % 2, me % 2 + 2])

        @ms.jit
        def f(x):
            a, b = ops.AllReduce("max", "half")(x), ops.AllGather("other")(x * 2)
            c, d = ops.ReduceScatter("sum", "half")(x), ops.AlltoAll(2, 0, 1, "other")(x)
            y = ops.matmul(x, x)
            e = ops.Broadcast(1, "half")((x, y))
            g = ops.Reduce(0, "sum", "other")(y)
            y = ops.matmul(y, y)
            return a, b, c, d, *e, g, y, ops.AllReduce("sum", "other")(ops.AllReduce("sum", "half")(x + y))
        x = Tensor(np.random.default_rng(me).normal(size=(4, 4)))
        return [t.asnumpy() for t in f(x)] + [calls()]
    together = run_ranks(program, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "overlap", lambda graph: graph)
        assert_same(together, run_ranks(program, 4))


# ---- memory -----------------------------------------------------------------------------------------------

class Later:
    """A handle whose result is made when it is waited for."""

    def __init__(self, make):
        self.wait = make


@dataclass(frozen=True)
class Late(Primitive):
    """A collective that reads its input to the last, and writes into its output from the first."""
    scale: float
    effect = True

    def infer(self, x):
        return Spec(x.shape, x.dtype)

    def post(self, out, x):
        out[...] = np.nan
        return [Later(lambda: np.multiply(x, self.scale, out=out))]

    def cpu(self, out, x):
        self.post(out, x)[0].wait()


@settings(max_examples=60)
@given(st.data())
def test_inputs_live_until_the_wait(data):
    """Values that die early: nothing else lies where a collective under way still reads or writes."""
    init()
    script = [(data.draw(st.sampled_from(["late", "late", "mul", "matmul", "view"])), data.draw(st.integers(0, 30)),
               data.draw(st.integers(0, 30))) for _ in range(data.draw(st.integers(3, 16)))]

    def f(x):
        values = [x]
        for k, (kind, i, j) in enumerate(script):
            a, b = values[-1 - i % min(len(values), 3)], values[j % len(values)]
            values.append({"late": lambda: Late(0.5 + k / 8)(a), "mul": lambda: ops.tanh(a) * b,
                           "matmul": lambda: ops.tanh(ops.matmul(a, b)),
                           "view": lambda: ops.reshape(ops.reshape(a, (-1,)), (3, 3))}[kind]())
        return values[-1], ops.sum(values[len(values) // 2])
    x = np.random.default_rng(len(script)).normal(size=(3, 3))
    expected = [t.asnumpy() for t in f(Tensor(x))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "prepare", poisoned(Program.prepare))
        program = Program(simplify(trace_call(f, Tensor(x))))
        for _ in range(2):
            for got, want in zip(program([x]), expected, strict=True):
                np.testing.assert_array_equal(got, want)


# ---- failures ---------------------------------------------------------------------------------------------

FAIL: set[int] = set()              # ranks that fail


class Fragile(Primitive):
    """The same values; its gradient may fail."""

    def forward(self, x):
        return x

    def gradient(self, x, out, dout):
        return (Failing()(dout),)


class Failing(Primitive):
    """The same values, or an error."""

    def flops(self, x):
        return 10 ** 6              # in earnest: it stays in its place

    def forward(self, x):
        if get_rank() in FAIL:
            raise ArithmeticError("half-way")
        return x


def fragile_step():
    net, _, x = mlp_step(2, all_reduce_fusion_config=[2])
    net = nn.SequentialCell(net[0], Behind(), net[1])
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    return net, step, x


class Behind(nn.Cell):
    def construct(self, x):
        return Fragile()(x)


def test_after_a_failure_on_all_ranks_the_next_step_is_right(programs):
    """The second bucket's gradients fail while the first is under way."""
    def program(fail):
        init()
        net, step, x = fragile_step()
        for _ in range(2 if fail else 0):
            FAIL.add(get_rank())
            with pytest.raises(ArithmeticError, match="half-way"):
                step(x, x)
            FAIL.discard(get_rank())
        losses = [step(x, x).asnumpy() for _ in range(3)]
        communicator().barrier().wait()
        communicator().endpoint.progress()
        return [*losses, *weights(net), np.array(len(communicator().endpoint.pending))]
    clean = run_ranks(program, 3, False)
    assert_same(run_ranks(program, 3, True), clean)
    assert all(not n.op.handles for _, made in programs for n in made.graph.nodes if isinstance(n.op, Start))
    assert all(r[-1] == 0 for r in clean)


def test_a_failure_on_one_rank_ends_the_others():
    def program():
        init()
        _, step, x = fragile_step()
        step(x, x)
        FAIL.add(2)
        step(x, x)
    try:
        with pytest.raises(ArithmeticError, match="half-way"):
            run_ranks(program, 3)
    finally:
        FAIL.clear()


# ---- buckets ----------------------------------------------------------------------------------------------

def spec(values, dtype="float32"):
    return Spec((values,), np.dtype(dtype))


def asked(**settings):
    return {"comm_fusion": None, "all_reduce_fusion_config": [], **settings}


@pytest.mark.parametrize(("settings", "sizes", "groups", "expected"), [
    (asked(), [1000] * 5, [1] * 5, [[0, 1, 2, 3, 4]]),
    (asked(), [MEGABYTE // 4] * 8, [1] * 8, [[0, 1], [2, 3], [4, 5], [6, 7]]),              # 8 MB: four buckets
    (asked(), [MEGABYTE // 2, 10, 10], [1] * 3, [[0], [1, 2]]),                            # what is larger goes alone
    (asked(), [10] * 4, [1, 0, 0, 1], [[1], [2], [0, 3]]),
    (asked(), [10] * 4, [1, 2, 2, 1], [[1, 2], [0, 3]]),
    (asked(all_reduce_fusion_config=[1, 3]), [10] * 4, [1] * 4, [[0], [1, 2], [3]]),
    (asked(comm_fusion={"allreduce": {"mode": "index", "config": [2]}}), [10] * 4, [1] * 4, [[0, 1], [2, 3]]),
    (asked(comm_fusion={"allreduce": {"mode": "auto", "config": None}}), [MEGABYTE] * 17, [1] * 17,
     [list(range(16)), [16]]),                                                              # 64 MB
    (asked(**ONE_MB), [MEGABYTE // 8] * 3, [1] * 3, [[0, 1], [2]]),
    (asked(comm_fusion={"allgather": {"mode": "size", "config": 1}}), [1000] * 2, [1] * 2, [[0, 1]]),
])
def test_which_go_together(settings, sizes, groups, expected):
    assert buckets(settings, "allreduce", list(map(spec, sizes)), groups) == expected


def test_a_large_model_s_buckets_have_25_mb():
    assert limits(asked(), "allreduce", 10 ** 9)(0) == (25 * MEGABYTE, 0)


def test_dtypes_go_apart_and_the_first_complete_first():
    tensors = [spec(3), spec(3, "float64"), spec(3, "float64"), spec(3)]
    assert buckets(asked(), "allreduce", tensors, [1] * 4) == [[1, 2], [0, 3]]


@pytest.mark.parametrize(("parallel", "counts"), [({}, [312]), ({"all_reduce_fusion_config": [2]}, [156, 156]),
                                                  (ONE_MB, [312]), ("each alone", [12, 144, 12, 144])])
def test_data_parallel_heeds_the_settings(parallel, counts):
    def program():
        init()
        net, _, x = mlp_step(2, **(parallel if isinstance(parallel, dict) else {}))
        if parallel == "each alone":
            net.set_comm_fusion(0)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
        step(x, x)
        return [e.count for e in get_record().collectives()]
    assert run_ranks(program, 2) == [counts] * 2


def test_compile_shows_the_pass():
    ms.set_context(mode=ms.GRAPH_MODE)
    matmul = ops.MatMul().shard(((1, 2), (2, 1)))
    x = Tensor(np.ones((4, 4), np.float32))
    program = ms.compile(lambda x: matmul(x, x) + ops.tanh(x @ x), x, device_num=2)
    assert "Start(op=ReduceScatterOver" in program.show("overlap") and "Start" not in program.show("local")
