"""Rejected by test_one_message_a_rank_to_the_right: gathers all ranks' arrays, and keeps one of them."""
import numpy as np


def ring_shift(comm, x):
    return np.split(comm.all_gather(x).wait(), comm.size)[(comm.rank - 1) % comm.size]
