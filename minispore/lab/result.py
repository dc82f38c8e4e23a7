"""What a job of ranks leaves behind: what each returned, its variables, its communication, what it printed, the error.

Jobs of threads (in_threads.py) and of processes (in_processes.py) end in the same Result.
"""
import reprlib
from collections.abc import Callable
from difflib import get_close_matches
from functools import cached_property

from minispore.communication.record import Event, Record
from minispore.launch.values import is_tool


class Rank:
    """One rank's variables, as attributes; `vars(job[2])` is the dict of them."""
    __slots__ = ("__dict__", "_absent", "_number")

    def __init__(self, number: int, names: dict, absent: dict[str, str]):
        """absent: why a variable isn't here, by its name; "*": why none is."""
        self._number, self._absent = number, absent
        self.__dict__.update(names)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)              # Python and IPython ask for such names by themselves
        raise AttributeError(f"rank {self._number} has no variable {name!r}{_why_not([self], name)}")

    def __repr__(self):
        names = {name: x for name, x in vars(self).items() if not is_tool(x)}
        width = max(map(len, names), default=0)
        lines = [f"  {name:<{width}} = {_short(x)}" for name, x in names.items()]
        lines += [f"  {name}: {why}" for name, why in self._absent.items() if name != "*"]
        nothing = f": {self._absent.get('*', 'it left none')}" if not lines else ""
        return "\n".join([f"rank {self._number}'s variables{nothing}", *lines])


class Result:
    """How a job of n ranks went.

    values: what each rank returned (None where it failed, and of scripts). output: what each rank printed. error: None, or what
    went wrong. records: a Record a rank, also after a failure. job[2].x is rank 2's variable x; job.x is the list over all ranks,
    unless x is one of these names: then [rank.x for rank in job].

    >>> import numpy as np
    >>> from minispore.communication import communicator, get_rank, init
    >>> from minispore.lab import ranks
    >>> @ranks(3)
    ... def job():
    ...     init()
    ...     total = communicator().all_reduce(np.full(2, 1.0 + get_rank())).wait()
    ...     return total.sum()
    >>> job[2].total, job.values == [12.0] * 3, len(job.messages())
    (array([6., 6.]), True, 12)
    >>> job.totals
    Traceback (most recent call last):
    AttributeError: no rank has a variable 'totals'; did you mean total?
    """

    def __init__(self, kind: str, values: list, ranks: list[Rank], output: list[str], error: BaseException | None,
                 records: Callable[[], list[Record]], failed: int | None = None, exit_code: int | None = None, folder=None):
        """kind: "thread" or "process"; failed: the rank that failed first; folder: of a job of processes, with its log files."""
        self.kind, self.values, self.output, self.error = kind, values, output, error
        self.failed, self.exit_code, self.folder = failed, exit_code, folder
        self._ranks, self._load = ranks, records

    @cached_property
    def records(self) -> list[Record]:
        """The record of each rank; of one that didn't come to init() it is empty."""
        return self._load()

    def messages(self) -> list[Event]:
        """All messages that ranks sent, in order of time."""
        return sorted((event for record in self.records for event in record.messages()), key=lambda event: event.begin)

    def __len__(self):
        return len(self._ranks)

    def __iter__(self):
        return iter(self._ranks)

    def __getitem__(self, rank: int) -> Rank:
        if not hasattr(rank, "__index__"):
            hint = f"; the list of {rank} over all ranks is job.{rank}" if isinstance(rank, str) else ""
            raise TypeError(f"job[{rank!r}]: give the number of a rank, as job[0]{hint}")
        if not 0 <= rank < len(self):
            raise IndexError(f"job[{rank}]: there is no rank {rank}; the job's {len(self)} ranks are 0 … {len(self) - 1}")
        return self._ranks[rank]

    def __getattr__(self, name) -> list:
        if name.startswith("_"):
            raise AttributeError(name)
        there = [r for r, rank in enumerate(self) if name in vars(rank)]
        if len(there) == len(self):
            return [vars(rank)[name] for rank in self]
        missing = [rank for rank in self if name not in vars(rank)]
        if there:
            raise AttributeError(f"{_some(rank._number for rank in missing)} no variable {name!r}, {_some(there)} one, as "
                                 f"job[{there[0]}].{name}{_why_not(missing, name, near=False)}")
        raise AttributeError(f"no rank has a variable {name!r}{_why_not(missing, name)}")

    def __dir__(self):
        return sorted({*super().__dir__(), *(name for rank in self for name in vars(rank))})

    def __repr__(self):
        code = f", exit code {self.exit_code}" if self.exit_code else ""
        who = "failed" if self.failed is None else f"rank {self.failed} failed first"
        how = f"{who}{code}: {type(self.error).__name__}" if self.error else "ended well"
        names = {name: None for rank in self for name, x in vars(rank).items() if not is_tool(x)}
        messages = self.messages()
        lines = [f"{len(self)} {self.kind} rank{'s' * (len(self) > 1)}, {how}; "
                 f"{len(messages)} messages, {sum(m.bytes for m in messages):,} bytes"]
        if any(value is not None for value in self.values):
            lines.append(f"values: {_short(self.values)}")
        if names:
            lines.append(f"variables: {', '.join(names)}")
        absent = {name: None for rank in self for name in rank._absent if name != "*"}
        if absent:
            lines.append(f"not kept: {', '.join(absent)} (job[0].{next(iter(absent))} says why)")
        return "\n".join(lines)


def _why_not(ranks: list[Rank], name: str, near: bool = True) -> str:
    """What to say of a variable that none of these ranks has: the reason, or which ones there are."""
    reasons = {rank._absent.get(name) or rank._absent.get("*"): None for rank in ranks}
    reasons.pop(None, None)
    if reasons:
        return f": {'; '.join(reasons)}"
    if not near:
        return ""
    known = list({n: None for rank in ranks for n, x in vars(rank).items() if not is_tool(x)})
    if close := get_close_matches(name, known, 3, 0.7):
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are: {', '.join(known)}" if known else "; there are none, since nothing was assigned"


def _some(numbers) -> str:
    """Which ranks have (something): "rank 2 has", "ranks 0, 1 … 7 have"."""
    first, *others = numbers
    if not others:
        return f"rank {first} has"
    return f"ranks {', '.join(map(str, (first, *others)))} have" if len(others) < 5 else \
        f"ranks {first}, {others[0]} … {others[-1]} have"


def _short(x, most: int = 90) -> str:
    """A repr on one line."""
    text = " ".join(reprlib.repr(x).split()) if isinstance(x, (str, bytes)) else " ".join(repr(x).split())
    return text if len(text) <= most else f"{text[:most - 2]} …"
