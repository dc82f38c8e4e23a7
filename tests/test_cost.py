"""The cost model: clusters as data and files, seconds of ops, of groups of ranks and of moves between layouts."""
import json
from contextvars import copy_context
from dataclasses import replace
from math import inf, isfinite, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minispore import ops
from minispore.common.state import RankState, enter
from minispore.graph.ir import Graph
from minispore.ops.primitive import specs
from minispore.parallel.cost import (
    CLUSTERS,
    Cluster,
    Device,
    Link,
    Rate,
    cluster_of,
    exchange_seconds,
    group_seconds,
    move_seconds,
    node_seconds,
    op_seconds,
)
from minispore.parallel.cost.compute import float_size
from minispore.parallel.cost.file import load
from minispore.parallel.layout import TensorLayout, fits_shape, whole
from minispore.parallel.mesh import Mesh
from minispore.parallel.redistribution import route

F32 = np.dtype(np.float32)
MEASURED = Cluster("two", Device("a core", {4: 1e11, 8: 5e10}, 1e10, 1e9, 1e-6, "made up", (1.0, 1.0), {
    "Add": Rate(1e-6, inf, 2e10), "MatMul": Rate(2e-6, 1e11, 5e9)}, far=3e9), 2, Link(1e-5, 3e9), Link(3e-5, 1e9), "made up",
    {"all_reduce": Link(2e-5, 4e9)}, 4e-5, False)
ALL = [*CLUSTERS.values(), MEASURED]
SIZES = st.sampled_from([1, 2, 4, 8, 24, 64, 512])


def node(op, *shapes, made=True, dtype=F32):
    """A node of these input shapes. made: another node has made them."""
    graph = Graph()
    ins = [graph.value(shape, dtype) for shape in shapes]
    if made:
        ins = [graph.add(ops.Neg(), [v], specs(ops.Neg().infer(v))[0]).outs[0] for v in ins]
    return graph.add(op, ins, op.infer(*ins))


# ---- clusters -------------------------------------------------------------------------------------------------

def test_a_cluster_by_name_by_file_and_by_itself(tmp_path, monkeypatch):
    monkeypatch.delenv("MINISPORE_CLUSTER", raising=False)
    assert cluster_of() is CLUSTERS["cpu"] and cluster_of(MEASURED) is MEASURED
    assert cluster_of("h100", node_size=4).node_size == 4 and CLUSTERS["h100"].node_size == 8
    MEASURED.save(tmp_path / "mine.json")
    monkeypatch.setenv("MINISPORE_CLUSTER", str(tmp_path / "mine.json"))
    assert cluster_of().name == "two" and cluster_of("a100").name == "a100"

    def simulating():
        enter(RankState(cluster=CLUSTERS["h100"]))
        return cluster_of(), cluster_of("a100")
    assert copy_context().run(simulating) == (CLUSTERS["h100"], CLUSTERS["a100"]) and cluster_of().name == "two"


@pytest.mark.parametrize("cluster", ALL, ids=lambda c: c.name)
def test_what_is_saved_is_loaded(cluster, tmp_path):
    file = tmp_path / "cluster.json"
    cluster.save(file)
    json.loads(file.read_text(), parse_constant=pytest.fail)         # plain JSON, for other programs too
    again = load(file)
    assert vars(again.device) == vars(cluster.device)
    assert {**vars(again), "device": 0} == {**vars(cluster), "device": 0}


def test_unknown_clusters_are_told_what_there_is(monkeypatch):
    with pytest.raises(ValueError, match="cluster 'b200' is unknown; there are cpu, a100, h100, .* JSON file that minispore"):
        cluster_of("b200")
    with pytest.raises(ValueError, match="node_size=0 must be a whole number ≥ 1"):
        cluster_of("a100", node_size=0)
    monkeypatch.setenv("MINISPORE_CLUSTER", "b300")
    with pytest.raises(ValueError, match="MINISPORE_CLUSTER: cluster 'b300' is unknown"):
        cluster_of()


@pytest.mark.parametrize("spoil, says", [
    (lambda d: d.pop("device"), "'device' is missing; a cluster has the entries name, device, node_size"),
    (lambda d: d.update(speed=1), "'speed' is unknown; a cluster has"), (lambda d: d.update(device=3), "device: 3 is no object"),
    (lambda d: d["device"].pop("launch"), "device: 'launch' is missing; a device has the entries"),
    (lambda d: d["device"].update(bandwidth=0), "device: bandwidth: 0 is no number above 0"),
    (lambda d: d["device"].update(launch="soon"), "device: launch: 'soon' is no number of seconds from 0 on"),
    (lambda d: d["device"].update(launch=None), "device: launch: inf is no number of seconds"),
    (lambda d: d["device"].update(memory=float("nan")), "device: memory: nan is no number above 0"),
    (lambda d: d["device"].update(flops={}), "device: flops: {} is no object in braces with entries"),
    (lambda d: d["device"].update(flops=[1]), r"device: flops: \[1\] is no object"),
    (lambda d: d["device"].update(flops={"wide": 1}), "device: flops: .*'wide'"),
    (lambda d: d["device"].update(reached=[0.5]), r"device: reached: \[0.5\] is no list of 2 numbers"),
    (lambda d: d["device"].update(reached=[0.5, 1.5]), "device: reached: 1.5 is no share above 0, 1 at most"),
    (lambda d: d["device"]["measured"].update(Add=["fast", 1, 1]), "device: measured: Add: 'fast' is no number of seconds"),
    (lambda d: d["device"]["measured"].update(Add=[1e-6, -1, 1]), "device: measured: Add: -1 is no number above 0"),
    (lambda d: d.update(inside=3), "inside: 3 is no list of 2 numbers"),
    (lambda d: d.update(between=[-1e-6, 1]), "between: -1e-06 is no number of seconds"),
    (lambda d: d["measured"].update(all_reduce=[1e-6, 0]), "measured: all_reduce: 0 is no number above 0"),
    (lambda d: d.update(begin=True), "begin: True is no number of seconds"),
    (lambda d: d.update(overlap="no"), "overlap: 'no' is no bool"), (lambda d: d.update(name=7), "name: 7 is no str"),
    (lambda d: d.update(node_size=2.5), "node_size: 2.5 is no int"),
    (lambda d: d.update(node_size=0), ".*node_size=0 must be a whole")])
def test_bad_files_are_told_what_is_wrong_and_where_to_get_another(spoil, says, tmp_path):
    file = tmp_path / "cluster.json"
    MEASURED.save(file)
    data = json.loads(file.read_text())
    spoil(data)
    file.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"cluster file .*cluster.json: {says}.*minispore bench calibrate --save"):
        cluster_of(str(file))


@pytest.mark.parametrize(("text", "says"), [("", "is no JSON: "), ("{", "is no JSON: "), ("[]", r"\[\] is no object"),
                                            ("17", "17 is no object"), (b"\xff\xfe", "'utf-8' codec")])
def test_files_that_are_something_else(text, says, tmp_path):
    file = tmp_path / "other.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ValueError, match=f"other.json: {says}.*Make one with minispore bench calibrate"):
        load(file)
    with pytest.raises(ValueError, match=r"none.json: can't be read \(No such file"):
        load(tmp_path / "none.json")


def test_links_inside_a_node_and_between_nodes():
    a100, mesh = CLUSTERS["a100"], Mesh(16)                         # 2 nodes of 8
    assert a100.link_between("all_gather", (0, 7)) == a100.inside
    assert a100.link_between("all_gather", (7, 8)) == a100.between
    assert a100.link_between("all_gather", range(16)).bandwidth == 8 * a100.between.bandwidth       # eight ports carry it
    assert a100.link("all_gather", mesh, (0,)) == a100.between and a100.link("all_gather", mesh, (1, 2, 3)) == a100.inside
    assert MEASURED.link_between("all_reduce", (0, 1)) == MEASURED.measured["all_reduce"]
    assert MEASURED.link_between("all_gather", (0, 1)) == MEASURED.inside
    assert replace(MEASURED, measured={"all_reduce": Link(0, 9e9)}, node_size=1).link_between("all_reduce", (0, 1)) == \
        MEASURED.between                                            # what was measured inside a node says nothing of others
    wide = replace(a100, between=Link(1e-6, 1e12))
    assert wide.link_between("all_gather", range(16)).bandwidth == a100.inside.bandwidth            # but the node doesn't more


@given(st.integers(1, 4), st.integers(2, 4))
def test_what_everyone_sends_to_everyone_takes_as_long_as_the_ports_need(size, nodes):
    """Counted message by message: each node's ports carry what leaves it."""
    cluster, n = replace(CLUSTERS["a100"], node_size=size, inside=Link(0.0, 1e15)), size * nodes
    leaves = sum(1 / n for a in range(size) for b in range(size, n))            # of the first node: of each rank's one byte
    assert cluster.link_between("all_to_all", range(n)).bandwidth == pytest.approx(
        size * cluster.between.bandwidth * (n - 1) / n / leaves)
    for op in ("permute", "halo"):                                              # one message goes by one port
        assert cluster.link_between(op, range(n)) == cluster.between


def test_the_slowest_group_bounds_a_collective_of_all_groups():
    cluster, mesh = replace(CLUSTERS["a100"], node_size=4), Mesh(6)             # (0, 1, 2) is in a node, (3, 4, 5) isn't
    assert cluster.link_between("all_gather", (0, 1, 2)) == cluster.inside
    assert cluster.link("all_gather", mesh, (1,)) == cluster.link_between("all_gather", (3, 4, 5)) != cluster.inside


# ---- ops ------------------------------------------------------------------------------------------------------

def test_views_cost_nothing():
    assert ops.Reshape((6,)).view and node_seconds(CLUSTERS["cpu"].device, node(ops.Reshape((6,)), (2, 3))) == 0
    assert node_seconds(CLUSTERS["cpu"].device, node(ops.Add(), (2, 3), (2, 3))) > 0


@pytest.mark.parametrize("cluster", ALL, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_all_ops_have_finite_seconds(cluster, dtype):
    for one in (node(ops.MatMul(), (4, 8), (8, 2), dtype=np.dtype(dtype)), node(ops.Softmax(), (4, 8), dtype=np.dtype(dtype)),
                node(ops.Conv2D(3, 3), (1, 2, 8, 8), (3, 2, 3, 3), dtype=np.dtype(dtype))):
        seconds = node_seconds(cluster.device, one)
        assert isfinite(seconds) and seconds > 0


def test_an_op_without_figures_takes_its_launch_and_the_share_of_the_peaks_that_is_reached():
    device = Device("made up", {4: 1e9}, 1e6, 1e9, 0.5, "a test", (0.25, 0.125))
    product, copy = node(ops.MatMul(), (100, 100), (100, 100)), node(ops.Neg(), (100, 100))
    assert node_seconds(device, product) == pytest.approx(0.5 + max(2e6 / 0.25e9, 120_000 / 0.125e6))
    assert node_seconds(device, copy) == pytest.approx(0.5 + 80_000 / 0.125e6)
    fast = replace(device, bandwidth=1e12)
    assert node_seconds(fast, product) == pytest.approx(0.5 + 2e6 / 0.25e9)
    assert float_size(node(ops.Add(), (2,), (2,), dtype=np.dtype(np.int64))) == 4 == float_size(copy)      # whole numbers


def test_parameters_cost_more_than_what_was_just_computed():
    near, far = (node_seconds(MEASURED.device, node(ops.Add(), (1000,), (1000,), made=made)) for made in (True, False))
    assert far - near == pytest.approx(8000 / MEASURED.device.far)
    assert far == pytest.approx(1e-6 + 12000 / 2e10 + 8000 / 3e9)
    for cluster in ALL:
        same = (node_seconds(cluster.device, node(ops.Add(), (1000,), (1000,), made=made)) for made in (True, False))
        assert (next(same) < next(same)) == isfinite(cluster.device.far)


def test_wider_floats_compute_slower():
    assert MEASURED.device.rate("MatMul", 8).flops == MEASURED.device.rate("MatMul", 4).flops / 2
    assert MEASURED.device.rate("MatMul", 2) == MEASURED.device.rate("MatMul", 4)          # 16 bits are computed as float32
    assert CLUSTERS["a100"].device.rate("MatMul", 2).flops == 2 * CLUSTERS["a100"].device.rate("MatMul", 4).flops


@given(st.sampled_from(ALL), SIZES, SIZES, SIZES, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2]))
def test_splitting_an_op_never_makes_it_slower(cluster, m, k, n, a, b, c):
    seconds = node_seconds(cluster.device, node(ops.MatMul(), (m * a, k * b), (k * b, n * c)))
    assert node_seconds(cluster.device, node(ops.MatMul(), (m, k), (k, n))) <= seconds
    assert node_seconds(cluster.device, node(ops.Add(), (m, k), (m, k))) <= \
        node_seconds(cluster.device, node(ops.Add(), (m * a, k * b), (m * a, k * b)))


@given(st.sampled_from(ALL), st.floats(0, 1e12), st.floats(0, 1e10), st.floats(0, 1), st.floats(1, 4))
def test_more_work_is_never_faster(cluster, flops, bytes, share, more):
    def seconds(flops, bytes, far):
        return op_seconds(cluster.device, ops.MatMul(), flops, bytes, 4, far)
    first = seconds(flops, bytes, share * bytes)
    assert first <= seconds(flops * more, bytes, share * bytes) and first <= seconds(flops, bytes * more, share * bytes)
    assert first <= seconds(flops, bytes, bytes)


# ---- moves ----------------------------------------------------------------------------------------------------

@st.composite
def layouts(draw, mesh, shape, partial=True):
    """Any layout of a tensor of this shape."""
    dims: list[tuple] = [()] * len(shape)
    left = []
    for axis in mesh.axes:
        d = draw(st.integers(-1, len(shape) - 1))
        if d >= 0 and shape[d] % mesh.count((*dims[d], axis)) == 0:
            dims[d] = (*dims[d], axis)
        else:
            left.append(axis)
    return TensorLayout(tuple(dims), frozenset(a for a in left if partial and draw(st.booleans())))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ALL), st.sampled_from([2, 4, 8, 16]), st.data())
def test_an_exchange_costs_what_its_moves_cost(cluster, n, data):
    mesh, shape = Mesh(n), (16, 32)
    src, dst = data.draw(layouts(mesh, shape)), data.draw(layouts(mesh, shape, partial=False))
    seconds = exchange_seconds(cluster, mesh, shape, 4, src, dst)
    found = route(mesh, shape, src, dst)
    assert (seconds == 0) == (src == dst)
    if found is not None:
        assert seconds == sum(move_seconds(cluster, mesh, move, shape, 4) for move in found[1])
        larger = (32, 64)
        if fits_shape(mesh, larger, src) and route(mesh, larger, src, dst)[1] == found[1]:
            assert seconds <= exchange_seconds(cluster, mesh, larger, 4, src, dst)
        assert seconds <= exchange_seconds(cluster, mesh, shape, 8, src, dst)


def test_a_slice_reads_and_writes_its_piece():
    for cluster in ALL:
        rate = cluster.device.rate("StridedSlice", 4)
        seconds = exchange_seconds(cluster, Mesh(2), (2000,), 4, whole(1), TensorLayout(((0,),)))
        assert seconds == pytest.approx(rate.overhead + 2 * 4000 / rate.bytes)


def test_where_there_is_no_way_it_is_infinite():
    mesh = Mesh(2)
    split, summed = TensorLayout(((0,),)), TensorLayout(((),), frozenset({0}))
    assert exchange_seconds(MEASURED, mesh, (4,), 4, summed, whole(1)) < inf
    assert exchange_seconds(MEASURED, mesh, (4,), 4, split, summed) == inf


@given(st.sampled_from(ALL), st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "halo"]),
       st.sampled_from([2, 3, 8, 64]), st.integers(0, 1 << 28))
def test_collectives_cost_more_of_more_bytes(cluster, op, n, bytes):
    seconds = group_seconds(cluster, op, range(n), bytes)
    assert 0 < seconds < inf and seconds <= group_seconds(cluster, op, range(n), bytes + 4096)


def test_a_collective_of_two_ranks_as_it_was_measured():
    assert group_seconds(MEASURED, "all_reduce", (0, 1), 4000) == pytest.approx(2e-5 + 4000 / 4e9)
    assert group_seconds(MEASURED, "all_gather", (0, 1), 4000) == pytest.approx(1e-5 + prod((0.5, 4000)) / 3e9)
