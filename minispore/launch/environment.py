"""What the workers find in their environment, and the mpiexec that starts them."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

from minispore.launch.line import VARIABLE

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
OTHERS = ("PMI_", "PMIX_", "HYDI_", "HYDRA_", "MPI_LOCAL")      # of a job that this one may be started from


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_caps(ranks: int) -> dict[str, str]:
    """Each rank's share of the cores for the libraries' threads, where the user hasn't chosen."""
    share = str(max(1, cores() // ranks))
    return {name: os.environ.get(name) or share for name in THREADS}


def for_workers(job, switchboard) -> dict[str, str]:
    """The environment all workers share; each adds its rank (`for_rank`)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(OTHERS)}
    if job.ranks > cores():         # or ranks waiting in MPI's start and end keep the cores from others
        env.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    return env | thread_caps(job.ranks) | {
        "MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": switchboard.host, "MS_SCHED_PORT": str(switchboard.port),
        "MS_WORKER_NUM": str(job.ranks), "MS_TOPO_TIMEOUT": f"{job.start_within:g}",
        VARIABLE: switchboard.where}


def for_rank(rank: int, size: int) -> dict[str, str]:
    """The variables that differ between ranks, under MindSpore's names."""
    return {"RANK_ID": str(rank), "RANK_SIZE": str(size), "DEVICE_ID": str(rank), "MS_NODE_ID": str(rank)}


def mpiexec() -> str:
    """The mpiexec of the mpich wheel; SystemExit if there is none."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise SystemExit(f"msrun: no mpiexec beside {sys.executable}, nor on the PATH. It comes with "
                         "minispore: pip install --force-reinstall mpich")
    if found != str(beside):                # somebody else's: of which MPI?
        said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        if "HYDRA" not in said:
            raise SystemExit(f"msrun: the mpiexec found, {found}, is not mpich's (it says {said[:40]!r}): "
                             "each rank would find itself alone: pip install mpich")
    return found


def command(job) -> list[str]:
    """The mpiexec command that starts the workers.

    The cleaning up is msrun's: mpiexec would kill the others before it is known which failed first.
    """
    options = ["-launcher", "fork", "-rmk", "user", "-disable-auto-cleanup"]
    alias = ["--as-mindspore"] if job.as_mindspore else []
    logs = ["--log", os.path.join(job.log_dir, job.log_name)]
    return [mpiexec(), *options, "-n", str(job.ranks), sys.executable, "-u", "-m", "minispore.launch.worker",
            *alias, *logs, "--parent", str(os.getpid()), "--", job.script, *job.args]
