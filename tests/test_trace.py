"""The drawing of a job's communication."""
import json

import numpy as np
import pytest

from minispore import cli
from minispore.communication import communicator, get_record, init
from minispore.communication.record import load_folder
from minispore.communication.trace import trace
from minispore.lab import run_ranks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINISPORE_ALGORITHM", "ring")

    def program():
        init()
        communicator().all_reduce(np.ones(6, np.float32), name="grads").wait()
        return get_record()
    for record in run_ranks(program, 3):
        record.save(tmp_path / f"record_{record.rank}.json")
    return tmp_path


def test_arrows_pair_up(folder):
    rows = json.loads(json.dumps(trace(load_folder(folder))))["traceEvents"]
    assert {r["args"]["name"] for r in rows if r["name"] == "process_name"} == {"rank 0", "rank 1", "rank 2"}
    starts, ends = ({r["id"]: r for r in rows if r["ph"] == ph} for ph in "sf")
    assert starts.keys() == ends.keys() and len(starts) == 2 * 3 * 2
    assert all(ends[i]["pid"] == (s["pid"] + 1) % 3 and s["ts"] <= ends[i]["ts"] for i, s in starts.items())
    bars = [r for r in rows if r["ph"] == "X"]
    for at, op in [(s, "send") for s in starts.values()] + [(f, "receive") for f in ends.values()]:
        assert any(b["name"] == op and (b["pid"], b["tid"]) == (at["pid"], at["tid"])
                   and b["ts"] <= at["ts"] <= b["ts"] + b["dur"] for b in bars)
    calls = [b for b in bars if b["cat"] == "call"]
    assert len(calls) == 3 and calls[0]["args"]["detail"] == "grads" and calls[0]["args"]["bytes"] == 24
    assert not {(b["pid"], b["tid"]) for b in calls} & {(b["pid"], b["tid"]) for b in bars if b["cat"] == "message"}


def test_command(folder, capsys):
    assert cli.main(["trace", str(folder)]) == 0
    assert "perfetto" in capsys.readouterr().out and json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert cli.main(["trace", str(folder), "--table"]) == 0
    assert capsys.readouterr().out.count("AllReduce") == 3
    assert cli.main(["trace", str(folder / "none")]) == 1
    assert "holds no record" in capsys.readouterr().err
