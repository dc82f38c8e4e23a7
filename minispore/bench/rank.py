"""What each rank of `minispore bench collectives` does: python rank.py WHAT.json RESULT.json. Rank 0 writes the result.

Contestants take turns, round by round, so that a machine that gets slower or faster does so for all of them.
"""
import gc
import json
import os
import sys
from datetime import timedelta
from statistics import median
from time import perf_counter

import numpy as np

from minispore.bench.contestants import contestants, elements, expected, values
from minispore.communication import communicator, init

ROUND = 0.005           # seconds a turn should take at least: as many calls are in it, so that its arrays come into the caches
CALLS = 200             # but no more than that
ROUNDS = 3, 2000        # at least, at most


def main(what: str, result: str) -> None:
    with open(what) as file:
        o = json.load(file)
    init()
    comm = communicator()
    notes: list[str] = []
    gloo = start_gloo(comm, result + ".gloo", notes) if "gloo" in o["algorithms"] else None
    rows = []
    for op in o["ops"]:
        begun = perf_counter()
        for nbytes in o["sizes"]:
            rows += measure(op, nbytes, comm, o["algorithms"], gloo, o["seconds"], notes)
        if comm.rank == 0:
            print(f"measured {op} in {perf_counter() - begun:.1f} s", flush=True)
    if gloo is not None:
        gloo.distributed.destroy_process_group()
    if comm.rank == 0:
        with open(result, "w") as file:
            json.dump({"rows": rows, "notes": list(dict.fromkeys(notes))}, file)


def start_gloo(comm, path: str, notes: list[str]):
    """torch with a gloo group of all ranks; None, and a note, where torch isn't installed or gloo doesn't come up."""
    try:
        import torch
        import torch.distributed
    except ImportError:
        notes.append("gloo: torch isn't installed, so it isn't measured")
        return None
    torch.set_num_threads(1)
    trouble = ""
    try:
        torch.distributed.init_process_group("gloo", init_method=f"file://{os.path.abspath(path)}", rank=comm.rank,
                                             world_size=comm.size, timeout=timedelta(seconds=60))
    except (RuntimeError, ValueError) as e:
        trouble = f"rank {comm.rank}: {str(e).splitlines()[0]}"
    told = [t for t in comm.endpoint.transport.comm.allgather(trouble) if t]
    if told:
        notes.append(f"gloo: torch is installed, but its ranks don't find each other ({told[0]}), so it isn't measured")
    return None if told else torch


def measure(op: str, nbytes: int, comm, names, gloo, seconds: float, notes: list[str]) -> list[dict]:
    """A row for each contestant, of about `seconds` each."""
    count = elements(nbytes, op, comm.size)
    made = contestants(op, count, comm, names, gloo)
    if "shared" in names and not any(c.name == "shared" for c in made):
        notes.append("shared: MPI ranks of this job share no memory" if comm.room is None else
                     f"shared: too little shared memory for {4 * count} bytes a rank; /dev/shm would have to be larger")
    MPI = comm.endpoint.transport.MPI
    world, MAX = MPI.COMM_WORLD, MPI.MAX
    made = [c for c in made if world.allreduce(check(c, op, count, comm, notes), MPI.LAND)]
    for c in made:
        c.x[...] = 0                # sums in place stay what they are
    for _ in range(2):              # the first time isn't like the others
        one = [world.allreduce(timed(c, 1, world), MAX) for c in made]
    calls = [max(1, min(CALLS, int(ROUND / t))) for t in one]
    turn = sum((k + 1) * t for k, t in zip(calls, one, strict=True))
    rounds = max(ROUNDS[0], min(ROUNDS[1], int(seconds * len(made) / turn)))
    times = np.empty((len(made), rounds))
    gc.collect()
    gc.disable()
    for r in range(rounds):
        for i, c in enumerate(made):
            times[i, r] = timed(c, calls[i], world)
    gc.enable()
    slowest = np.empty_like(times)
    world.Allreduce(times, slowest, MAX)
    return [{"op": op, "ranks": comm.size, "bytes": 4 * count, "algorithm": c.name, "seconds": median(slowest[i]),
             "rounds": rounds, "calls": calls[i]} for i, c in enumerate(made)]


def timed(c, calls: int, world) -> float:
    """Seconds a call takes this rank when all begin together. A call before them isn't timed: the caches hold what the contestant
    before left there."""
    with c.around():
        c.call()
        world.Barrier()
        begun = perf_counter()
        for _ in range(calls):
            c.call()
        return (perf_counter() - begun) / calls


def check(c, op: str, count: int, comm, notes: list[str]) -> bool:
    """Whether it can do that at all; RuntimeError if it does it wrongly."""
    if c.name == "copy":
        return True
    c.x[...] = values(op, count, comm.rank, comm.size)
    comm.endpoint.transport.MPI.COMM_WORLD.Barrier()
    with c.around():
        try:
            got = c.call()
        except (RuntimeError, NotImplementedError, AttributeError) as e:
            if c.name != "gloo":
                raise
            notes.append(f"gloo: this torch can't do {op} with it ({str(e).splitlines()[0]})")
            return False
    want = expected(op, count, comm.rank, comm.size)
    if got.shape != want.shape or (got != want).any():
        first = np.flatnonzero(got != want)[0] if got.shape == want.shape else 0
        raise RuntimeError(f"{op} of {4 * count} bytes by {c.name!r}: rank {comm.rank} expected {want[first]} at {first} of "
                           f"shape {want.shape}, and got {got[first]} of shape {got.shape}; its times would mean nothing")
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
