"""`minispore bench collectives`, very short: what it writes is whole. How fast anything is is no matter of tests."""
import csv
import json

import pytest

from minispore import cli
from minispore.bench import collectives, report
from minispore.communication import selection
from minispore.communication.algorithms import ALGORITHMS


@pytest.mark.parametrize("op, factor", [("AllReduce", 1.5), ("ReduceScatter", 0.75), ("AllGather", 0.75), ("AlltoAll", 0.75),
                                        ("Broadcast", 1), ("copy", 1)])
def test_bandwidths_are_those_of_nccl_tests(op, factor):
    algbw, busbw = report.bandwidths(op, 4, 1000, 1e-3)
    assert algbw == pytest.approx(1e6) and busbw == pytest.approx(factor * 1e6)


def test_two_ranks(tmp_path, capsys):
    numbers, saved = tmp_path / "numbers.csv", tmp_path / "table.json"
    code = cli.main(["bench", "collectives", "--sizes", "4,16K", "--seconds", "0.02", "--csv", str(numbers),
                     "--save", str(saved)])
    out = capsys.readouterr().out
    assert code == 0, out
    with open(numbers, newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == report.COLUMNS
    for row in rows:
        assert all(float(row[c]) > 0 for c in report.COLUMNS if c not in ("op", "algorithm")), row
    for op in collectives.OPS.values():
        names = {r["algorithm"] for r in rows if r["op"] == op}
        assert names >= {"mpi", "copy", *ALGORITHMS[op]} - {"shared"}
        assert len({r["bytes"] for r in rows if r["op"] == op}) == 2
        heads = [line.split() for line in out.splitlines() if line.startswith(f"{op},")]
        assert len(heads) == 1 and set(heads[0][-len(names):]) == names
    assert out.count("bus GB/s  ") == 5 and "16 KiB" in out
    assert "gloo" in out            # as a column, or that torch isn't there
    table = json.loads(saved.read_text())
    assert set(table) == set(collectives.OPS.values())
    if hasattr(selection, "load"):
        selection.load(saved)


def test_the_saved_table_says_what_was_fastest_up_to_which_size():
    rows = [{"op": "AllGather", "ranks": 2, "bytes": b, "algorithm": a, "seconds": s} for b, times in
            ((8, (9, 1, 2, 0.1)), (64, (9, 1, 2, 0.1)), (512, (9, 3, 2, 0.1)))
            for a, s in zip(("shared", "private", "ring", "mpi"), times, strict=True)]
    assert report.selection_table(rows)["AllGather"][:3] == [
        [2, 32, "shared", "shared"], [2, None, "shared", "ring"], [2, None, "messages", "ring"]]
    without = report.selection_table([r for r in rows if r["algorithm"] not in ("shared", "private")])["AllGather"]
    assert without[0] == [2, None, "messages", "ring"]          # nobody knows whether shared memory would be faster
    assert report.selection_table(rows)["AllGather"][-1] == [None, None, "any", "ring"]


def test_the_plot(tmp_path):
    pytest.importorskip("matplotlib", reason="draws it; in the extra notebooks")
    rows = report.complete([{"op": op, "ranks": 2, "bytes": b, "algorithm": a, "seconds": 1e-6 * b, "rounds": 3, "calls": 1}
                            for op in ("AllReduce", "Broadcast") for b in (4, 64) for a in ("shared", "mpi", "copy")])
    report.plot(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


@pytest.mark.parametrize("args, said", [
    (["-n", "1"], "two ranks"), (["--sizes", "4,5"], "divides by 4"), (["--sizes", "x"], "'x'"), (["--op", "sum"], "all_gather"),
    (["--algorithms", "rung"], "there are shared, private"), (["--seconds", "0"], "more than 0"),
    (["--csv", "nowhere/a.csv"], "no folder nowhere")])
def test_what_cannot_be_measured_is_said_at_once(args, said, capsys):
    assert cli.main(["bench", "collectives", *args]) == 2
    assert said in capsys.readouterr().err


def test_without_matplotlib_a_plot_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(collectives, "find_spec", lambda name: None)
    assert cli.main(["bench", "collectives", "--plot", "a.png"]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
