"""Run a script as `python script.py` does, as one rank of a job."""
import os
import runpy
import sys
from collections.abc import Sequence

from minispore.common.state import current
from minispore.communication.backends.start import shared_files
from minispore.communication.board import FAILED, STATE
from minispore.communication.management import get_rank, leave, save_record, unreceived
from minispore.launch import processes, values


def run(path: str, args: Sequence[str], size: int = 1, line=None) -> int:
    """Run it; the exit code. If it fails on one of several ranks, the whole job ends.

    line: the connection to msrun, if that started us; then the ending is msrun's affair.
    """
    sys.argv[:] = [path, *args]
    path = os.path.abspath(path)
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    error, code, names = None, 0, {}
    try:
        names = runpy.run_path(path, run_name="__main__")
        save_record()
    except SystemExit as e:
        error, code = e, exit_code(e)
    except KeyboardInterrupt as e:
        error, code = e, 130
    except BaseException as e:
        error, code = e, 1
    rank, names = get_rank(), names or names_of(error, path)
    if code == 0:
        values.save(names, rank)
        end(failed=False)
        if line:
            line.say("ended")
        if size == 1 or not (transport := current().transport) or not (error := unreceived(transport)):
            return 0
        code = 1
    first = line.failed(code) if line else not another_failed()
    if first:
        explain(error, path)
    end(failed=True)
    values.save(names, rank, error)
    if first:
        values.await_others(range(size))
    if line:
        line.say("shown")
        os._exit(code)          # not through MPI's end, where it would wait for the others
    if size > 1:
        abort(code)
    return code


def exit_code(e: SystemExit) -> int:
    """As Python has it: nothing is 0, and a text is 1."""
    if e.code is None:
        return 0
    return e.code & 0xFF if isinstance(e.code, int) else 1


def explain(error: BaseException, path: str) -> None:
    """Print the traceback from the script's first line on; the launcher's own frames tell nothing."""
    if isinstance(error, SystemExit):
        if not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    else:
        trace = in_script(error, path)
        sys.excepthook(type(error), error.with_traceback(trace), trace)


def in_script(error: BaseException, path: str):
    """The part of the traceback that begins in the script; None if it hadn't begun."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    return trace


def names_of(error: BaseException | None, path: str) -> dict:
    """The variables of a script that ended with an error."""
    trace = error and in_script(error, path)
    return dict(trace.tb_frame.f_globals) if trace else {}


def end(failed: bool) -> None:
    """Tell the other ranks that nothing more comes from this one."""
    sys.stdout.flush()
    sys.stderr.flush()
    leave(failed)


def another_failed() -> bool:
    """Whether this failure is but a consequence."""
    transport = current().transport
    return transport is not None and bool((transport.board.rows[:, STATE] == FAILED).any())


def abort(code: int) -> None:
    """End this process and, through MPI, all others: they may wait in MPI for this one, for ever."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and mpi.Is_initialized() and not mpi.Is_finalized():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)        # MPI would say that it was told to
        processes.remove(shared_files())
        mpi.COMM_WORLD.Abort(code)
    os._exit(code)
