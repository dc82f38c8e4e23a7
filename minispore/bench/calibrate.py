"""`minispore bench calibrate`: what this machine's ranks compute and send in a second, for the cost model of auto parallel.

    training.py         the training steps whose ops are timed
    calibrate_rank.py   what each rank does
    fitting.py          from times to rates
"""
import os
import platform
import sys
from math import inf, isfinite
from pathlib import Path

from minispore.bench.collectives import run
from minispore.bench.fitting import cluster_from
from minispore.launch import environment
from minispore.parallel.cost.cluster import Cluster

SHOWN = 16                  # ops in the table


def main(ranks: int = 2, save: str | None = None, seconds: float = 20.0) -> int:
    """Measure, print the table, write the cluster file; the exit code."""
    try:
        if ranks < 2:
            raise ValueError(f"-n {ranks}: links are between two ranks at least; use -n 2")
        if not (seconds > 0 and isfinite(seconds)):
            raise ValueError(f"--seconds {seconds:g} must be more than 0; 20 give steady figures")
        if save and not save.endswith(".json"):
            raise ValueError(f"--save {save}: a cluster file's name ends in .json, or MINISPORE_CLUSTER doesn't take it; "
                             "e.g. --save cluster.json")
        if save and not Path(save).absolute().parent.is_dir():
            raise ValueError(f"--save {save} can't be written: there is no folder {Path(save).parent}; make it first")
    except ValueError as e:
        print(f"minispore bench calibrate: {e}", file=sys.stderr)
        return 2
    found, code = run(ranks, {"seconds": seconds}, "calibrate_rank.py")
    if code:
        return code
    cores = environment.cores()
    source = f"minispore bench calibrate -n {ranks} on {processor()}, {cores} cores"
    cluster = cluster_from(found, memory() // max(ranks, cores), cores, source)
    if save:
        cluster.save(save)
    print(table(cluster, found))
    if ranks > cores:
        print(f"{ranks} ranks share {cores} core{'s' * (cores > 1)}, and each got only its part of them")
    if save:
        print(f"wrote {save}; MINISPORE_CLUSTER={save} uses it, and so does cluster={save!r}")
    return 0


def table(cluster: Cluster, found: dict) -> str:
    """The ops that took longest, the collectives, and the rest."""
    took: dict[str, float] = {}
    for op, *_, seconds in found["calls"]:
        took[op] = took.get(op, 0.0) + seconds
    device = cluster.device
    longest = sorted(device.measured, key=took.get, reverse=True)[:SHOWN]
    lines = [f"{cluster.source}, {found['rounds']} rounds", f"{'':24}{'a call, µs':>14}{'Gflop/s':>10}{'GB/s':>10}"]
    for op in longest:
        rate = device.measured[op]
        lines.append(f"{op[:23]:24}{1e6 * rate.overhead:14.1f}{giga(rate.flops):>10}{giga(rate.bytes):>10}")
    lines.append(f"{'ops without figures':24}{1e6 * device.launch:14.1f}{'':10}{giga(device.bandwidth):>10}    (there are "
                 f"{len(device.measured)} with figures)")
    lines.append(f"{'parameters, on top':24}{'':24}{giga(device.far):>10}")
    lines.append(f"{'':24}{'a message, µs':>14}{'GB/s':>20}")
    lines += [f"{op:24}{1e6 * link.alpha:14.1f}{giga(link.bandwidth):>20}" for op, link in cluster.measured.items()]
    lines.append(f"{'a run of a program':24}{1e6 * cluster.begin:14.1f}")
    return "\n".join(lines)


def giga(x: float) -> str:
    """
    >>> giga(2.345e9), giga(inf)
    ('2.35', '')
    """
    return "" if x == inf else f"{x / 1e9:.3g}"


def processor() -> str:
    """The processor's name, if the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def memory() -> int:
    """Bytes of this machine's memory; 8 GB where the system doesn't tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8_000_000_000
