"""`minispore bench calibrate`: what is fitted to times, and a very short run. How fast anything is is no matter of tests."""
import importlib
import json
from math import inf, isclose, isfinite
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minispore import cli
from minispore.bench import calibrate, calibrate_rank, training
from minispore.bench.fitting import cluster_from, link_of, not_negative, rate_of, rates
from minispore.communication.cost import TERMS
from minispore.graph.execute import Program
from minispore.graph.overlap import progress
from minispore.parallel.cost import Link, cluster_of, node_seconds
from minispore.parallel.cost.exchange import FORMULA, link_seconds

OVERHEADS, SPEEDS = st.floats(1e-7, 1e-4), st.floats(1e8, 1e12)


def seconds_of(rate, f, b):
    return rate[0] + np.maximum(f / rate[1], b / rate[2])


def grid():
    """Calls small and large, that compute much and little a byte."""
    f, b = np.meshgrid(10.0 ** np.arange(2, 11), 10.0 ** np.arange(2, 9))
    return f.ravel(), b.ravel()


@settings(max_examples=60, deadline=None)
@given(OVERHEADS, SPEEDS, SPEEDS)
def test_what_was_put_in_is_fitted(overhead, flops, speed):
    f, b = grid()
    t = seconds_of((overhead, flops, speed), f, b)
    assert np.allclose(seconds_of(rate_of(f, b, t), f, b), t, rtol=0.05)


@settings(max_examples=60, deadline=None)
@given(OVERHEADS, SPEEDS, st.booleans())
def test_one_bound_is_told_from_the_other(overhead, speed, computes):
    f = 10.0 ** np.arange(3, 11)
    b = 4 * f ** 0.5
    t = overhead + (f if computes else b) / speed
    found = rate_of(f, b, t)
    assert np.allclose(seconds_of(found, f, b), t, rtol=1e-4)
    if (t > 3 * overhead).sum() > 2:
        assert isclose(found.flops if computes else found.bytes, speed, rel_tol=1e-3)
        assert (found.bytes if computes else found.flops) > speed / 1e5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e12), st.floats(1, 1e9), st.floats(1e-7, 10)), min_size=1, max_size=12))
def test_no_times_make_a_rate_that_is_none(measured):
    rate = rate_of(*zip(*measured, strict=True))
    assert rate.overhead >= 0 and rate.flops > 0 and rate.bytes > 0
    assert all(0 <= seconds_of(rate, f, b) < inf for f, b, _ in measured)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000))
def test_no_other_sum_of_columns_fits_better(seed):
    rng = np.random.default_rng(seed)
    columns, t = rng.random((8, 3)) * 10.0 ** rng.integers(-3, 4, 3), rng.random(8) + 0.1
    x = not_negative(columns, t, t)

    def error(x):
        return ((columns @ x - t) ** 2 / t).sum()
    assert (x >= 0).all()
    for i in range(3):
        for by in (-0.01, 0.01):
            step = np.eye(3)[i] * by * max(x[i], 1e-3 / columns[:, i].max())
            assert (x + step < 0).any() or error(x) <= error(x + step) * (1 + 1e-9)


@pytest.mark.parametrize("far", [inf, 4e9, 3e10])
def test_parameters_bandwidth_is_found_over_all_ops(far):
    true, calls = {"Add": (1e-6, inf, 1e11), "MatMul": (2e-6, 1e11, 1e10)}, []
    for op, rate in true.items():
        for f, b in zip(*grid(), strict=True):
            calls += [(op, f, b, share * b, 4, seconds_of(rate, f, b) + share * b / far) for share in (0.0, 0.4)]
    made, found = rates(calls)
    assert isclose(found, far, rel_tol=0.15) or found == far
    for op, f, b, share, _, t in calls:
        assert isclose(seconds_of(made[op], f, b) + share / found, t, rel_tol=0.2)


@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "halo"]), st.integers(2, 9),
       st.floats(1e-7, 1e-3), st.floats(1e7, 1e11))
def test_links_give_the_seconds_they_were_made_of(op, ranks, alpha, bandwidth):
    sizes = [4 ** k for k in range(4, 13)]
    many = len([1 for o, _ in TERMS if o == FORMULA.get(op)]) > 1      # algorithms: each fits where it is the fastest
    times = [link_seconds(Link(alpha, bandwidth), op, ranks, n) for n in sizes]
    link = link_of(op, ranks, sizes, times)
    assert np.allclose([link_seconds(link, op, ranks, n) for n in sizes], times, rtol=0.6 if many and ranks > 2 else 1e-6)


def test_calls_that_were_all_short_leave_nothing_for_nothing():
    calls = [("MatMul", 2 * n, n, 0, size, 1e-6) for n in (10, 20, 30) for size in (4, 8)]
    calls += [("ReLU", n, 8 * n, 0, 4, 1e-6) for n in (10, 20, 30)]
    found = {"ranks": 2, "calls": calls, "begin": [[1e-5, 2e-5]], "collectives": [("all_reduce", n, 1e-5) for n in (10, 20)]}
    cluster = cluster_from(found, 10 ** 9, 2, "made up")
    assert all(map(isfinite, (*cluster.device.flops.values(), cluster.device.bandwidth, cluster.inside.bandwidth)))
    assert min(cluster.device.rate(op, size).bytes for op in ("MatMul", "ReLU", "Erf") for size in (4, 8)) < inf
    assert cluster.begin == 0 and not cluster.overlap and cluster.node_size == 2
    assert cluster_from(found, 10 ** 9, 16, "made up").node_size == 16          # the cores of this machine are a node


def test_rates_are_of_float32():
    calls = [("Add", n, 12 * n, 0, 4, 1e-6 + n / 1e9) for n in (10, 1000, 10 ** 6)]
    assert rates(calls) == rates([*calls, *(("Add", n, 24 * n, 0, 8, 1.0) for n in (10, 1000, 10 ** 6))])


def test_cores_share_the_memory(monkeypatch, tmp_path, capsys):
    calls = [(op, 2 * n, 4 * n, 0, 4, 1e-6 + n / 1e9) for op in ("MatMul", "Add") for n in (10, 1000, 10 ** 6)]
    found = {"ranks": 2, "rounds": 9, "calls": calls, "begin": [[1e-5, 0.0]], "collectives": [("all_reduce", 10, 1e-5),
                                                                                              ("all_reduce", 10 ** 6, 1e-3)]}
    monkeypatch.setattr(calibrate, "run", lambda *what: (found, 0))
    monkeypatch.setattr(calibrate, "memory", lambda: 1 << 40)
    monkeypatch.setattr(calibrate.environment, "cores", lambda: 4)
    assert calibrate.main(2, str(tmp_path / "c.json")) == 0 and cluster_of(str(tmp_path / "c.json")).device.memory == 1 << 38
    assert "4 cores, 9 rounds" in capsys.readouterr().out
    monkeypatch.setattr(calibrate.environment, "cores", lambda: 1)
    assert calibrate.main(2, str(tmp_path / "c.json")) == 0 and cluster_of(str(tmp_path / "c.json")).device.memory == 1 << 39
    assert "2 ranks share 1 core" in capsys.readouterr().out


@pytest.mark.parametrize("f, b, t", [([], [], []), ([1], [1, 2], [1]), ([1], [1], [0.0]), ([1], [1], [np.nan])])
def test_what_cannot_be_fitted_is_told(f, b, t):
    with pytest.raises(ValueError, match="give as many of each, one at least, and seconds above 0"):
        rate_of(f, b, t)


def test_two_ranks(tmp_path, capfd):
    file = tmp_path / "cluster.json"
    code = cli.main(["bench", "calibrate", "--seconds", "0.1", "--save", str(file)])
    out = capfd.readouterr().out
    assert code == 0, out
    for word in ("Gflop/s", "MatMul", "parameters", "all_reduce", "a run of a program", f"MINISPORE_CLUSTER={file}"):
        assert word in out
    cluster = cluster_of(str(file))
    assert set(cluster.measured) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "halo"}
    assert set(cluster.device.flops) == {4, 8} and cluster.node_size >= 2 and not cluster.overlap
    for _, step, inputs in training.steps(few=True):
        nodes = calibrate_rank.program_of(step, inputs).graph.nodes
        assert {n.op.name for n in nodes if not n.op.view} <= set(cluster.device.measured)
        assert all(0 < node_seconds(cluster.device, n) < inf for n in nodes if not n.op.view)


@pytest.mark.parametrize("given, says", [
    (["-n", "1"], "-n 1: links are between two ranks at least; use -n 2"),
    (["--seconds", "0"], "--seconds 0 must be more than 0"), (["--seconds", "inf"], "--seconds inf must be"),
    (["--save", "cluster.txt"], "--save cluster.txt: a cluster file's name ends in .json"),
    (["--save", "nowhere/cluster.json"], "--save nowhere/cluster.json can't be written: there is no folder nowhere")])
def test_bad_arguments_are_told(given, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "calibrate", *given]) == 2
    assert f"minispore bench calibrate: {says}" in capsys.readouterr().err


def test_a_job_that_fails_gives_its_exit_code(monkeypatch):
    monkeypatch.setattr(calibrate, "run", lambda *what: ({}, 3))
    assert calibrate.main(2) == 3


def test_exchanges_are_cut_evenly_for_any_number_of_ranks():
    for n in (2, 3, 4, 5):
        for graph in calibrate_rank.exchanges(1, n, [64, 4096]):
            assert all(isinstance(k, int) and k > 0 for node in graph.nodes for v in (*node.ins, *node.outs) for k in v.shape)
            json.dumps([v.shape for v in graph.outputs])


def test_an_all_reduce_is_timed_as_gradients_go_too():
    """Begun, then a product, then waited for: what it adds is the time beyond the product's."""
    made = [calibrate_rank.Timed("", Program(graph), []) for graph in calibrate_rank.exchanges(0, 2, [4096])]
    (t,) = (t for t in made if any(node.op.name == "Start" for *_, node in t.program.calls))
    names = [node.op.name for call, _, _, node in t.program.calls if call is not progress]
    assert names == ["Neg", "Neg", "Neg", "Start", "MatMul", "Wait", "Neg", "Neg", "Neg"]
    durations = {"Neg": 1.0, "Start": 2.0, "MatMul": 50.0, "Wait": 3.0}
    calls = [0.5 if call is progress else durations[node.op.name] for call, _, _, node in t.program.calls]
    moved = 0.5 * sum(call is progress for call, *_ in t.program.calls)
    for late in (0.0, 4.0):                                         # the second rank comes later, and the first waits for it
        ends = np.cumsum(calls) + np.array([[0.0], [late]])
        moments = np.stack([ends - calls, ends], -1)
        found = {"collectives": [], "calls": [], "begin": []}
        calibrate_rank.note(t, moments[:, None].repeat(8, 1), np.zeros((2, 0)), found)
        assert found["collectives"] == [["all_reduce", 4 * 4096, pytest.approx(2 + 3 + moved)]] and not found["calls"]


def test_the_benchmark_predicts_its_cases(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    bench = importlib.import_module("cost_model")
    cases = list(bench.cases())
    assert len({case.network for case in cases}) == 10 and len(set(case[:2] for case in cases)) == 60
    first, again, other = ([case.network for case in bench.cases(seed=seed)] for seed in (1, 1, 2))
    assert first == again and len(first) == 60 and len(set(first)) == len(set(other)) == 10 and not set(first) & set(other)
    seconds = bench.predicted(cluster_of("cpu"), few=True)
    assert len(seconds) == 12 and len(set(seconds)) == 12 and all(0 < s < 1 for s in seconds)
    assert bench.spearman([1, 2, 3], [10, 20, 30]) == 1 and bench.spearman([1, 2, 3], [3, 2, 1]) == -1
    pytest.importorskip("matplotlib", reason="draws the scatter plot; in the extra notebooks")
    bench.plot([("a", "data", 1e-3, 2e-3), ("b", "data", 3e-3, 2e-3)], tmp_path / "plot.png")
