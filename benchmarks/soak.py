"""Soak: a million small mixed collectives on 4 ranks, each result checked; memory must stay flat.

    python benchmarks/soak.py [--calls 1000000] [--ranks 4]

Kinds, lengths, dtypes, roots and groups are random, the same on all ranks; some wait at once, some are waited for later and in
another order, and some go in groups of half the ranks. Each line is a tenth of the calls: time, and over the ranks the most
resident memory, open files and shared memory in use. Exit code 1 if the last tenth's resident memory is more than 2 % above the
second's (the first still compiles and fills caches).
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

RANK = """
import os, sys, time
import numpy as np
from minispore.communication import GlobalComm, communicator, create_group, init
CALLS = int(sys.argv[1])
init()
world, MPI = communicator(), communicator().endpoint.transport.MPI
halves = [[r for r in range(world.size) if r % 2 == h] for h in range(min(2, world.size))]
for h, ranks in enumerate(halves):
    if world.rank in ranks:
        create_group(f"half{h}", ranks)
        half = communicator(f"half{h}")
rng = np.random.default_rng(0)
DTYPES, LENGTHS = ["float32", "int32", "float64", "int64"], [0, 1, 7, 64, 1000, 5000]

def begin(comm, kind, length, dtype, root):
    n, me = comm.size, comm.rank
    mine, total = np.full(length * n, me + 1, dtype), n * (n + 1) // 2
    if kind == 0:
        return comm.all_reduce(mine), lambda got: (got == total).all()
    if kind == 1:
        return comm.reduce_scatter(mine), lambda got: got.shape == (length,) and (got == total).all()
    if kind == 2:
        return comm.all_gather(mine[:length]), lambda got: (got.reshape(n, -1) == np.arange(1, n + 1)[:, None]).all()
    if kind == 3:
        return comm.broadcast(mine, root), lambda got: (got == root + 1).all()
    if kind == 4:
        return comm.reduce(mine, root, "max"), lambda got: me != root or (got == n).all()
    if kind == 5:
        return comm.all_to_all(mine), lambda got: (got.reshape(n, -1) == np.arange(1, n + 1)[:, None]).all()
    if kind == 6:
        return comm.gather(mine[:length], root), lambda got: me != root or got.shape == (length * n,)
    if kind == 7:
        return comm.scatter(mine, root), lambda got: (got == root + 1).all()
    return comm.barrier(), lambda got: got is None

def used():
    with open("/proc/self/status") as f:
        rss = next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmRSS"))
    heap = world.endpoint.transport.node.heap
    return np.array([rss, len(os.listdir("/proc/self/fd")), heap.taken / 2**20])

memory, left = [], []
for tenth in range(10):
    begun = time.perf_counter()
    for _ in range(CALLS // 10):
        kind, length, dtype, root, later, small = rng.integers(0, [9, len(LENGTHS), 4, 1 << 20, 4, 5])
        comm = half if small == 0 else world
        handle, right = begin(comm, kind, LENGTHS[length], DTYPES[dtype], root % comm.size)
        left.append((handle, right, kind))
        if later == 0 or len(left) > 8:
            for handle, right, kind in left[::-1]:
                assert right(handle.wait()), f"rank {world.rank}: a wrong result of kind {kind}"
            left.clear()
    most = np.empty(3)
    world.endpoint.transport.comm.Allreduce(used(), most, MPI.MAX)
    memory.append(most[0])
    if world.rank == 0:
        print(f"{(tenth + 1) * (CALLS // 10):>9,} calls  {(time.perf_counter() - begun) / (CALLS // 10) * 1e6:6.1f} us each  "
              f"{most[0]:6.1f} MB resident  {most[1]:3.0f} files  {most[2]:6.2f} MB shared", flush=True)
assert memory[-1] < 1.02 * memory[1], f"resident memory grew from {memory[1]:.1f} to {memory[-1]:.1f} MB"
if world.rank == 0:
    print(f"{10 * (CALLS // 10):,} collectives on {world.size} ranks, all right; resident memory flat")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "soak_rank.py")
        script.write_text(RANK)
        return subprocess.run([sys.executable, "-m", "minispore.launch.msrun", f"--worker_num={args.ranks}",
                               f"--log_dir={folder}", script, str(args.calls)]).returncode


if __name__ == "__main__":
    sys.exit(main())
