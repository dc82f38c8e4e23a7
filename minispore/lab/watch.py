"""Watch: a communication algorithm run step by step on symbols, so that one sees whose numbers are where after each step.

In place of numbers the arrays hold Python ints with one digit for each element of each rank: the digit counts how often that
element is in the sum. No threads, no clock: all ranks' generators are stepped together. draw/steps.py draws what comes out;
symbolic_link.py is the link that the algorithm talks to, tasks.py says what each op begins and ends with.
"""
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from minispore.common.errors import CollectiveError
from minispore.communication.algorithms import ALGORITHMS
from minispore.lab.symbolic_link import Exchange, Message, SymbolicLink, check_yielded, digits
from minispore.lab.tasks import TASKS
from minispore.lab.words import plural

MOST_RANKS, MOST_ROUNDS = 64, 10_000

PARAMETERS = {("x", "accumulate"): "AllReduce", ("chunks", "accumulate"): "ReduceScatter", ("chunks",): "AllGather",
              ("x", "root"): "Broadcast", ("x", "root", "accumulate"): "Reduce", ("outgoing", "incoming"): "AlltoAll",
              ("x", "chunks", "root"): "Gather", ("chunks", "x", "root"): "Scatter", (): "Barrier"}


@dataclass(frozen=True)
class Frame:
    """All arrays between two steps, and the messages of the step that comes next (none in the last frame).

    counts: int (ranks, length, ranks): [r, i, s] is how often rank s's contribution is in rank r's element i. complete: bool
    (ranks, length): the element is what it should be in the end. misplaced: it holds something of another element.
    """
    counts: np.ndarray
    complete: np.ndarray
    misplaced: np.ndarray
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Watched:
    """What `watch` saw. ranks, length: of the run; frames: one before each step and one after the last; names: what each step
    belongs to ("reduce-scatter", …); sections: (name, from, to) of the arrays of a rank, that lie one behind the other in the
    frames; matters: bool (ranks, length): whether the result is to be found there."""
    algorithm: str
    op: str
    ranks: int
    length: int
    frames: tuple[Frame, ...]
    names: tuple[str, ...]
    sections: tuple[tuple[str, int, int], ...]
    matters: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.names)

    @property
    def messages(self) -> list[Message]:
        """Those of all steps."""
        return [m for frame in self.frames for m in frame.messages]

    @property
    def wrong(self) -> list[tuple[int, int]]:
        """(rank, element) of each result that isn't what it should be."""
        bad = self.matters & ~self.frames[-1].complete
        return [(int(r), int(i)) for r, i in zip(*np.nonzero(bad), strict=True)]

    def __repr__(self):
        state = f"{len(self.wrong)} elements wrong" if self.wrong else "complete"
        run = f"{self.algorithm} on {plural(self.ranks, 'rank')}, {plural(self.length, 'element')}"
        return f"{run}: {plural(self.steps, 'step')}, {plural(len(self.messages), 'message')}, {state}"


def watch(algorithm: Callable, ranks: int = 4, length: int = 8, *, op: str = "", root: int = 0, node_size: int = 0) -> Watched:
    """Run an algorithm on symbols and keep every step.

    Args:
        algorithm: a generator function as minispore/communication/algorithms has them, or one of yours: (link, x, accumulate),
            (link, chunks, accumulate), (link, chunks), (link, x, root), … The names of its parameters say what it does.
        ranks: how many, 1 to 64.
        length: elements of the array (of all chunks together).
        op: "AllReduce", …, where the names of the parameters don't say it.
        root: for ops that have one.
        node_size: so many consecutive ranks are a node (0: all of them), for the hierarchical ones.

    A send is complete when it has been received, as that of a large array. CollectiveError if nobody can go on: it says who
    waits for whom.

    >>> from minispore.communication.algorithms import ring_all_reduce
    >>> watched = watch(ring_all_reduce, ranks=4, length=8)
    >>> watched
    ring_all_reduce on 4 ranks, 8 elements: 6 steps, 24 messages, complete
    >>> watched.names[0], watched.frames[3].counts[1, 2].tolist(), watched.frames[0].messages[0]
    ('reduce-scatter', [1, 1, 1, 1], rank 0 → rank 1: 2 elements 6:8)
    """
    if not isinstance(ranks, int) or not 1 <= ranks <= MOST_RANKS:
        raise ValueError(f"watch: ranks={ranks!r} must be a whole number from 1 to {MOST_RANKS}")
    if not isinstance(length, int) or length < 0:
        raise ValueError(f"watch: length={length!r} must be a whole number of elements, 0 or more")
    if not isinstance(root, int) or not 0 <= root < ranks:
        raise ValueError(f"watch: root={root!r} must be one of the ranks 0 … {ranks - 1}")
    if not isinstance(node_size, int) or node_size < 0:
        raise ValueError(f"watch: node_size={node_size!r} must be a whole number of ranks, 0 for one node")
    op = op or op_of(algorithm)
    if op not in TASKS:
        raise ValueError(f"watch: {op!r} is no op; there are {', '.join(TASKS)}")
    task = TASKS[op](ranks, length, root)
    begin, home, expected = (np.concatenate([getattr(part, name) for part in task.parts.values()], 1)
                             for name in ("begin", "home", "expected"))
    arrays = list(begin)
    exchange = Exchange(ranks, arrays)
    size = node_size or ranks
    nodes = tuple(tuple(range(i, min(i + size, ranks))) for i in range(0, ranks, size))
    running = []
    for rank in range(ranks):
        parts = (arrays[rank][a:b] for _, a, b in task.sections)
        steps = algorithm(SymbolicLink(exchange, rank, nodes), *task.arguments(*parts))
        if not hasattr(steps, "send"):
            raise TypeError(f"watch: {name_of(algorithm)} returned a {type(steps).__name__}, no generator. It must `yield` the "
                            "list of messages it waits for: yield [link.send(…), link.receive(…)]")
        running.append(steps)
    frames, names = [], []
    for phases in rounds(running, exchange):
        messages = exchange.match()
        if messages:
            frames.append(frame_of(arrays, home, expected, messages, length))
            names.append(phase(phases, messages))
            exchange.deliver(messages)
        elif not exchange.moved:
            raise CollectiveError(exchange.deadlock(len(names)))
    if left := exchange.left():
        raise CollectiveError(f"all ranks have ended, but {left}")
    frames.append(frame_of(arrays, home, expected, (), length))
    return Watched(name_of(algorithm), op, ranks, length, tuple(frames), tuple(names), task.sections,
                   np.not_equal(expected, None).astype(bool))


def rounds(running: list, exchange: Exchange):
    """Let every rank that can go on do so, up to its next yield; yield what each is in, until all have ended."""
    waiting: list = [[] for _ in running]
    for _ in range(MOST_ROUNDS):
        exchange.moved = False
        for rank, steps in enumerate(running):
            if rank in exchange.ended or not all(m.done for m in waiting[rank]):
                continue
            exchange.moved = True
            try:
                waiting[rank] = check_yielded(next(steps))
            except StopIteration:
                exchange.ended.add(rank)
                waiting[rank] = []
            except Exception as e:
                e.add_note(f"on rank {rank} of {len(running)}, watched")
                raise
        exchange.waiting = waiting
        if len(exchange.ended) == len(running):
            return
        yield [innermost(steps) for steps in running]
    raise CollectiveError(f"not done after {MOST_ROUNDS:,} rounds, so it may never be. Which loop lacks its end?")


def innermost(steps) -> str:
    """The name of the generator that yields now: ring_reduce_scatter, inside ring_all_reduce."""
    while getattr(steps, "gi_yieldfrom", None) is not None and hasattr(steps.gi_yieldfrom, "gi_code"):
        steps = steps.gi_yieldfrom
    return steps.gi_code.co_name if hasattr(steps, "gi_code") else ""


PHRASES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier", "scatter", "gather", "reduce")


def phase(names: Sequence[str], messages: Sequence[Message]) -> str:
    """What most of those that exchange messages are in, in words."""
    busy = Counter(names[r] for m in messages for r in (m.source, m.target))
    name = max(busy, key=lambda n: (busy[n], n)).strip("_")
    return next((p.replace("_", "-") for p in PHRASES if p in name), name.replace("_", " "))


def op_of(algorithm: Callable) -> str:
    """What an algorithm does: by the table, else by the names of its parameters. ValueError if they don't say."""
    found = [op for op, by_name in ALGORITHMS.items() if algorithm in by_name.values()]
    if found:
        return found[0]
    if not callable(algorithm):
        raise TypeError(f"watch: {algorithm!r} is no function; give a generator function such as ring_all_reduce")
    names = tuple(inspect.signature(algorithm).parameters)[1:]
    if names not in PARAMETERS:
        known = "; ".join(f"{op} (link{''.join(', ' + p for p in ps)})" for ps, op in PARAMETERS.items())
        raise ValueError(f"watch: what {name_of(algorithm)}(link, {', '.join(names)}) does its parameters don't tell. Name "
                         f"them as these do: {known}; or say it: watch(…, op=\"AllReduce\")")
    return PARAMETERS[names]


def name_of(algorithm: Callable) -> str:
    return getattr(algorithm, "__name__", type(algorithm).__name__)


def frame_of(arrays: Sequence[np.ndarray], home: np.ndarray, expected: np.ndarray, messages: Sequence[Message],
             length: int) -> Frame:
    """What the ranks' arrays hold now. home, expected: of all their places, as in tasks.Part."""
    ranks, total = home.shape
    counts = np.zeros((ranks, total, ranks), int)
    complete, misplaced = np.zeros((ranks, total), bool), np.zeros((ranks, total), bool)
    for r, array in enumerate(arrays):
        for i, symbol in enumerate(array):
            found = digits(symbol, ranks, length, f"rank {r}'s element {i}")
            counts[r, i] = found.sum(1)
            complete[r, i] = expected[r, i] == symbol
            misplaced[r, i] = home[r, i] is not None and found.sum() > found[:, home[r, i]].sum()
    return Frame(counts, complete, misplaced, tuple(m.seen(ranks, length) for m in messages))
