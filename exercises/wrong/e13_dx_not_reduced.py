"""Rejected by test_backward_equals_one_device: forgets that dx sums over the split hidden layer."""
import numpy as np


def strategies(p):
    return {"up": ((1, 1), (p, 1)), "down": ((1, p), (1, p))}


def cut(w1, w2, rank, p):
    return np.split(w1, p, axis=1)[rank], np.split(w2, p, axis=0)[rank]


def forward(comm, x, c1, c2):
    hidden = np.maximum(x @ c1, 0)
    return comm.all_reduce(hidden @ c2).wait(), (x, hidden)


def backward(comm, dy, kept, c1, c2):
    x, hidden = kept
    dhidden = (dy @ c2.T) * (hidden > 0)
    return dhidden @ c1.T, x.T @ dhidden, hidden.T @ dy
