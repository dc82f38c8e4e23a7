"""What each rank of `minispore bench calibrate` does: python calibrate_rank.py WHAT.json RESULT.json. Rank 0 writes the result.

All ranks run the same at once, so that they compete for memory and cores as in a real job; each of a program's calls is timed
where it stands in it, with the caches as the calls before left them. Programs take turns, so that a machine that gets slower or
faster does so for all of them.
"""
import gc
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

import minispore as ms
from minispore import Tensor
from minispore.bench import training
from minispore.common.state import current
from minispore.communication import communicator, init
from minispore.graph.execute import Program
from minispore.graph.ir import Graph
from minispore.graph.overlap import Start, Wait
from minispore.ops.elementwise import Neg
from minispore.ops.linear import MatMul
from minispore.ops.primitive import Spec
from minispore.parallel.collectives import (
    AllGatherOver,
    AllReduceOver,
    AllToAllOver,
    Between,
    HaloOver,
    PermuteOver,
    ReduceScatterOver,
)
from minispore.parallel.cost.compute import far_bytes, float_size, size_of
from minispore.parallel.simulator.program import exchange_of

F32 = np.dtype(np.float32)
SIZES = [4 ** k for k in range(3, 11)]          # float32 values of a message: 256 bytes … 4 MiB
ROUNDS = 5, 200                                 # at least, at most


@dataclass
class Timed:
    """A program and what its calls took: a row a run."""
    name: str
    program: Program
    inputs: list[np.ndarray]
    step: Callable | None = None                # a training step, of which it is the program; called as a whole, too
    rows: list[np.ndarray] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


def main(what: str, result: str) -> None:
    with open(what) as file:
        o = json.load(file)
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    comm = communicator()
    MPI = comm.endpoint.transport.MPI
    world = MPI.COMM_WORLD
    few = o["seconds"] < 5
    made = [Timed(name, program_of(step, inputs), [x.asnumpy() for x in inputs], lambda s=step, x=inputs: s(*x))
            for name, step, inputs in training.steps(few)]
    made += [Timed(str(graph.nodes[1].op), Program(graph), [np.ones(v.shape, v.dtype) for v in graph.inputs])
             for graph in exchanges(comm.rank, comm.size, SIZES[::3] if few else SIZES)]
    for t in made:
        for _ in range(2):                      # the first time isn't like the others
            run(t, world)
        t.rows.clear(), t.whole.clear()
    gc.collect()
    gc.disable()
    begun, rounds = perf_counter(), 0
    while rounds < ROUNDS[0] or (rounds < ROUNDS[1] and world.bcast(perf_counter() - begun < o["seconds"])):
        for t in made:
            run(t, world)
        rounds += 1
    found = {"ranks": comm.size, "rounds": rounds, "calls": [], "collectives": [], "begin": []}
    for t in made:
        everybody = world.gather(np.array(t.rows))
        whole = world.gather(t.whole)
        if comm.rank == 0:
            note(t, np.array(everybody), np.array(whole), found)
    if comm.rank == 0:
        with open(result, "w") as file:
            json.dump(found, file)


def program_of(step: Callable, inputs: list[Tensor]) -> Program:
    """The program that a cell's call makes and runs."""
    step.compile_and_run(*inputs)
    (((program, _),),) = step._compiled.programs[current()].values()
    return program


def run(t: Timed, world) -> None:
    """One run in which each call is timed, and one as a whole; before them one, so that the caches are as steps leave them."""
    program = t.program
    if t.step:
        t.step()
    for mine, given in zip(program.inputs, t.inputs, strict=True):
        np.copyto(mine, given)
    moments = np.empty((len(program.calls), 2))
    world.Barrier()
    with np.errstate(all="ignore"):
        for i, (call, out, ins, _) in enumerate(program.calls):
            begin = perf_counter()
            call(out, *ins)
            moments[i] = begin, perf_counter()
    t.rows.append(moments)
    for target, value, _ in program.updates:
        np.copyto(target, value)
    if t.step:
        world.Barrier()
        begin = perf_counter()
        t.step()
        t.whole.append(perf_counter() - begin)


def note(t: Timed, everybody: np.ndarray, whole: np.ndarray, found: dict) -> None:
    """Put into `found` what a program's times say. everybody: begins and ends, of (rank, run, call)."""
    took = np.mean([typical(rows[..., 1] - rows[..., 0]) for rows in everybody], 0)
    begun = {}                                  # collectives under way: {their Start: (place, node)}
    for i, (_, _, _, node) in enumerate(t.program.calls):
        op, bytes = node.op, size_of((*node.ins, *node.outs))
        if isinstance(op, Start):
            begun.setdefault(id(op), (i, node))         # calls that move it on while others compute have its node, too
        elif isinstance(op, Between | Wait):
            first, node = begun[id(op.begun)] if isinstance(op, Wait) else (i, node)
            what = exchange_of(node.op.op if isinstance(op, Wait) else op, node, len(everybody))
            between = [k for k in range(first + 1, i) if not isinstance(t.program.calls[k][3].op, Start)]
            found["collectives"].append([what.op, what.bytes, added(everybody, first, between, i)])
        elif t.step:
            found["calls"].append([op.name, op.flops(*node.ins), bytes, far_bytes(node), float_size(node), float(took[i])])
    if t.step:
        found["begin"].append([float(np.mean([typical(row[:, None]) for row in whole])), float(took.sum())])


def added(everybody: np.ndarray, first: int, between: list[int], last: int) -> float:
    """Seconds that a collective adds: from when the last rank is there, and has computed what is computed in between, until all
    are done."""
    computed = (everybody[:, :, between, 1] - everybody[:, :, between, 0]).sum(2)
    ready = (everybody[:, :, first, 0] + computed).max(0)
    return float(typical((everybody[:, :, last, 1].max(0) - ready)[:, None])[0])


def typical(rows: np.ndarray) -> np.ndarray:
    """What each call takes, the mean over the fastest quarter of the runs: what else the machine does only makes them longer.
    Whole runs are left out, so that the calls' seconds add up to a run's.

    >>> typical(np.array([[1.0, 2.0], [1.0, 9.0], [2.0, 2.0], [1.0, 4.0], [3.0, 0.5]])).tolist()
    [1.0, 2.0]
    """
    return rows[np.argsort(rows.sum(1))[:max(len(rows) // 4, 1)]].mean(0)


def exchanges(rank: int, n: int, sizes: list[int]) -> Iterator[Graph]:
    """Programs with one collective each, of float32 tensors: what it moves has just been computed, and what it gives is read.

    An AllReduce is there as it is waited for at once, of one tensor and of several, and as gradients' is: begun before and waited
    for behind something else that is computed.
    """
    ranks = tuple(range(n))
    for size in sizes:
        wide = n * max(size // n // 16, 1)
        parts = [(size // 2,), (size // 4,), (size // 4,)]
        yield exchange(AllReduceOver(ranks), [(size,)], [(size,)])
        yield exchange(AllReduceOver(ranks), parts, parts)
        yield exchange(AllReduceOver(ranks), parts, parts, meanwhile=128)
        yield exchange(PermuteOver(ranks, (rank - 1) % n, ((rank + 1) % n,)), [(size,)], [(size,)])
        yield exchange(HaloOver(ranks, 1, tuple(8 * k - 1 for k in range(n)), 10, 8, rank), [(2, 8, size // 16)],
                       [(2, 10, size // 16)])
        for dim in range(2):
            piece = 16 * n, wide
            yield exchange(AllGatherOver(ranks, dim), [piece], [resized(piece, dim, n)])
            yield exchange(ReduceScatterOver(ranks, dim), [piece], [resized(piece, dim, 1, n)])
            yield exchange(AllToAllOver(ranks, dim, 1 - dim), [piece], [resized(resized(piece, dim, n), 1 - dim, 1, n)])


def resized(shape: tuple, dim: int, times: int, over: int = 1) -> tuple:
    return (*shape[:dim], shape[dim] * times // over, *shape[dim + 1:])


def exchange(op: Between, shapes: list[tuple], outs: list[tuple], meanwhile: int = 0) -> Graph:
    """meanwhile: the side of matrices whose product is computed while it is under way."""
    graph = Graph()
    graph.inputs = [graph.value(shape, F32) for shape in shapes]
    fresh = [graph.add(Neg(), [x], Spec(x.shape, F32)).outs[0] for x in graph.inputs]
    spec = [Spec(shape, F32) for shape in outs]
    got = graph.add(op, fresh, spec if len(spec) > 1 else spec[0]).outs
    if meanwhile:
        square = graph.value((meanwhile, meanwhile), F32)
        graph.inputs.append(square)
        graph.add(MatMul(), [square, square], Spec(square.shape, F32))
    graph.outputs = [graph.add(Neg(), [x], Spec(x.shape, F32)).outs[0] for x in got]
    return graph


if __name__ == "__main__":
    main(*sys.argv[1:])
