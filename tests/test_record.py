"""The record's ring: what is kept, what a reader gets, and that it survives its rank."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minispore.communication import communicator, get_record, init
from minispore.communication.record import Record, load_folder
from minispore.communication.ring import ALL, DTYPE_IDS, EVENTS, FULL, NUMBER, OP_IDS, TEXT_BYTES
from minispore.lab import run_ranks

FLOAT = DTYPE_IDS[np.dtype("float32")]
posix = pytest.mark.skipif(sys.platform == "win32", reason="no MPI, no SIGKILL there")


def begun(record, sequence, op="AllReduce", peer=ALL):
    return record.begin(OP_IDS[op], record.group("world", range(record.size)), sequence, FLOAT, 3, peer, 12,
                        record.intern("ring"), record.intern("grads"))


def test_what_is_written_is_read(tmp_path):
    record = Record(1, 3, tmp_path / "record_1.ring")
    record.end(begun(record, 7))
    slot = begun(record, 7, "send", 2)
    record.waits(slot)
    call, message = record.events
    assert (call.rank, call.group, call.sequence, call.op, call.dtype, call.count) == (1, "world", 7, "AllReduce", "float32", 3)
    assert (call.peers, call.bytes, call.algorithm, call.detail, call.line) == ((0, 2), 12, "ring", "grads", "")
    assert 0 < call.begin <= call.end and record.seconds() == pytest.approx(call.end - call.begin, abs=1e-9)
    assert message.peers == (2,) and message.end == 0 and message.line.startswith("test_record.py:")
    assert record.collectives() == [call] and record.messages() == [message] and record.links() == {(1, 2)}
    (loaded,) = load_folder(tmp_path)
    assert (loaded.rank, loaded.size, loaded.events) == (1, 3, record.events)
    record.save(tmp_path / "record.json")
    assert Record.load(tmp_path / "record.json").events == record.events


def test_the_oldest_events_go_first(tmp_path):
    record = Record(0, 2, tmp_path / "record_0.ring", capacity=8)
    old, took = begun(record, 0), {}
    for i in range(1, 21):
        slot = begun(record, i)
        record.end(slot)
        took[i] = record.events[-1].end - record.events[-1].begin
    record.end(old)                                             # its row is another event's now
    assert [e.sequence for e in record.events] == list(range(13, 21))
    assert record.seconds() == pytest.approx(sum(took.values()), abs=1e-8)      # of those that went, too; times are floats
    assert [e.sequence for e in Record.load(tmp_path / "record_0.ring").events] == list(range(14, 21))
    record.clear()
    assert record.events == [] and record.seconds() == 0
    begun(record, 21)
    assert [e.sequence for e in record.events] == [21]


def test_rows_written_from_outside_count():
    record = Record(0, 2)
    begun(record, 1)
    record.rows[1], record.rows[1, NUMBER] = record.rows[0], 2
    record.header[EVENTS] = 2
    assert len(record.events) == 2 and begun(record, 2) == 2


def test_texts_that_find_no_room():
    record = Record(0)
    assert record.intern("") == 0 and record.intern("x" * TEXT_BYTES) == FULL
    ids = [record.intern(f"{i:01000}") for i in range(300)]
    assert ids[-1] == FULL and record.intern(f"{0:01000}") == ids[0] != FULL
    assert record.texts()[FULL] == "..." and record.texts()[ids[1]] == f"{1:01000}"
    record.begin(OP_IDS["Barrier"], record.group("y" * 2000, [0]), 1, FLOAT, 0, ALL, 0, 0, ids[-1])
    (event,) = record.events
    assert (event.group, event.peers, event.detail) == ("...", (), "...")


def test_names_of_any_kind():
    record = Record(0, 2)
    name = "a\tb\n\0é\udc80"
    record.begin(OP_IDS["Barrier"], record.group(name, [0, 1]), 1, FLOAT, 0, ALL, 0)
    assert record.events[0].group == "a\tb\n\0é\\udc80" and record.events[0].peers == (1,)


def test_what_is_no_record(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no record_<rank>.ring"):
        load_folder(tmp_path)
    Record(0, 1, tmp_path / "record_0.ring")
    os.truncate(tmp_path / "record_0.ring", 5000)
    with pytest.raises(ValueError, match="was cut"):
        load_folder(tmp_path)
    (tmp_path / "record_0.ring").write_text("something\n")
    with pytest.raises(ValueError, match="neither a ring nor"):
        load_folder(tmp_path)


@posix
def test_it_survives_kill_9(tmp_path):
    code = ("import os, signal, sys\nfrom minispore.communication.record import Record\n"
            "from minispore.communication.ring import ALL, OP_IDS\nr = Record(2, 4, sys.argv[1])\n"
            "s = r.begin(OP_IDS['AllGather'], r.group('g', [0, 2]), 5, 10, 3, ALL, 12)\nr.waits(s)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n")
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "record_2.ring"], timeout=60)
    assert done.returncode == -9
    (record,) = load_folder(tmp_path)
    (event,) = record.events
    assert (record.rank, record.size, event.op, event.peers, event.end, event.line) == (2, 4, "AllGather", (0,), 0, "<string>:6")


def test_thread_ranks_know_how_they_ended():
    def program():
        init()
        communicator().barrier().wait()
        return get_record()
    assert [r.state for r in run_ranks(program, 2)] == [2, 2]


def msrun(folder, code, n=2, **env):
    Path(folder, "program.py").write_text("import os, signal\nfrom minispore.communication import communicator, init\n" + code)
    return subprocess.run([sys.executable, "-m", "minispore.launch.msrun", f"--worker_num={n}", "--log_dir=logs", "program.py"],
                          cwd=folder, env=os.environ | env, capture_output=True, text=True, timeout=60)


@posix
def test_ranks_of_a_killed_job_leave_their_rings(tmp_path):
    (tmp_path / "logs").mkdir()
    Record(7, 8, tmp_path / "logs" / "record_7.ring")          # of an earlier job
    done = msrun(tmp_path, "import numpy as np\ninit()\nc = communicator()\n"
                 "if c.rank == 1:\n    c.receive(1, 'int64', 0, 3).wait()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
                 "never = c.receive(3, 'int64', 1, 4)\nc.send(np.ones(1, 'int64'), 1, 3)\nnever.wait()\n")
    assert done.returncode == 137, done.stderr
    records = load_folder(tmp_path / "logs")
    assert [(r.rank, r.size, r.state) for r in records if r.rank == 1] == [(1, 2, 0)] and len(records) == 2
    assert [(e.op, e.end > 0) for e in records[1].collectives()] == [("Receive", True)]
    never = records[0].collectives()[0]
    assert (never.op, never.peers, never.sequence, never.end) == ("Receive", (1,), 4, 0)
    assert not list((tmp_path / "logs").glob("*.json"))


@posix
def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    done = msrun(tmp_path, "init()\ncommunicator().barrier().wait()\nos.environ.pop('MINISPORE_RECORD')\n",
                 MINISPORE_RECORD=str(tmp_path / "file"))
    assert done.returncode == 0 and (done.stdout + done.stderr).count("can't be written") == 1
