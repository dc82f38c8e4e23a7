"""E4 · Repair a ring shift.

Every rank hands its array to its right neighbour and gets its left neighbour's: rank r sends to r+1, the last rank to
rank 0. This is how somebody wrote it, and it deadlocks on any number of ranks:

    def ring_shift(comm, x):
        left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        came = comm.receive(x.shape, x.dtype, left).wait()
        comm.send(x, right).wait()
        return came

Write one that doesn't.

    comm: a communicator: comm.rank, comm.size, comm.send(array, to), comm.receive(shape, dtype, source); the last two
        return a handle at once, and its wait() returns when the message has gone, or has come
    x: an array, of one shape and dtype on all ranks
    returns: an array of that shape and dtype, the x of the left neighbour. On one rank the neighbour is the rank itself

On 3 ranks with x = [0.], [10.] and [20.] they return [20.], [0.] and [10.].

Graded: the values on 1, 2, 3, 4 and 7 ranks; the record (p messages on p ranks, each to the right neighbour); and the same
where a send waits until its receive has begun, as large messages do over MPI.
"""


def ring_shift(comm, x):
    """The left neighbour's x; x goes to the right neighbour."""
    raise NotImplementedError("E4: write ring_shift(comm, x), see above")
