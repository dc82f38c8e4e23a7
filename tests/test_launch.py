"""msrun and `minispore run`: what appears, how a job ends, and that nothing is left of it."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from minispore.launch import environment, options

pytestmark = [pytest.mark.timeout(90), pytest.mark.skipif(sys.platform == "win32", reason="no MPI there")]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

START = """
import os, signal, sys, time
from minispore.communication import communicator, get_group_size, get_rank, init
init()
rank, size, wait = get_rank(), get_group_size(), lambda: communicator().barrier().wait()
"""


@pytest.fixture
def job(tmp_path):
    """Runs a script with msrun, in a folder of its own."""
    return Job(tmp_path)


class Job:
    def __init__(self, folder: Path):
        self.folder, self.name = folder, f"job_{uuid4().hex}.py"

    def command(self, script: str, *before: str, tool=("minispore.launch.msrun",)) -> list[str]:
        (self.folder / self.name).write_text(script)
        return [sys.executable, "-m", *tool, *before, self.name]

    def run(self, script: str, *before: str, after=(), env=None, tool=("minispore.launch.msrun",)):
        """Its exit code, and what it wrote to stdout and stderr."""
        done = subprocess.run([*self.command(script, *before, tool=tool), *after], cwd=self.folder,
                              env=os.environ | (env or {}), capture_output=True, timeout=60)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def start(self, script: str, *before: str, until: str):
        """The running job, after a line that ends with `until` has come."""
        process = subprocess.Popen(self.command(START + script, *before), cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.endswith(f"{until}\n"):
                return process
        raise AssertionError(process.communicate())

    def processes(self) -> list[int]:
        """Those with the script's name in their command line."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if self.name.encode() in Path("/proc", entry, "cmdline").read_bytes():
                    found.append(int(entry))
            except OSError:
                pass
        return found

    def gone(self, within: float = 5.0) -> bool:
        until = time.monotonic() + within
        while self.processes() and time.monotonic() < until:
            time.sleep(0.02)
        return not self.processes()


# ---- what appears ------------------------------------------------------------------------------------


def test_each_line_comes_whole_with_its_rank(job):
    (job.folder / "worker_0.log").write_text("of an earlier job\n")
    code, out, err = job.run(START + """
for i in range(200):
    print(f"秩{rank}第{i}行" + "字" * 100)
print(sys.argv[1:], sys.argv[0].endswith(".py"), sys.path[0] == os.getcwd(), __name__, file=sys.stderr)
os.write(2, b"no end of line")
""", "--worker_num=2", "--timeout=60", "python", after=("--lr", "0 1", ""))
    assert (code, err) == (0, "")
    for rank in range(2):
        own = [f"秩{rank}第{i}行" + "字" * 100 for i in range(200)]
        own += ["['--lr', '0 1', ''] True True __main__", "no end of line"]
        prefix = f"[rank {rank}] "
        assert [line[len(prefix):] for line in out.splitlines() if line.startswith(prefix)] == own
        assert (job.folder / f"worker_{rank}.log").read_text().splitlines() == own
    assert len(out.splitlines()) == 2 * 202


def test_one_rank_needs_no_prefix(job):
    assert job.run(START + "print(rank, size)", "--worker_num=1") == (0, "0 1\n", "")


def test_lines_appear_while_the_job_runs(job):
    process = job.start("print('now', flush=True); time.sleep(60)", "--worker_num=2", until="now")
    process.terminate()
    process.communicate(timeout=20)


def test_join_false_shows_nothing_and_says_where_the_logs_are(job):
    code, out, err = job.run(START + "print(rank)", "--worker_num=2", "--join=False", "--log_dir=logs/a")
    assert (code, out) == (0, "") and "logs/a/worker_0.log" in err
    assert (job.folder / "logs/a/worker_1.log").read_text() == "1\n"


def test_only_the_ranks_asked_for_appear(job):
    options = "--worker_num=3", "--tail_worker_log=1", "--worker_log_name=w"
    code, out, _ = job.run(START + "print(size)", *options)
    assert (code, out) == (0, "[rank 1] 3\n")
    assert (job.folder / "w_2.log").read_text() == "3\n"


def test_the_environment_of_the_ranks(job):
    names = "RANK_ID", "RANK_SIZE", "DEVICE_ID", "MS_ROLE", "MS_WORKER_NUM", *environment.THREADS
    chosen = dict.fromkeys(environment.THREADS, "") | {"OPENBLAS_NUM_THREADS": "7"}
    script = f"import os; print(*[os.environ[n] for n in {names}])"
    code, out, err = job.run(script, "--worker_num=2", env=chosen)
    share = max(1, environment.cores() // 2)
    assert code == 0, err
    assert sorted(out.splitlines()) == [
        f"[rank {r}] {r} 2 {r} MS_WORKER 2 {share} 7 {share} {share}" for r in range(2)]


# ---- how a job fails ---------------------------------------------------------------------------------


def test_an_exception_is_shown_once_and_ends_the_others(job):
    code, out, err = job.run(START + """
def step():
    if rank == 1:
        raise ValueError("坏的一步")
    wait()                      # the others' error is but a consequence
step()
""", "--worker_num=3")
    assert code == 1 and err == "msrun: rank 1 failed first; its output is in ./worker_1.log\n"
    lines = out.splitlines()
    assert lines[0] == "[rank 1] Traceback (most recent call last):"
    assert lines[-1] == "[rank 1] ValueError: 坏的一步"
    assert all(line.startswith("[rank 1] ") for line in lines)
    assert "runpy" not in out and "launch" not in out and out.count(", line ") == 2


def test_the_same_exception_on_all_ranks_is_shown_once(job):
    code, out, err = job.run(START + "wait(); 1 / 0", "--worker_num=3")
    assert code == 1 and out.count("ZeroDivisionError") == 1 and err.count("failed first") == 1


def test_a_syntax_error_is_shown_with_its_line(job):
    code, out, _ = job.run("x = 1\ny = = 2\n", "--worker_num=2")
    assert code == 1 and out.count("SyntaxError") == 1 and "y = = 2" in out and "runpy" not in out


def test_a_failure_before_init_ends_those_that_wait_in_it(job):
    script = "import os\nif os.environ['RANK_ID'] == '1': raise KeyError('早')\n" + START
    code, out, _ = job.run(script, "--worker_num=2")
    assert code == 1 and out.splitlines()[-1] == "[rank 1] KeyError: '早'"


def test_exit_codes_are_the_scripts_own(job):
    code, out, err = job.run(START + "if rank == 1: sys.exit(7)\nwait()", "--worker_num=2")
    assert (code, out) == (7, "") and "rank 1 failed first, with exit code 7" in err
    code, out, err = job.run(START + "if rank == 1: sys.exit('not today')\nwait()", "--worker_num=2")
    assert (code, out) == (1, "[rank 1] not today\n")


def test_exit_zero_is_a_good_end(job):
    assert job.run(START + "sys.exit(0 if rank == 1 else None)", "--worker_num=2") == (0, "", "")


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV")])
def test_a_killed_rank_is_named_with_its_signal(job, number, name):
    process = job.start(f"wait(); print('up')\nif rank == 1: os.kill(os.getpid(), {int(number)})\nwait()",
                        "--worker_num=3", until="up")
    begun = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < 5 and process.returncode == 128 + number, err
    assert f"rank 1 failed first: killed by {name} (signal {int(number)})" in err
    assert "BAD TERMINATION" not in err


def test_a_rank_that_leaves_without_a_word(job):
    code, _, err = job.run(START + "if rank == 1: os._exit(0)\nwait()", "--worker_num=2")
    assert code == 1 and "rank 1 failed first: its process ended without an error, exit code 0" in err


def test_ranks_that_wait_for_one_that_has_ended(job):
    code, out, err = job.run(START + "for step in range(3 if rank == 1 else 5): wait()", "--worker_num=3")
    assert code == 1 and "rank 1 failed" not in err
    assert out.count("CollectiveError: ") == 1 and "rank 1: has ended" in out


def test_ranks_that_wait_in_init_for_one_that_has_ended(job):
    script = "import os\nif os.environ['RANK_ID'] == '1': raise SystemExit\n" + START
    code, _, err = job.run(script, "--worker_num=2")
    assert code == 1 and "rank 0 waits in init() for rank 1, which ended without calling it" in err


def test_a_failure_while_the_others_have_ended(job):
    code, out, _ = job.run(START + "if rank == 1: time.sleep(0.5); raise OSError('late')", "--worker_num=3")
    assert code == 1 and out.count("OSError: late") == 1


def test_a_crash_at_the_very_end(job):
    code, _, err = job.run(START + "import atexit\nif rank == 1: atexit.register(os.kill, os.getpid(), 11)",
                           "--worker_num=2")
    assert code == 139 and "rank 1 failed at its very end: killed by SIGSEGV" in err


def test_the_time_limit(job):
    code, _, err = job.run(START + "time.sleep(60)", "--worker_num=2", "--timeout=2")
    assert code == 124 and "hasn't ended within 2 s" in err


# ---- nothing is left ---------------------------------------------------------------------------------


@linux
def test_a_rank_that_dies_before_it_comes_to_its_script(job):
    (job.folder / "sitecustomize.py").write_text("""
import os, sys, time
if os.environ.get("PMI_RANK") == "1":
    time.sleep(0.3)
    sys.stderr.write("no more memory\\n")
    os._exit(3)
""")
    code, _, err = job.run(START, "--worker_num=2", env={"PYTHONPATH": str(job.folder)})
    assert code == 1 and err == "msrun: a rank ended before it came to its script\nno more memory\n"
    assert job.gone(0.5)


@linux
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_msrun_ends_all(job, number, code):
    process = job.start("wait(); print('up', flush=True); time.sleep(60)", "--worker_num=2", until="up")
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code and err == f"msrun: {number.name}: ended all ranks\n"
    assert job.gone(0.5)


@linux
def test_sigterm_leaves_the_ranks_time_to_end_in_order_and_a_second_one_none(job):
    handler = """
def end(*_):
    print('saved', rank, flush=True)
    if os.path.exists('stubborn'): return
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
wait()
print('up' if rank else '', flush=True)
while True: time.sleep(0.1)
"""
    for stubborn in (False, True):
        if stubborn:
            (job.folder / "stubborn").touch()
        process = job.start("import signal\n" + handler, "--worker_num=3", until="up")
        process.send_signal(signal.SIGTERM)
        if stubborn:
            time.sleep(0.5)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 143 and err == "msrun: SIGTERM: ended all ranks\n"
        assert all(f"saved {rank}" in (job.folder / f"worker_{rank}.log").read_text() for rank in range(3))
        assert job.gone(0.5)


@linux
def test_nothing_outlives_a_killed_msrun(job):
    process = job.start("""
from minispore.communication.backends.mpi import shared_files
wait(); print('shared files', shared_files(), 'up' if rank == 1 else '', flush=True)
while True: pass
""", "--worker_num=2", until="shared files set() up")
    assert len(job.processes()) >= 4         # msrun, mpiexec, two workers
    process.kill()
    process.communicate(timeout=20)
    assert job.gone()


@linux
def test_a_rank_s_own_children_end_with_the_job(job):
    code, _, _ = job.run(START + """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", sys.argv[0]])
child.returncode = 0                     # or Python warns that it still runs
""", "--worker_num=2")
    assert code == 0 and job.gone(0.5)


@linux
def test_a_reader_that_leaves_ends_the_job_quietly(job):
    process = job.start("while True: print('more'); time.sleep(0.01)", "--worker_num=2", until="more")
    process.stdout.close()
    assert process.wait(20) == 141 and process.stderr.read() == "" and job.gone(0.5)
    process.stderr.close()


# ---- the command line --------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "says"), [
    ("", "no script given"),
    ("python", "no script given"),
    ("nothing.py", "there is no script 'nothing.py'"),
    ("python -O here.py", "-O stands where the script is expected"),
    ("here.py a : b", "argument ':' can't be given"),
    ("--worker_num=0 here.py", "1 to 64 ranks"),
    ("--worker_num=65 here.py", "1 to 64 ranks"),
    ("--worker_num=4 --local_worker_num=2 here.py", "several nodes, which is not there yet"),
    ("--worker_num=4 --node_rank=1 here.py", "several nodes, which is not there yet"),
    ("--worker_num=4 --sim_level=0 --sim_rank_id=4 here.py", "a rank from 0 to worker_num - 1"),
    ("--bind_core=True here.py", "--bind_core=True is not there yet"),
    ("--rank_table_file=t.json here.py", "--rank_table_file=t.json is not there yet"),
    ("--join=perhaps here.py", "neither True nor False"),
    ("--tail_worker_log=9 here.py", "ranks from 0 to 7"),
    ("--timeout=-1 here.py", "seconds above 0"),
    ("--log_dir=here.py here.py", "can't be made"),
])
def test_what_cannot_be_asked_for(line, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("here.py").touch()
    with pytest.raises(SystemExit) as e:
        options.parse(line.split())
    assert e.value.code == 2 and says in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("line", ["here.py -n 3", "python here.py -n 3", "python3 -u here.py -n 3",
                                  "--join True --bind_core=False /usr/bin/python3.11 here.py -n 3"])
def test_what_can(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("here.py").touch()
    job = options.parse(["--device_num=4", *line.split()])
    assert (job.ranks, job.script, job.args, job.log(2)) == (4, "here.py", ("-n", "3"), "./worker_2.log")


def test_an_address_that_cannot_be_had(job):
    code, _, err = job.run("", "--worker_num=2", "--master_addr=192.0.2.1")
    assert code == 1 and "can't listen on 192.0.2.1" in err


def test_another_mpi_s_mpiexec_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="no mpiexec"):
        environment.mpiexec()
    other = tmp_path / "elsewhere" / "mpiexec"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:/bin:/usr/bin")
    with pytest.raises(SystemExit, match="OpenRTE"):
        environment.mpiexec()


# ---- minispore run -----------------------------------------------------------------------------------

RUN = ("minispore.cli", "run")


def test_run_alone(job):
    code, out, err = job.run(START + "print(rank, size, sys.argv[1:])", tool=RUN, after=["-n", "2"])
    assert (code, out, err) == (0, "0 1 ['-n', '2']\n", "")
    code, out, err = job.run("1 / 0", tool=RUN)
    assert code == 1 and err.count(", line ") == 1 and err.endswith("ZeroDivisionError: division by zero\n")


def test_run_on_several_ranks(job):
    code, out, _ = job.run(START + "print(size)", "-n", "2", tool=RUN)
    assert code == 0 and sorted(out.splitlines()) == ["[rank 0] 2", "[rank 1] 2"]


def test_run_under_mpiexec(job):
    def mpiexec(script):
        command = [environment.mpiexec(), "-n", "3", *job.command(START + script, tool=RUN)]
        done = subprocess.run(command, cwd=job.folder, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    code, out, _ = mpiexec("wait(); sys.stdout.write(f'{rank} of {size}, {os.environ[\"RANK_ID\"]}\\n')")
    assert code == 0 and sorted(out.split("\n")) == ["", "0 of 3, 0", "1 of 3, 1", "2 of 3, 2"]
    code, out, err = mpiexec("if rank == 1: sys.exit('enough')\nwait()")
    assert code == 1 and "enough" in err and "Abort" not in out + err


def test_run_under_another_mpi_s_launcher(job):
    code, _, err = job.run(START, tool=RUN, env={"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    assert code == 1 and "the launcher says this is rank 0 of 4, but MPI says it is alone" in err
    code, _, err = job.run(START, "-n", "2", tool=RUN, env={"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    assert code == 2 and "the launcher has started 4 ranks" in err


# ---- import mindspore --------------------------------------------------------------------------------


def test_mindspore_is_the_same_modules(job):
    code, out, err = job.run("""
import sys
import minispore
assert "mindspore" not in sys.modules
import mindspore as ms
import mindspore.nn as nn
from mindspore import Tensor, ops
from mindspore.dataset.vision import Rescale
import mindspore.communication.management
assert ms is minispore and nn is minispore.nn and ops is minispore.ops and Tensor is minispore.Tensor
for name, module in list(sys.modules.items()):
    if name.split(".")[0] == "mindspore":
        here = name.replace("mindspore", "minispore", 1)
        assert module is sys.modules[here] and module.__name__ == module.__spec__.name == here, name
try:
    import mindspore.foo.bar
except ModuleNotFoundError as e:
    print(e)
""", "--as-mindspore", tool=RUN)
    assert (code, err) == (0, "") and out == "No module named 'mindspore.foo' (minispore has no 'foo' yet)\n"


def test_importing_minispore_alone_gives_no_mindspore():
    code = "import sys, minispore.launch.alias; sys.exit(any('Alias' in str(f) for f in sys.meta_path))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---- minispore's other commands ----------------------------------------------------------------------


def minispore(*args):
    command = [sys.executable, "-m", "minispore.cli", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_commands_are_listed():
    code, out, _ = minispore("--help")
    assert code == 0 and all(word in out for word in ("demo", "run", "data", "doctor", "msrun"))


def test_version():
    assert minispore("--version")[1].startswith("minispore 0.")


def test_data(tmp_path):
    code, out, _ = minispore("data", "digits", "--out", str(tmp_path))
    assert code == 0 and "wrote 4 files" in out and (tmp_path / "train-images-idx3-ubyte").exists()
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"mine")
    code, _, err = minispore("data", "digits", "--out", str(tmp_path))
    assert code == 1 and err.startswith("minispore data: ") and "Traceback" not in err


def test_doctor():
    code, out, _ = minispore("doctor")
    assert code == 0 and "ok  two ranks" in out and "NO" not in out
