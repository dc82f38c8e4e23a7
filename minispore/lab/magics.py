"""%%ranks and %%msrun: a notebook's cell on thread ranks (in_threads.py) or on real processes (in_processes.py).

IPython is imported only here, and only when the extension is loaded.
"""
import argparse
import ast
import dis
import keyword
import shlex
import sys
from types import FrameType

from minispore.lab.in_processes import MOST as MOST_PROCESSES
from minispore.lab.in_processes import TIMEOUT, JobError, attempt_script
from minispore.lab.in_threads import attempt
from minispore.lab.ranks import MOST as MOST_THREADS
from minispore.lab.result import Result

RANKS_HELP = """Run the cell on n ranks, threads of this notebook. Each begins with the notebook's variables in a namespace of its
own; what it assigns there is found in the Result afterwards: job[2].x, job.x. The value of a last line without "=" is shown,
and is in job.values."""
MSRUN_HELP = """Run the cell as a script on n real processes, with the command msrun. It knows nothing of the notebook's
variables; its own are found in the Result afterwards, where they can be pickled: job[2].x, job.x. Stopping the cell, or the
notebook, ends all its processes."""


class Parser(argparse.ArgumentParser):
    """Options of a cell: errors are IPython's UsageError, help doesn't end the kernel."""

    def error(self, message):
        from IPython.core.error import UsageError
        options = self.format_usage().removeprefix("usage: ").strip()
        raise UsageError(f"{self.prog}: {message}.\nIt is written  {' '.join(options.split())}\n%{self.prog.strip('%')} --help "
                         "says what the options mean.")

    def exit(self, status=0, message=None):
        raise Helped


class Helped(Exception):
    """The help has been shown; there is nothing to run."""


def parser(name: str, about: str, most: int) -> Parser:
    """The options that both have."""
    p = Parser(f"%%{name}", description=about, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def ranks(text):
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of ranks from 1 to {most}")
        return int(text)

    def variable(text):
        if not text.isidentifier() or keyword.iskeyword(text):
            raise argparse.ArgumentTypeError(f"{text!r} can't be the name of a variable")
        return text

    p.add_argument("-n", type=ranks, metavar="N", default=4, help=f"number of ranks, up to {most} (4)")
    p.add_argument("--into", type=variable, metavar="NAME", default="job", help="the variable that the Result is left in (job)")
    p.add_argument("--may-fail", action="store_true", help="keep an error in the Result, don't raise it")
    return p


def ranks_parser() -> Parser:
    return parser("ranks", RANKS_HELP, MOST_THREADS)


def msrun_parser() -> Parser:
    p = parser("msrun", MSRUN_HELP, MOST_PROCESSES)

    def seconds(text):
        try:
            if (number := float(text)) > 0:
                return number
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")

    def setting(text):
        name, equals, value = text.partition("=")
        if not name.isidentifier() or not equals:
            raise argparse.ArgumentTypeError(f"{text!r} must be NAME=VALUE")
        return name, value

    p.add_argument("--timeout", type=seconds, metavar="S", default=TIMEOUT, help=f"end the job after S seconds ({TIMEOUT})")
    p.add_argument("--env", type=setting, metavar="NAME=VALUE", action="append", default=[],
                   help="a variable of the processes' environment; may be given several times")
    return p


def load(shell) -> None:
    """Give the shell both magics; as line magics, %ranks and %msrun, they show their help."""
    for name, make, run in (("ranks", ranks_parser, on_threads), ("msrun", msrun_parser, on_processes)):
        def magic(line, cell=None, make=make, run=run):
            options = parse(make(), line, cell)
            if options:
                finish(shell, options, run(shell, options, line, cell))
        magic.__doc__ = make().format_help()
        shell.register_magic_function(magic, "line_cell", name)


def parse(p: Parser, line: str, cell: str | None) -> argparse.Namespace | None:
    """The options; None if only help was wanted."""
    if cell is None:
        print(p.format_help())
        return None
    try:
        options = p.parse_args(shlex.split(line))
    except Helped:
        return None
    except ValueError as e:
        p.error(f"{line!r} can't be read ({e})")
    if not cell.strip():
        p.error("the cell is empty; what the ranks are to run stands below that line")
    return options


def finish(shell, options: argparse.Namespace, result: Result) -> None:
    """Leave the Result in its variable, and show or raise an error."""
    shell.user_ns[options.into] = result
    error = result.error
    if error is None:
        return
    if options.may_fail and isinstance(error, Exception):
        if not isinstance(error, JobError):     # else it has been seen in the output
            print(f"{type(error).__name__}: {error}\n(kept in {options.into}.error)", file=sys.stderr)
        return
    if not isinstance(error, JobError):
        # Of the traceback only what is the cell's, without IPython's and our own way to it.
        trace = error.__traceback__
        error._render_traceback_ = lambda: shell.InteractiveTB.structured_traceback(type(error), error, trace)
    raise error


def on_threads(shell, options: argparse.Namespace, line: str, cell: str) -> Result:
    """The cell on thread ranks."""
    source = f"# %%ranks {line}\n{cell}"        # lines are numbered as in the cell
    name = shell.compile.cache(source, len(shell.history_manager.input_hist_parsed) - 1)      # under the cell's number
    tree = shell.compile.ast_parse(source, filename=name)
    last = tree.body.pop().value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    code = shell.compile(tree, name, "exec")
    value = None if last is None else shell.compile(ast.Expression(last), name, "eval")
    quiet = cell.rstrip().endswith(";")
    before = dict(shell.user_ns)
    stored = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_NAME", "STORE_GLOBAL")}

    def program():
        namespace = dict(before)
        exec(code, namespace)
        if value is not None:
            shown = eval(value, namespace)
            if shown is not None and not quiet:
                print(repr(shown))
            return shown

    def assigned(frame: FrameType) -> dict:
        return {name: x for name, x in frame.f_locals.get("namespace", {}).items()
                if name in stored or name not in before or before[name] is not x}

    return attempt(options.n, program, names_of=assigned)


def on_processes(shell, options: argparse.Namespace, line: str, cell: str) -> Result:
    """The cell as a script of processes."""
    return attempt_script(f"# %%msrun {line}\n{cell}", options.n, options.timeout, dict(options.env))
