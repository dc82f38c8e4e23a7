"""The supervisor: one job, from its start until nothing is left of it."""
import os
import re
import secrets
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from minispore.communication.backends.mpi import shared_files
from minispore.launch import environment, processes
from minispore.launch.line import Caller, Switchboard
from minispore.launch.logs import Screen
from minispore.launch.options import Job

MARK = "MINISPORE_JOB"      # in the environment of all processes of a job
TICK = 0.03                 # seconds between two looks at the logs
GRACE = 2.0                 # seconds to do in an orderly way what is else done by force
LEAVE = 10.0                # seconds between the first rank's end and the last; MPI lets them go together
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOISE = re.compile(r"\s*$|=|\[mpiexec|YOUR APPLICATION|This typically refers|Please see the FAQ")


@dataclass
class Worker:
    """What is known of a rank."""
    pid: int
    caller: Caller | None           # None: the process is no more
    joining: bool = False           # it has come to init()
    ended: bool = False             # its script has ended well


@dataclass
class Verdict:
    """Why the job fails: what to say, and the exit code; None if that is how the rank's process ended."""
    text: str
    code: int | None
    rank: int | None
    ripe: float                     # when the ranks are to be ended


class Supervisor:
    """Starts the ranks, shows what they write, and ends them all when one fails."""

    def __init__(self, job: Job):
        self.job = job
        self.mark = secrets.token_hex(8)
        self.workers: dict[int, Worker] = {}
        self.verdict: Verdict | None = None
        self.leaving: tuple[float, int] | None = None       # since when, which rank
        self.all_started, self.lost_since = False, None     # for ranks that end before they have a line
        self.memory: set[str] = set()
        self.said = b""                                     # by mpiexec
        self.selector = selectors.DefaultSelector()

    def run(self) -> int:
        """The whole job; its exit code."""
        job = self.job
        command = environment.command(job)
        self.switchboard = Switchboard(job.address)
        self.screen = Screen({rank: job.log(rank) for rank in range(job.ranks)}, job.shown)
        processes.adopt_orphans()
        for number in SIGNALS:
            if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:   # nohup ignores SIGHUP
                signal.signal(number, self.interrupted)
        self.begun = time.monotonic()
        self.mpiexec = subprocess.Popen(
            command, env=environment.for_workers(job, self.switchboard) | {MARK: self.mark},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=processes.die_with_parent)
        try:
            self.selector.register(self.switchboard.socket, selectors.EVENT_READ, self.new_line)
            self.selector.register(self.mpiexec.stdout, selectors.EVENT_READ, self.mpiexec_speaks)
            self.watch()
        finally:
            self.mpiexec.kill()
            self.mpiexec.wait()
            processes.kill_marked(f"{MARK}={self.mark}")
            processes.remove(self.memory)
        return self.conclude()

    def watch(self) -> None:
        """Until mpiexec has ended, which it does when all ranks have."""
        while self.mpiexec.poll() is None:
            for key, _ in self.selector.select(TICK):
                key.data()
            self.show()
            self.check()
            if self.verdict and (late := time.monotonic() - self.verdict.ripe) >= 0:
                self.kill_ranks()
                if late > GRACE:
                    return
        while any(key.fileobj is self.mpiexec.stdout for key, _ in self.selector.select(0)):
            self.mpiexec_speaks()           # its last words

    # ---- what may happen ----------------------------------------------------------------------------

    def new_line(self) -> None:
        caller = self.switchboard.accept()
        self.selector.register(caller.socket, selectors.EVENT_READ, lambda: self.worker_speaks(caller))

    def worker_speaks(self, caller: Caller) -> None:
        messages = caller.hear()
        for words in messages or ():
            if words[:2] == ["hello", self.switchboard.token]:
                self.workers[int(words[2])] = Worker(int(words[3]), caller)
                continue
            for rank, worker in self.workers.items():
                if worker.caller is caller:
                    self.heard(rank, worker, *words)
        if messages is None:
            self.selector.unregister(caller.socket)
            for rank, worker in self.workers.items():
                if worker.caller is caller:
                    self.gone(rank, worker)

    def heard(self, rank: int, worker: Worker, word: str, *rest: str) -> None:
        """A message of a rank (see launch/line.py)."""
        match word:
            case "joining":
                worker.joining = True
            case "ended":
                worker.ended = True
            case "failed":
                worker.caller.answer("later" if self.verdict else "first")
                self.decide(f"rank {rank} failed first", int(rest[0]), rank, GRACE)
            case "shown" if rank == self.verdict.rank:
                self.verdict.ripe = time.monotonic()

    def gone(self, rank: int, worker: Worker) -> None:
        """A rank's process is no more."""
        worker.caller = None
        if not worker.ended:
            self.decide(f"rank {rank} failed first", None, rank)
        elif worker.joining and not self.leaving:
            self.leaving = time.monotonic(), rank

    def mpiexec_speaks(self) -> None:
        data = os.read(self.mpiexec.stdout.fileno(), 65536)
        self.said += data
        if not data:
            self.selector.unregister(self.mpiexec.stdout)

    def interrupted(self, number, frame) -> None:
        """Ctrl-C, or somebody ends msrun. At once, for we may be waiting for a full pipe."""
        self.decide(f"{signal.Signals(number).name}: ended all ranks", 128 + number)
        self.kill_ranks()

    def show(self, last: bool = False) -> None:
        try:
            self.screen.show(last)
        except BrokenPipeError:                 # `msrun … | head`: nobody wants to know more
            self.screen.prefix.clear()
            self.decide("", 128 + signal.SIGPIPE)

    # ---- what follows from it -----------------------------------------------------------------------

    def decide(self, text: str, code: int | None, rank: int | None = None, delay: float = 0.0) -> None:
        """The job has failed. Only the first reason counts; the others are its consequences."""
        if self.verdict is None:
            self.verdict = Verdict(text, code, rank, time.monotonic() + delay)

    def check(self) -> None:
        """What no message tells."""
        job, now = self.job, time.monotonic()
        if job.end_within and now - self.begun > job.end_within:
            self.decide(f"the job hasn't ended within {job.end_within:g} s (--timeout): ended all ranks; "
                        f"what they wrote is in {job.log(0)} and beside it", 124)
        if len(self.workers) < job.ranks:
            if self.one_is_lost(now):
                self.decide("a rank ended before it came to its script", 1)
            if now - self.begun > job.start_within:
                missing = ", ".join(str(r) for r in range(job.ranks) if r not in self.workers)
                self.decide(f"rank {missing} not there after {job.start_within:g} s (--cluster_time_out)", 1)
        absent = [r for r, w in self.workers.items() if w.ended and not w.joining]
        waiting = [r for r, w in self.workers.items() if w.joining and not w.ended]
        if absent and waiting:
            self.decide(f"rank {waiting[0]} waits in init() for rank {absent[0]}, which ended without "
                        "calling it; every rank must call init(), or none", 1, absent[0])
        if self.leaving and now - self.leaving[0] > LEAVE:
            self.decide(f"rank {self.leaving[1]} failed at its very end", None, self.leaving[1])

    def one_is_lost(self, now: float) -> bool:
        """Linux: whether a rank's process has ended before it could say hello."""
        proxies = processes.children(self.mpiexec.pid)
        alive = sum(len(processes.children(proxy)) for proxy in proxies)
        gone = sum(worker.caller is None for worker in self.workers.values())
        self.all_started |= alive == self.job.ranks
        if not self.all_started or alive + gone >= self.job.ranks:
            self.lost_since = None
        else:
            self.lost_since = self.lost_since or now
        return self.lost_since is not None and now - self.lost_since > 0.5

    def kill_ranks(self) -> None:
        """All of them, by force: one that waits in MPI listens to nothing else."""
        alive = [w.pid for w in self.workers.values() if w.caller]
        for pid in alive:
            self.memory |= shared_files(pid)
        for pid in alive:
            processes.kill(pid)
        if len(self.workers) < self.job.ranks:      # some may be about to start
            self.mpiexec.terminate()

    # ---- how it ends --------------------------------------------------------------------------------

    def conclude(self) -> int:
        """Say how it ended; the exit code."""
        self.show(last=True)
        codes = self.exit_codes()
        if self.verdict is None and (self.mpiexec.returncode or any(codes.values())):
            first = self.leaving and self.leaving[1]        # SIGKILL is also what mpiexec does to the others
            rank = min((r for r in codes if codes[r]), default=None,
                       key=lambda r: (codes[r] == -signal.SIGKILL, r != first))
            what = "mpiexec failed" if rank is None else f"rank {rank} failed at its very end"
            self.decide(what, None if codes else self.mpiexec.returncode, rank)
        if self.verdict is None:
            if not self.job.shown:
                say(f"all ranks have ended well; their output is in {self.job.log(0)} and beside it")
            return 0
        return self.explain(self.verdict, codes)

    def explain(self, verdict: Verdict, codes: dict[int, int]) -> int:
        text, code = verdict.text, verdict.code
        if code is None:
            code = codes.get(verdict.rank, 1)
            if code < 0:
                text += f": killed by {signal.Signals(-code).name} (signal {-code})"
                code = 128 - code
            elif verdict.rank is not None:
                text += f": it left in the middle, with exit code {code} and without an error"
                code = code or 1
        elif verdict.rank is not None and code != 1:
            text += f", with exit code {code}"
        if verdict.rank is not None:
            text += f"; its output is in {self.job.log(verdict.rank)}"
        elif text and self.said:
            lines = self.said.decode(errors="replace").splitlines()
            text = "\n".join([text, *(line for line in lines if not NOISE.match(line))])
        if text:
            say(text)
        return code

    def exit_codes(self) -> dict[int, int]:
        """How each rank's process ended, as mpiexec tells: an exit code, or minus a signal."""
        found = re.search(rb"Exit codes: \[[^]]*\] ([\d,]+)", self.said)
        statuses = found[1].split(b",") if found else ()
        return {rank: os.waitstatus_to_exitcode(int(status)) for rank, status in enumerate(statuses)}


def say(text: str) -> None:
    print(f"msrun: {text}", file=sys.stderr, flush=True)
