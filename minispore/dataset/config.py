"""Settings of the data pipelines, as `mindspore.dataset.config`. They belong to the rank that sets them."""
from minispore.common.state import current
from minispore.dataset import checks


def set_seed(seed: int) -> None:
    """Fix the order in which datasets shuffle; goes before `ms.set_seed`. ValueError if negative.

    All ranks must set the same seed: the shards are cut from one common order.

    >>> set_seed(7); get_seed()
    7
    """
    current().dataset_seed = checks.integer("seed", seed, 0, "give a number from 0 on, e.g. 1")


def get_seed() -> int:
    """The seed of the shuffles: set_seed's here, else ms.set_seed's, else 0."""
    state = current()
    return next((seed for seed in (state.dataset_seed, state.seed) if seed is not None), 0)


def set_num_parallel_workers(num: int) -> None:
    """How many workers map, filter, batch and sources have that aren't given num_parallel_workers; 1 at first.

    What they give doesn't depend on it, only how fast; see `dataset.workers`.
    """
    current().context["dataset_workers"] = checks.integer("num_parallel_workers", num, 1, "give 1 or more")


def get_num_parallel_workers() -> int:
    return current().context.get("dataset_workers", 1)


def set_prefetch_size(size: int) -> None:
    """Kept for MindSpore's scripts: here one block of rows is always made ahead."""
    current().context["dataset_prefetch"] = checks.integer("size", size, 1, "give 1 or more")


def get_prefetch_size() -> int:
    return current().context.get("dataset_prefetch", 16)
