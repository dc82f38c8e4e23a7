"""%%ranks, %%msrun and %%exercise in a shell of IPython: their options, their cells, and what is said of bad input."""
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from minispore.grade.exercise import find
from minispore.lab import check, hint, magics
from minispore.lab.result import Result


@pytest.fixture
def shell():
    made = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}, InteractiveShell={"colors": "nocolor"}))
    made.run_line_magic("load_ext", "minispore.lab")
    yield made
    InteractiveShell.clear_instance()


def cell(shell, line, *lines):
    """Run a cell with a magic, by its first line."""
    name, _, options = line.removeprefix("%%").partition(" ")
    shell.run_cell_magic(name, options, "\n".join(lines) + "\n")


def test_a_cell_runs_on_each_rank_with_the_notebooks_variables(shell, capsys):
    shell.user_ns["start"] = 10
    cell(shell, "%%ranks -n 3", "from minispore.communication import get_rank, init", "init()", "x = start + get_rank()", "x * 2")
    job = shell.user_ns["job"]
    assert job.x == [10, 11, 12] and job.values == [20, 22, 24] and not hasattr(job[0], "start")
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank 0] 20", "[rank 1] 22", "[rank 2] 24"]
    assert "x" not in shell.user_ns


def test_a_variable_that_is_assigned_again_is_a_ranks_own(shell):
    shell.user_ns["start"] = 10
    cell(shell, "%%ranks -n 2", "start = start")
    assert shell.user_ns["job"].start == [10, 10]


def test_four_ranks_unless_another_number_is_given(shell):
    cell(shell, "%%ranks", "x = 1")
    assert len(shell.user_ns["job"]) == 4


def test_a_semicolon_at_the_end_shows_nothing(shell, capsys):
    cell(shell, "%%ranks -n 2", "1 + 1;")
    assert capsys.readouterr().out == "" and shell.user_ns["job"].values == [2, 2]


def test_the_result_goes_where_it_is_told(shell):
    cell(shell, "%%ranks -n 1 --into mine", "x = 1")
    assert isinstance(shell.user_ns["mine"], Result) and "job" not in shell.user_ns


def test_an_error_is_raised_and_its_result_stays(shell):
    with pytest.raises(ZeroDivisionError) as e:
        cell(shell, "%%ranks -n 2", "x = 5", "y = x / 0")
    assert shell.user_ns["job"].x == [5, 5] and shell.user_ns["job"].error is e.value
    shown = "\n".join(e.value._render_traceback_())
    assert "----> 3 y = x / 0" in shown and "magics.py" not in shown


def test_an_error_that_may_be_is_told_in_a_line(shell, capsys):
    cell(shell, "%%ranks -n 2 --may-fail", "1 / 0")
    assert capsys.readouterr().err == "ZeroDivisionError: division by zero\n(kept in job.error)\n"


def test_ctrl_c_is_raised_even_where_errors_may_be(shell):
    with pytest.raises(KeyboardInterrupt):
        cell(shell, "%%ranks -n 1 --may-fail", "raise KeyboardInterrupt")


def test_a_cell_that_is_no_python_runs_nowhere(shell, capsys):
    with pytest.raises(SyntaxError) as e:
        cell(shell, "%%ranks -n 2", "print('here')", "x = = 1")
    assert e.value.lineno == 3 and capsys.readouterr().out == "" and "job" not in shell.user_ns


BAD = {"-n 0": "'0' must be a whole number of ranks from 1 to {most}", "-n 257": "'257' must be a whole number of ranks",
       "-n 2.5": "'2.5' must be a whole number", "-n -1": "'-1' must be a whole number of ranks",
       "-n": "argument -n: expected one argument",
       "--into 3x": "'3x' can't be the name of a variable", "--into class": "'class' can't be the name of a variable",
       "--many": "unrecognized arguments: --many", "--may": "unrecognized arguments: --may", "4": "unrecognized arguments: 4",
       '-n "4': r"""'-n "4' can't be read \(No closing quotation\)"""}
OF_MSRUN = {"-n 65": "'65' must be a whole number of ranks from 1 to 64",
            "--timeout 0": "'0' must be a number of seconds above 0",
            "--timeout nan": "'nan' must be a number of seconds", "--timeout soon": "'soon' must be a number of seconds",
            "--env X": "'X' must be NAME=VALUE", "--env 3=4": "'3=4' must be NAME=VALUE", "--env =4": "'=4' must be NAME=VALUE"}


@pytest.mark.parametrize("name, options, says", [
    *(("ranks", *bad) for bad in BAD.items()), *(("msrun", *bad) for bad in {**BAD, **OF_MSRUN}.items())])
def test_bad_options_are_told_with_the_right_ones(shell, name, options, says):
    with pytest.raises(UsageError, match=says.format(most=256 if name == "ranks" else 64)) as e:
        cell(shell, f"%%{name} {options}", "x = 1")
    assert f"%%{name}: " in str(e.value) and "It is written  %%" in str(e.value) and "job" not in shell.user_ns


@pytest.mark.parametrize("name", ["ranks", "msrun"])
def test_an_empty_cell_is_told(shell, name):
    with pytest.raises(UsageError, match="the cell is empty"):
        cell(shell, f"%%{name} -n 2", "  ")


@pytest.mark.parametrize("name", ["ranks", "msrun"])
def test_help_is_shown_and_nothing_run(shell, name, capsys):
    cell(shell, f"%%{name} --help", "raise ValueError")
    helped = capsys.readouterr().out
    shell.run_line_magic(name, "")
    assert "--may-fail" in helped and capsys.readouterr().out.strip() == helped.strip() and "job" not in shell.user_ns


def test_options_of_processes_are_read():
    options = magics.parse(magics.msrun_parser(), "-n 3 --timeout 2.5 --env A=1 --env B=x=y --env C= --may-fail --into runs", "x")
    assert vars(options) == {"n": 3, "timeout": 2.5, "env": [("A", "1"), ("B", "x=y"), ("C", "")], "may_fail": True,
                             "into": "runs"}


def test_a_cell_runs_on_processes_without_the_notebooks_variables(shell, capsys):
    shell.user_ns["start"] = 10
    cell(shell, "%%msrun -n 1 --env WORD='two words' --may-fail", "import os", "word = os.environ['WORD']", "start")
    job = shell.user_ns["job"]
    assert job.word == ["two words"] and "NameError: name 'start' is not defined" in job.output[0]
    shown = capsys.readouterr()
    assert "WORD='two words' msrun --worker_num=1" in shown.out and "kept in job.error" not in shown.err


# ---- exercises -------------------------------------------------------------------------------------------

@pytest.fixture
def course(tmp_path, monkeypatch):
    """A learner's folder with one exercise; its file."""
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "e01.py").write_text("old = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "exercises" / "e01.py"


def test_an_answer_is_kept_and_run(shell, course):
    cell(shell, "%%exercise E1", "new = 2  # …")
    assert course.read_text("utf-8") == "new = 2  # …\n" and shell.user_ns["new"] == 2
    assert [path.name for path in course.parent.iterdir()] == ["e01.py"]


def test_an_answer_that_fails_is_kept(shell, course):
    with pytest.raises(ZeroDivisionError):
        cell(shell, "%%exercise e01", "1 / 0")
    assert course.read_text() == "1 / 0\n"


def test_a_cell_that_is_no_python_is_kept_so_that_it_is_graded(shell, course):
    with pytest.raises(SyntaxError) as e:
        cell(shell, "%%exercise e01", "def f(:")
    assert e.value.lineno == 1 and course.read_text().strip() == "def f(:"
    assert "SyntaxError" in check("e01").results[0].message


@pytest.mark.parametrize("line, says", [("", "the name of an exercise stands behind it"), ("e01 e02", "the name of an exercise"),
                                        ("e99", "there is no exercise 'e99'.*There are: e01"), ("ring", "no exercise 'ring'")])
def test_names_of_no_exercise_are_told(shell, course, line, says):
    with pytest.raises(UsageError, match=says):
        cell(shell, f"%%exercise {line}".rstrip(), "x = 1")
    assert course.read_text() == "old = 1\n" and "x" not in shell.user_ns


def test_without_a_cell_the_use_is_told(shell):
    with pytest.raises(UsageError, match="the answer in the lines below"):
        shell.run_line_magic("exercise", "e01")


@pytest.mark.parametrize("name", ["e99", "", "ring", "e1.py"])
def test_only_exercises_are_graded_and_have_hints(name):
    for ask in (check, hint):
        with pytest.raises(ValueError, match="there is no exercise .*There are: e01, "):
            ask(name)


def test_nothing_is_graded_outside_a_course(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="`minispore learn` makes a folder"):
        check("e01")


@pytest.mark.slow
def test_an_answer_is_graded(course):
    course.write_text(find("e01").solution.read_text())
    assert check("1").passed
    course.write_text(find("e01").stub.read_text())
    assert check("e01").points == 0


@pytest.mark.parametrize("number", [0, -1, 99, "1", 1.5])
def test_hints_that_are_not_there(number):
    with pytest.raises(ValueError, match=r"e05 has hints 1 to \d+"):
        hint("e05", number)


def test_a_hint_is_shown_as_markdown():
    shown = hint("e05", 2)
    assert shown._repr_markdown_() == str(shown) == find("e05").hints()[1] != str(hint("e05"))
