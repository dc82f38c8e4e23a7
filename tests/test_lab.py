"""Thread ranks to look into: what a Result holds, what ranks print, and what is said of errors."""
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minispore import lab
from minispore.common.errors import CollectiveError
from minispore.communication import communicator, get_rank, init
from minispore.communication.selection import algorithm
from minispore.lab import ranks
from minispore.lab.on_ranks import on_ranks
from minispore.lab.output import Output
from minispore.lab.result import Rank, Result


def sum_of_ones():
    init()
    total = communicator().all_reduce(np.ones(8)).wait()
    if get_rank() == 2:
        only_here = "two"               # noqa: F841    looked at from outside
    return total[0]


@settings(max_examples=15)
@given(st.integers(1, 7), st.integers(0, 20))
def test_each_ranks_variables_and_values_stay(n, length):
    @ranks(n)
    def job():
        init()
        mine = np.arange(length) * get_rank()
        return mine.sum()
    assert len(job) == n and job.error is None and job.failed is None
    assert all(np.array_equal(rank.mine, np.arange(length) * r) for r, rank in enumerate(job))
    assert job.values == [mine.sum() for mine in job.mine]


def test_each_rank_keeps_its_record():
    with algorithm("ring"):
        job = ranks(4).run(sum_of_ones)
    assert [record.rank for record in job.records] == [0, 1, 2, 3]
    assert all(len(record.messages()) == 6 and {m.bytes for m in record.messages()} == {16} for record in job.records)
    sent = job.messages()
    assert len(sent) == 24 and [m.begin for m in sent] == sorted(m.begin for m in sent)


def test_a_rank_without_communication_leaves_an_empty_record():
    job = ranks(3).run(lambda: None)
    assert [(record.rank, record.size, record.events) for record in job.records] == [(0, 3, []), (1, 3, []), (2, 3, [])]


def test_arguments_are_handed_on():
    assert ranks(2).run(lambda a, b: a - b, 5, 3).values == [2, 2]


def test_the_repr_says_how_it_went():
    with algorithm("ring"):
        job = ranks(4).run(sum_of_ones)
    assert repr(job).splitlines() == ["4 thread ranks, ended well; 24 messages, 384 bytes",
                                      "values: [np.float64(4.0), np.float64(4.0), np.float64(4.0), np.float64(4.0)]",
                                      "variables: total, only_here"]
    assert repr(job[2]).splitlines()[0] == "rank 2's variables" and "  only_here = 'two'" in repr(job[2]).splitlines()
    assert repr(ranks(1).run(lambda: None)) == "1 thread rank, ended well; 0 messages, 0 bytes"


def test_long_variables_are_cut_and_tools_left_out():
    rank = Rank(0, {"x": list(range(100)), "np": np}, {"y": "it can't be pickled"})
    assert repr(rank).endswith(" …\n  y: it can't be pickled") and "np" not in repr(rank)
    assert len(repr(rank).splitlines()[1]) < 100
    assert repr(Rank(1, {}, {"*": "it was killed"})) == "rank 1's variables: it was killed"


def test_what_is_no_variable_is_said():
    job = ranks(4).run(sum_of_ones)
    with pytest.raises(AttributeError, match="rank 0 has no variable 'totl'; did you mean total"):
        _ = job[0].totl
    with pytest.raises(AttributeError, match=r"no rank has a variable 'loss'; there are: total, only_here$"):
        _ = job.loss
    with pytest.raises(AttributeError, match=r"ranks 0, 1, 3 have no variable 'only_here', rank 2 has one, as job\[2\]"):
        _ = job.only_here
    with pytest.raises(AttributeError, match="there are none, since nothing was assigned"):
        _ = ranks(1).run(lambda: None).x
    assert not hasattr(job, "_repr_html_") and not hasattr(job[0], "_repr_html_")


def test_many_ranks_without_a_variable_are_not_all_listed():
    result = Result("thread", [None] * 9, [Rank(r, {"x": 1} if r == 8 else {}, {}) for r in range(9)], [""] * 9, None, list)
    with pytest.raises(AttributeError, match=r"ranks 0, 1 … 7 have no variable 'x', rank 8 has one"):
        _ = result.x


def test_variables_are_found_by_completion():
    assert {"total", "only_here", "values", "messages"} <= set(dir(ranks(4).run(sum_of_ones)))


@pytest.mark.parametrize("place, error, says", [
    (4, IndexError, "there is no rank 4; the job's 4 ranks are 0 … 3"), (-1, IndexError, "there is no rank -1"),
    ("total", TypeError, "the list of total over all ranks is job.total"), (1.0, TypeError, r"give the number of a rank")])
def test_ranks_that_are_not_there(place, error, says):
    with pytest.raises(error, match=says):
        ranks(4).run(sum_of_ones)[place]


@pytest.mark.parametrize("n", [0, -1, 257, 2.0, True, "4", None])
def test_numbers_of_ranks_that_cannot_be(n):
    with pytest.raises(ValueError, match=r"give a whole number of ranks from 1 to 256, as in @ranks\(4\)"):
        ranks(n)


def test_a_helpers_and_an_outer_functions_variables_are_not_a_ranks():
    shared = 7

    def helper():
        inside = 1
        return inside

    @ranks(2)
    def job():
        own = helper() + shared
        _hidden = own
        return own
    assert vars(job[0]) == {"own": 8}


# ---- errors ----------------------------------------------------------------------------------------------

def breaks_on_one():
    init()
    before = get_rank() * 10                # noqa: F841    looked at from outside
    if get_rank() == 1:
        raise ValueError("not this one")
    communicator().all_reduce(np.ones(2)).wait()


def test_an_error_of_one_rank_is_raised_with_its_number():
    with pytest.raises(ValueError, match="not this one") as e:
        ranks(3)(breaks_on_one)
    assert e.value.__notes__ == ["on rank 1 of 3"]
    assert e.traceback[-1].name == "breaks_on_one"


def test_an_error_that_may_be_is_kept_with_the_variables():
    job = ranks(3, may_fail=True).run(breaks_on_one)
    assert isinstance(job.error, ValueError) and job.failed == 1 and job.values == [None] * 3
    assert job.before == [0, 10, 20] and repr(job).startswith("3 thread ranks, rank 1 failed first: ValueError; ")


def test_ctrl_c_is_raised_even_where_errors_may_be():
    def interrupted():
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        ranks(2, may_fail=True).run(interrupted)


def test_a_deadlock_says_who_waits_where():
    def program():
        init()
        if get_rank() != 1:
            communicator().barrier().wait()
    begun = time.monotonic()
    job = ranks(3, may_fail=True).run(program)
    said = str(job.error)
    assert isinstance(job.error, CollectiveError) and time.monotonic() - begun < 20
    assert all(f"rank {r}: " in said for r in range(3)) and "Barrier" in said and "test_lab.py" in said


def test_no_thread_of_a_failed_job_is_left():
    ranks(3, may_fail=True).run(breaks_on_one)
    until = time.monotonic() + 10
    while any(t.name.startswith("rank-") for t in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("rank-")]


# ---- what ranks print ------------------------------------------------------------------------------------

def test_lines_are_shown_whole_and_in_each_ranks_order(capsys):
    def program():
        for i in range(20):
            print("rank", get_rank_of_thread(), end=" ")
            time.sleep(0)
            print("line", i)
        print("to stderr", file=sys.stderr)
        print("without an end", end="")
    job = ranks(4).run(program)
    shown, errors = capsys.readouterr()
    for r in range(4):
        lines = [line for line in shown.splitlines() if line.startswith(f"[rank {r}] ")]
        assert lines == [f"[rank {r}] rank {r} line {i}" for i in range(20)] + [f"[rank {r}] without an end"]
        assert job.output[r] == "".join(f"rank {r} line {i}\n" for i in range(20)) + "to stderr\nwithout an end"
    assert sorted(errors.splitlines()) == [f"[rank {r}] to stderr" for r in range(4)]


def get_rank_of_thread():
    return int(threading.current_thread().name.removeprefix("rank-"))


def test_one_rank_alone_prints_plainly(capsys):
    ranks(1).run(lambda: print("just this"))
    assert capsys.readouterr().out == "just this\n"


def test_others_print_through(capsys):
    with Output(2) as output:
        print("from outside")
        sys.stdout.writelines(["two ", "pieces\n"])
        assert sys.stdout.encoding
    assert capsys.readouterr().out == "from outside\ntwo pieces\n" and output.texts() == ["", ""]


def test_the_streams_come_back_in_whatever_order_jobs_end():
    before = sys.stdout, sys.stderr
    first, second = Output(2), Output(2)
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert (sys.stdout, sys.stderr) != before
    second.__exit__()
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("value, chosen", [("1", "quick"), ("0", "full"), ("", "full"), ("yes", "full")])
def test_notebooks_are_fast_where_they_are_told_to(monkeypatch, value, chosen):
    monkeypatch.setenv("MINISPORE_FAST", value)
    assert lab.fast(full="full", quick="quick") == chosen


# ---- algorithms of a learner's -----------------------------------------------------------------------

@pytest.mark.parametrize("another", [lambda comm: comm.barrier(), lambda comm: comm.all_reduce(np.ones(3))])
def test_an_algorithm_that_waits_for_another_operation_is_told(another):
    def steps(link):
        another(communicator()).wait()
        yield []
    with pytest.raises(CollectiveError, match="the algorithm of ReduceScatter waits for another operation of its own rank"):
        on_ranks(2, steps)
