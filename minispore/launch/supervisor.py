"""The supervisor: one job, from its start until nothing is left of it."""
import os
import re
import secrets
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from minispore.communication.backends.start import shared_files
from minispore.communication.ring import remove_rings
from minispore.launch import environment, processes
from minispore.launch.line import Caller, Switchboard
from minispore.launch.logs import Screen
from minispore.launch.options import Job

MARK = "MINISPORE_JOB"      # in the environment of all processes of a job
TICK = 0.03                 # seconds between two looks at the logs
GRACE = 2.0                 # seconds for a failed rank to write its traceback
LAST_WORD = 1.0         # seconds for the first rank to show where it was at Ctrl-C; in C it may hear nothing
FAREWELL = 20.0             # seconds for ranks to end in order at SIGTERM; schedulers kill after 30
LEAVE = 10.0                # seconds between the first rank's end and the last; MPI lets them go together
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOISE = re.compile(r"\s*$|=|\[(mpiexec|proxy)|YOUR APPLICATION|This typically refers|Please see the FAQ")


@dataclass
class Worker:
    """What is known of a rank."""
    pid: int
    caller: Caller
    alive: bool = True
    joining: bool = False           # it has come to init()
    since: float = field(default_factory=time.monotonic)        # it is here, or (joining) in init()
    ended: bool = False             # its script has ended well


@dataclass
class Verdict:
    """Why the job fails: what to say, the exit code, and whose log to look into."""
    text: str
    code: int
    rank: int | None
    ripe: float                     # when the ranks are to be ended
    speaker: int | None = None      # whose traceback appears


class Supervisor:
    """Starts the ranks, shows what they write, and ends them all when one fails."""

    def __init__(self, job: Job):
        self.job = job
        self.mark = MARK, secrets.token_hex(8)
        self.mpiexec: subprocess.Popen | None = None
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
        remove_rings(os.environ.get("MINISPORE_RECORD") or job.log_dir)
        self.screen = Screen({rank: job.log(rank) for rank in range(job.ranks)}, job.shown)
        processes.adopt_orphans()
        for number in SIGNALS:
            if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:   # nohup ignores SIGHUP
                signal.signal(number, self.interrupted)
        self.begun = time.monotonic()
        env = environment.for_workers(job, self.switchboard) | dict([self.mark])
        self.mpiexec = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=processes.die_with_parent)
        try:
            self.selector.register(self.switchboard.socket, selectors.EVENT_READ, self.new_line)
            self.selector.register(self.mpiexec.stdout, selectors.EVENT_READ, self.mpiexec_speaks)
            self.watch()
        finally:
            self.kill_all()
            self.mpiexec.wait()
            processes.bury()
            processes.remove(self.memory)
        return self.conclude()

    def watch(self) -> None:
        """Until mpiexec has ended, which it does when all ranks have."""
        while self.mpiexec.poll() is None:
            for key, _ in self.selector.select(TICK):
                key.data()
            self.show()
            self.check()
            if self.verdict and time.monotonic() >= self.verdict.ripe:
                self.kill_all()
        while events := self.selector.select(0):        # last words
            for key, _ in events:
                key.data()

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
                if worker.caller is caller and worker.alive:
                    self.gone(rank, worker, None)

    def heard(self, rank: int, worker: Worker, word: str, *rest: str) -> None:
        """A message of a rank (see launch/line.py)."""
        match word:
            case "joining":
                worker.joining, worker.since = True, time.monotonic()
            case "ended":
                worker.ended = True
            case "failed":
                code = int(rest[0])
                self.decide(f"rank {rank} failed first" + (f", with exit code {code}" if code != 1 else ""), code,
                            rank, GRACE, speaker=rank)
                worker.caller.answer("first" if self.verdict.speaker == rank else "later")
            case "over":
                self.gone(rank, worker, int(rest[0]))
            case "shown" if rank == self.verdict.speaker:
                self.verdict.ripe = time.monotonic()

    def gone(self, rank: int, worker: Worker, code: int | None) -> None:
        """A rank's process is no more. It had an exit code, or minus a signal; None: who knows."""
        worker.alive = False
        when = "at its very end" if worker.ended else "first"
        if code is not None and code < 0:
            self.decide(f"rank {rank} failed {when}: killed by {signal.Signals(-code).name} (signal {-code})",
                        128 - code, rank)
        elif code or not worker.ended:
            self.decide(f"rank {rank} failed {when}: its process ended without an error"
                        + ("" if code is None else f", exit code {code}"), code or 1, rank)
        elif worker.joining and not self.leaving:
            self.leaving = time.monotonic(), rank

    def mpiexec_speaks(self) -> None:
        data = os.read(self.mpiexec.stdout.fileno(), 65536)
        self.said += data
        if not data:
            self.selector.unregister(self.mpiexec.stdout)

    def interrupted(self, number, frame) -> None:
        """Ctrl-C, or somebody ends msrun. At once, for we may be waiting for a full pipe.

        A first SIGTERM goes to the ranks, so that OnRequestExit can save; they die of it if nobody handles it. A first Ctrl-C
        goes to one rank, which shows where it was. Those that are still there after a while, or at a second signal, are ended
        by force.
        """
        alive = {rank: worker.pid for rank, worker in sorted(self.workers.items()) if worker.alive}
        asked = number != signal.SIGHUP and self.verdict is None and len(self.workers) == self.job.ranks and alive
        patience = 0.0 if not asked else FAREWELL if number == signal.SIGTERM else LAST_WORD
        speaker = min(alive) if asked and number == signal.SIGINT else None
        self.decide(f"{signal.Signals(number).name}: ended all ranks", 128 + number, delay=patience, speaker=speaker)
        if not asked:
            return self.kill_all()
        signal.signal(signal.SIGALRM, lambda *_: self.kill_all())
        signal.setitimer(signal.ITIMER_REAL, patience)
        for pid in alive.values() if speaker is None else [alive[speaker]]:
            processes.kill(pid, number)

    def show(self, last: bool = False) -> None:
        try:
            self.screen.show(last)
        except BrokenPipeError:                 # `msrun … | head`: nobody wants to know more
            self.screen.prefix.clear()
            self.decide("", 128 + signal.SIGPIPE)

    # ---- what follows from it -----------------------------------------------------------------------

    def decide(self, text: str, code: int, rank: int | None = None, delay: float = 0.0, speaker: int | None = None) -> None:
        """The job has failed. Only the first reason counts; the others are its consequences."""
        if self.verdict is None:
            self.verdict = Verdict(text, code, rank, time.monotonic() + delay, speaker)

    def check(self) -> None:
        """What no message tells."""
        job, now = self.job, time.monotonic()
        if job.end_within and now - self.begun > job.end_within and self.verdict is None:
            self.decide("\n".join([f"the job hasn't ended within {job.end_within:g} s (--timeout): ended all ranks; what they "
                                   f"wrote is in {job.log(0)} and beside it", *who_waits(job.log_dir)]), 124)
        if len(self.workers) < job.ranks:
            if self.one_is_lost(now):
                self.decide("a rank ended before it came to its script", 1)
            if now - self.begun > job.start_within:
                missing = ", ".join(str(r) for r in range(job.ranks) if r not in self.workers)
                self.decide(f"rank {missing} not there after {job.start_within:g} s (--cluster_time_out)", 1)
        absent = [r for r, w in self.workers.items() if w.ended and not w.joining]
        waiting = sorted(r for r, w in self.workers.items() if w.joining and not w.ended)
        if absent and waiting:
            self.decide(f"rank {waiting[0]} waits in init() for rank {absent[0]}, which ended without "
                        "calling it; every rank must call init(), or none", 1, absent[0])
        elif waiting and len(self.workers) == job.ranks:
            absent = [str(r) for r, w in sorted(self.workers.items()) if not w.joining]
            if absent and now - max(w.since for w in self.workers.values()) > job.init_within:
                self.decide(f"rank {waiting[0]} waits in init() for rank {', '.join(absent)} since {job.init_within:g} s "
                            "(MINISPORE_TIMEOUT); every rank must call init(), best in the first lines of the script", 1,
                            int(absent[0]))
        if self.leaving and now - self.leaving[0] > LEAVE:
            self.decide(f"rank {self.leaving[1]} has left MPI, but others can't", 1, self.leaving[1])

    def one_is_lost(self, now: float) -> bool:
        """Linux: whether a rank's process has ended before it could say hello."""
        proxies = processes.children(self.mpiexec.pid)
        alive = sum(len(processes.children(proxy)) for proxy in proxies)
        gone = sum(not worker.alive for worker in self.workers.values())
        self.all_started |= alive == self.job.ranks
        if not self.all_started or alive + gone >= self.job.ranks:
            self.lost_since = None
        else:
            self.lost_since = self.lost_since or now
        return self.lost_since is not None and now - self.lost_since > 0.5

    def kill_all(self) -> None:
        """All processes of the job, by force: a rank that waits in MPI listens to nothing else."""
        if not self.mpiexec:
            return
        alive = [worker.pid for worker in self.workers.values() if worker.alive]
        for pid in alive:
            self.memory |= shared_files(pid)
        self.mpiexec.kill()
        for pid in alive:
            processes.kill(pid)
        processes.kill_marked(self.mark)

    # ---- how it ends --------------------------------------------------------------------------------

    def conclude(self) -> int:
        """Say how it ended; the exit code."""
        self.show(last=True)
        if self.mpiexec.returncode and sum(worker.ended for worker in self.workers.values()) < self.job.ranks:
            self.decide(f"mpiexec failed with exit code {self.mpiexec.returncode}", 1)
        if self.verdict is None:
            if not self.job.shown:
                say(f"all ranks have ended well; their output is in {self.job.log(0)} and beside it")
            return 0
        text, code, rank = self.verdict.text, self.verdict.code, self.verdict.rank
        if rank is not None:
            text += f"; its output is in {self.job.log(rank)}"
        elif text and self.said:
            lines = self.said.decode(errors="replace").splitlines()
            text = "\n".join([text, *(line for line in lines if not NOISE.match(line))])
        if text:
            say(text)
        return code


def who_waits(folder: str) -> list[str]:
    """What the ranks' records say about a job that is to be ended: who waits where, and for whom."""
    from minispore.communication.hang import waits
    from minispore.communication.record import load_folder
    try:
        return waits(load_folder(folder))
    except FileNotFoundError:                   # no rank has come to init()
        return []


def say(text: str) -> None:
    print(f"msrun: {text}", file=sys.stderr, flush=True)
