"""The lock-step executor: one thread runs all ranks' programs step by step, and does each collective jointly.

Deterministic, without threads or MPI, for any number of ranks; it can be stopped after any step and looked into.
"""
from collections.abc import Iterator

import numpy as np

from minispore.graph.ir import Node, Value
from minispore.ops.primitive import Primitive
from minispore.parallel.collectives import joint_move
from minispore.parallel.layout import TensorLayout, local_shape, region
from minispore.parallel.partition import Held, Partitioned, Step


class LockStep:
    """All ranks of a partitioned program. feed: {input or parameter value: logical array}.

    Iterating runs one step at a time and yields it; `held` has every value's pieces, one a rank.
    """

    def __init__(self, program: Partitioned, feed: dict[Value, np.ndarray]):
        self.program, self.mesh = program, program.mesh
        self.held: dict[Held, list[np.ndarray]] = {}
        constants = {h.value for s in program.steps for h in s.ins} | {h.value for h in program.results}
        self.feed = {v: v.array for v in constants if v.node is None and v.array is not None} | feed

    def pieces(self, held: Held) -> list[np.ndarray]:
        """All ranks' pieces of a value."""
        if held not in self.held:
            v, layout, _ = held
            regions = [region(self.mesh, v.shape, layout, r) for r in range(self.mesh.n)]
            starts = [tuple(s.start for s in at) for at in regions]
            cut = {start: self.feed[v][at] for start, at in zip(starts, regions, strict=True)}
            self.held[held] = [cut[start] for start in starts]
        return self.held[held]

    def __iter__(self) -> Iterator[Step]:
        for step in self.program.steps:
            self.take(step)
            yield step

    def take(self, step: Step) -> None:
        xs = list(map(self.pieces, step.ins))
        if isinstance(step.do, Node):
            made, known = [], {}                    # ranks with the very same pieces and op are computed once
            for r in range(self.mesh.n):
                arrays, op = [x[r] for x in xs], self.program.local_op(step.do, r)
                key = (r if op.effect else 0, op, *map(id, arrays))
                if key not in known:
                    known[key] = self.compute(step, op, r, arrays)
                made.append(known[key])
            for i, held in enumerate(step.outs):
                self.held[held] = [m[i] for m in made]
        else:
            for held, pieces in zip(step.outs, xs, strict=True):
                self.held[held] = joint_move(self.mesh, step.do, pieces, held.value.shape)

    def compute(self, step: Step, op: Primitive, rank: int, arrays: list[np.ndarray]) -> list[np.ndarray]:
        spec = op.infer(*arrays)
        out = op.compute(spec, [np.asarray(a, order="C") for a in arrays])
        outs = out if isinstance(out, list) else [out]
        for (v, layout, _), array in zip(step.outs, outs, strict=True):
            expected = local_shape(self.mesh, v.shape, layout)
            if array.shape != expected:
                raise AssertionError(f"{op} on rank {rank} made shape {array.shape}, the layout {layout} of {v.shape} says "
                                     f"{expected}; its local() or rule is wrong")
        return outs

    def run(self) -> list[np.ndarray]:
        """The results as logical arrays; AssertionError if ranks that hold the same piece disagree."""
        for _ in self:
            pass
        return [self.join(held) for held in self.program.results]

    def join(self, held: Held) -> np.ndarray:
        v, layout, _ = held
        return join(self.mesh, v.shape, layout, self.pieces(held))


def join(mesh, shape: tuple, layout: TensorLayout, pieces: list[np.ndarray]) -> np.ndarray:
    """The logical tensor; AssertionError where ranks that should hold the same piece hold different ones."""
    out = np.empty(shape, pieces[0].dtype)
    for rank, piece in enumerate(pieces):
        out[region(mesh, shape, layout, rank)] = piece
    for rank, piece in enumerate(pieces):
        if not np.array_equal(out[region(mesh, shape, layout, rank)], piece, equal_nan=piece.dtype.kind == "f"):
            raise AssertionError(f"rank {rank} holds another value than the ranks with the same piece of {shape} as {layout}")
    return out
