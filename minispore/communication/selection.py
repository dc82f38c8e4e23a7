"""Which algorithm runs: a table that is data, and three ways to say otherwise.

    MINISPORE_ALGORITHM_TABLE=table.json    another table (a measured one)
    MINISPORE_ALGORITHM=tree                this algorithm, for all ops that have one of that name
    with algorithm("tree"): …               the same for some lines
    with use(ring_all_reduce=mine): …       one algorithm replaced by a function of yours
    MINISPORE_NODE_SIZE=k                   each k consecutive ranks of the job pretend to be a node

A Selection holds for a rank and what it starts. run_ranks hands the caller's on to its thread ranks; a job of processes
takes rank 0's, so that all choose alike (`agreed`).
"""
import difflib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from minispore.communication.algorithms import ALGORITHMS

LOCALITIES = ("shared", "nodes", "messages", "threads")
# shared     the caller can do it in memory that all ranks of the group share (the algorithm "shared", no messages)
# nodes      several nodes with more than one rank each
# messages   processes that send messages, all alike;      threads   ranks of one process


# op: rows (most ranks, most bytes of this rank's array, locality, algorithm), the first that fits; None and "any" fit all.
_PLAIN = {"AllReduce": "ring", "ReduceScatter": "ring", "AllGather": "ring", "Broadcast": "tree", "Reduce": "tree",
          "AlltoAll": "pairwise", "Gather": "linear", "Scatter": "linear", "Barrier": "dissemination"}
DEFAULT = {op: [[None, None, "shared", "shared"],
                *([[None, None, "nodes", "hierarchical"]] if "hierarchical" in ALGORITHMS[op] else []),
                [None, None, "any", plain]] for op, plain in _PLAIN.items()}

Table = Mapping[str, list]


@dataclass(frozen=True)
class Selection:
    """What decides: the table, a forced name, ranks a pretended node (0: as they are), replaced functions by name."""
    table: Table
    forced: str = ""
    node_size: int = 0
    replaced: Mapping[str, Callable] = field(default_factory=dict)


_selection: ContextVar[Selection] = ContextVar("minispore_selection")


def current() -> Selection:
    """The selection of the rank that asks: what it entered, else what the environment says."""
    return _selection.get(None) or from_environment()


def enter(selection: Selection) -> None:
    """Make it the selection of this thread, and of what it starts in a copy of its context."""
    _selection.set(selection)


def from_environment() -> Selection:
    """The selection that the variables MINISPORE_ALGORITHM_TABLE, MINISPORE_ALGORITHM and MINISPORE_NODE_SIZE ask for."""
    path, forced = os.environ.get("MINISPORE_ALGORITHM_TABLE"), os.environ.get("MINISPORE_ALGORITHM", "")
    size = os.environ.get("MINISPORE_NODE_SIZE", "")
    if size and not (size.isdecimal() and int(size)):
        raise ValueError(f"MINISPORE_NODE_SIZE={size!r} must be a whole number of ranks, 1 or more")
    return Selection(load(path) if path else DEFAULT, forced and _known(forced, "MINISPORE_ALGORITHM"), int(size or 0))


def choose(op: str, size: int, nbytes: int, locality: str) -> str:
    """The name of the algorithm for an op on `size` ranks, each with an array of nbytes.

    >>> choose("AllReduce", 4, 1000, "threads"), choose("AllReduce", 4, 1000, "nodes"), choose("Gather", 4, 1000, "nodes")
    ('ring', 'hierarchical', 'linear')
    """
    selection = current()
    if selection.forced in ALGORITHMS[op] or selection.forced == locality == "shared":
        return selection.forced
    return next(name for ranks, most, where, name in selection.table[op]
                if (ranks is None or size <= ranks) and (most is None or nbytes <= most) and where in ("any", locality))


def function(op: str, name: str) -> Callable:
    """The generator function that does `op` by the algorithm of this name, or what `use` put in its place."""
    fn = ALGORITHMS[op][name]
    return current().replaced.get(fn.__name__, fn)


@contextmanager
def algorithm(name: str):
    """Force an algorithm, for all ops that have one of this name. On every rank, or around run_ranks.

    >>> with algorithm("tree"):
    ...     choose("AllReduce", 4, 1000, "threads"), choose("AllGather", 4, 1000, "threads")
    ('tree', 'ring')
    """
    with _entered(replace(current(), forced=_known(name, "algorithm"))):
        yield


@contextmanager
def use(**replacements: Callable):
    """Replace algorithms by functions of yours, each by the name of its function: use(ring_all_reduce=mine).

    A replacement runs where the op as a whole takes that algorithm, not where another algorithm is built of it.
    """
    names = sorted(fn.__name__ for by_name in ALGORITHMS.values() for fn in by_name.values())
    for name, fn in replacements.items():
        if name not in names:
            raise ValueError(f"use: there is no algorithm function {name!r}{_near(name, names)}. There are: "
                             f"{', '.join(names)}")
        if not callable(fn):
            raise TypeError(f"use: {name} is replaced by a {type(fn).__name__}, which can't be called")
    now = current()
    with _entered(replace(now, replaced={**now.replaced, **replacements})):
        yield


@contextmanager
def _entered(selection):
    token = _selection.set(selection)
    try:
        yield
    finally:
        _selection.reset(token)


def _known(name, who):
    names = sorted({"shared", *(name for by_name in ALGORITHMS.values() for name in by_name)})
    if name not in names:
        raise ValueError(f"{who}: there is no algorithm {name!r}{_near(name, names)}. There are: {', '.join(names)}")
    return name


def _near(name, names):
    near = difflib.get_close_matches(str(name), names)
    return f"; near: {', '.join(near)}" if near else ""


# ---- tables ------------------------------------------------------------------------------------------

def save(table: Table, path) -> None:
    """Write as JSON, a row a line."""
    ops = (f"{json.dumps(op)}: [\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "]" for op, rows in table.items())
    Path(path).write_text("{" + ",\n".join(ops) + "}\n")


def load(path) -> Table:
    """Read what `save` wrote, or a person; ops that aren't in it go by the default. ValueError if it can't be a table."""
    try:
        table = json.loads(Path(path).read_text())
    except OSError as e:
        raise ValueError(f"algorithm table {path}: {e.strerror or e}") from e
    except ValueError as e:
        raise ValueError(f"algorithm table {path} is no JSON: {e}") from e
    return checked(table, f"algorithm table {path}")


def checked(table, who: str = "algorithm table") -> Table:
    """The table with the default's rows for ops it lacks; ValueError that says which row can't be."""
    if not isinstance(table, dict) or not set(table) <= set(ALGORITHMS):
        raise ValueError(f"{who} must map some of {', '.join(ALGORITHMS)} to rows, not {_short(table)}")
    for op, rows in table.items():
        if not isinstance(rows, list) or not rows:
            raise ValueError(f"{who}: {op} must have a list of rows, not {_short(rows)}")
        for row in rows:
            if wrong := _wrong(op, row):
                raise ValueError(f"{who}: {op}'s row {_short(row)}: {wrong}")
        if rows[-1][:3] != [None, None, "any"]:
            raise ValueError(f"{who}: {op}'s last row must be [null, null, \"any\", …], so that something always fits")
    return {**DEFAULT, **table}


def _wrong(op, row):
    if not isinstance(row, list) or len(row) != 4:
        return "it must be [most ranks, most bytes, locality, algorithm]"
    *limits, where, name = row
    if any(limit is not None and (type(limit) is not int or limit < 0) for limit in limits):
        return "most ranks and most bytes must be whole numbers, or null for no limit"
    if where not in (*LOCALITIES, "any"):
        return f"the locality must be one of {', '.join(LOCALITIES)}, any"
    if name == "shared" and where != "shared":
        return 'the algorithm "shared" needs the locality "shared"'
    if name != "shared" and name not in ALGORITHMS[op]:
        return f"{op} has the algorithms {', '.join(ALGORITHMS[op])}"
    return None


def _short(value):
    text = json.dumps(value)
    return text if len(text) < 100 else text[:97] + "..."


def fingerprint(selection: Selection | None = None) -> str:
    """Eight hex digits for what the order of sums between ranks depends on: table, forced algorithm, pretended nodes. Checkpoints
    name it.

    >>> fingerprint(Selection(DEFAULT)) == fingerprint(Selection(dict(DEFAULT))) != fingerprint(Selection(DEFAULT, "tree"))
    True
    """
    selection = selection or current()
    what = json.dumps([selection.table, selection.forced, selection.node_size], sort_keys=True)
    return blake2b(what.encode(), digest_size=4).hexdigest()


def agreed(comm) -> Selection:
    """Rank 0's selection, on all ranks; replaced functions are each rank's own. A collective: all ranks call it."""
    mine = current()
    text = json.dumps([mine.table, mine.forced, mine.node_size]).encode()
    with _entered(Selection(DEFAULT, "tree")):      # ranks whose environments differ must yet choose alike for this
        length = int(comm.broadcast(np.array([len(text)]), 0).wait()[0])
        data = np.frombuffer(text, np.uint8) if comm.rank == 0 else np.empty(length, np.uint8)
        table, forced, node_size = json.loads(comm.broadcast(data, 0).wait().tobytes())
    return Selection(table, forced, node_size, mine.replaced)


def nodes_of(ranks: tuple[int, ...], host: Callable[[int], int]) -> tuple[tuple[int, ...], ...]:
    """The places of a group by node. host(rank): a number for the machine a world rank is on; MINISPORE_NODE_SIZE has it that
    each k consecutive ranks are on one."""
    size, nodes = current().node_size, {}
    for place, rank in enumerate(ranks):
        nodes.setdefault(rank // size if size else host(rank), []).append(place)
    return tuple(map(tuple, nodes.values()))
