"""What communication should cost, in the α-β model: α seconds a message, β seconds a byte. The formulas are those that stand in
the algorithms' own docstrings (minispore/communication/algorithms), here to calculate with: in notebooks (`lab.cost`), and for
the cost model of auto parallel (parallel/cost).

p ranks; n bytes of the whole array. Steps in which all ranks send at once cost as much as one message; sums cost nothing.
Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, inf, log2

import numpy as np

# (op, algorithm): (messages one behind the other, times that the whole array goes over the slowest link), each of p
TERMS = {
    ("AllReduce", "ring"): lambda p: (2 * (p - 1), 2 * (p - 1) / p),
    ("AllReduce", "tree"): lambda p: (2 * rounds(p), 2 * rounds(p)),
    ("AllReduce", "recursive_doubling"): lambda p: (rounds_folded(p), rounds_folded(p)),
    ("AllReduce", "rabenseifner"): lambda p: (2 * floor2(p) + folds(p), 2 * (1 - 2.0 ** -floor2(p)) + folds(p)),
    ("ReduceScatter", "ring"): lambda p: (p - 1, (p - 1) / p),
    ("ReduceScatter", "pairwise"): lambda p: (p - 1, (p - 1) / p),
    ("AllGather", "ring"): lambda p: (p - 1, (p - 1) / p),
    ("AllGather", "bruck"): lambda p: (rounds(p), (p - 1) / p),
    ("Broadcast", "tree"): lambda p: (rounds(p), rounds(p)),
    ("Reduce", "tree"): lambda p: (rounds(p), rounds(p)),
    ("AlltoAll", "pairwise"): lambda p: (p - 1, (p - 1) / p),
    ("Barrier", "dissemination"): lambda p: (rounds(p), 0),
}


def rounds(p: int) -> int:
    """⌈log₂ p⌉: rounds until one rank has reached all."""
    return ceil(log2(p))


def floor2(p: int) -> int:
    """⌊log₂ p⌋."""
    return p.bit_length() - 1


def folds(p: int) -> int:
    """Messages for ranks beyond a power of two to give their data away, and to get the result."""
    return 2 * (p != 1 << floor2(p))


def rounds_folded(p: int) -> int:
    return floor2(p) + folds(p)


def seconds(algorithm: str, op: str = "AllReduce", *, ranks: int, bytes, alpha: float, beta: float):
    """Seconds that `op` takes by an algorithm. bytes: of the whole array, a number or an array of numbers.

    >>> seconds("ring", ranks=4, bytes=8, alpha=1.0, beta=0.5), seconds("tree", ranks=4, bytes=8, alpha=1.0, beta=0.5)
    (12.0, 20.0)
    """
    messages, share = _terms(algorithm, op, ranks)
    _demand_seconds(alpha, beta)
    return messages * alpha + share * bytes * beta


def crossover(few_messages: str, few_bytes: str, op: str = "AllReduce", *, ranks: int, alpha: float, beta: float) -> float:
    """Bytes below which the first algorithm is faster than the second: 0 where it never is, inf where it always is. ValueError
    if it is faster above some bytes.

    >>> crossover("tree", "ring", ranks=4, alpha=1.0, beta=0.5)
    1.6
    """
    (a, b), (c, d) = _terms(few_messages, op, ranks), _terms(few_bytes, op, ranks)
    _demand_seconds(alpha, beta)
    saved, more = (c - a) * alpha, (b - d) * beta           # seconds: of messages it saves, of each byte it sends more
    if saved < 0 and more < 0:
        raise ValueError(f"cost: {few_messages} takes more messages than {few_bytes} and sends fewer bytes; exchange them")
    if saved <= 0:
        return inf if more < 0 else 0.0
    return saved / more if more > 0 else inf


def fit(bytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """(alpha, beta) of seconds ≈ alpha + beta·bytes. The relative errors are made small, so that short messages count as much as
    long ones; neither comes out below 0.

    >>> alpha, beta = fit([1000, 1_000_000], [3e-6, 1002e-6])
    >>> round(alpha * 1e6, 3), round(beta * 1e9, 3)
    (2.0, 1.0)
    """
    n, t = np.asarray(bytes, float), np.asarray(seconds, float)
    if n.shape != t.shape or n.ndim != 1 or len(set(n.tolist())) < 2 or not (np.isfinite(t) & (t > 0)).all() or (n < 0).any():
        raise ValueError(f"fit: {n.tolist()} bytes took {t.tolist()} seconds; give two sizes at least, each with a time above 0")
    rows = np.stack([1 / t, n / t], 1)
    best = np.linalg.lstsq(rows, np.ones(len(n)), rcond=None)[0]
    if (best < 0).any():                                    # then the best that is allowed lies where one of them is 0
        ones = [rows[:, i].sum() / (rows[:, i] ** 2).sum() for i in range(2)]
        tried = [np.array([ones[0], 0.0]), np.array([0.0, ones[1]])]
        best = min(tried, key=lambda ab: ((rows @ ab - 1) ** 2).sum())
    return float(best[0]), float(best[1])


def fastest(op: str, *, ranks: int, bytes: float, alpha: float, beta: float) -> float:
    """Seconds that `op` takes by the algorithm that suits this size best.

    >>> fastest("AllReduce", ranks=4, bytes=1, alpha=1.0, beta=0.5) < seconds("ring", ranks=4, bytes=1, alpha=1.0, beta=0.5)
    True
    """
    return min(messages * alpha + share * bytes * beta for messages, share in _all_terms(op, ranks))


@lru_cache(None)
def _all_terms(op: str, ranks: int) -> tuple:
    return tuple(_terms(algorithm, o, ranks) for o, algorithm in TERMS if o == op)


def _demand_seconds(alpha: float, beta: float) -> None:
    if alpha < 0 or beta < 0:
        raise ValueError(f"cost: alpha={alpha} and beta={beta} are seconds; give 0 or more")


def _terms(algorithm: str, op: str, ranks: int) -> tuple[float, float]:
    if (op, algorithm) not in TERMS:
        known = ", ".join(f"{o} by {a}" for o, a in TERMS)
        raise ValueError(f"cost: there is no formula for {op} by {algorithm!r}. There are: {known}")
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"cost: ranks={ranks!r} must be a whole number, 1 or more")
    return TERMS[op, algorithm](ranks)
