"""E8: what a data-parallel training step must do."""
import numpy as np

from minispore.communication import communicator, get_record, init
from minispore.grade import plain, points
from minispore.lab import run_ranks

TAKEN_AWAY = ["minispore.nn.wrap.cell_wrapper:broadcast_parameters"]
RATE = 0.1
RANKS = (1, 2, 3, 4, 7)


def loss_and_gradients(weights, x, y):
    """Mean squared error of tanh(x a) b: the mean over the rows."""
    a, b = weights
    hidden = np.tanh(x @ a)
    error = hidden @ b - y
    back = (2 * error / len(x)) @ b.T * (1 - hidden ** 2)
    return float((error ** 2).sum() / len(x)), [x.T @ back, hidden.T @ (2 * error / len(x))]


def problem(rows, seed=1):
    """Weights, and a batch of so many rows."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(3, 4)), rng.normal(size=(4, 2))], rng.normal(size=(rows, 3)), rng.normal(size=(rows, 2))


def serial(weights, x, y):
    """(the loss, the weights after the step) on one machine."""
    loss, gradients = loss_and_gradients(weights, x, y)
    return loss, [w - RATE * g for w, g in zip(weights, gradients, strict=True)]


def step_on(answer, rows):
    """The answer's step on ranks that have so many rows each: per rank (loss, weights, the rows it looked at, its calls)."""
    weights, x, y = problem(sum(rows))
    bounds = np.cumsum([0, *rows])

    def program():
        init()
        comm = communicator()
        mine = [w.copy() for w in weights]
        part = slice(bounds[comm.rank], bounds[comm.rank + 1])
        looked = []

        def watched(w, x, y):
            looked.append(len(x))
            with np.errstate(all="ignore"):
                return loss_and_gradients(w, x, y) if len(x) else (np.nan, [np.full_like(v, np.nan) for v in w])
        loss = answer.data_parallel_step(comm, watched, mine, x[part].copy(), y[part].copy(), RATE)
        calls = [(e.op, e.bytes) for e in get_record().collectives()]
        return loss, [plain(w, "float64") for w in mine], looked, calls
    return run_ranks(program, len(rows))


def check_weights(answer, rows):
    """All ranks have the weights of one machine, or the message says which hasn't."""
    weights, x, y = problem(sum(rows))
    _, expected = serial(weights, x, y)
    for rank, (_, got, *_) in enumerate(step_on(answer, rows)):
        for old, want, have in zip(weights, expected, got, strict=True):
            if not np.allclose(have, want, rtol=1e-11, atol=1e-12):
                moved, right = (have - old).flat[0], (want - old).flat[0]
                raise AssertionError(
                    f"{len(rows)} rank(s) with {', '.join(map(str, rows))} rows: on rank {rank} the first weight should move by "
                    f"{right:.6g}, as on one machine with all {sum(rows)} rows; it moved by {moved:.6g}, "
                    f"{moved / right:.4g} times as far")


@points(2, hint=1)
def test_same_start(answer):
    """the same start: all ranks have rank 0's weights, in place"""
    for p in RANKS:
        def program():
            init()
            comm = communicator()
            weights = [np.full((2, 3), comm.rank + 1.0), np.arange(4.0) + 10 * comm.rank]
            kept = list(weights)
            answer.same_start(comm, weights)
            return [plain(w, "float64") for w in kept]
        for rank, (a, b) in enumerate(run_ranks(program, p)):
            assert (a == 1).all(), f"on {p} ranks: rank {rank}'s first array should be rank 0's, all 1.0; it is {a.tolist()}"
            assert (b == np.arange(4.0)).all(), \
                f"on {p} ranks: rank {rank}'s second array should be rank 0's, [0, 1, 2, 3]; it is {b.tolist()}"


@points(2, hint=2)
def test_equal_shards(answer):
    """equal shards: the weights are one machine's"""
    for p in RANKS:
        check_weights(answer, (2,) * p)


@points(1, hint=2)
def test_loss_of_the_whole_batch(answer):
    """each rank returns the loss of the whole batch"""
    for p in RANKS:
        weights, x, y = problem(2 * p)
        expected, _ = serial(weights, x, y)
        for rank, (loss, *_) in enumerate(step_on(answer, (2,) * p)):
            got = float(plain(loss, "float64"))
            assert np.isclose(got, expected, rtol=1e-11), \
                f"{p} rank(s) with 2 rows each: rank {rank} should return the loss of all {2 * p} rows, {expected:.6f}; it " \
                f"returned {got:.6f}"


@points(2, hint=3)
def test_unequal_shards(answer):
    """unequal shards: one rank has more rows than another"""
    for rows in ((3, 1), (1, 4), (2, 3, 1), (1, 1, 1, 5), (3, 2, 2, 2, 2, 2, 2)):
        check_weights(answer, rows)


@points(2, hint=4)
def test_a_rank_without_rows(answer):
    """a rank without rows: it has nothing to add, but the others wait for it"""
    for rows in ((2, 0), (0, 3), (1, 0, 2), (0, 0, 4, 0)):
        check_weights(answer, rows)


@points(1, hint=5)
def test_gradients_travel_and_rows_do_not(answer):
    """each rank looks at its own rows, once; what it sends doesn't grow with the batch"""
    weights, *_ = problem(1)
    most = sum(w.nbytes for w in weights) + 64
    for rows in ((50, 50), (40, 30, 30)):
        for rank, (_, _, looked, calls) in enumerate(step_on(answer, rows)):
            assert looked == [rows[rank]], \
                f"rank {rank} has {rows[rank]} rows and should call loss_and_gradients once, on these; it called it on {looked}"
            sent = sum(nbytes for _, nbytes in calls)
            assert sent <= most, \
                f"rank {rank} gave {sent} bytes to collectives ({', '.join(op for op, _ in calls)}); the gradients and two " \
                f"numbers are {most - 48} bytes, so at most {most} were expected"
