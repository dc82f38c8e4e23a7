"""From measured times to a Cluster: rates of ops, links of collectives, and what holds where nothing was measured.

calls: rows (op, flops, bytes, of these the far ones, bytes of a float, seconds); collectives: rows (op, bytes, seconds).
"""
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import inf
from operator import truediv
from statistics import median

import numpy as np

from minispore.communication.cost import TERMS, fit
from minispore.parallel.cost.cluster import CLUSTERS, Cluster, Device, Link, Rate
from minispore.parallel.cost.exchange import FORMULA, link_seconds

FAR = [inf, *(1e9 * np.geomspace(4, 250, 19))]     # bytes a second that are tried
SPLITS = 12                 # places at which samples are tried to part into those that compute and those that move bytes
ROUNDS = 8                  # at most, in which that place is made better
FEW = 5                     # of fewer calls it can't be told where they part


def rate_of(flops: Sequence[float], bytes: Sequence[float], seconds: Sequence[float], known: Sequence[float] = (0.0,)) -> Rate:
    """The Rate that explains the seconds best. known: of each call's seconds, those that something else explains.

    >>> f, b = np.array([1e3, 1e6, 1e9, 1e3, 1e3]), np.array([4e3, 1e6, 1e6, 1e8, 1e7])
    >>> [f"{x:.3g}" for x in rate_of(f, b, 1e-6 + np.maximum(f / 1e11, b / 1e10))]
    ['1e-06', '1e+11', '1e+10']
    """
    return explained(*(np.asarray(x, float) for x in (flops, bytes, seconds, known)))[0]


def explained(f: np.ndarray, b: np.ndarray, t: np.ndarray, known: np.ndarray) -> tuple[Rate, float]:
    """A Rate, and the error that it leaves.

    Which bound of a call is the longer one is told by its operations a byte, so each place is tried at which the samples, sorted
    by them, could part (of a few samples: all are of one kind). Errors are squared and divided by the seconds: between absolute
    errors, where a few long calls decide all, and relative ones, of which the sum of all calls comes out too small.
    """
    if not (f.shape == b.shape == t.shape and t.ndim == 1 and len(t) and (np.isfinite(t) & (t > 0)).all()):
        raise ValueError(f"rate_of: {len(f)} flops, {len(b)} bytes and {len(t)} seconds; give as many of each, one at least, and "
                         "seconds above 0")
    intensity = f / np.maximum(b, 1)
    places = np.unique(np.quantile(np.unique(intensity), np.linspace(0, 1, SPLITS), method="nearest"))

    def attempt(computes: np.ndarray) -> tuple[float, Rate]:
        x = not_negative(np.stack([np.ones_like(t), np.where(computes, f, 0), np.where(computes, 0, b)], 1), t - known, t)
        error = float(((x[0] + np.maximum(x[1] * f, x[2] * b) + known - t) ** 2 / t).sum())
        return error, Rate(float(x[0]), *(1 / float(y) if y else inf for y in x[1:]))

    best = min(attempt(intensity > place) for place in [-inf, *(places if len(t) >= FEW else places[-1:])])
    for _ in range(ROUNDS):                     # on from there to where the rate itself parts them
        again = attempt(f / best[1].flops > b / best[1].bytes)
        if again[0] >= best[0]:
            break
        best = again
    return best[1], best[0]


def not_negative(columns: np.ndarray, goal: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The x ≥ 0 for which Σ (columns·x - goal)² / seconds is least. Columns are so few that all sets of them are tried."""
    weight, scale = seconds ** -0.5, np.maximum(columns.max(0), 1e-300)
    rows, goal = columns / scale * weight[:, None], goal * weight
    best = float(goal @ goal), np.zeros(columns.shape[1])
    for n in range(1, columns.shape[1] + 1):
        for chosen in map(list, combinations(np.flatnonzero(columns.any(0)), n)):
            x = np.linalg.lstsq(rows[:, chosen], goal, rcond=None)[0]
            error = float(((rows[:, chosen] @ x - goal) ** 2).sum())
            if (x >= 0).all() and error < best[0] * (1 - 1e-12):
                best = error, np.zeros(columns.shape[1])
                best[1][chosen] = x
    return best[1] / scale


def link_of(op: str, ranks: int, bytes: Sequence[float], seconds: Sequence[float]) -> Link:
    """The Link with which link_seconds gives these seconds on so many ranks: that of the algorithm that explains them best."""
    terms = [terms(ranks) for (o, _), terms in TERMS.items() if o == FORMULA.get(op)] or [(1, 1)]
    found = []
    for messages, share in terms:
        alpha, beta = fit(bytes, seconds)
        beta = beta or 1 / max(map(truediv, bytes, seconds))        # all were short; longer ones aren't for nothing
        link = Link(alpha / max(messages, 1), share / beta)
        found.append((sum((link_seconds(link, op, ranks, n) / t - 1) ** 2 for n, t in zip(bytes, seconds, strict=True)), link))
    return min(found, key=lambda pair: pair[0])[1]


def rates(calls: Iterable[Sequence]) -> tuple[dict[str, Rate], float]:
    """A Rate for each op, of its calls on float32; and bytes a second of what isn't in the caches, the same for all ops.

    >>> made, far = rates([("ReLU", n, 8 * n, 0, 4, 1e-6 + 8 * n / 1e10) for n in (10, 1000, 10 ** 6)])
    >>> round(made["ReLU"].flops), far
    (1250000000, inf)
    """
    rows = defaultdict(list)
    for op, flops, bytes, far, itemsize, seconds in calls:
        if itemsize == 4:
            rows[op].append((flops, bytes, seconds, far))
    arrays = {op: np.array(some, float).T for op, some in sorted(rows.items())}
    least = inf, inf
    for speed in FAR:
        error = sum(explained(f, b, t, far / speed)[1] for f, b, t, far in arrays.values() if far.any())
        if error < least[0]:
            least = error, speed
    made = {op: explained(f, b, t, far / least[1])[0] for op, (f, b, t, far) in arrays.items()}
    for op, rate in made.items():
        if rate.flops == rate.bytes == inf:     # all calls were short; longer ones aren't for nothing
            made[op] = rate._replace(bytes=max(arrays[op][1] / arrays[op][2]))
    return made, least[1]


def cluster_from(found: dict, memory: int, cores: int, source: str) -> Cluster:
    """What `minispore bench calibrate` makes of what its ranks found."""
    calls, n = found["calls"], found["ranks"]
    moved = [(b, t) for _, f, b, _, size, t in calls if f <= b and size == 4]         # no more than an operation a byte
    plain, most = rate_of([0] * len(moved), *zip(*moved, strict=True)), max(b / t for b, t in moved)
    flops = {}
    for size in sorted({c[4] for c in calls if c[0] == "MatMul"}):
        f, b, t = zip(*((c[1], c[2], c[5]) for c in calls if c[0] == "MatMul" and c[4] == size), strict=True)
        flops[size] = finite(rate_of(f, b, t).flops, max(map(truediv, f, t)))
    device = Device("one CPU core", flops, finite(plain.bytes, most), memory, plain.overhead, source, (1.0, 1.0), *rates(calls))
    grouped = defaultdict(list)
    for op, bytes, seconds in found["collectives"]:
        grouped[op].append((bytes, seconds))
    links = {op: link_of(op, n, *zip(*rows, strict=True)) for op, rows in sorted(grouped.items())}
    begin = max(median(whole - parts for whole, parts in found["begin"]), 0.0)
    return Cluster("measured", device, max(n, cores), links["all_reduce"], CLUSTERS["cpu"].between, source, links, begin, False)


def finite(speed: float, seen: float) -> float:
    """The speed, or the highest that was seen where all calls were so short that it can't be told."""
    return seen if speed == inf else speed
