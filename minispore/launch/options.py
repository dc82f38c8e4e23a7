"""The command line of `msrun`: MindSpore's options, and what can be asked for here."""
import argparse
import os
import re
from dataclasses import dataclass

MOST = 64               # ranks on one node
LATER = {"--rank_table_file": "", "--bind_core": "False"}
PROGRAM = "script.py [arguments of the script]"


@dataclass(frozen=True)
class Job:
    """What is to be run, checked."""
    ranks: int
    script: str
    args: tuple[str, ...]
    log_dir: str
    log_name: str
    shown: frozenset[int]           # ranks whose output appears on the screen
    address: tuple[str, int]        # where msrun listens
    start_within: float             # seconds
    end_within: float | None
    as_mindspore: bool
    init_within: float = 60         # seconds that a rank waits in init() for the others
    simulated_rank: int | None = None       # no job: one process shows the program of this rank

    def log(self, rank: int) -> str:
        return os.path.join(self.log_dir, f"{self.log_name}_{rank}.log")


def parser() -> argparse.ArgumentParser:
    """The options; everything from the script on is the script's."""
    p = argparse.ArgumentParser(
        "msrun", usage=f"msrun [options] [python] {PROGRAM}", allow_abbrev=False,
        description="Run a script on several ranks of this machine, show what they write, and end them "
                    "all when one fails. Exit code: 0, or that of the rank that failed first.")
    add = p.add_argument
    add("--worker_num", "--device_num", type=int, metavar="N", default=8, help="ranks of the job (8)")
    add("--local_worker_num", type=int, metavar="N", help="ranks on this node (all)")
    add("--master_addr", default="127.0.0.1", metavar="HOST", help="where msrun listens (127.0.0.1)")
    add("--master_port", type=int, default=0, metavar="PORT", help="... and on which port (any that is free)")
    add("--node_rank", type=int, default=-1, metavar="N", help="number of this node (-1: there is only one)")
    add("--log_dir", default=".", metavar="DIR", help="folder for worker_<rank>.log (.)")
    add("--worker_log_name", default="worker", metavar="NAME", help="logs are named NAME_<rank>.log (worker)")
    add("--join", type=truth, default=True, metavar="True|False", help="False: write logs, show nothing")
    add("--tail_worker_log", default="-1", metavar="RANKS", help="show only these ranks, as 0,2 (-1: all)")
    add("--cluster_time_out", type=float, default=600, metavar="S", help="time for all ranks to start (600)")
    add("--timeout", type=float, metavar="S", help="end the job after so many seconds, with exit code 124")
    add("--sim_level", type=int, default=-1, metavar="N",
        help="0 or more: run no job, but show the program that one of the ranks would run")
    add("--sim_rank_id", type=int, default=-1, metavar="RANK", help="... of this rank (0)")
    add("--as-mindspore", action="store_true", help="`import mindspore` is minispore, even if both are there")
    for name, default in LATER.items():
        add(name, type=type(default), default=default, help=argparse.SUPPRESS)
    add("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return p


def truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return text.lower() == "true"


def parse(argv: list[str] | None = None) -> Job:
    """The job that a command line asks for. SystemExit(2), with a message, if there can't be such a job."""
    p = parser()
    o = p.parse_args(argv)
    script, *args = find_script(p, o.program)
    n = o.worker_num
    if o.sim_level >= 0:
        if n < 1 or o.sim_rank_id not in range(-1, n):
            p.error(f"--worker_num={n} --sim_rank_id={o.sim_rank_id}: give a rank from 0 to worker_num - 1")
        return Job(n, script, tuple(args), o.log_dir, o.worker_log_name, frozenset(), (o.master_addr, o.master_port),
                   o.cluster_time_out, o.timeout, o.as_mindspore, simulated_rank=max(o.sim_rank_id, 0))
    if not 1 <= n <= MOST:
        p.error(f"--worker_num={n}: a job on one node has 1 to {MOST} ranks; give such a number")
    if o.local_worker_num not in (None, n) or o.node_rank > 0:
        p.error(f"--worker_num={n} --local_worker_num={o.local_worker_num} --node_rank={o.node_rank} asks "
                "for several nodes, which is not there yet: all ranks run on one. Give --worker_num alone")
    for name, default in LATER.items():
        if (asked := getattr(o, name[2:])) != default:
            p.error(f"{name}={asked} is not there yet, and would change what the job does; leave it out")
    if ":" in args:
        p.error("the script's argument ':' can't be given: to mpiexec, a colon alone begins another program")
    if o.timeout is not None and o.timeout <= 0:
        p.error(f"--timeout={o.timeout:g}: give a number of seconds above 0")
    try:
        os.makedirs(o.log_dir, exist_ok=True)
    except OSError as e:
        p.error(f"--log_dir={o.log_dir} can't be made ({e.strerror}); give a folder that can be written")
    return Job(n, script, tuple(args), o.log_dir, o.worker_log_name, _shown(p, o, n),
               (o.master_addr, o.master_port), o.cluster_time_out, o.timeout, o.as_mindspore,
               float(os.environ.get("MINISPORE_TIMEOUT", 60)))


def find_script(p: argparse.ArgumentParser, program: list[str]) -> list[str]:
    """The script and its arguments, without a leading `python`."""
    if program and re.fullmatch(r"python(3(\.\d+)?)?(\.exe)?", os.path.basename(program[0])):
        program = program[2:] if program[1:2] == ["-u"] else program[1:]        # it is unbuffered anyway
    if not program:
        p.error("no script given; what is to run? For example: msrun --worker_num=4 train.py")
    if program[0].startswith("-"):
        p.error(f"{program[0]} stands where the script is expected. Options come before `python`, the "
                "script's own behind the script; those of Python itself can't be given")
    if not os.path.isfile(program[0]):
        if os.path.isdir(program[0]):
            p.error(f"{program[0]} is a folder; give the script in it")
        p.error(f"there is no script {program[0]!r} in {os.getcwd()}; check its name and your folder")
    return program


def _shown(p: argparse.ArgumentParser, o: argparse.Namespace, n: int) -> frozenset[int]:
    if not o.join:
        return frozenset()
    if o.tail_worker_log == "-1":
        return frozenset(range(n))
    words = o.tail_worker_log.split(",")
    if not all(w.strip().isdecimal() and int(w) < n for w in words):
        p.error(f"--tail_worker_log={o.tail_worker_log}: give ranks from 0 to {n - 1}, as 0,1, or -1 for all")
    return frozenset(map(int, words))
