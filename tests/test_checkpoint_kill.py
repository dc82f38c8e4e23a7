"""Whole files whatever happens: kills, full disks, two writers, background writing."""
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager

import checkpoint_runs
import numpy as np
import pytest
from checkpoint_runs import Run, Undisturbed

from minispore import Tensor
from minispore.lab.ranks import run_ranks
from minispore.train import (
    async_ckpt_thread_status,
    atomic,
    latest_checkpoint,
    load_checkpoint,
    load_training_state,
    save_checkpoint,
    serialization,
    wait_for_async_save,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="kill and fork")


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MINISPORE_QUIET": "1"}


@contextmanager
def all_ended(session):
    """Whatever happens, no process of the session goes on."""
    try:
        yield
    except BaseException:
        os.killpg(session, signal.SIGKILL)
        raise


def temporaries(folder):
    return [f for f in os.listdir(folder) if f.endswith(".saving")]


@posix
@pytest.mark.parametrize("kills", [50])
def test_killed_at_random_moments(tmp_path, kills):
    """One training, killed again and again while it saves, each time resumed from the newest file."""
    moments, undisturbed = random.Random(7), Undisturbed()
    folder, cut, newest_places = str(tmp_path), 0, []
    server = subprocess.Popen([sys.executable, checkpoint_runs.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env=environment(), start_new_session=True)
    with server, all_ended(server.pid):
        def said():
            words = server.stdout.readline().split()
            assert words and words[0] != "ended", "it ended by itself; its error is above"
            return words

        pace = 0.01
        for _ in range(kills):
            print(folder, file=server.stdin, flush=True)
            pid = int(said()[1])
            for _ in range(moments.randrange(4)):           # so many steps are saved, then it is killed in the next one
                begin = time.perf_counter()
                assert said() == ["saved"]
                pace = 0.8 * pace + 0.2 * (time.perf_counter() - begin)
            time.sleep(moments.uniform(0, 1.2 * pace))
            os.kill(pid, signal.SIGKILL)
            ended = next(words for words in map(str.split, server.stdout) if words[0] == "ended")
            assert ended == ["ended", f"-{int(signal.SIGKILL)}"]
            cut += bool(temporaries(folder))
            newest = latest_checkpoint(folder)      # a warning, i.e. a file that isn't whole, is an error here
            for file in filter(os.path.exists, filter(None, (newest, f"{folder}/last.safetensors"))):
                run = Run(seed=0)
                assert run.state() != undisturbed[0, 0]
                run.resume(file)
                assert run.state() == undisturbed[run.epoch, run.step], file
                if file == newest:
                    newest_places.append((run.epoch, run.step))
        server.stdin.close()
    assert newest_places == sorted(newest_places) and len(set(newest_places)) > kills // 2
    assert cut > kills // 10, f"only {cut} kills fell into the writing of a file"
    assert len(temporaries(folder)) <= 1            # each run removed what the one before left behind
    resumed = Run(seed=0).resume(newest)
    for place in resumed.train(steps=2 * checkpoint_runs.STEPS):
        assert resumed.state() == undisturbed[place]


# ---- one file ----------------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    def broken():
        yield b"half"
        raise KeyboardInterrupt

    path = tmp_path / "x"
    for old in (None, b"old"):
        with pytest.raises(KeyboardInterrupt):
            atomic.write_whole(str(path), broken())
        assert [f.name for f in tmp_path.iterdir()] == (["x"] if old else [])
        path.write_bytes(b"old")
    assert path.read_bytes() == b"old"


@posix
def test_a_full_disk(tmp_path):
    import resource
    file = tmp_path / "x.ckpt"
    save_checkpoint({"w": Tensor([1.0])}, file)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old[1]))
    try:
        with pytest.raises(OSError, match=r"x\.ckpt can't be written .File too large.; the file that is there is as it was"):
            save_checkpoint({"w": Tensor(np.ones(10 ** 6))}, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert load_checkpoint(file)["w"].tolist() == [1.0] and os.listdir(tmp_path) == ["x.ckpt"]


@pytest.mark.parametrize("errno, error, said", [(28, OSError, "free some space"), (30, OSError, "no file was made: check the f"),
                                                (13, PermissionError, "check the folder's rights")])
def test_what_the_system_refuses(tmp_path, monkeypatch, errno, error, said):
    def refuse(*args):
        raise OSError(errno, os.strerror(errno))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(error, match=said) as e:
        save_checkpoint({"w": Tensor([1.0])}, tmp_path / "x.ckpt")
    assert e.value.errno == errno and not os.listdir(tmp_path)


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="check the folder's rights"):
        save_checkpoint({"w": Tensor([1.0])}, tmp_path / "x.ckpt")


@posix
def test_temporaries_of_the_dead_alone_are_removed(tmp_path):
    import fcntl
    dead, alive, other = (tmp_path / name for name in (".minispore-1.saving", ".minispore-2.saving", ".other.saving"))
    for f in (dead, alive, other):
        f.write_bytes(b"half")
    with alive.open("rb+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        save_checkpoint({"w": Tensor([1.0])}, tmp_path / "x.ckpt")
        assert sorted(f.name for f in tmp_path.iterdir()) == [".minispore-2.saving", ".other.saving", "x.ckpt"]
    save_checkpoint({"w": Tensor([1.0])}, tmp_path / "x.ckpt")
    assert sorted(f.name for f in tmp_path.iterdir()) == [".other.saving", "x.ckpt"]


@posix
def test_links_and_rights_are_kept(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.ckpt").symlink_to(tmp_path / "real" / "x.ckpt")
    save_checkpoint({"w": Tensor([1.0])}, tmp_path / "link.ckpt")
    assert (tmp_path / "link.ckpt").is_symlink() and load_checkpoint(tmp_path / "real" / "x.ckpt")["w"].tolist() == [1.0]
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "real" / "x.ckpt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_reader_among_writers_sees_whole_files(tmp_path):
    file, ended = tmp_path / "x.ckpt", threading.Event()

    def write(number):
        for i in range(15):
            save_checkpoint({"a": Tensor(np.full(5000, number + i)), "b": Tensor(np.full(5000, number + i))}, file)

    def ranks():
        from minispore.communication import get_rank
        write(1000 * get_rank())

    def go():
        run_ranks(ranks, 4)
        ended.set()

    write(0)
    writer, seen = threading.Thread(target=go), set()
    writer.start()
    while not ended.is_set():
        back = load_checkpoint(file)
        assert len({*back["a"].tolist(), *back["b"].tolist()}) == 1
        seen.add(back["a"].tolist()[0])
    writer.join()
    assert len(seen) > 1 and os.listdir(tmp_path) == ["x.ckpt"]


# ---- in the background -------------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch):
    """Files are written when this is set."""
    opened, write = threading.Event(), serialization.write_whole

    def wait(*args):
        opened.wait(20)
        write(*args)

    monkeypatch.setattr(serialization, "write_whole", wait)
    yield opened
    opened.set()


def test_async_saves_the_values_of_the_call(tmp_path, gate):
    w = Tensor(np.zeros(3))
    assert not async_ckpt_thread_status()
    save_checkpoint({"w": w}, tmp_path / "x.ckpt", async_save=True)
    w[0] = 5.0
    assert async_ckpt_thread_status() and not os.listdir(tmp_path)
    gate.set()
    assert load_checkpoint(tmp_path / "x.ckpt")["w"].tolist() == [0, 0, 0]         # it waits
    assert not async_ckpt_thread_status()


def test_async_errors_come_with_the_next_save(tmp_path):
    missing = tmp_path / "no" / "x.ckpt"
    save_checkpoint({"w": Tensor([1.0])}, missing, async_save=True)
    with pytest.raises(FileNotFoundError, match="make the folder"):
        save_checkpoint({"w": Tensor([1.0])}, tmp_path / "y.ckpt")
    assert not os.listdir(tmp_path)
    save_checkpoint({"w": Tensor([1.0])}, missing, async_save=True)
    with pytest.raises(FileNotFoundError) as e:
        wait_for_async_save()
    assert "async_save=True" in e.value.__notes__[0]
    save_checkpoint({"w": Tensor([1.0])}, tmp_path / "y.ckpt")


def test_async_saves_come_in_order(tmp_path):
    for i in range(10):
        save_checkpoint({"w": Tensor(np.full(10000, i))}, tmp_path / "x.ckpt", async_save=True)
    assert load_checkpoint(tmp_path / "x.ckpt")["w"].tolist()[0] == 9


def test_the_end_of_the_program_waits_and_tells(tmp_path):
    script = """if True:
        import sys, time, numpy as np, minispore as ms
        from minispore.train import save_checkpoint, serialization
        write = serialization.write_whole
        serialization.write_whole = lambda *args: (time.sleep(0.3), write(*args))
        save_checkpoint({"w": ms.Tensor([1.0])}, sys.argv[1], async_save=True)
        """
    for name in ("x.ckpt", "no/x.ckpt"):
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], env=environment(), capture_output=True,
                              text=True, timeout=60)
        if name == "x.ckpt":
            assert (done.returncode, done.stderr) == (0, "") and load_checkpoint(tmp_path / name)
        else:
            assert "a checkpoint was NOT written" in done.stderr and "no/x.ckpt" in done.stderr


# ---- the newest --------------------------------------------------------------------------------------


def test_the_newest_whole_one(tmp_path):
    for name in ("CKP-1_9", "CKP-1_10", "CKP-2_1", "CKP_1-1_1", "CKP_1-1_2", "other-9_9", "CKP_1-3_3_breakpoint"):
        save_checkpoint({"w": Tensor([1.0])}, tmp_path / f"{name}.ckpt")
    assert latest_checkpoint(tmp_path).endswith("CKP_1-1_2.ckpt")
    for name in ("CKP_1-1_2", "CKP_1-1_1", "CKP-2_1"):
        file = tmp_path / f"{name}.ckpt"
        file.write_bytes(file.read_bytes()[:-3])
    with pytest.warns(UserWarning) as told:
        assert latest_checkpoint(tmp_path).endswith("CKP-1_10.ckpt")
    assert len(told) == 3 and "CKP_1-1_2.ckpt is skipped" in str(told[0].message) and "cut off" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for file in tmp_path.iterdir():
            file.write_bytes(b"")
        assert latest_checkpoint(tmp_path) is None
    with pytest.raises(ValueError, match="is empty"):
        load_training_state(tmp_path / "CKP-1_9.ckpt", Run().cell)
