"""Auto parallel's search: how long each mode takes for a large Transformer, and how good it is where all plans can be tried.

Large: a GPT of 24 layers on 64 cards, without and with a memory limit. Small: random graphs of at most 4 ops on 8 devices or 5 on
4; a mode's gap is how much more its plan costs than the best of all. What `search` returns never costs more than data parallel.
"""
import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scaling_networks import gpt

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from search_graphs import small_task

from minispore import Tensor
from minispore.parallel import compile
from minispore.parallel.search import MODES, search
from minispore.parallel.search.alike import ROUNDS, alike
from minispore.parallel.simulator.timeline import duration, size

LAYERS, CARDS, ROWS = 24, 64, 4         # of the GPT; rows: of a card's batch
OPTIMAL = 1e-6                          # of a gap: how much is rounding


def large(cluster: str, share: float) -> None:
    """The Transformer by every mode, and under `share` of the memory that the best plan takes."""
    step, inputs = gpt(LAYERS)(ROWS * CARDS)
    inputs = [Tensor.from_numpy(x) for x in inputs]

    def found(mode: str, memory=None):
        begin = time.perf_counter()
        program = compile(step, *inputs, device_num=CARDS, parallel_mode="auto_parallel", search_mode=mode, cluster=cluster,
                          memory=memory)
        plan, took = program.plan, time.perf_counter() - begin
        gap = "" if plan.gap is None else f"{plan.gap:.2%}"
        print(f"{mode:24}{plan.took:>9.1f} s{took:>9.1f} s{duration(plan.seconds):>11}{gap:>9}"
              f"{plan.task.seconds(plan.data_parallel) / plan.seconds:>10.2f}×{size(plan.memory):>12}"
              + ("" if memory is None else f" of {size(memory)}"), flush=True)
        return program
    forward = compile(step.network, *inputs, device_num=1).logical
    print(f"GPT of {LAYERS} layers ({len(forward.nodes)} ops forward), {ROWS * CARDS} rows, on {CARDS} cards of {cluster}")
    print(f"{'':24}{'search':>11}{'with all':>11}{'a step':>11}{'gap':>9}{'data':>11}{'memory':>12}")
    for mode in MODES:
        best = found(mode)
    found("ilp", int(best.plan.memory * share))
    deciding = len(set(alike(best.plan.task, ROUNDS)[0].values()))
    print(f"with all: the compiler's other passes too; data: what data parallel takes, in steps of this plan\n"
          f"{len(best.logical.nodes)} ops in a step; what looks alike decides together, so {deciding} are solved\n")


def small(graphs: int) -> None:
    """Every mode against trying all plans."""
    own: dict[str, list[float]] = {mode: [] for mode in MODES}
    returned: dict[str, list[float]] = {mode: [] for mode in MODES}
    for n in range(graphs):
        task, best = small_task(n)
        for mode, propose in MODES.items():
            own[mode].append(task.seconds(propose(task, None, time.monotonic() + 60).plan))
            returned[mode].append(search(task, mode).seconds)
            own[mode][-1], returned[mode][-1] = (x / best - 1 for x in (own[mode][-1], returned[mode][-1]))
    print(f"{graphs} random graphs: how much more a plan costs than the best of all")
    print(f"{'':24}{'the best':>10}{'mean':>9}{'median':>9}{'worst':>10}     returned:{'the best':>10}{'mean':>9}{'worst':>10}")
    for mode in MODES:
        a, b = np.array(own[mode]), np.array(returned[mode])
        print(f"{mode:24}{(a < OPTIMAL).mean():>10.0%}{a.mean():>9.1%}{np.median(a):>9.1%}{a.max():>10.1%}{'':14}"
              f"{(b < OPTIMAL).mean():>10.0%}{b.mean():>9.1%}{b.max():>10.1%}")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--cluster", default="a100", help="a100, h100, ascend910, ascend910b or a JSON file (a100)")
    p.add_argument("--graphs", type=int, default=300, help="how many small graphs (300)")
    p.add_argument("--limit", type=float, default=0.9, help="the memory limit, of what the best plan takes (0.9)")
    p.add_argument("--only", choices=("large", "small"), help="one of the two parts")
    o = p.parse_args()
    if o.only != "small":
        large(o.cluster, o.limit)
    if o.only != "large":
        small(o.graphs)


if __name__ == "__main__":
    main()
