"""`minispore run script.py`: one rank of whatever launcher is there, or a single one without."""
import os

from threadpoolctl import threadpool_limits

from minispore.communication.backends.mpi import launched
from minispore.launch import alias, environment, msrun, options, script


def main(program: list[str], ranks: int | None, as_mindspore: bool) -> int:
    """The exit code. Under mpirun, mpiexec or srun this is one of their ranks; else start `ranks` of them."""
    here = launched()
    if here is None and ranks is not None:
        return msrun.main([f"--worker_num={ranks}", *(["--as-mindspore"] if as_mindspore else []), *program])
    p = options.parser()
    p.prog, p.usage = "minispore run", f"minispore run [-n N] [--as-mindspore] {options.PROGRAM}"
    path, *args = options.find_script(p, program)
    rank, size = here or (0, 1)
    if ranks not in (None, size):
        p.error(f"-n {ranks} was given, but the launcher has started {size} ranks; leave out -n")
    if here:
        caps = environment.thread_caps(size)
        threadpool_limits(int(caps["OPENBLAS_NUM_THREADS"]))        # numpy has read the variable
        os.environ.update(environment.for_rank(rank, size) | caps)
    alias.install(as_mindspore)
    return script.run(path, args, size)
