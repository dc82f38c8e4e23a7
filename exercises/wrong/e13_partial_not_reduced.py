"""Rejected by test_forward_equals_one_device: gives the rank's own part of y, not the sum over the ranks."""
import numpy as np


def strategies(p):
    return {"up": ((1, 1), (p, 1)), "down": ((1, p), (1, p))}


def cut(w1, w2, rank, p):
    return np.split(w1, p, axis=1)[rank], np.split(w2, p, axis=0)[rank]


def forward(comm, x, c1, c2):
    hidden = np.maximum(x @ c1, 0)
    return hidden @ c2, (x, hidden)


def backward(comm, dy, kept, c1, c2):
    x, hidden = kept
    dhidden = (dy @ c2.T) * (hidden > 0)
    return comm.all_reduce(dhidden @ c1.T).wait(), x.T @ dhidden, hidden.T @ dy
