"""For the tests of exercises: a communication algorithm of the learner's, run on thread ranks, with the record of it."""
from collections.abc import Callable, Iterator

import numpy as np

from minispore.communication import communicator, get_record, init
from minispore.communication.handle import Call, MessageHandle
from minispore.communication.record import Record
from minispore.lab.ranks import run_ranks


def on_ranks(n: int, steps: Callable[..., Iterator[list]], op: str = "ReduceScatter") -> list[Record]:
    """Run steps(link), a generator function such as those of communication/algorithms, on n thread ranks; the record of each.

    What they leave is in the arrays that they worked on. Errors are those of run_ranks, so a program in which all wait for one
    another ends with a CollectiveError at once.

    >>> from minispore.communication.algorithms import ring_all_gather
    >>> chunks = [[np.full(2, r if r == i else -1) for i in range(3)] for r in range(3)]
    >>> records = on_ranks(3, lambda link: ring_all_gather(link, chunks[link.rank]), "AllGather")
    >>> np.concatenate(chunks[0]).tolist(), sum(len(r.messages()) for r in records)
    ([0, 0, 1, 1, 2, 2], 6)
    """
    def program():
        init()
        comm = communicator()
        comm.sequence += 1
        call = Call(op, "", np.dtype(np.uint8), 0, "yours")
        MessageHandle(comm, call, comm.sequence, comm.sequence, steps, lambda: None).wait()
        return get_record()
    return run_ranks(program, n)


def add(dst: np.ndarray, src: np.ndarray) -> None:
    """dst += src: the `accumulate` of a sum, in plain numpy."""
    np.add(dst, src, out=dst)
