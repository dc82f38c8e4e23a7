"""set_seed: where all random numbers of a rank begin."""
import numpy as np

from minispore.common.state import current


def set_seed(seed: int) -> None:
    """Start all random numbers anew from a seed (≥ 0): initial values, shuffles, and numpy's own generator.

    numpy's generator belongs to the process, so on thread ranks it is left alone.
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(f"set_seed: {seed!r} must be a whole number")
    if seed < 0:
        raise ValueError(f"set_seed: {seed} must be ≥ 0")
    state = current()
    state.seed, state.draws, state.steps = seed, 0, 0
    if state.launched_size == 1:
        np.random.seed(seed % 2 ** 32)


def get_seed() -> int | None:
    """The seed set_seed was given, or None."""
    return current().seed
