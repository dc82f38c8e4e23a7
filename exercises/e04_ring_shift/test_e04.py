"""E4: what a ring shift must do."""
import numpy as np

from minispore import CollectiveError
from minispore.communication import communicator, get_record, init
from minispore.grade import plain, points
from minispore.lab import run_ranks

RANKS = (2, 3, 4, 7, 1)          # on one rank, a rank is its own neighbour
MAY_BEGIN = 1000        # tag of the word by which a receiver lets the sender go on


class Rendezvous:
    """A communicator whose send is complete when its receive has begun, as for large messages over MPI."""

    def __init__(self, comm):
        self._comm, self._words = comm, []
        self.rank, self.size = comm.rank, comm.size

    def send(self, x, to, tag=0):
        self._comm.send(x, to, tag)
        self._words.append(self._comm.receive((1,), "uint8", to, MAY_BEGIN + tag))
        return self._words[-1].then(lambda word: None)

    def receive(self, shape, dtype, source, tag=0):
        self._comm.send(np.ones(1, np.uint8), source, MAY_BEGIN + tag)
        return self._comm.receive(shape, dtype, source, tag)

    def finish(self):
        for word in self._words:
            word.wait()


def shift_on(p, answer, network=None):
    """(came, record) of each rank, which gave an array of its own."""
    def program():
        init()
        comm = communicator()
        used = network(comm) if network else comm
        came = answer.ring_shift(used, np.array([10.0 * comm.rank, 1.0]))
        if network:
            used.finish()
        return came, get_record()
    try:
        return run_ranks(program, p)
    except CollectiveError as error:
        where = f" where a send waits until its receive has begun (which shows below as tag {MAY_BEGIN})," if network else ""
        raise AssertionError(f"on {p} ranks{where} the shift should end, it doesn't: {error}") from None


def check_values(p, results):
    for rank, (came, _) in enumerate(results):
        assert came is not None, f"on {p} ranks, rank {rank} should return its left neighbour's array, it returns None"
        left, got = (rank - 1) % p, plain(came, "float64")
        assert got.shape == (2,), f"on {p} ranks, rank {rank} should return an array of shape (2,), its shape is {got.shape}"
        assert got[0] == 10 * left and got[1] == 1, (
            f"on {p} ranks, rank {rank} should get [{10 * left}. 1.], the array of rank {left}, on its left; it got {got}")


@points(3, hint=1)
def test_everybody_gets_what_its_left_neighbour_had(answer):
    for p in RANKS:
        check_values(p, shift_on(p, answer))


@points(3, hint=2)
def test_one_message_a_rank_to_the_right(answer):
    for p in RANKS[:-1]:            # one rank may keep its array, or send it to itself
        results = shift_on(p, answer)
        sent = [(m.rank, to) for _, record in results for m in record.messages() for to in m.peers]
        assert len(sent) == p, f"on {p} ranks there should be {p} messages, one from each rank; the record has {len(sent)}"
        wrong = [pair for pair in sent if pair[1] != (pair[0] + 1) % p]
        assert not wrong, (f"on {p} ranks, rank {wrong[0][0]} should send to rank {(wrong[0][0] + 1) % p}, on its right; it "
                           f"sent to rank {wrong[0][1]}")


@points(4, hint=3)
def test_also_where_a_send_waits_for_its_receive(answer):
    for p in RANKS[:-1]:
        check_values(p, shift_on(p, answer, Rendezvous))
