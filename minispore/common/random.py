"""Random numbers that don't depend on who draws them: a counter-based generator indexed by element.

Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns (key, counter) into random
bits. The key says *what* is drawn - (seed, which tensor, which step) -, the counter is the element's index in
the whole, logical tensor. So rank 3 of 8 gets exactly its slice of what one rank alone would draw.
"""
from collections.abc import Iterator
from hashlib import blake2b
from math import prod

import numpy as np

from minispore.common.state import current

Region = tuple[slice, ...]      # the part of a logical shape that is wanted; steps are 1


def next_key(what: str) -> tuple:
    """The key of the next tensor this rank draws: equal on all ranks that run the same program."""
    state = current()
    state.draws += 1
    return (what, state.seed or 0, state.draws)


STATE = ("seed", "dataset_seed", "draws")       # of a RankState: where its random numbers stand


def get_state() -> dict:
    """Where this rank's random numbers stand; JSON can hold it.

    >>> set_state({"seed": 1, "draws": 5}); get_state()
    {'seed': 1, 'dataset_seed': None, 'draws': 5}
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
    part = tuple(s.stop - s.start for s in region)
    runs = [words(key, start * per_element, n * per_element) for start, n in _runs(shape, region)]
    flat = np.concatenate(runs) if runs else np.empty(0, np.uint64)
    return flat.reshape(*part, per_element)


def _runs(shape, region) -> Iterator[tuple[int, int]]:
    """(first index, length) of the contiguous runs that make up a region of a row-major tensor."""
    whole = len(shape)                              # dims from here on are taken whole
    while whole and region[whole - 1] == slice(0, shape[whole - 1]):
        whole -= 1
    if whole == 0:
        yield 0, prod(shape)
        return
    inner = prod(shape[whole:])
    last = region[whole - 1]
    for outer in np.ndindex(*(s.stop - s.start for s in region[:whole - 1])):
        at = 0
        for size, s, i in zip(shape, region, outer, strict=False):
            at = at * size + s.start + i
        yield (at * shape[whole - 1] + last.start) * inner, (last.stop - last.start) * inner
