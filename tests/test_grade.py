"""The grader: what no submission may get away with, unreadable files, classes, reports, and the command itself."""
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grade_attacks
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minispore.cli import main
from minispore.grade import command, report
from minispore.grade.exercise import exercises, learner_folder, stub
from minispore.grade.limits import Limits
from minispore.grade.report import Grade, Result
from minispore.grade.run import MARK, Cancelled, grade
from minispore.grade.submission import Submission, Unreadable, grade_apart, of_class, read
from minispore.lab import check, hint

E05 = exercises()["e05"]
RIGHT = grade_attacks.RIGHT
LINUX = pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
TEXT = st.text(max_size=40)


@pytest.fixture
def left_over(monkeypatch, tmp_path):
    """A function that tells which processes of this test's submissions are there: they pass VIRTUAL_ENV on, which is marked."""
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))

    def processes():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):             # of those that have ended, or are another user's
                has = Path(f"/proc/{pid}/environ").read_bytes()
                if f"{MARK}=".encode() in has and f"VIRTUAL_ENV={tmp_path}\0".encode() in has:
                    found.append(int(pid))
        return found
    return processes


# ---- submissions that should get nothing -------------------------------------------------------------

def attacked(name):
    """Grade an attack: it gets no point, is told why, within 20 seconds, and leaves no changed file."""
    attack, before = grade_attacks.ATTACKS[name], {path: path.read_bytes() for path in (E05.tests, E05.solution, E05.stub)}
    begun = time.monotonic()
    got = grade(E05, attack.text)
    assert time.monotonic() - begun < 20 and got.points == 0, str(got)
    assert any(re.search(attack.says, result.message, re.S) for result in got.failed), str(got)
    assert {path: path.read_bytes() for path in before} == before
    return got


@LINUX
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if attack.quick else pytest.mark.slow)
                                  for name, attack in grade_attacks.ATTACKS.items()])
def test_an_attack_gets_nothing(name, left_over):
    attacked(name)
    assert not left_over()


@LINUX
@pytest.mark.timeout(120)
def test_a_loop_costs_its_own_points_only(left_over):
    """One test that never ends fails; those before and after it keep their points."""
    text = RIGHT.replace("def reduce_scatter(link, chunks, accumulate):", "def right(link, chunks, accumulate):") + """
def reduce_scatter(link, chunks, accumulate):
    while chunks[0].dtype == np.int32:
        pass
    yield from right(link, chunks, accumulate)
"""
    got = grade(E05, text, limits=Limits().with_test(1.5))
    assert [r.name for r in got.failed] == ["test_any_reduction"], str(got)
    assert re.search(r"didn't end within 1.5 s; then it was at\n  line \d+: (while|pass)", got.failed[0].message)
    assert got.points == got.worth - got.failed[0].worth > 0 and not left_over()


def test_the_next_one_is_graded_as_usual(tmp_path):
    attacks = grade_attacks.ATTACKS
    texts = {"ann": attacks["os_exit"].text, "bob": RIGHT, "cid": attacks["edits_the_tests"].text, "dan": RIGHT}
    for name, text in texts.items():
        (tmp_path / f"{name}_e05.py").write_text(text)
    graded = command.class_of(of_class(tmp_path, [E05]), Limits(), quiet=True)
    assert [(g.who, g.points) for g in graded] == [("ann", 0), ("bob", 10), ("cid", 0), ("dan", 10)]


@pytest.mark.parametrize("place", ["neighbour/e05.py", "neighbour/exercises/e05.py", "neighbour_e05.py"])
def test_a_neighbours_work_can_not_be_read(tmp_path, place):
    theirs = tmp_path / place
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text(RIGHT)
    mine = tmp_path / "me_e05.py"
    mine.write_text(f"exec(open({str(theirs)!r}).read())\n")
    (got,) = (grade_apart(work) for work in of_class(tmp_path, [E05]) if work.who == "me")
    assert got.points == 0 and re.search(rf"may not read .*{re.escape(theirs.name)}", got.results[0].message), str(got)


@LINUX
def test_an_interrupt_ends_what_was_begun(left_over):
    told = threading.Event()
    threading.Timer(1.0, told.set).start()
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        grade(E05, "while True:\n    pass\n", limits=Limits().with_test(60), cancelled=told.is_set)
    assert time.monotonic() - begun < 10
    assert not left_over()


@LINUX
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_command_leaves_no_process(tmp_path, left_over, number):
    (tmp_path / "e05.py").write_text("while True:\n    pass\n")
    running = subprocess.Popen([sys.executable, "-m", "minispore.cli", "grade", str(tmp_path / "e05.py"), "--timeout", "60"])
    wait_until(left_over, 30)
    running.send_signal(number)
    assert running.wait(15) == (130 if number == signal.SIGTERM else -number)
    wait_until(lambda: not left_over(), 10)


@LINUX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_ended_class_leaves_no_process_and_loses_nothing(tmp_path, left_over, number):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "ann_e05.py").write_text(RIGHT)
    for name in ("bob", "cid", "dan"):
        (tmp_path / "class" / f"{name}_e05.py").write_text("while True:\n    pass\n")
    command = [sys.executable, "-m", "minispore.cli", "grade", "e05", "--folder", str(tmp_path / "class"), "--timeout", "60"]
    running = subprocess.Popen([*command, "--csv", tmp_path / "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "ann e05: 10 of 10\n"
    wait_until(left_over, 30)
    running.send_signal(number)
    _, err = running.communicate(timeout=20)
    wait_until(lambda: not left_over(), 10)
    running.stdout.close()
    running.stderr.close()
    if number != signal.SIGKILL:
        assert running.returncode == 130 and err == "minispore grade: stopped; 1 of 4 are graded\n"
        assert [row["who"] for row in csv.DictReader(io.StringIO((tmp_path / "csv").read_text()))] == ["ann"]


def test_a_closed_pipe_is_no_error():
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "minispore.cli", "grade", "e05", "--hint", "1"]
    done = subprocess.run(command, env=buffered, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def wait_until(true, seconds):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


# ---- files that are no submissions -------------------------------------------------------------------

@pytest.mark.parametrize(("data", "says"), [
    (b"", "is empty"), (b" \n\t\n", "is empty"), (b"x = '\xe9'", "no text in UTF-8"), (b"x = 1\0", "zero bytes"),
    (b"#" * (1 << 20) + b"\n", "more than 1,048,576 bytes"), (None, "is not there"),
])
def test_an_unreadable_file_gets_nothing_and_says_why(tmp_path, data, says):
    path = tmp_path / "e05.py"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(Unreadable, match=says):
        read(path)
    got = grade_apart(Submission(E05, path, "ann"))
    assert (got.points, got.worth, got.who) == (0, 10, "ann") and all(says in r.message for r in got.results)


def test_a_link_or_a_folder_is_no_submission(tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "e05.py").symlink_to(tmp_path / "right.py")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(Unreadable, match="a link to .*right.py; hand in the file itself"):
        read(tmp_path / "e05.py")
    with pytest.raises(Unreadable, match="folder.py is not there, or is no file"):
        read(tmp_path / "folder.py")


def test_a_mark_of_byte_order_is_no_fault(tmp_path):
    (tmp_path / "e05.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert read(tmp_path / "e05.py") == "x = 1\n"


@pytest.mark.parametrize(("text", "says"), [
    ("def reduce_scatter(link, chunks accumulate):\n    pass\n", r"(?s)SyntaxError.*line 1"),
    ("x = 1\n", "reduce_scatter"),
    ("reduce_scatter = 3\n", "reduce_scatter|callable"),
    ("import torch_that_is_not_there\n" + RIGHT, r"(?s)ModuleNotFoundError.*torch_that_is_not_there.*line 1"),
    ("def reduce_scatter(link):\n    yield []\n", "argument"),
    (RIGHT.replace("yield [", "yield None, ["), ""),
])
def test_a_mistake_is_told_with_its_line(text, says):
    got = grade(E05, text)
    assert got.points == 0 and all(re.search(says, r.message) and r.message for r in got.results), str(got)


# ---- a class -----------------------------------------------------------------------------------------

def test_a_class_folder_may_be_laid_out_in_four_ways(tmp_path):
    for place in ("ann/e05.py", "bob/exercises/e05.py", "cid_e05.py", "dan.py", "eve/other.txt", ".git/e05.py",
                  "__pycache__/e05.py", "notes.txt"):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RIGHT)
    found = {work.who: work.file and str(work.file.relative_to(tmp_path)) for work in of_class(tmp_path, [E05])}
    assert found == {"ann": "ann/e05.py", "bob": "bob/exercises/e05.py", "cid": "cid_e05.py", "dan": "dan.py", "eve": None}
    (tmp_path / "e05.py").write_text(RIGHT)                     # nobody's
    both = of_class(tmp_path, [E05, exercises()["e06"]])
    assert {(w.who, w.exercise.name, w.file is None) for w in both if w.who in ("ann", "dan")} == {
        ("ann", "e05", False), ("ann", "e06", True)}


@pytest.mark.parametrize("place", ["ann/E05.PY", "ann/e5.py", "ann_E5.py"])
def test_near_names_are_the_same_exercise(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(RIGHT)
    (work,) = of_class(tmp_path, [E05])
    assert work.who == "ann" and work.file.read_text() == RIGHT


def test_who_hands_in_twice_is_told(tmp_path):
    (tmp_path / "ann").mkdir()
    for place in ("ann/e05.py", "ann_e05.py"):
        (tmp_path / place).write_text(RIGHT)
    with pytest.raises(ValueError, match=r"ann has handed in e05 twice, as ann/e05\.py and ann_e05\.py; remove one of them"):
        of_class(tmp_path, [E05])


def test_a_class_folder_without_submissions_says_how_they_are_found(tmp_path, capsys):
    (tmp_path / "ann").mkdir()
    assert main(["grade", "e05", "--folder", str(tmp_path)]) == 2
    assert "holds no submission for e05; they are found as STUDENT/e05.py" in capsys.readouterr().err


def test_a_class_is_written_as_csv_json_and_junit(tmp_path, capsys):
    (tmp_path / "class" / "ann").mkdir(parents=True)
    (tmp_path / "class" / "ann" / "e05.py").write_text(RIGHT)
    (tmp_path / "class" / "=bob_e05.py").write_text(E05.stub.read_text())
    (tmp_path / "class" / "cid").mkdir()
    kinds = [word for kind in ("csv", "json", "junit") for word in (f"--{kind}", str(tmp_path / kind))]
    assert main(["grade", "e05", "--folder", str(tmp_path / "class"), *kinds]) == 0
    assert "e05: 3 submissions, 1 with all points, 3.3 on average" in capsys.readouterr().out
    rows = {row["who"]: row for row in csv.DictReader(io.StringIO((tmp_path / "csv").read_text()))}
    assert {who: row["points"] for who, row in rows.items()} == {"ann": "10", "'=bob": "0", "cid": "0"}
    assert "nothing was handed in" in rows["cid"]["message"] and "E5: write reduce_scatter" in rows["'=bob"]["message"]
    loaded = json.loads((tmp_path / "json").read_text())
    assert {g["who"]: (g["points"], g["worth"]) for g in loaded} == {"ann": (10, 10), "=bob": (0, 10), "cid": (0, 10)}
    suites = {suite.get("name"): suite for suite in xml.parse(tmp_path / "junit").getroot()}
    assert {name: suite.get("failures") for name, suite in suites.items()} == {"ann e05": "0", "=bob e05": "6", "cid e05": "6"}
    assert len(suites["ann e05"].findall("testcase")) == 6


@given(who=TEXT, message=TEXT, printed=TEXT)
def test_reports_are_well_formed_whatever_a_submission_says(who, message, printed):
    failed = Result("test_b", "b", 0, 3, message, 2, 0.1, printed)
    grades = [Grade("e05", "reduce scatter", who, [Result("test_a", "a", 1, 1), failed])]
    (row,) = csv.DictReader(io.StringIO(report.as_csv(grades)))
    assert (row["points"], row["of"], row["failed"]) == ("1", "4", "test_b") and row["message"][:1] not in tuple("=+-@")
    assert report.from_dict(json.loads(report.as_json(grades))[0]) == grades[0]
    suite = xml.fromstring(report.as_junit(grades).partition("?>")[2])[0]
    assert [case.get("name") for case in suite.findall("testcase/failure/..")] == ["test_b"]
    card = report.card(grades[0])
    xml.fromstring(f"<p>{card}</p>")
    assert "1 of 4 points" in card and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", report.text(grades[0]))


def test_one_message_for_neighbours_that_fail_alike():
    same = [Result(f"test_{name}", name, 0, 5, "no module torch") for name in "ab"]
    text = report.text(Grade("e05", "reduce scatter", "", same))
    assert text.count("no module torch") == 1 and text.count("0/5") == 2


# ---- the command -------------------------------------------------------------------------------------

def course(folder):
    """A learner's folder with one right answer and one stub."""
    (folder / "exercises").mkdir()
    (folder / "exercises" / "e05.py").write_text(RIGHT)
    (folder / "exercises" / "e06.py").write_text(exercises()["e06"].stub.read_text())
    return folder


def test_in_a_learners_folder_it_grades_what_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(course(tmp_path))
    assert main(["grade"]) == 1
    out = capsys.readouterr().out
    assert "e05 reduce scatter: 10 of 10 points" in out and "e06 all reduce: 0 of 10 points" in out and "e07" not in out
    assert main(["grade", "E5"]) == 0 and main(["grade", "7"]) == 1
    assert "there is no e07.py; nothing was handed in" in capsys.readouterr().out
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    assert learner_folder() == tmp_path / "exercises" and check("e05").points == 10


def test_json_goes_to_the_standard_output(tmp_path, capsys):
    (tmp_path / "e05.py").write_text(RIGHT)
    assert main(["grade", str(tmp_path / "e05.py"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["points"] == 10


@pytest.mark.parametrize(("words", "says"), [
    (["e77"], "there is no exercise 'e77'"), (["e05x"], "near: e05"), (["nothing.py"], "nothing.py: there is no such file"),
    (["answer.py"], "there is no exercise 'answer'"),
    (["e05", "--hint", "9"], "e05 has hints 1 to"), (["--hint", "1"], "name one exercise"),
    (["e05", "--timeout", "0"], "give seconds above 0"), (["e05", "--memory", "3"], "64 MB or more"),
    (["e05", "--folder", "not_there"], "there is no such folder"), (["e05", "e06", "answer.py"], "one exercise and one file"),
    (["e05.py", "--folder", "."], "leave e05.py out"),
    (["e05", "e05.py", "--csv", "no/such/folder.csv"], "--csv no/such/folder.csv: there is no folder no/such"),
    (["e05", "e05.py", "--junit", "."], "--junit .: that is a folder"),
    ([], "`minispore learn`"),
])
def test_bad_words_are_refused(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    Path("e05.py").write_text(E05.stub.read_text())
    Path("answer.py").write_text(RIGHT)
    assert main(["grade", *words]) == 2
    assert says in capsys.readouterr().err


@LINUX
def test_a_report_that_cannot_be_written_is_told_before_the_grading(tmp_path, monkeypatch, capsys):
    (tmp_path / "e05.py").write_text(RIGHT)
    monkeypatch.setattr(command, "alone", lambda *_: pytest.fail("it was graded"))
    assert main(["grade", str(tmp_path / "e05.py"), "--csv", "/proc/report.csv"]) == 2
    assert "/proc/report.csv can't be written" in capsys.readouterr().err


def test_a_hint_is_shown(capsys):
    assert main(["grade", "e05", "--hint", "1"]) == 0
    assert capsys.readouterr().out.strip() == str(hint("e05", 1)) == E05.hints()[0]
    with pytest.raises(ValueError, match="e05 has hints 1 to 4"):
        hint("e05", 0)


# ---- stubs -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "says"), [
    ("x = 1\n", "nothing is marked"), ("### BEGIN SOLUTION\nx = 1\n", "line 1: ### BEGIN SOLUTION has no partner"),
    ("x = 1\n### END SOLUTION\n", "line 2: ### END SOLUTION has no partner"),
])
def test_a_mark_without_a_partner_is_refused(text, says):
    with pytest.raises(ValueError, match=says):
        stub(text)


def test_a_faulty_exercise_is_the_teachers_and_said_so(tmp_path):
    """Tests that can't be loaded take no points: it raises."""
    (tmp_path / "e05_reduce_scatter").mkdir()
    broken = replace(E05, folder=tmp_path / "e05_reduce_scatter")
    broken.tests.write_text("from minispore.grade.points import points\nno_such_name\n\n"
                            "@points(3)\ndef test_a(answer):\n    pass\n")
    with pytest.raises(RuntimeError, match="e05: .*no_such_name"):
        grade(broken, RIGHT)
