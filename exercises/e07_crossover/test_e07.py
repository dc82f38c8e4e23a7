"""E7: prices of ring and tree, and where they meet."""
import math
from collections import deque

import numpy as np

from minispore.communication.algorithms.ring import ring_all_reduce
from minispore.communication.algorithms.tree import tree_all_reduce
from minispore.grade import plain, points

TAKEN_AWAY = ["minispore.communication.cost:seconds", "minispore.communication.cost:crossover"]
NETWORKS = ((1000, 1), (1, 1), (20, 3))         # (alpha, beta): whole numbers, so that nothing is rounded


class Link:
    """What a rank's algorithm sees: it notes what is sent and awaited, and when."""

    def __init__(self, rank, size, wires):
        self.rank, self.size, self.wires, self.now = rank, size, wires, 0

    def send(self, x, to):
        self.wires.setdefault((self.rank, to), deque()).append((self.now, x.nbytes))
        return "send", to, x.nbytes

    def receive(self, x, source):
        return "receive", source, x.nbytes


def on_a_clock(algorithm, p, n, alpha, beta):
    """When the last of p ranks ends, if n bytes take alpha + n·beta from when both their ranks are there."""
    wires = {}
    links = [Link(rank, p, wires) for rank in range(p)]
    runs = [algorithm(link, np.zeros(n, np.uint8), lambda dst, src: None) for link in links]
    waiting = [next(run, None) for run in runs]
    while any(waiting):
        for rank, run in enumerate(runs):
            if not waiting[rank] or not all(wires.get((peer, rank)) for kind, peer, _ in waiting[rank] if kind == "receive"):
                continue
            now = links[rank].now
            begun = [now if kind == "send" else max(now, wires[peer, rank].popleft()[0]) for kind, peer, _ in waiting[rank]]
            links[rank].now = max(b + alpha + nbytes * beta for b, (*_, nbytes) in zip(begun, waiting[rank], strict=True))
            waiting[rank] = next(run, None)
    return max(link.now for link in links)


def number(x, what):
    """A plain float of what was returned."""
    assert x is not None, f"{what} should return a number, it returns None"
    return float(plain(x, "float64").reshape(()))


def check_price(price, name, algorithm, all_p):
    for p in all_p:
        for n in (p, 12 * p):
            for alpha, beta in NETWORKS:
                call = f"{name}({p}, {n}, {alpha}, {beta})"
                expected, got = on_a_clock(algorithm, p, n, alpha, beta), number(price(p, n, alpha, beta), call)
                assert math.isclose(got, expected, abs_tol=1e-9), (
                    f"{call}, that is {p} ranks, {n} bytes, alpha {alpha}, beta {beta}, should be {expected}, which the "
                    f"algorithm takes on the clock; it is {got:g}")


@points(3, hint=1)
def test_price_of_the_ring(answer):
    check_price(answer.ring_seconds, "ring_seconds", ring_all_reduce, (2, 3, 4, 7, 8, 1))


@points(2, hint=2)
def test_price_of_the_tree(answer):
    check_price(answer.tree_seconds, "tree_seconds", tree_all_reduce, (2, 4, 8, 3, 5, 7, 9, 1))


@points(3, hint=3)
def test_crossover_by_trying_all_sizes(answer):
    for p in (4, 5, 6, 8, 16, 64):
        for alpha, beta in NETWORKS:
            call = f"crossover({p}, {alpha}, {beta})"
            # In units of 1/p byte all prices are whole numbers.
            rounds, n = (p - 1).bit_length(), 0
            while rounds * (alpha * p + n * beta) * p < (p - 1) * (alpha * p * p + n * beta):
                n += 1
            got = number(answer.crossover(p, alpha, beta), call)
            assert (n - 1) / p - 1e-9 <= got <= n / p + 1e-9, (
                f"{call} should lie between {(n - 1) / p:.6g} bytes, where the tree is still faster, and {n / p:.6g}, where it "
                f"isn't any more; it is {got:.6g}")


@points(2, hint=4)
def test_few_ranks_and_strange_networks(answer):
    cases = [(1, 20, 3, 0, "one rank sends nothing"), (2, 20, 3, 0, "the tree saves no message"),
             (3, 20, 3, 0, "the tree saves no message"), (8, 0, 3, 0, "messages cost nothing to begin"),
             (8, 20, 0, math.inf, "bytes cost nothing"), (3, 20, 0, 0, "the tree saves no message"),
             (1, 20, 0, 0, "one rank sends nothing"), (8, 0, 0, 0, "nothing costs anything")]
    for p, alpha, beta, expected, why in cases:
        call = f"crossover({p}, {alpha}, {beta})"
        try:
            got = number(answer.crossover(p, alpha, beta), call)
        except ZeroDivisionError:
            raise AssertionError(f"{call} should be {expected}: {why}; it divides by zero") from None
        assert got == expected, f"{call} should be {expected}: {why}; it is {got:g}"
