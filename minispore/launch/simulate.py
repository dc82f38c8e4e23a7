"""`minispore simulate script.py`: the script in this process, as rank 0 of cards that aren't there, or as one rank after another;
its training step in virtual time on a described cluster."""
import io
import os
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import copy_context
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from minispore.common.errors import CollectiveError
from minispore.common.state import GRAPH_MODE, RankState, enter
from minispore.launch import alias, environment, options, script
from minispore.parallel.cost.cluster import Cluster, cluster_of, plain
from minispore.parallel.simulate import LocalProgram, Simulation
from minispore.parallel.simulator import Timeline
from minispore.parallel.simulator.efficiency import curve, table
from minispore.parallel.simulator.events import Role
from minispore.parallel.simulator.program import Seat, role_of
from minispore.parallel.simulator.timeline import timeline

STEPS, MANY = 5, 10_000     # runs after which a script is ended: of a program that trains, and of another one
MOST, MOST_ROLES = 4096, 64     # cards; and those that do different things, so that the script is run for each


class Enough(BaseException):
    """The script has made enough steps. No Exception: a script that catches those doesn't catch this."""


class Runs:
    """A script's programs, in the order in which they ran. ended: the script was, when it had made enough steps."""

    def __init__(self):
        self.programs: list[Simulation] = []
        self.count: Counter[Simulation] = Counter()
        self.ended = False

    def stand_in(self, program, layouts=None) -> Simulation:
        """What is made of a program instead of running it."""
        return Simulation(program, layouts, self.ran)

    def ran(self, program: Simulation) -> None:
        self.programs.append(program)
        self.count[program] += 1
        if self.count[program] >= (STEPS if program.graph.assigned else MANY):
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
        kind = f"each rank's own; rank 0's: {kind}" if len(line.parts) > 1 else kind
        first, *rest = line.show().split("\n")
        if self.batch and line.seconds:
            rest.insert(1, f"samples         {self.batch / line.seconds:,.0f} a second, {self.batch:,} a step")
        if line.ranks > 1 and not line.communication:
            rest.append("note            nothing is communicated: each rank works for itself. init() and "
                        "set_auto_parallel_context(parallel_mode=…) make one training of them")
        nodes, times = sum(len(p.scheduled.nodes) for p in self.programs), "once" if self.made == 1 else f"{self.made} times"
        ended = ", then the script was ended" if self.ended else ""
        return "\n".join([first, f"program         {kind}: {nodes} node{'s' * (nodes > 1)}, run {times}{ended}", *rest])


def main(o, draw: Callable[[Timeline], object]) -> int:
    """The command; the exit code. o: its options (see cli.py); draw makes a picture of a Timeline."""
    p = options.parser()
    p.prog, p.usage = "minispore simulate", f"minispore simulate [options] [--] {options.PROGRAM}"
    path, *args = options.find_script(p, o.program)
    if not 1 <= o.cards <= MOST:
        p.error(f"--cards {o.cards}: give a number of cards from 1 to {MOST}")
    for file in filter(None, (o.trace, o.svg, o.json)):
        if not (folder := Path(file).absolute().parent).is_dir():
            p.error(f"{file} can't be written: there is no folder {folder}; make it first")
    try:
        cluster = cluster_of(o.cluster, o.node_size)
    except ValueError as e:
        p.error(str(e))
    alias.install(o.as_mindspore)
    try:
        step, error = simulated(path, args, o.cards, cluster)
    except CollectiveError as e:
        print(f"minispore simulate: {e}", file=sys.stderr)
        return 1
    if error is not None:
        script.explain(error, os.path.abspath(path))
    if step is None:
        print(f"minispore simulate: no program was compiled{f' before {ending(error)}' if error else ''}, so there is nothing "
              "to simulate; a training step is an nn.TrainOneStepCell, Model.train, ms.jit, or a Cell that is called",
              file=sys.stderr)
        return 1
    if error is not None:
        print(f"minispore simulate: {ending(error)}, on values that are all zeros here; what it ran before is simulated",
              file=sys.stderr)
    print(step.show())
    line = step.timeline
    for file, save in ((o.trace, line.save), (o.svg, lambda f: draw(line).save(f)), (o.json, lambda f: save_json(step, f))):
        if file:
            try:
                save(file)
            except (OSError, ValueError) as e:
                print(f"minispore simulate: {file} can't be written: {getattr(e, 'strerror', None) or e}; give another file",
                      file=sys.stderr)
                return 1
            print(f"wrote {file}" + (", for ui.perfetto.dev" if file == o.trace else ""))
    if o.curve:
        print(scaled(path, args, o.cards, cluster, step))
    return 0


def ending(error: BaseException) -> str:
    """How a script ended that failed."""
    return f"the script ended with exit code {script.exit_code(error)}" if isinstance(error, SystemExit) else "the script failed"


def simulated(path: str, args: Sequence[str], cards: int, cluster: Cluster) -> tuple[Step | None, BaseException | None]:
    """The training step of a script on so many cards, if it has one; and the error with which the script ended, if it did.

    All ranks are taken to do what rank 0 does, if that can be. Else, as in a pipeline, the script is run as each of them.
    """
    first = as_rank(Seat(cards), path, args, cluster)
    if not first.step:
        return None, first.error
    try:
        line = timeline([first.role], cluster)
    except CollectiveError as e:
        if not 1 < cards <= MOST_ROLES:
            raise CollectiveError(f"not all ranks can do what rank 0 does ({e}). So the script has to be run as each of them, "
                                  f"which is done for 2 to {MOST_ROLES} cards; give --cards accordingly") from e
        line = timeline(each_rank(path, args, cards, cluster), cluster)
    alike = len(line.parts) == 1
    batch = next((b for p in first.step if alike and (b := p.batch(cards))), None)
    return Step(line, first.step, batch, max(first.runs.count[p] for p in first.step), first.runs.ended), first.error


def each_rank(path: str, args: Sequence[str], cards: int, cluster: Cluster) -> list[Role]:
    """The ranks as roles of their own."""
    roles = []
    for rank in range(cards):
        with redirect_stdout(io.StringIO()):                # it was said by the first run
            mine = as_rank(Seat(cards, rank, own=True), path, args, cluster)
        if mine.error is not None and not mine.step:
            raise CollectiveError(f"as rank {rank} the script failed: {type(mine.error).__name__}: {mine.error}") from mine.error
        roles.append(mine.role)
    return roles


class Ran(NamedTuple):
    """A script, run as one rank. step: the programs of its training step; role: they in virtual time; error: with which it ended,
    if it did."""
    runs: Runs
    step: list[Simulation]
    role: Role
    error: BaseException | None


def as_rank(seat: Seat, path: str, args: Sequence[str], cluster: Cluster) -> Ran:
    """Run the script as one rank."""
    def run():
        runs, env = Runs(), environment.for_rank(seat.rank, seat.ranks)
        enter(RankState(seat.rank, seat.ranks, mode=GRAPH_MODE, stand_in=runs.stand_in, cluster=cluster))
        with as_script(path, args, {**env, "MS_SIMULATION_LEVEL": "0"}):
            error = run_script(os.path.abspath(path))
        step = step_of(runs.programs, lambda p: seconds(role_of([p.scheduled], cluster, seat)))
        return Ran(runs, step, role_of([p.scheduled for p in step], cluster, seat), error)
    return copy_context().run(run)


def run_script(path: str) -> BaseException | None:
    """Run it until it has made enough steps, or ends; the error with which it ended, if it did."""
    try:
        runpy.run_path(path, run_name="__main__")
    except Enough:
        return None
    except SystemExit as e:
        return e if script.exit_code(e) else None
    except Exception as e:
        return e
    return None


@contextmanager
def as_script(path: str, args: Sequence[str], variables: dict[str, str]):
    """What a script finds: its arguments, its folder, its environment. Of what it changes there nothing is left for the next run,
    nor are the modules beside it."""
    before, modules, here = (sys.argv[:], sys.path[:], dict(os.environ)), set(sys.modules), os.getcwd()
    folder = os.path.dirname(os.path.realpath(path))
    sys.argv[:], sys.path[0] = [path, *args], folder
    os.environ.update(variables)
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = before[:2]
        os.environ.clear()
        os.environ.update(before[2])
        os.chdir(here)
        for name in [name for name in set(sys.modules) - modules if beside(folder, name)]:
            del sys.modules[name]


def beside(folder: str, name: str) -> bool:
    """Whether a module stands in a script's folder itself, alone or in a package, so that it may depend on rank and cards."""
    first = name.partition(".")[0]
    module = sys.modules.get(first)
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None) or ""]
    return first not in (alias.HERE, alias.THERE) and any(os.path.dirname(os.path.realpath(place)) == folder for place in places)


def step_of(ran: list[Simulation], seconds: Callable[[Simulation], float]) -> list[Simulation]:
    """The programs of one training step, in the order in which they first ran: as many as run from one run of the longest that
    changes parameters (else: of all) until its next."""
    if not ran:
        return []
    kinds = dict.fromkeys(ran)
    longest = max([p for p in kinds if p.graph.assigned] or kinds, key=seconds)
    places = [i for i, p in enumerate(ran) if p is longest]
    cycle = min((ran[a:b] for a, b in pairwise(places)), key=len, default=[longest])
    turns = (ran[i:i + len(cycle)] for i in range(len(ran)))
    return next(turn for turn in turns if Counter(turn) == Counter(cycle))


def seconds(role: Role) -> float:
    """What its events take, one behind the other."""
    return sum(getattr(event, "seconds", 0.0) for event in role.events)


def save_json(step: Step, file) -> None:
    Path(file).write_text(plain({**step.timeline.summary(), "batch": step.batch}) + "\n", encoding="utf-8")


def scaled(path: str, args: Sequence[str], cards: int, cluster: Cluster, last: Step) -> str:
    """The script on 1, 2, 4, … cards, as a table."""
    steps, refused = {cards: last}, []
    n = 1
    while n < cards:
        step = None
        try:
            with redirect_stdout(io.StringIO()):
                step, error = simulated(path, args, n, cluster)
        except CollectiveError as e:
            error = e
        if step is None or error is not None:
            why = f"{type(error).__name__}: {error}".splitlines()[0] if error else "no program"
            refused.append(f"{n} card{'s' * (n > 1)}: {why}")
        else:
            steps[n] = step
        n *= 2
    work = {k: s.batch for k, s in steps.items()} if all(s.batch for s in steps.values()) else None
    text = table(curve({k: s.timeline for k, s in steps.items()}, work))
    if work and len(set(work.values())) == 1 and len(work) > 1:
        refused.append(f"the batch is {work[cards]:,} on any number of cards, so that more cards have less to do each")
    return "\n".join([text, *refused])
