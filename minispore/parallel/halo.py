"""Halos: what a rank's op needs beyond its own piece of a split dim, such as the neighbouring rows of a convolution.

An op says which indices its slices need (`Primitive.windows`). A halo step puts them in place of the piece: as windows of
one length for all ranks, which may overlap, and hold zeros where they reach beyond the tensor. Laid side by side they are
a tensor like any other, of the same layout.
"""
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from minispore.graph.ir import Node
from minispore.ops.primitive import Piece, Primitive
from minispore.ops.rule import Rule
from minispore.parallel.layout import TensorLayout, local_shape
from minispore.parallel.mesh import Mesh
from minispore.parallel.redistribution import LATENCY, Move
from minispore.parallel.sharding import Assignment


@dataclass(frozen=True)
class Halo(Move):
    """Piece k of `dim`, of `length` indices, becomes the indices begins[k] … begins[k] + size - 1 of the whole."""
    begins: tuple[int, ...] = ()
    size: int = 0
    length: int = 0

    def shape(self, shape: tuple) -> tuple[int, ...]:
        """Of all windows side by side, for a tensor of this shape."""
        return (*shape[:self.dim], self.size * len(self.begins), *shape[self.dim + 1:])


def halos(mesh: Mesh, node: Node, rule: Rule, assignment: Assignment, ins: list[TensorLayout]) -> Iterator[tuple[int, Halo]]:
    """(input, halo) for every split dim of which a slice needs other indices than its own."""
    if type(node.op).windows is Primitive.windows:
        return
    for factor, axes in assignment.items():
        n = mesh.count(axes)
        tables = [node.op.windows(rule, {factor: Piece(k, n)}) for k in range(n)] if n > 1 else [{}]
        for i, d in tables[0]:
            begins, size = tuple(t[i, d][0] for t in tables), tables[0][i, d][1]
            own = node.ins[i].shape[d] // n
            if size != own or begins != tuple(k * own for k in range(n)):
                yield i, Halo("halo", axes, d, -1, ins[i], ins[i], begins, size, own)


def halo_cost(mesh: Mesh, node: Node, rule: Rule, assignment: Assignment, ins: list[TensorLayout]) -> float:
    """As in redistribution.py: values sent a rank, plus latency."""
    cost = 0.0
    for i, halo in halos(mesh, node, rule, assignment, ins):
        cost += LATENCY + max(halo.size - halo.length, 0) * prod(local_shape(mesh, node.ins[i].shape, ins[i])) / halo.length
    return cost
