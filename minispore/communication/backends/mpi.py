"""Ranks as processes over mpi4py, which is imported here and nowhere else."""
import os
import secrets
import time

import numpy as np

from minispore.communication import segment
from minispore.communication.backends import start
from minispore.communication.backends.start import shared_files
from minispore.communication.board import ENDED, FAILED, STATE, Board
from minispore.communication.room import Node

SPIN = 200              # polls before a waiting rank gives its core away, where there is a core for each rank
NEED = 1 << 20          # bytes of shared memory a rank: the directory, and rooms for a few groups
PATIENCE = 0.002        # seconds of polling before it sleeps between polls

LAUNCHERS = (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMIX_RANK", None),
             ("SLURM_PROCID", "SLURM_NTASKS"))


def launched() -> tuple[int, int] | None:
    """(rank, size) as the variables of mpiexec, mpirun or srun say, or None without such a launcher."""
    for rank, size in LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


class MpiTransport:
    """This process's end (see endpoint.Transport). Messages are bytes: MPI needn't know our dtypes."""
    locality = "messages"

    def __init__(self):
        said = launched()
        with start.watched(said[1] if said else 1):
            from mpi4py import MPI
            self.MPI = MPI
            self.comm = MPI.COMM_WORLD.Dup()        # our tags can't meet those of a user's own MPI calls
        self.rank, self.size = self.comm.rank, self.comm.size
        if said and said[1] > 1 and self.size == 1:
            raise RuntimeError(
                f"the launcher says this is rank {said[0]} of {said[1]}, but MPI says it is alone: the launcher belongs "
                f"to another MPI than mpi4py ({MPI.Get_library_version().splitlines()[0]}). Start with `msrun`, or with "
                "the mpiexec that came with minispore's environment")
        local = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.hosts = self.comm.allgather(local.bcast(self.rank))        # of each rank, the first rank that is on its machine
        self.board, self.window = self._board(local)
        self.node = self._node(local)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.spin = SPIN if self.node_size <= cores else 0
        self.polls = 0

    def _node(self, local):
        """The memory in which the ranks of this node meet, if it can be had on all of them."""
        if local.size == 1 or not local.allreduce(segment.possible(), self.MPI.LAND):
            return None
        ranks = local.allgather(self.rank)
        token = local.bcast(secrets.token_hex(8))
        return Node(self.rank, ranks, segment.join(self.rank, ranks, token, local.allgather, NEED), self.board)

    def _board(self, node):
        """In memory that the ranks of this node share."""
        self.node_rank, self.node_size = node.rank, node.size
        window = self.MPI.Win.Allocate_shared(self.size * Board.BYTES if node.rank == 0 else 0, 8, comm=node)
        memory = np.frombuffer(window.Shared_query(0)[0], np.uint8)
        if node.rank == 0:
            memory[:] = 0
        node.Barrier()                              # all have found what they share, so it needs no name any more
        if node.rank == 0:
            for path in shared_files():
                os.unlink(path)
        here = {r for r in node.allgather(self.rank)}
        return Board(memory, self.rank, frozenset(range(self.size)) - here), window

    def host(self, rank):
        return self.hosts[rank]

    def isend(self, data, dest, tag):
        return self.comm.Isend([data.view(np.uint8), self.MPI.BYTE], dest, tag)

    def irecv(self, buffer, source, tag):
        return self.comm.Irecv([buffer.view(np.uint8), self.MPI.BYTE], source, tag)

    def test(self, requests):
        complete = self.MPI.Request.Testall(requests)
        if complete:
            self.polls = 0
        return complete

    def idle(self, waited):
        self.polls += 1
        if self.polls < self.spin:
            return
        if waited < PATIENCE:
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
        else:
            time.sleep(5e-5)

    def unclaimed(self):
        known = [r for r in range(self.size) if r not in self.board.unknown]
        while (self.board.rows[known, STATE] < ENDED).any():        # the others would be waited for in MPI's end anyway
            time.sleep(1e-3)
        status = self.MPI.Status()
        found = any(self.comm.Iprobe(self.MPI.ANY_SOURCE, self.MPI.ANY_TAG, status) for _ in range(20))
        if not found or (self.board.rows[known, STATE] == FAILED).any():
            return []
        return [(status.source, status.tag, status.Get_count(self.MPI.BYTE))]

    def end(self, failed):
        self.board.set(FAILED if failed else ENDED)
