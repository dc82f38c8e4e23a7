"""Rejected by test_a_rank_without_rows: a rank without rows returns, and the others wait for it."""
import numpy as np


def same_start(comm, weights):
    """Give all ranks rank 0's weights, in place."""
    for w in weights:
        w[...] = comm.broadcast(w, 0).wait()


def data_parallel_step(comm, loss_and_gradients, weights, x, y, learning_rate):
    """One step on the ranks' rows together; returns the loss of the whole batch."""
    rows = len(x)
    if not rows:
        return 0.0
    loss, gradients = loss_and_gradients(weights, x, y)
    # The sum over this rank's rows, whose sum over the ranks is that of the whole batch.
    total_loss, total_rows = comm.all_reduce(np.array([loss * rows, rows], np.float64)).wait()
    for w, g in zip(weights, gradients, strict=True):
        w -= learning_rate * comm.all_reduce(g * rows).wait() / total_rows
    return float(total_loss / total_rows)
