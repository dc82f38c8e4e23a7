"""`minispore simulate script.py`: the script in this process, as rank 0 of cards that aren't there; its training step in virtual
time on a described cluster."""
import io
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import copy_context
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from minispore.common.state import GRAPH_MODE, RankState, enter
from minispore.launch import alias, environment, options, script
from minispore.parallel.cost.cluster import Cluster, cluster_of
from minispore.parallel.simulate import LocalProgram, Simulation
from minispore.parallel.simulator import Timeline, simulate_graphs
from minispore.parallel.simulator.efficiency import curve, table

STEPS, MOST = 5, 4096       # runs of the training step until the script is ended; cards


class Enough(BaseException):
    """The script has made enough steps. No Exception: a script that catches those doesn't catch this."""


class Runs(list):
    """A script's programs, in the order in which they ran. ended: the script was, when it had made enough steps."""
    ended = False

    def stand_in(self, program, layouts=None) -> Simulation:
        """What is made of a program instead of running it."""
        return Simulation(program, layouts, self.ran)

    def ran(self, program: Simulation) -> None:
        self.append(program)
        if program.graph.assigned and self.count(program) == STEPS:
            self.ended = True
            raise Enough


class Step(NamedTuple):
    """A training step of a script, simulated.

    programs: what it is made of; batch: samples of all ranks, where they are known; made: how many such steps the script made;
    ended: then it was ended.
    """
    timeline: Timeline
    programs: list[Simulation]
    batch: int | None
    made: int
    ended: bool

    def show(self) -> str:
        line, many, logical = self.timeline, len(self.programs), isinstance(self.programs[0].program, LocalProgram)
        kind = f"{many} programs one behind the other, between which nothing overlaps" if many > 1 else \
            "a logical program, cut" if logical else "the rank's own program"
        first, *rest = line.show().split("\n")
        if self.batch and line.seconds:
            rest.insert(1, f"samples         {self.batch / line.seconds:,.0f} a second, {self.batch:,} a step")
        if line.ranks > 1 and not line.communication:
            rest.append("note            nothing is communicated: each rank works for itself. init() and "
                        "set_auto_parallel_context(parallel_mode=…) make one training of them")
        nodes, times = sum(len(p.scheduled.nodes) for p in self.programs), "once" if self.made == 1 else f"{self.made} times"
        ended = ", then the script was ended" if self.ended else ""
        return "\n".join([first, f"program         {kind}: {nodes} nodes, run {times}{ended}", *rest])


def main(o, draw: Callable[[Timeline], object]) -> int:
    """The command; the exit code. o: its options (see cli.py); draw makes a picture of a Timeline."""
    p = options.parser()
    p.prog, p.usage = "minispore simulate", f"minispore simulate [options] [--] {options.PROGRAM}"
    path, *args = options.find_script(p, o.program)
    if not 1 <= o.cards <= MOST:
        p.error(f"--cards {o.cards}: give a number of cards from 1 to {MOST}")
    try:
        cluster = cluster_of(o.cluster, o.node_size)
    except ValueError as e:
        p.error(str(e))
    alias.install(o.as_mindspore)
    step, error = simulated(path, args, o.cards, cluster)
    if error is not None:
        script.explain(error, os.path.abspath(path))
    if step is None:
        print(f"minispore simulate: no program was compiled{' before the script failed' if error else ''}, so there is nothing "
              "to simulate; a training step is an nn.TrainOneStepCell, Model.train, ms.jit, or a Cell that is called",
              file=sys.stderr)
        return 1
    if error is not None:
        print("minispore simulate: the script failed on values that are all zeros here; what it ran before is simulated",
              file=sys.stderr)
    print(step.show())
    line = step.timeline
    for file, save in ((o.trace, line.save), (o.svg, lambda f: draw(line).save(f)), (o.json, lambda f: save_json(step, f))):
        if file:
            try:
                save(file)
            except (OSError, ValueError) as e:
                print(f"minispore simulate: {file} can't be written: {e}", file=sys.stderr)
                return 1
            print(f"wrote {file}" + (", for ui.perfetto.dev" if file == o.trace else ""))
    if o.curve:
        print(scaled(path, args, o.cards, cluster, step))
    return 0


def simulated(path: str, args: Sequence[str], cards: int, cluster: Cluster) -> tuple[Step | None, BaseException | None]:
    """The training step of a script on so many cards, if it has one; and the error with which the script ended, if it did."""
    def run(variables):
        runs = Runs()
        enter(RankState(mode=GRAPH_MODE, stand_in=runs.stand_in))
        error = run_script(path, args, variables)
        return step_of(runs, cards, cluster), error
    with tempfile.TemporaryDirectory() as folder:           # auto parallel searches for the same cluster
        file = os.path.join(folder, "cluster.json")
        cluster.save(file)
        return copy_context().run(run, {**environment.for_rank(0, cards), "MINISPORE_CLUSTER": file})


def run_script(path: str, args: Sequence[str], variables: dict[str, str]) -> BaseException | None:
    """Run it until it has made enough steps, or ends; the error with which it ended, if it did."""
    with as_script(path, args, {**variables, "MS_SIMULATION_LEVEL": "0"}):
        try:
            runpy.run_path(os.path.abspath(path), run_name="__main__")
        except Enough:
            return None
        except SystemExit as e:
            return e if script.exit_code(e) else None
        except Exception as e:
            return e
    return None


@contextmanager
def as_script(path: str, args: Sequence[str], variables: dict[str, str]):
    """What a script finds: its arguments, its folder, its environment."""
    before = sys.argv[:], sys.path[0], dict(os.environ)
    sys.argv[:], sys.path[0] = [path, *args], os.path.dirname(os.path.realpath(path))
    os.environ.update(variables)
    try:
        yield
    finally:
        sys.argv[:], sys.path[0] = before[:2]
        os.environ.clear()
        os.environ.update(before[2])


def step_of(runs: Runs, cards: int, cluster: Cluster) -> Step | None:
    """The programs from one run of the longest until its next: the training step."""
    if not runs:
        return None
    alone = {p: simulate_graphs([p.scheduled], cards, cluster).seconds for p in dict.fromkeys(runs)}
    longest = max(alone, key=alone.get)
    places = [i for i, p in enumerate(runs) if p is longest]
    cycles = [runs[a:b] for a, b in pairwise(places)] or [[longest]]
    programs = min(cycles, key=len)
    batch = next((b for p in programs if (b := p.batch(cards))), None)
    return Step(simulate_graphs([p.scheduled for p in programs], cards, cluster), programs, batch, len(places), runs.ended)


def save_json(step: Step, file) -> None:
    Path(file).write_text(json.dumps({**step.timeline.summary(), "batch": step.batch}, indent=1) + "\n", encoding="utf-8")


def scaled(path: str, args: Sequence[str], cards: int, cluster: Cluster, last: Step) -> str:
    """The script on 1, 2, 4, … cards, as a table."""
    steps, refused = {cards: last}, []
    n = 1
    while n < cards:
        with redirect_stdout(io.StringIO()):
            step, error = simulated(path, args, n, cluster)
        if step is None or error is not None:
            refused.append(f"{n} cards: " + (f"{type(error).__name__}: {error}".splitlines()[0] if error else "no program"))
        else:
            steps[n] = step
        n *= 2
    work = {k: s.batch for k, s in steps.items()} if all(s.batch for s in steps.values()) else None
    text = table(curve({k: s.timeline for k, s in steps.items()}, work))
    if work and len(set(work.values())) == 1 and len(work) > 1:
        refused.append(f"the batch is {work[cards]:,} on any number of cards, so that more cards have less to do each")
    return "\n".join([text, *refused])
