"""Every exercise: its stub fails cleanly, its solution gets all points, each kept mistake is rejected by the test it names."""
import re

import pytest

from minispore.grade.exercise import exercises, stub
from minispore.grade.run import grade

ALL = exercises()
# Of each exercise one mistake in `make test`, the others in `make test-all`.
WRONG = [pytest.param(name, path, id=path.stem, marks=[pytest.mark.slow] * (place > 0))
         for name, exercise in ALL.items() for place, path in enumerate(exercise.wrong)]


def test_there_are_some():
    assert {"e01", "e05", "e13"} <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_what_belongs_to_an_exercise(name):
    exercise = ALL[name]
    assert exercise.stub.read_text() == stub(exercise.solution.read_text()), "run: python notebooks/build.py"
    assert sum(test.worth for test in exercise.listed()) == 10
    assert max(test.hint for test in exercise.listed()) <= len(exercise.hints())
    assert 2 <= len(exercise.wrong) <= 6


@pytest.mark.parametrize("name", ALL)
def test_the_solution_gets_all_points(name):
    result = grade(ALL[name], ALL[name].solution.read_text())
    assert result.passed, str(result)


@pytest.mark.parametrize("name", ALL)
def test_the_stub_fails_and_says_what_to_write(name):
    result = grade(ALL[name], ALL[name].stub.read_text())
    assert result.points == 0 and result.seconds < 20, str(result)
    assert all(re.search(rf"{ALL[name].label}: write \w+\(", r.message) for r in result.results), str(result)


@pytest.mark.parametrize(("name", "path"), WRONG)
def test_a_mistake_is_rejected_by_the_test_that_names_it(name, path):
    text = path.read_text()
    named = re.match(r'"""Rejected by (test_\w+): ', text)
    assert named, f"{path.name}'s first line must say which test rejects it"
    result = grade(ALL[name], text)
    assert named[1] in [r.name for r in result.failed], str(result)
    assert all(r.message and "TimeoutError" not in r.message for r in result.failed), str(result)


def test_names_of_products_may_be_ones_own():
    """A loop over `outer`, a helper `inner`: only numpy's are refused."""
    text = ALL["e03"].solution.read_text().replace("i0", "outer")
    loop, indent = "for j in range(len(target)):\n{0}    target[j] += factor * row[j]\n", " " * 24
    text = text.replace(loop.format(indent), "inner(target, factor, row)\n")
    text = text.replace("@numba.njit\ndef matmul", "@numba.njit\ndef inner(target, factor, row):\n    " + loop.format("    ")
                        + "\n\n@numba.njit\ndef matmul")
    assert text.count("inner(") == 2 and grade(ALL["e03"], text).passed


def test_buckets_may_be_filled_from_the_back():
    """As few as can be, and not those that filling from the front gives."""
    text = ALL["e09"].solution.read_text()
    begin, end = text.index("    buckets, room = [], -1"), text.index("    return buckets\n")
    text = text[:begin] + """    buckets, room = [], -1
    for i in reversed(range(len(sizes))):
        if sizes[i] > room:
            buckets.insert(0, [])
            room = most
        buckets[0].insert(0, i)
        room -= sizes[i]
""" + text[end:]
    result = grade(ALL["e09"], text)
    assert result.passed, str(result)
