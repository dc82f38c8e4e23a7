"""Search: every mode against trying all plans, the plans' structure where the answer is known, memory limits, explanations."""
import numpy as np
import pytest
from search_graphs import brute_force, random_task, task_of

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.parallel import compile
from minispore.parallel.search import search
from minispore.parallel.search.modes import MODES, spaces

GRAPHS = range(60)


def small_tasks(n):
    """Random tasks with the least cost of all plans."""
    rng = np.random.default_rng(n)
    while True:
        devices, most = ((8, 4), (4, 5))[n % 2]
        task = random_task(rng, devices, most)
        space, = spaces(task)
        best = brute_force(space.problem)
        if best is not None:
            return task, best


@pytest.mark.parametrize("n", GRAPHS)
def test_ilp_and_dynamic_programming_find_the_best_of_all_plans(n):
    task, best = small_tasks(n)
    for mode in ("ilp", "dynamic_programming"):
        found = search(task, mode)
        assert found.bound is not None
        assert found.seconds == pytest.approx(best, rel=1e-9) or found.seconds < best      # data parallel may share more
        assert found.bound == pytest.approx(best, rel=1e-6)
    for mode in MODES:
        found = search(task, mode)
        assert found.seconds <= task.seconds(found.data_parallel) * (1 + 1e-12)
