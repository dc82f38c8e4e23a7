"""What becomes of measured rows: bandwidths, a table, CSV, a plot, a selection table.

A row is a dict: op, ranks, bytes, algorithm, seconds, rounds, calls; complete() adds algbw, busbw (GB/s) and times_mpi.
"""
import csv
from itertools import groupby

from minispore.communication import selection
from minispore.communication.algorithms import ALGORITHMS

COLUMNS = ["op", "ranks", "bytes", "algorithm", "seconds", "algbw", "busbw", "times_mpi", "rounds", "calls"]


def bandwidths(op: str, n: int, nbytes: int, seconds: float) -> tuple[float, float]:
    """(algorithm's, bus) bandwidth in bytes/s as nccl-tests has them. nbytes: of the whole vector.

    The second is the first times what every rank has to send at least, in vectors: comparable between ops and numbers of ranks.

    >>> bandwidths("AllReduce", 4, 100, 1.0), bandwidths("Broadcast", 4, 100, 1.0)
    ((100.0, 150.0), (100.0, 100.0))
    """
    factor = {"AllReduce": 2 * (n - 1) / n, "ReduceScatter": (n - 1) / n, "AllGather": (n - 1) / n, "AlltoAll": (n - 1) / n,
              "Broadcast": 1.0, "copy": 1.0}[op]
    return nbytes / seconds, nbytes / seconds * factor


def complete(rows: list[dict]) -> list[dict]:
    """The rows with bandwidths, and with how many times as fast as MPI's own each is."""
    mpi = {(r["op"], r["bytes"]): r["seconds"] for r in rows if r["algorithm"] == "mpi"}
    done = []
    for r in rows:
        what = "copy" if r["algorithm"] == "copy" else r["op"]
        algbw, busbw = bandwidths(what, r["ranks"], r["bytes"], r["seconds"])
        done.append({**r, "algbw": algbw / 1e9, "busbw": busbw / 1e9, "times_mpi": mpi[r["op"], r["bytes"]] / r["seconds"]})
    return done


def table(rows: list[dict]) -> str:
    """Two blocks an op, a line a size: µs (and times as fast as MPI's); bus bandwidth."""
    lines = []
    for op, some in groupby(rows, lambda r: r["op"]):
        some = list(some)
        names = list(dict.fromkeys(r["algorithm"] for r in some))
        cells = {(r["bytes"], r["algorithm"]): r for r in some}
        sizes = sorted({r["bytes"] for r in some})
        for title, width, show in ((f"{op}, µs (× MPI)", 17, lambda r: f"{r['seconds'] * 1e6:.1f} ({r['times_mpi']:.2f})"),
                                   ("  bus GB/s", 17, lambda r: f"{r['busbw']:.3g}")):
            lines.append(f"{title:<24}" + "".join(f"{name:>{max(width, len(name) + 1)}}" for name in names))
            for size in sizes:
                found = [(name, cells.get((size, name))) for name in names]
                lines.append(f"{readable(size):>12}{'':12}" + "".join(
                    f"{show(r) if r else '–':>{max(width, len(name) + 1)}}" for name, r in found))
        lines.append("")
    return "\n".join(lines)


def readable(nbytes: int) -> str:
    """
    >>> readable(8), readable(4096), readable(64 << 20), readable(1500)
    ('8 B', '4 KiB', '64 MiB', '1500 B')
    """
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def write_csv(rows: list[dict], path) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def plot(rows: list[dict], path) -> None:
    """A column an op: time above, bus bandwidth below, over the size."""
    from matplotlib.figure import Figure
    by_op = {op: list(some) for op, some in groupby(rows, lambda r: r["op"])}
    figure = Figure((1 + 4 * len(by_op), 8), layout="constrained")
    axes = figure.subplots(2, len(by_op), squeeze=False)
    for column, (op, some) in zip(axes.T, by_op.items(), strict=True):
        for name in dict.fromkeys(r["algorithm"] for r in some):
            mine = [r for r in some if r["algorithm"] == name]
            style = {"linestyle": "--", "color": "gray"} if name == "copy" else {"marker": "."}
            column[0].plot([r["bytes"] for r in mine], [r["seconds"] * 1e6 for r in mine], label=name, **style)
            column[1].plot([r["bytes"] for r in mine], [r["busbw"] for r in mine], label=name, **style)
        column[0].set(title=f"{op}, {some[0]['ranks']} ranks", ylabel="µs", xscale="log", yscale="log")
        column[1].set(xlabel="bytes", ylabel="bus bandwidth, GB/s", xscale="log", ylim=0)
        column[0].legend()
    figure.savefig(path)


def selection_table(rows: list[dict]) -> dict[str, list]:
    """For each op rows (most ranks, most bytes of a rank's array, locality, algorithm), the first that fits holds: what was
    fastest up to each size, and behind it what holds where nothing was measured.

    An array is taken to be private, as most are.
    """
    made = {}
    for op, some in groupby(rows, lambda r: r["op"]):
        some = list(some)
        n, measured = some[0]["ranks"], {r["algorithm"] for r in some}
        private = "private" if "private" in measured else "shared"
        names = {name: name for table in ALGORITHMS.values() for name in table} | {private: "shared"}
        found = []
        for where in ("shared", "messages") if private in measured else ("messages",):
            chosen = [(r["bytes"] // (n if op == "AllGather" else 1), names[r["algorithm"]], r["seconds"]) for r in some
                      if r["algorithm"] in names and (where == "shared" or names[r["algorithm"]] != "shared")]
            best = [min(group, key=lambda c: c[2])[:2] for _, group in groupby(sorted(chosen), lambda c: c[0])]
            runs = [list(group) for _, group in groupby(best, lambda c: c[1])]
            found += [[n, None if run is runs[-1] else run[-1][0], where, run[0][1]] for run in runs]
        made[op] = found + selection.DEFAULT[op]
    return made


def save_selection(rows: list[dict], path) -> None:
    """Write the selection table."""
    selection.save(selection_table(rows), path)
