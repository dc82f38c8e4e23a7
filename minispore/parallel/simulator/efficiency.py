"""Scaling: the same work a card, on more and more cards."""
from collections.abc import Callable, Sequence
from typing import NamedTuple

from minispore.parallel.simulator.run import simulate
from minispore.parallel.simulator.timeline import Timeline, duration

CARDS = tuple(2 ** k for k in range(11))
LEAST = 1e-12               # seconds: a program of views takes none


class Point(NamedTuple):
    """A step on so many cards. efficiency: what a card does in a second there, over what it does on the fewest cards."""
    cards: int
    seconds: float
    exposed: float
    efficiency: float


def curve(timelines: dict[int, Timeline], work: dict[int, float] | None = None) -> list[Point]:
    """The points of simulated steps, {cards: its step}. work: what a step does, e.g. samples of all cards together; without, a
    card's work is always the same."""
    speed = {n: (n if work is None else work[n]) / max(line.seconds, LEAST) / n for n, line in timelines.items()}
    first = speed[min(speed)]
    return [Point(n, line.seconds, line.exposed, speed[n] / first) for n, line in sorted(timelines.items())]


def scaling(make: Callable, cards: Sequence[int] = CARDS, cluster=None) -> list[Point]:
    """Simulated steps on more and more cards. make(n): the LocalProgram for n cards, with the same batch a card.

    >>> from minispore import Tensor, ops
    >>> from minispore.parallel import compile
    >>> def make(n):
    ...     return compile(ops.MatMul().shard(((n, 1), (1, 1))), Tensor([[1.0]] * n), Tensor([[1.0]]), device_num=n)
    >>> [(point.cards, point.efficiency == 1) for point in scaling(make, (1, 2, 4))]        # the product is gathered
    [(1, True), (2, False), (4, False)]
    """
    return curve({n: simulate(make(n), cluster) for n in cards})


def table(points: Sequence[Point]) -> str:
    """The points as text.

    >>> print(table([Point(1, 0.001, 0.0, 1.0), Point(2, 0.00125, 0.00025, 0.8)]))
    cards       step    exposed  efficiency
        1       1 ms       0 µs       1.000
        2    1.25 ms     250 µs       0.800
    """
    rows = (f"{p.cards:5} {duration(p.seconds):>10} {duration(p.exposed):>10}  {p.efficiency:10.3f}" for p in points)
    return "\n".join(["cards       step    exposed  efficiency", *rows])
