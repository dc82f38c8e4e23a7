"""Weak scaling: the batch a card stays, the cards become more. Efficiency: what a card does in a second, over what it does alone.

Measured: LeNet-5 in data parallel on 1 and 2 processes of this machine. Simulated: LeNet-5, ResNet-50 and a GPT of 1.3 billion
weights on 8 … 64 cards of a described cluster, in both views of data parallel: data_parallel, where each rank runs its own
program and a reducer sums the gradients, and semi_auto_parallel, where the compiler cuts a logical program: there batch norm
takes the statistics of the whole batch, by AllReduces that nothing hides. Alone is a card that runs neither.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path

from scaling_networks import NETWORKS, Network

import minispore as ms
from minispore import Tensor
from minispore.common.state import GRAPH_MODE, RankState, enter
from minispore.communication import imagined
from minispore.lab.words import plural
from minispore.parallel import compile
from minispore.parallel.cost import Cluster, cluster_of
from minispore.parallel.feeding import placements
from minispore.parallel.mesh import Mesh
from minispore.parallel.simulate import Simulation
from minispore.parallel.simulator import Timeline, simulate, simulate_graphs
from minispore.parallel.simulator.timeline import duration, size

CARDS, GOAL, LARGEST = (8, 16, 32, 64), 0.95, 1024        # LARGEST: times a batch is enlarged to find where the goal holds
MEASURED = """
import time
import numpy as np
import minispore as ms
from minispore import Tensor, nn
from minispore.demo.lenet import LeNet5
ms.init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
net = LeNet5()
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Momentum(net.trainable_params(), 0.01, 0.9))
data = Tensor(np.zeros((ROWS, 1, 28, 28), np.float32)), Tensor(np.zeros(ROWS, np.int32))
for turn in range(4):
    start = time.perf_counter()
    for _ in range(40):
        step(*data)
    if turn and ms.get_rank() == 0:
        print("seconds", (time.perf_counter() - start) / 40, flush=True)
"""


def own_programs(network: Network, n: int, rows: int) -> tuple:
    """(graphs, ranks) of a step in data_parallel: each rank's own program."""
    def run():
        made = []

        def stand_in(program, layouts=None):
            made.append(Simulation(program, layouts))
            return made[-1]
        enter(RankState(mode=GRAPH_MODE, stand_in=stand_in, world=imagined.world(n)))
        ms.set_auto_parallel_context(parallel_mode="data_parallel" if n > 1 else "stand_alone", gradients_mean=True)
        step, inputs = network.build(rows)
        step(*inputs)
        return [program.scheduled for program in made], n
    return copy_context().run(run)


def logical_program(network: Network, n: int, rows: int):
    """The program of rank 0 of a step in semi_auto_parallel, fed with its rows."""
    step, inputs = network.build(rows)
    lie = placements("data_parallel", Mesh(n), {f"x{i}": x.shape for i, x in enumerate(inputs)}, (0, n))
    return compile(step, *map(Tensor.from_numpy, inputs, lie), device_num=n)


def simulated(view: str, network: Network, n: int, rows: int):
    """A step as a function of the cluster."""
    if n == 1 or view == "data_parallel":
        graphs, ranks = own_programs(network, n, rows)
        return partial(simulate_graphs, graphs, ranks)
    return partial(simulate, logical_program(network, n, rows))


def why(view: str, network: Network, cluster: Cluster, alone: Timeline, steps: dict) -> str:
    """Why efficiency on the most cards isn't what it should be, and from which batch on it would be."""
    n = max(steps)
    line = steps[n](cluster)
    lost = line.seconds - alone.seconds
    without = replace(cluster, inside=cluster.inside._replace(alpha=0.0), between=cluster.between._replace(alpha=0.0))
    latency = line.seconds - steps[n](without).seconds
    more = computed(line)
    more.subtract(computed(alone))
    said = [f"on {n} cards a step takes {duration(lost)} longer than alone:"]
    if line.exposed > 0.1 * lost:
        many = plural(sum(s.stream == "communication" for s in line.spans), "collective")
        said.append(f"{duration(line.exposed)} of communication isn't hidden ({many}, {size(sum(line.bytes.values()))} a rank; "
                    f"{max(latency, 0) / line.exposed:.0%} of it is latency)")
    if sum(more.values()) > 0.1 * lost:
        worst = ", ".join(f"{kind} {duration(seconds)}" for kind, seconds in more.most_common(2) if seconds > 0)
        said.append(f"{duration(sum(more.values()))} more are computed ({worst})")
    return f"{said[0]} {'; '.join(said[1:])}. {enough(view, network, cluster, n)}"


def computed(line: Timeline) -> Counter:
    """Seconds by kind of op."""
    out = Counter()
    for s in line.spans:
        if s.stream == "compute":
            out[s.kind] += s.end - s.begin
    return out


def enough(view: str, network: Network, cluster: Cluster, n: int) -> str:
    """From which batch a card on the goal is reached."""
    rows = 2 * network.rows
    while rows <= LARGEST * network.rows:
        alone, line = (simulated(view, network, k, rows)(cluster) for k in (1, n))
        if line.peak > cluster.device.memory:
            return f"No batch that fits into a card's memory reaches {GOAL}"
        if alone.seconds / line.seconds > GOAL:
            return f"From a batch of {rows} a card on it is more than {GOAL}"
        rows *= 2
    return f"Not with {LARGEST} times the batch either"


def simulate_all(cluster: Cluster) -> None:
    print(f"simulated on {cluster}, {cluster.device.name}; batch a card: " + ", ".join(f"{k.name} {k.rows}" for k in NETWORKS))
    print(f"{'':20}{'':22}{'alone':>10}" + "".join(f"{n:>8} cards" for n in CARDS) + "     memory")
    verdicts = []
    for network in NETWORKS:
        for view in ("data_parallel", "semi_auto_parallel"):
            alone = simulated(view, network, 1, network.rows)(cluster)
            steps = {n: simulated(view, network, n, network.rows) for n in CARDS}
            lines = {n: step(cluster) for n, step in steps.items()}
            efficiency = {n: alone.seconds / line.seconds for n, line in lines.items()}
            print(f"{network.name:20}{view:22}{duration(alone.seconds):>10}" + "".join(f"{e:>14.3f}" for e in efficiency.values())
                  + f" {size(lines[max(CARDS)].peak):>10}", flush=True)
            holds = [n for n, e in efficiency.items() if e > GOAL]
            which = "holds on all" if len(holds) == len(CARDS) else f"holds on {', '.join(map(str, holds))} cards only" if holds \
                else "holds on none"
            reason = "" if len(holds) == len(CARDS) else ": " + why(view, network, cluster, alone, steps)
            verdicts.append(f"{network.name}, {view}: > {GOAL} {which}{reason}")
    print("\n".join(["", *verdicts]))


def measure() -> None:
    """LeNet on 1 and 2 processes, one thread each, taking turns."""
    rows, best = NETWORKS[0].rows, {}
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "step.py")
        script.write_text(MEASURED.replace("ROWS", str(rows)))
        for _ in range(2):
            for n in (1, 2):
                command = [sys.executable, "-m", "minispore.launch.msrun", f"--worker_num={n}", f"--log_dir={folder}", script]
                out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
                best[n] = min([best.get(n, float("inf")), *(float(w.split()[-1]) for w in out.splitlines() if "seconds" in w)])
    here = cluster_of()
    alone, both = (simulated("data_parallel", NETWORKS[0], n, rows)(here).seconds for n in (1, 2))
    print(f"measured here, LeNet-5, {rows} rows a rank: {duration(best[1])} a step on 1 rank, {duration(best[2])} on 2: "
          f"efficiency {best[1] / best[2]:.3f}\nsimulated with the figures of {here.name!r}: {duration(alone)} and "
          f"{duration(both)}: {alone / both:.3f} (minispore bench calibrate measures this machine's)\n")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--cluster", default="ascend910b", help="a100, h100, ascend910, ascend910b or a JSON file (ascend910b)")
    p.add_argument("--no-measure", action="store_true", help="simulate only")
    o = p.parse_args()
    try:
        cluster = cluster_of(o.cluster)
    except ValueError as e:
        p.error(str(e))
    if not o.no_measure:
        measure()
    simulate_all(cluster)


if __name__ == "__main__":
    main()
