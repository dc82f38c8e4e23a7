"""Rejected by test_unequal_shards: averages the ranks' means as if all had equally many rows."""
import numpy as np


def same_start(comm, weights):
    """Give all ranks rank 0's weights, in place."""
    for w in weights:
        w[...] = comm.broadcast(w, 0).wait()


def data_parallel_step(comm, loss_and_gradients, weights, x, y, learning_rate):
    """One step on the ranks' rows together; returns the loss of the whole batch."""
    rows = len(x)
    loss, gradients = loss_and_gradients(weights, x, y) if rows else (0.0, [np.zeros_like(w) for w in weights])
    total_loss = comm.all_reduce(np.array([loss], np.float64)).wait()[0]
    for w, g in zip(weights, gradients, strict=True):
        w -= learning_rate * comm.all_reduce(g).wait() / comm.size
    return float(total_loss / comm.size)
