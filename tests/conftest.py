"""Shared by all tests: one thread for BLAS, repeatable hypothesis, a fresh rank state for each test."""
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ["MINISPORE_QUIET"] = "1"         # init() without a launcher needn't say so here

import hypothesis
import pytest

from minispore.common import state

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None,
                                     suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile("ci")


@pytest.fixture(autouse=True)
def fresh_state():
    """Each test is a rank of its own: no mode, seed or group leaks from one to the next."""
    token = state._state.set(state.RankState())
    yield
    state._state.reset(token)
