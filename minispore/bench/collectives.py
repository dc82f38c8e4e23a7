"""`minispore bench collectives`: our collectives beside MPI's, gloo's and a copy in memory, measured in one run."""
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from minispore.bench import report
from minispore.bench.contestants import NAMES, OPS
from minispore.launch import environment

SIZES = [4 ** k for k in range(1, 14)]          # 4 bytes … 64 MiB
LEGEND = """time: median over rounds of the slowest rank's; in brackets: MPI's own time / this one, above 1 is faster than MPI
bus GB/s: bytes of the whole vector / time, × 2(n-1)/n AllReduce, × (n-1)/n ReduceScatter, AllGather, AlltoAll (nccl-tests)
shared, private: ours, arrays from comm.empty or numpy; mpi: MPI's own; copy: np.copyto on all ranks at once, the limit
"""


def main(ranks: int = 2, sizes: str = "", op: str = "all", algorithms: str = "", seconds: float = 0.3, csv: str | None = None,
         plot: str | None = None, save: str | None = None) -> int:
    """Measure, print the table, write what was asked for; the exit code."""
    try:
        what = {"sizes": wanted_sizes(sizes), "ops": wanted(op, list(OPS), "--op"), "seconds": seconds,
                "algorithms": wanted(algorithms, NAMES, "--algorithms")}
        if ranks < 2:
            raise ValueError(f"-n {ranks}: a collective takes two ranks at least")
        if not seconds > 0:
            raise ValueError(f"--seconds {seconds:g} must be more than 0")
        if plot and not find_spec("matplotlib"):
            raise ValueError("--plot needs matplotlib, which isn't installed: pip install matplotlib, or leave --plot out")
        for path in filter(None, (csv, plot, save)):
            if not Path(path).absolute().parent.is_dir():
                raise ValueError(f"{path} can't be written: there is no folder {Path(path).parent}; make it first")
    except ValueError as e:
        print(f"minispore bench collectives: {e}", file=sys.stderr)
        return 2
    what["ops"] = [OPS[name] for name in what["ops"]]
    what["algorithms"] = [*what["algorithms"], *({"mpi"} - set(what["algorithms"]))]       # what the others are compared with
    found, code = run(ranks, what, "rank.py")
    if code:
        return code
    rows = report.complete(found["rows"])
    print(f"\n{ranks} ranks, {environment.cores()} cores\n{LEGEND}\n{report.table(rows)}")
    for note in found["notes"]:
        print(note)
    if csv:
        report.write_csv(rows, csv)
        print(f"wrote {csv}")
    if plot:
        report.plot(rows, plot)
        print(f"wrote {plot}")
    if save:
        report.save_selection(rows, save)
        print(f"wrote {save}; ranks choose by it under MINISPORE_ALGORITHM_TABLE={save}")
    return 0


def run(ranks: int, what: dict, script: str) -> tuple[dict, int]:
    """Start the ranks with a script of this folder; what they found, and their exit code."""
    with tempfile.TemporaryDirectory(prefix="minispore-bench-") as folder:
        asked, result = Path(folder, "what.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(what))
        command = [sys.executable, "-m", "minispore.launch.msrun", f"--worker_num={ranks}", f"--log_dir={folder}",
                   Path(__file__).with_name(script), asked, result]
        # The ranks choose what they choose by default: contestants say what is forced.
        env = {k: v for k, v in os.environ.items() if k not in ("MINISPORE_ALGORITHM", "MINISPORE_ALGORITHM_TABLE")}
        code = subprocess.run(list(map(str, command)), env=env).returncode
        return ({}, code) if code else (json.loads(result.read_text()), 0)


def wanted(text: str, names: list[str], option: str) -> list[str]:
    """The names in "a,b", in the order of `names`; all if it is empty or "all"."""
    asked = [t.strip() for t in text.split(",") if t.strip()]
    if unknown := [a for a in asked if a not in (*names, "all")]:
        raise ValueError(f"{option}: there is no {', '.join(map(repr, unknown))}; there are {', '.join(names)}, all")
    return names if not asked or "all" in asked else [n for n in names if n in asked]


def wanted_sizes(text: str) -> list[int]:
    """The sizes in bytes of "4,64K,16M", sorted.

    >>> wanted_sizes("64K, 4")
    [4, 65536]
    """
    if not text:
        return SIZES
    sizes = set()
    for word in text.replace(" ", "").split(","):
        number, unit = (word[:-1], {"K": 1 << 10, "M": 1 << 20}[word[-1]]) if word[-1:] in ("K", "M") else (word, 1)
        if not number.isdecimal() or not int(number) or int(number) * unit % 4:
            raise ValueError(f"--sizes: {word!r} in {text!r} must be a number of bytes that divides by 4 (they are float32), "
                             "as in 4,64K,16M")
        sizes.add(int(number) * unit)
    return sorted(sizes)
