"""A cluster's file: JSON with the fields of Cluster and Device, each checked, so that it is told in which one a mistake is."""
import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from math import inf
from pathlib import Path

from minispore.parallel.cost.cluster import Cluster, Device, Link, Rate


def load(path) -> Cluster:
    """A cluster from JSON. ValueError says what is wrong with the file."""
    try:
        return read(Cluster, json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as e:
        wrong = f"can't be read ({e.strerror})"
    except json.JSONDecodeError as e:
        wrong = f"is no JSON: {e}"
    except ValueError as e:
        wrong = str(e)
    raise ValueError(f"cluster file {path}: {wrong}. Make one with minispore bench calibrate --save cluster.json, and change its "
                     "figures")


def read(kind: type, data):
    """A Cluster or Device from a file's object, each entry by its reader in READERS."""
    readers = READERS[kind]
    what = f"a {kind.__name__.lower()} has the entries {', '.join(readers)}"
    if not isinstance(data, dict):
        raise ValueError(f"{data!r:.40} is no object in braces; {what}")
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if odd := sorted(data.keys() - readers.keys()) or sorted(needed - data.keys()):
        raise ValueError(f"{odd[0]!r} is {'unknown' if odd[0] in data else 'missing'}; {what}")
    return kind(**{name: entry(name, readers[name], value) for name, value in data.items()})


def entry(name: str, reader: Callable, value):
    """An entry of a file, and where it stands if it is wrong."""
    try:
        return reader(value)
    except ValueError as e:
        raise ValueError(f"{name}: {e}") from e


def number(least: float, most: float, what: str) -> Callable:
    """A reader of numbers from least to most, null for an infinite one."""
    def reader(x) -> float:
        x = inf if x is None else x
        if isinstance(x, bool) or not isinstance(x, int | float) or not least <= x <= most:
            raise ValueError(f"{x!r:.40} is no {what}")
        return float(x)
    return reader


def just(kind: type) -> Callable:
    """A reader of what is of this type already."""
    def reader(x):
        if type(x) is not kind:
            raise ValueError(f"{x!r:.40} is no {kind.__name__}")
        return x
    return reader


def row(make: Callable, *readers: Callable) -> Callable:
    """A reader of lists with an entry for each reader."""
    def reader(x):
        if not isinstance(x, list) or len(x) != len(readers):
            raise ValueError(f"{x!r:.40} is no list of {len(readers)} numbers")
        return make(r(part) for r, part in zip(readers, x, strict=True))
    return reader


def table(reader: Callable, key: Callable = str) -> Callable:
    """A reader of objects whose entries are all of a kind."""
    def rows(x):
        if not isinstance(x, dict) or not (x or key is str):
            raise ValueError(f"{x!r:.40} is no object in braces with entries")
        return {key(name): entry(name, reader, value) for name, value in x.items()}
    return rows


SECONDS, SPEED = number(0.0, 1e9, "number of seconds from 0 on"), number(1e-9, inf, "number above 0 (null: as fast as you like)")
SHARE = number(1e-9, 1.0, "share above 0, 1 at most")
LINK = row(Link._make, SECONDS, SPEED)
READERS = {
    Device: {"name": just(str), "flops": table(SPEED, int), "bandwidth": SPEED, "memory": SPEED, "launch": SECONDS,
             "source": just(str), "reached": row(tuple, SHARE, SHARE), "measured": table(row(Rate._make, SECONDS, SPEED, SPEED)),
             "far": SPEED},
    Cluster: {"name": just(str), "device": lambda x: read(Device, x), "node_size": just(int), "inside": LINK, "between": LINK,
              "source": just(str), "measured": table(LINK), "begin": SECONDS, "overlap": just(bool)}}
