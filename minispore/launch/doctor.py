"""`minispore doctor`: what is installed here, and does it work together?"""
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from minispore.launch import environment

NEEDED = 32             # MB of shared memory for some ranks
PROBE = """
import numpy as np
from minispore.communication import communicator, get_group_size, init
init()
assert communicator().all_reduce(np.ones(4)).wait()[0] == get_group_size() == 2
"""


def main() -> int:
    """Print the findings; the exit code is 0 if all is well."""
    from minispore.device.kernels.jit import cache_dir
    well = True

    def tell(what: str, found, good: bool = True) -> None:
        nonlocal well
        well &= good
        print(f"{'ok' if good else 'NO':<3} {what:<12} {found}", flush=True)

    tell("python", f"{platform.python_version()}, {sys.executable}")
    tell("platform", platform.platform())
    tell("cores", f"{environment.cores()} of {os.cpu_count()}")
    for name in ("minispore", "numpy", "numba", "mpi4py", "mpich"):
        try:
            tell(name, version(name))
        except PackageNotFoundError:
            tell(name, "not installed: pip install minispore", False)
    try:
        tell("mpiexec", environment.mpiexec())
        tell("two ranks", *two_ranks())
    except SystemExit as e:
        tell("mpiexec", e.code, False)
    if os.path.isdir("/dev/shm"):
        free = shutil.disk_usage("/dev/shm").free >> 20
        enough = free >= NEEDED
        advice = "" if enough else f", {NEEDED} needed: docker run --shm-size=1g"
        tell("/dev/shm", f"{free} MB free{advice}", enough)
    try:
        tell("cache", cache_dir())
    except OSError as e:
        tell("cache", e, False)
    return 0 if well else 1


def two_ranks() -> tuple[str, bool]:
    """Whether two ranks find each other and add up."""
    with tempfile.TemporaryDirectory(prefix="minispore-doctor-") as folder:
        script = Path(folder, "probe.py")
        script.write_text(PROBE)
        begun = time.perf_counter()
        command = [sys.executable, "-m", "minispore.launch.msrun", "--worker_num=2", "--timeout=60"]
        done = subprocess.run([*command, f"--log_dir={folder}", str(script)], capture_output=True, text=True)
        took = time.perf_counter() - begun
    if done.returncode:
        return f"exit code {done.returncode}\n{done.stdout}{done.stderr}", False
    return f"start, add up and end in {took:.1f} s", True
