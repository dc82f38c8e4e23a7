"""How long it takes until one can begin: `import minispore`, and a 4-rank job that only calls init()."""
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMPORT = """
import sys, time
start = time.perf_counter()
import minispore
took = time.perf_counter() - start
heavy = sorted({"mpi4py", "numba", "cupy", "torch", "IPython"} & set(sys.modules))
print(took, ",".join(heavy))
"""


def import_times(runs: int = 7) -> tuple[list[float], str]:
    """Seconds of each run, the first (cold) one left out; and which heavy packages were loaded."""
    times, heavy = [], ""
    for _ in range(runs + 1):
        out = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout.split()
        times.append(float(out[0]))
        heavy = out[1] if len(out) > 1 else ""
    return times[1:], heavy


def init_times(runs: int = 4) -> list[float]:
    """Seconds of a whole `msrun --worker_num=4` job, the first run left out."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "only_init.py")
        script.write_text("from minispore.communication import init\ninit()\n")
        command = [sys.executable, "-m", "minispore.launch.msrun", "--worker_num=4", f"--log_dir={folder}", str(script)]
        times = []
        for _ in range(runs + 1):
            start = time.perf_counter()
            subprocess.run(command, check=True)
            times.append(time.perf_counter() - start)
    return times[1:]


def main():
    times, heavy = import_times()
    print(f"import minispore            {statistics.median(times):.3f} s   (wanted < 0.3; "
          f"loaded besides: {heavy or 'nothing heavy'})")
    times = init_times()
    print(f"msrun --worker_num=4 init() {statistics.median(times):.2f} s    (wanted < 4; MindSpore 2.7 with 2 ranks: 15-19)")


if __name__ == "__main__":
    main()
