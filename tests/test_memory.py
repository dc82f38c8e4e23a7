"""Memory of a rank that holds a quarter of a model: initialisation, forward pass, SGD step, Adam step."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMITS = {"forward": 0.35, "SGD": 0.65, "Adam": 1.15}          # of the weights of all ranks together

BLOCKS = 2 ** 25        # what doesn't grow with the model: blocks of random numbers, and Adam's temporary of one layer


@pytest.mark.parametrize("layers", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_a_rank_holds_its_quarter(tmp_path, layers):
    """16 layers of 4096² are 1 GiB of weights; a rank's own is 0.25 GiB, with Adam's states and gradients 1 GiB."""
    width = 4096
    done = subprocess.run([sys.executable, "-m", "minispore.launch.msrun", "--worker_num=4", f"--log_dir={tmp_path}",
                           HERE / "memory_program.py", str(layers), str(width), tmp_path],
                          capture_output=True, text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    weights = layers * width * width * 4
    for rank in range(4):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        print(f"rank {rank}, of {weights / 2 ** 30:.2f} GiB:", {k: round(v / weights, 3) for k, v in found.items()})
        for what, limit in LIMITS.items():
            assert found[what] <= limit * weights + (BLOCKS if layers < 16 else 0), (rank, what, found[what] / weights)
