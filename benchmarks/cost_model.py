"""Predicted against measured seconds of training steps: 10 networks, each split over 2 MPI ranks in 6 ways.

First the machine is measured (`minispore bench calibrate`), on other networks; then every step is compiled without a cluster and
simulated on what was found; then all 60 run in one job, in turns, so that a change of the machine's speed meets all of them.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parent))
from cost_networks import cases

RANKS = 2
STEPS = """
import gc, json, sys, time
sys.path.insert(0, sys.argv[1])
turns, few, seed, result = int(sys.argv[2]), sys.argv[3] == "True", json.loads(sys.argv[4]), sys.argv[5]
from cost_networks import cases
import numpy as np
import minispore as ms
ms.init()
ms.set_context(mode=ms.GRAPH_MODE)
state, world, made = ms.common.state.current(), ms.communication.communicator(), []
for case in cases(few, seed):
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", **case.settings)
    step, inputs = case.build()
    step(*inputs)
    made.append((state.compiler, step, inputs, []))
gc.collect()
gc.disable()
for _ in range(turns):
    for state.compiler, step, inputs, times in made:
        for _ in range(2):                      # the first brings the caches to where steps leave them
            step(*inputs)
        for _ in range(6):
            world.barrier().wait()
            begin = time.perf_counter()
            step(*inputs)
            times.append(time.perf_counter() - begin)
everybody = world.all_gather(np.array([[times for *_, times in made]])).wait()
if world.rank == 0:
    with open(result, "w") as file:
        json.dump(everybody.max(0).tolist(), file)
"""


def measured(turns: int, few: bool, seed: int | None) -> list[float]:
    """Seconds of each case's step, of the slower rank: the median."""
    with tempfile.TemporaryDirectory() as folder:
        script, result = Path(folder, "steps.py"), Path(folder, "result.json")
        script.write_text(STEPS)
        command = [sys.executable, "-m", "minispore.launch.msrun", f"--worker_num={RANKS}", f"--log_dir={folder}", script,
                   Path(__file__).parent, turns, few, json.dumps(seed), result]
        subprocess.run(list(map(str, command)), check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return [median(times) for times in json.loads(result.read_text())]


def predicted(cluster, few: bool = False, seed: int | None = None) -> list[float]:
    """Seconds of each case's step on a cluster."""
    from minispore.parallel import compile
    from minispore.parallel.simulator import simulate
    seconds = []
    for case in cases(few, seed):
        step, inputs = case.build()
        program = compile(step, *inputs, device_num=RANKS, parallel_mode="semi_auto_parallel", **case.settings)
        seconds.append(simulate(program, cluster).seconds)
    return seconds


def spearman(x: list[float], y: list[float]) -> float:
    """The correlation of the ranks (there are no ties among measured times).

    >>> spearman([1.0, 2.0, 4.0], [10.0, 20.0, 15.0])
    0.5
    """
    a, b = ([sorted(v).index(t) for t in v] for v in (x, y))
    n = len(x)
    return 1 - 6 * sum((i - j) ** 2 for i, j in zip(a, b, strict=True)) / (n * (n * n - 1))


def plot(rows: list[tuple], path: str) -> None:
    from matplotlib.figure import Figure
    axes = (figure := Figure((7, 7), layout="constrained")).subplots()
    for network, some in groupby(rows, lambda row: row[0]):
        _, _, x, y = zip(*some, strict=True)
        axes.plot([1e3 * t for t in x], [1e3 * t for t in y], "o", label=network, markersize=5)
    ends = [1e3 * f(t for row in rows for t in row[2:]) for f in (min, max)]
    for factor, style in ((1, "-"), (1.3, ":"), (1 / 1.3, ":")):
        axes.plot(ends, [factor * t for t in ends], style, color="gray", zorder=0)
    axes.set(xlabel="predicted, ms", ylabel="measured, ms", xscale="log", yscale="log",
             title=f"Training steps on {RANKS} ranks; dotted: 30 % off")
    axes.legend(fontsize="small")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", metavar="FILE", help="of minispore bench calibrate --save, instead of measuring now")
    parser.add_argument("--turns", type=int, default=10, help="each of 6 steps of every case (10)")
    parser.add_argument("--few", action="store_true", help="two networks only")
    parser.add_argument("--drawn", metavar="SEED", type=int, help="ten networks drawn by a number, instead of the usual ones")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the scatter plot; takes matplotlib")
    o = parser.parse_args()
    from minispore.bench import calibrate
    from minispore.parallel.cost import cluster_of
    with tempfile.TemporaryDirectory() as folder:
        file = o.cluster or str(Path(folder, "cluster.json"))
        if not o.cluster and (code := calibrate.main(RANKS, save=file)):
            sys.exit(code)
        try:
            cluster = cluster_of(file)
        except ValueError as e:
            parser.error(str(e))
    which = o.few, o.drawn
    kinds = [(case.network, case.strategy) for case in cases(*which)]
    rows = [(*kind, p, m) for kind, p, m in zip(kinds, predicted(cluster, *which), measured(o.turns, *which), strict=True)]
    correlations = []
    for network, some in groupby(rows, lambda row: row[0]):
        _, names, p, m = map(list, zip(*some, strict=True))
        correlations.append(spearman(p, m))
        print(f"\n{network}: rank correlation {correlations[-1]:.2f}")
        for name, x, y in sorted(zip(names, p, m, strict=True), key=lambda row: row[2]):
            print(f"  {name:<12} measured {1e3 * y:7.2f} ms   predicted {1e3 * x:7.2f} ms ({x / y - 1:+.0%})")
    print(f"\nmean rank correlation within a network {mean(correlations):.2f}; median error "
          f"{median(abs(p / m - 1) for *_, p, m in rows):.0%} of {len(rows)} steps")
    if o.plot:
        try:
            plot(rows, o.plot)
            print(f"wrote {o.plot}")
        except ImportError:
            print("no plot: matplotlib isn't installed; pip install matplotlib")


if __name__ == "__main__":
    main()
