"""Rejected by test_everybody_gets_what_its_left_neighbour_had: as it was, every rank waits to receive before it sends."""


def ring_shift(comm, x):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    came = comm.receive(x.shape, x.dtype, left).wait()
    comm.send(x, right).wait()
    return came
