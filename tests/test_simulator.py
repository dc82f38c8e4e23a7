"""The simulator: programs in virtual time, their figures and pictures."""
import json
from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer import Split, batches, training_step

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.demo.lenet import LeNet5
from minispore.graph import memory
from minispore.graph.compile import trace_call
from minispore.graph.ir import Graph
from minispore.graph.overlap import overlap
from minispore.graph.passes import simplify
from minispore.ops.primitive import Pin, Spec
from minispore.parallel import compile
from minispore.parallel.cost import CLUSTERS, Cluster, Link, exchange_seconds, group_seconds, move_seconds, node_seconds
from minispore.parallel.cost.exchange import collective_seconds
from minispore.parallel.layout import TensorLayout
from minispore.parallel.mesh import Mesh
from minispore.parallel.simulator import scaling, simulate, simulate_graphs
from minispore.parallel.simulator.efficiency import table
from minispore.parallel.simulator.program import communicates, memory_of
from minispore.parallel.simulator.timeline import BETWEEN, INSIDE, duration, size

A100 = CLUSTERS["a100"]
FREE = Cluster("free", A100.device, 8, Link(0.0, 1e30), Link(0.0, 1e30), "a test")


# ---- programs ----------------------------------------------------------------------------------------

def lenet(n, rows=8, **settings):
    net = LeNet5()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 0.01, 0.9))
    images = Tensor(np.zeros((rows * n, 1, 28, 28), np.float32))
    return compile(step, images, Tensor(np.zeros(rows * n, np.int32)), device_num=n, **settings)


@pytest.fixture(scope="module")
def transformer():
    return compile(training_step(Split(2, 2, 2)), *batches(1)[0], device_num=8, enable_parallel_optimizer=True,
                   parallel_optimizer_config={"parallel_optimizer_threshold": 0})


def test_without_communication_a_step_is_the_sum_of_its_nodes():
    program = lenet(1)
    line = simulate(program, "a100")
    assert line.seconds == pytest.approx(sum(node_seconds(A100.device, n) for n in program.scheduled.nodes))
    late = replace(A100, begin=1.0)                 # a run's start
    assert simulate_graphs([program.scheduled] * 2, 1, late).seconds == pytest.approx(2 + 2 * line.seconds)
    assert line.idle == pytest.approx(0, abs=1e-12) and line.bytes == {INSIDE: 0, BETWEEN: 0}


def test_links_that_cost_nothing_expose_nothing(transformer):
    line = simulate(transformer, FREE)
    assert line.exposed == line.communication == 0 and line.idle == pytest.approx(0, abs=1e-12)
    computed = [node for node in transformer.graph.nodes if not communicates(node.op)]
    assert line.seconds == pytest.approx(sum(node_seconds(A100.device, node) for node in computed))


def test_where_nothing_overlaps_both_add_up(transformer):
    apart = replace(A100, overlap=False)
    line = simulate(transformer, apart)
    assert line.seconds == pytest.approx(line.compute + line.communication) and line.exposed == pytest.approx(line.communication)
    both = simulate(transformer, A100)
    assert both.seconds < line.seconds and both.communication == pytest.approx(line.communication) and both.peak == line.peak


def test_all_that_is_sent_is_counted(transformer):
    line = simulate(transformer, "a100")
    assert set(line.bytes_by_collective) == set(transformer.collectives) and len(transformer.collectives) > 2
    assert sum(line.bytes.values()) == pytest.approx(transformer.sent_bytes, rel=1e-3)
    apart = Cluster("apart", A100.device, 1, A100.inside, A100.between, "a test")
    assert line.bytes[BETWEEN] == 0 == simulate(transformer, apart).bytes[INSIDE]


def test_collectives_in_slower_nets_take_longer(transformer):
    seconds = [simulate(transformer, name).seconds for name in ("h100", "a100")]
    assert seconds == sorted(seconds)
    inside, between = (simulate(transformer, Cluster("c", A100.device, k, A100.inside, A100.between, "a test")).seconds
                       for k in (8, 2))
    assert inside < between


@pytest.mark.parametrize("n", [4, 6, 16])
def test_a_group_takes_what_its_mesh_axes_take(n):
    mesh = Mesh(n)
    cluster = Cluster("c", A100.device, 2, A100.inside, A100.between, "a test")
    for k in range(1, len(mesh.sizes) + 1):
        for axes in combinations(mesh.axes, k):
            for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "halo"):
                assert group_seconds(cluster, op, mesh.group(0, axes), 1e6) == collective_seconds(cluster, op, mesh, axes, 1e6)


def test_moves_take_what_the_cost_model_says(transformer):
    """The program's collectives, fused as they are, against the moves they were made of."""
    unfused = compile(training_step(Split(2, 2, 2)), *batches(1)[0], device_num=8,
                      comm_fusion={"allreduce": {"mode": "index", "config": list(range(1, 200))}})
    cut = unfused.cut
    expected = sum(move_seconds(A100, cut.mesh, s.do, s.outs[0].value.shape, s.outs[0].value.dtype.itemsize)
                   for s in cut.steps if hasattr(s.do, "axes") and s.do.op != "slice" and len(s.outs) == 1)
    fused = sum(len(s.outs) > 1 for s in cut.steps if hasattr(s.do, "axes"))
    line = simulate(unfused, "a100")
    assert line.communication >= expected * 0.999 and (fused or line.communication == pytest.approx(expected))


def convolution(rank=0, n=4, height=16, kernel=3):
    op = ops.Conv2D(2, kernel, pad_mode="same").shard(((1, 1, n, 1), (1, 1, 1, 1)))
    weight = Parameter(np.ones((2, 2, kernel, kernel), np.float32), "w")
    step = ms.value_and_grad(lambda x: ops.sum(op(x, weight)), None, [weight])
    return compile(step, Tensor(np.ones((1, 2, height, 5), np.float32)), device_num=n, global_rank=rank)


def test_halos_take_what_the_cost_model_says():
    op, weight = ops.Conv2D(2, 5, pad_mode="same").shard(((1, 1, 4, 1), (1, 1, 1, 1))), Tensor(np.ones((2, 2, 5, 5), np.float32))
    program = compile(lambda x: op(x, weight), Tensor(np.ones((1, 2, 16, 5), np.float32)), device_num=4)
    moves = [s for s in program.cut.steps if hasattr(s.do, "axes") and s.do.op != "slice"]
    assert {s.do.op for s in moves} >= {"halo"} and all(len(s.outs) == 1 for s in moves)
    shapes = [next(iter(s.ins)).value.shape for s in moves]
    assert simulate(program, "a100").communication == pytest.approx(
        sum(move_seconds(A100, program.cut.mesh, s.do, shape, 4) for s, shape in zip(moves, shapes, strict=True)))


@pytest.mark.parametrize("n, node_size, kernel", [(2, 8, 3), (4, 8, 5), (4, 2, 3), (6, 2, 3), (6, 4, 5)])
def test_halos_are_counted_as_all_ranks_send_them(n, node_size, kernel):
    apart = Cluster("c", A100.device, node_size, A100.inside, A100.between, "a test")
    line = simulate(convolution(0, n, 4 * n, kernel), apart)
    sent = Counter()
    for me in range(n):
        for op, out in ((node.op, node.outs[0]) for node in convolution(me, n, 4 * n, kernel).communications):
            for reader in range(n):
                start, stop = op.overlap(reader, op.place) if op.name == "HaloOver" else (0, 0)
                if reader != me and start < stop:
                    link = INSIDE if reader // node_size == me // node_size else BETWEEN
                    sent[link] += (stop - start) * prod(out.shape) // op.size * 4 / n
    assert sent and all(line.bytes_by_collective["Halo"][link] == pytest.approx(sent[link], abs=1) for link in (INSIDE, BETWEEN))


def test_sixteen_bit_floats_that_are_summed_go_as_four_bytes():
    """As the ranks' own record says."""
    def bytes_of(dtype):
        w = Parameter(np.ones((8, 8), dtype), "w")
        step = ms.value_and_grad(lambda x: ops.sum(ops.matmul(x, w)), None, [w])
        program = compile(step, Tensor(np.ones((4, 8), dtype)), device_num=2)
        sent = simulate(program, "a100").bytes_by_collective["AllReduce"][INSIDE]
        assert sent == program.sent_bytes
        return sent
    assert bytes_of(np.float16) == bytes_of(np.float32) == bytes_of(np.float64) / 2
    whole, split, partial = TensorLayout(((),)), TensorLayout(((0,),)), TensorLayout(((),), frozenset({0}))
    for src, dst, factor in ((partial, whole, 1), (partial, split, 1), (split, whole, 2)):
        two, four = (exchange_seconds(A100, Mesh(2), (1 << 28,), size, src, dst) for size in (2, 4))
        assert four == pytest.approx(factor * two, rel=0.01)


def planned(graph):
    """{value: (offset, bytes, first, last)}: where graph/memory.py puts it, and from which node on to which it is needed."""
    owned = {v for node in graph.nodes for v in node.outs} | set(graph.inputs)
    root = memory.roots(graph, lambda v: v in owned)
    offset = memory.plan(graph, root, {graph.assigned[p] for p in memory.in_place(graph, root)} | set(graph.inputs)).offset
    last = {root.get(v, v): i for i, node in enumerate(graph.nodes) for v in (*node.outs, *node.ins)}
    last |= {root.get(v, v): len(graph.nodes) for v in graph.results()}
    made = {v: i for i, node in enumerate(graph.nodes) for v in node.outs}
    return {v: (offset[v], memory.bytes_of(v), made[v], last[v]) for v in offset}


def agrees_with_the_plan(graph):
    """While each node runs, as many bytes are in use as the plan has in use."""
    places, used = planned(graph), 0
    for i, (takes, frees) in enumerate(memory_of(graph).values()):
        used += takes
        covered = {line for at, size, first, last in places.values() if first <= i <= last
                   for line in range(at, at + size, memory.ALIGN)}
        assert used == memory.ALIGN * len(covered)
        used -= frees


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["neg", "add", "wide", "view", "assign"]), st.integers(0, 9), st.integers(0, 9)),
                min_size=1, max_size=10), st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_as_much_memory_is_in_use_as_the_plan_says(steps, outputs):
    parameters = [Parameter(np.ones(40, np.float32), f"p{i}") for i in range(2)]

    def program(x):
        made = [x]
        for what, i, j in steps:
            a, b = made[i % len(made)], made[j % len(made)]
            if what == "assign":
                ops.assign(parameters[i % 2], ops.cast(b, ms.float32) * 2.0)
            made.append({"neg": lambda a, b: -a, "add": lambda a, b: a + b, "wide": lambda a, b: ops.cast(a, ms.float64),
                         "view": lambda a, b: ops.reshape(ops.reshape(a, (5, 8)), (40,)),
                         "assign": lambda a, b: a * parameters[j % 2]}[what](a, b))
        return tuple(made[k % len(made)] for k in outputs)
    agrees_with_the_plan(overlap(simplify(trace_call(program, Tensor(np.ones(40, np.float32))))))


@pytest.mark.parametrize("program", [lenet(1), lenet(4), convolution()], ids=["one", "four", "halo"])
def test_memory_is_that_of_the_plan(program):
    graph = program.scheduled
    agrees_with_the_plan(graph)
    kept = sum(map(memory.bytes_of, (*graph.parameters.values(), *graph.inputs)))
    for cluster in ("cpu", "a100"):
        line = simulate(program, cluster)
        curve = [used for _, used in line.parts[0].memory]
        assert curve[0] == curve[-1] == min(curve) == kept < line.peak             # all is given back
        assert simulate_graphs([graph, graph], 4, cluster).peak == line.peak


def test_a_parameter_that_is_only_written_is_held_too():
    kept = Parameter(np.zeros(1000, np.float32), "kept")

    def program(x):
        ops.assign(kept, x * 2.0)
        return ops.sum(x)
    graph = overlap(simplify(trace_call(program, Tensor(np.ones(1000, np.float32)))))
    assert not graph.parameters and simulate(graph, "a100", Mesh(1)).parts[0].memory[0] == (0.0, 2 * 4032)


def test_what_takes_no_time_may_take_memory():
    """Names for strategies stay in a rank's own program."""
    graph, f32 = Graph(), np.dtype(np.float32)
    spec = Spec((10, 10), f32)
    graph.inputs = [graph.value(spec.shape, f32)]
    before = graph.add(ops.Neg(), graph.inputs, spec)
    pinned = graph.add(Pin("name", "..."), before.outs, [spec])
    graph.outputs = [graph.add(ops.MatMul(), pinned.outs * 2, spec).outs[0]]
    curve = [used for _, used in simulate(graph, A100, Mesh(1)).parts[0].memory]
    assert curve[0] == curve[-1] == min(curve) == 448 and max(curve) == 448 + 2 * 448


def test_a_thousand_cards_cost_what_one_does():
    one, many = lenet(1), lenet(1024)
    assert len(simulate(many, "a100").spans) <= len(simulate(one, "a100").spans) + 20
    assert simulate(many, "a100").ranks == 1024


def test_scaling_is_the_step_of_the_fewest_over_each():
    points = scaling(lenet, (1, 2, 16), "a100")
    assert [p.cards for p in points] == [1, 2, 16] and points[0].efficiency == 1
    assert all(p.efficiency == pytest.approx(points[0].seconds / p.seconds) for p in points)
    assert 1 > points[1].efficiency > points[2].efficiency and table(points).count("\n") == 3


def test_text_json_and_trace_agree(transformer, tmp_path):
    line = simulate(transformer, CLUSTERS["ascend910b"])
    figures, said = json.loads(json.dumps(line.summary())), line.show()
    assert (figures["ranks"], figures["seconds"], figures["bytes"]) == (8, line.seconds, line.bytes)
    for part in (duration(line.seconds), f"{line.idle:.1%}", duration(line.exposed), size(line.bytes[INSIDE]), size(line.peak)):
        assert part in said
    line.save(tmp_path / "trace.json")
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    drawn = [r for r in rows if r["ph"] == "X"]
    assert len(drawn) == len(line.spans) and max(r["ts"] + r["dur"] for r in drawn) == pytest.approx(line.seconds * 1e6)
    assert sum(r["args"][INSIDE] for r in drawn) == pytest.approx(line.bytes[INSIDE], rel=1e-3)
    assert max(r["args"]["bytes"] for r in rows if r["ph"] == "C") == line.peak


def test_several_graphs_are_one_step():
    program = lenet(2)
    once, twice = (simulate_graphs([program.scheduled] * k, 2, "a100") for k in (1, 2))
    assert twice.seconds == pytest.approx(2 * once.seconds) and twice.bytes[INSIDE] == 2 * once.bytes[INSIDE]


def test_the_cluster_is_that_of_the_environment_if_none_is_given(monkeypatch):
    monkeypatch.setenv("MINISPORE_CLUSTER", "h100")
    assert simulate(lenet(1)).cluster is CLUSTERS["h100"] and scaling(lenet, (1,))[0] == scaling(lenet, (1,), "h100")[0]


def test_what_is_no_program_is_refused():
    with pytest.raises(TypeError, match="is no program; give what minispore.compile"):
        simulate(lenet)
    with pytest.raises(TypeError, match="give mesh=Mesh"):
        simulate(lenet(1).scheduled)
    assert simulate(lenet(2).scheduled, "a100", Mesh(2)).seconds == simulate(lenet(2), "a100").seconds
