"""Random numbers that don't depend on who draws them: a counter-based generator indexed by element.

Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns (key, counter) into random
bits. The key says *what* is drawn - (seed, which tensor, which step) -, the counter is the element's index in
the whole, logical tensor. So rank 3 of 8 gets exactly its slice of what one rank alone would draw.
"""
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from itertools import product
from math import prod

import numpy as np

from minispore.common.state import current

Region = tuple[slice, ...]      # the part of a logical shape that is wanted


def next_key(what: str) -> tuple:
    """The key of the next tensor this rank draws: equal on all ranks that run the same program."""
    state = current()
    state.draws += 1
    return (what, state.seed or 0, state.draws)


STATE = ("seed", "dataset_seed", "draws", "steps")       # of a RankState: where its random numbers stand


def get_state() -> dict:
    """Where this rank's random numbers stand; JSON can hold it.

    >>> set_state({"seed": 1, "draws": 5}); get_state()
    {'seed': 1, 'dataset_seed': None, 'draws': 5, 'steps': 0}
    """
    state = current()
    return {name: getattr(state, name) for name in STATE}


def set_state(values: dict) -> None:
    """Let this rank's random numbers go on from where `get_state` was asked."""
    unknown = sorted(values.keys() - set(STATE))
    if unknown:
        raise ValueError(f"random state: {unknown} are unknown, it has {list(STATE)}; was it made by a newer minispore?")
    state = current()
    for name, value in values.items():
        setattr(state, name, value)


# ---- numbers that are new in every step --------------------------------------------------------------

_scope: ContextVar[tuple] = ContextVar("minispore_scope", default=())       # names of the cells that run, outermost first
_calls: ContextVar[Counter | None] = ContextVar("minispore_calls", default=None)      # draws of the step under way


def enter(name: str):
    """What is drawn from now on belongs to the cell of that name, until `leave` is given what this returns."""
    return _scope.set((*_scope.get(), name))


def leave(token) -> None:
    _scope.reset(token)


def path() -> str:
    """The names of the cells that run, e.g. "net.layers.0"."""
    return ".".join(_scope.get())


@contextmanager
def step():
    """One step: the outermost call of a cell, a gradient or an op. If it drew numbers, the next step draws others."""
    if _calls.get() is not None:
        yield
        return
    calls = Counter()
    token = _calls.set(calls)
    try:
        yield
    finally:
        _calls.reset(token)
        if calls:
            current().steps += 1


@contextmanager
def tracing():
    """A step that is written down, not run: the program that comes of it counts its steps by itself."""
    token = _calls.set(Counter())
    try:
        yield
    finally:
        _calls.reset(token)


def next_stream(what: str) -> tuple:
    """(place in the program, number of the draw there in this step)."""
    place = f"{path()}.{what}"
    calls = _calls.get()
    calls[place] += 1
    return place, calls[place]


# ---- the generator ------------------------------------------------------------------------------------

def words(key: tuple, start: int, count: int) -> np.ndarray:
    """Random 64-bit words number start … start + count - 1 of the stream named by `key`."""
    digest = np.frombuffer(blake2b(repr(key).encode(), digest_size=16).digest(), np.uint64)
    generator = np.random.Philox(key=digest)
    generator.advance(start // 4)               # a counter makes four words
    skip = start % 4
    return generator.random_raw(count + skip)[skip:]


def permutation(key: tuple, n: int) -> np.ndarray:
    """A permutation of 0 … n-1 (int64), the same on every rank.

    >>> sorted(permutation(("shuffle", 0, 1), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    return np.argsort(words(key, 0, n), kind="stable")


def uniform(key: tuple, shape: tuple, low=0.0, high=1.0, region: Region | None = None) -> np.ndarray:
    """float64 values in [low, high) of a tensor of the logical `shape`; with `region`, only that part.

    >>> whole = uniform(("demo",), (4, 6))
    >>> part = uniform(("demo",), (4, 6), region=(slice(2, 4), slice(3, 6)))
    >>> bool((whole[2:4, 3:6] == part).all())
    True
    """
    return low + (high - low) * _unit(_draw(key, shape, region, 1)[..., 0])


def normal(key: tuple, shape: tuple, mean=0.0, sigma=1.0, region: Region | None = None) -> np.ndarray:
    """float64 normal values (Box-Muller, two words an element); arguments as `uniform`."""
    w = _unit(_draw(key, shape, region, 2))
    return mean + sigma * np.sqrt(-2 * np.log1p(-w[..., 0])) * np.cos(2 * np.pi * w[..., 1])


def truncated_normal(key, shape, mean=0.0, sigma=1.0, low=-2.0, high=2.0, region=None) -> np.ndarray:
    """Normal values, drawn again (from another stream) wherever they fall outside [low, high]."""
    out = normal((*key, 0), shape, mean, sigma, region)
    for attempt in range(1, 1000):
        outside = (out < low) | (out > high)
        if not outside.any():
            return out
        out = np.where(outside, normal((*key, attempt), shape, mean, sigma, region), out)
    raise ValueError(f"truncated normal: mean {mean}, sigma {sigma} practically never falls into [{low}, {high}];"
                     " widen the bounds")


def _unit(w: np.ndarray) -> np.ndarray:
    return (w >> np.uint64(11)) * 2.0 ** -53


def _draw(key, shape, region, per_element) -> np.ndarray:
    """(…, per_element) words of the wanted part of the tensor."""
    if region is None:
        return words(key, 0, prod(shape) * per_element).reshape(*shape, per_element)
    wanted = [range(n)[s] for n, s in zip(shape, region, strict=True)]
    runs = [words(key, start * per_element, n * per_element) for start, n in _runs(shape, wanted)]
    flat = np.concatenate(runs) if runs else np.empty(0, np.uint64)
    return flat.reshape(*map(len, wanted), per_element)


def _runs(shape, wanted) -> Iterator[tuple[int, int]]:
    """(first index, length) of the contiguous runs that make up a part of a row-major tensor."""
    whole = len(shape)                              # dims from here on are taken whole
    while whole and wanted[whole - 1] == range(shape[whole - 1]):
        whole -= 1
    inner = prod(shape[whole:])
    # The last dim that is cut is one run if its indices follow each other, else each index is one.
    last = wanted[whole - 1] if whole and wanted[whole - 1].step == 1 else None
    outer = wanted[:whole - 1] if last is not None else wanted[:whole]
    for index in product(*outer):
        at = 0
        for size, i in zip(shape, index, strict=False):
            at = at * size + i
        if last is None:
            yield at * inner, inner
        else:
            yield (at * shape[whole - 1] + last.start) * inner, len(last) * inner
