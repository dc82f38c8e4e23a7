"""`ranks(n)`: a function on n thread ranks, in which one can look round afterwards. The ranks themselves are ranks.py's."""
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from minispore.common.state import RankState, current
from minispore.communication.record import Record
from minispore.lab.output import Output
from minispore.lab.ranks import MOST, run_ranks
from minispore.lab.result import Rank, Result

HERE = str(Path(__file__).parent)


@dataclass(eq=False)
class Trace:
    """What is left of one rank."""
    state: RankState | None = None
    record: Record | None = None
    frame: FrameType | None = None          # of the function; outlives it, with all its variables
    names: dict = field(default_factory=dict)
    value: object = None
    error: BaseException | None = None


class ranks:
    """Run a function on n thread ranks, at once; its name becomes the Result. `.run(function, *args)` does it without `@`.

    n: 1 … 256. The function's variables stay, of each rank, also if it fails. An error on a rank is raised here;
    may_fail=True: it is kept as the Result's `error` (Ctrl-C is raised all the same).

    >>> import numpy as np
    >>> from minispore.communication import communicator, get_rank, init
    >>> @ranks(4)
    ... def job():
    ...     init()
    ...     x = np.arange(3.0) * get_rank()
    ...     if get_rank() == 3:
    ...         print("the last rank has", x)
    ...     return communicator().all_reduce(x).wait()
    [rank 3] the last rank has [0. 3. 6.]
    >>> job[2].x, job.values[0]
    (array([0., 2., 4.]), array([ 0.,  6., 12.]))
    """

    def __init__(self, n: int, may_fail: bool = False):
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MOST:
            raise ValueError(f"ranks({n!r}): give a whole number of ranks from 1 to {MOST}, as in @ranks(4)")
        self.n, self.may_fail = n, may_fail

    def __call__(self, function: Callable) -> Result:
        __tracebackhide__ = True
        return self.run(function)

    def run(self, function: Callable, *args) -> Result:
        """function(*args) on the ranks."""
        __tracebackhide__ = True                # IPython and pytest leave this frame out
        result = attempt(self.n, function, *args)
        if result.error and not (self.may_fail and isinstance(result.error, Exception)):
            raise result.error
        return result


def attempt(n: int, function: Callable, *args, names_of: Callable[[FrameType], dict] | None = None) -> Result:
    """function(*args) on n thread ranks; an error, also Ctrl-C, is in the Result.

    names_of: what a rank's variables are, from the function's frame; by default those of the function.
    """
    traces, error = [Trace() for _ in range(n)], None

    def program():
        state = current()
        rank = state.launched_rank
        trace = traces[rank]
        trace.state = state
        output.begin(rank)
        keep_frame(inspect.unwrap(function), trace)
        try:
            trace.value = function(*args)
        except BaseException as e:
            trace.error = e
            raise
        finally:
            sys.setprofile(None)
            output.end(rank)
            collect(trace, names_of or own_names)

    with Output(n) as output:
        try:
            run_ranks(program, n)
        except BaseException as e:
            error = e
            if not any(trace.state for trace in traces):
                raise                           # it never began
    for trace in traces:                        # of a rank that couldn't be stopped, too
        collect(trace, names_of or own_names)
    if error:
        error.__traceback__ = users_part(error.__traceback__)
    failed = next((r for r, trace in enumerate(traces) if error is not None and trace.error is error), None)
    found = [Rank(r, trace.names, {}) for r, trace in enumerate(traces)]
    records = [trace.record or Record(r, n, capacity=1) for r, trace in enumerate(traces)]
    return Result("thread", [t.value for t in traces], found, output.texts(), error, lambda: records, failed)


def keep_frame(function: Callable, trace: Trace) -> None:
    """Catch the frame of the function when it is called next in this thread.

    Somebody who holds a frame keeps its variables after it has returned. So it is enough to be told of one call: the profile
    hook goes away with it, and the function runs at full speed (all this takes 3 µs).
    """
    code = getattr(function, "__code__", None)

    def hook(frame, event, _):
        if event == "call" and (code is None or frame.f_code is code):
            sys.setprofile(None)
            trace.frame = frame

    sys.setprofile(hook)


def collect(trace: Trace, names_of: Callable[[FrameType], dict]) -> None:
    """Take what the rank's frame and state have. A frame is let go: it holds those that called it."""
    if trace.frame is not None:
        trace.names = {name: x for name, x in names_of(trace.frame).items() if name.isidentifier() and name[0] != "_"}
        trace.frame = None
    if trace.record is None and trace.state is not None and trace.state.world is not None:
        trace.record = trace.state.world.endpoint.record


def own_names(frame: FrameType) -> dict:
    """The function's variables, without those it shares with the function round it."""
    return {name: x for name, x in frame.f_locals.items() if name not in frame.f_code.co_freevars}


def users_part(trace):
    """A traceback from the first frame that isn't the laboratory's own."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.startswith(HERE):
        part = part.tb_next
    return part if part is not None else trace
