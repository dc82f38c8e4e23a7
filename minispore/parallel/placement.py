"""Placement: what a tensor outside a program carries if it is one rank's piece of a logical tensor."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minispore.common.state import PARALLEL_DEFAULTS, current
from minispore.common.tensor import Tensor
from minispore.graph.compile import Compiled
from minispore.ops.control import Identity
from minispore.parallel.layout import TensorLayout, device_arrangement, local_shape, region
from minispore.parallel.mesh import Mesh


@dataclass(frozen=True)
class Placement:
    """How a logical tensor lies over the ranks: its `shape` is the logical one.

    batch: it is a batch of a dataset that every rank reads its own rows of.
    """
    mesh: Mesh
    shape: tuple[int, ...]
    layout: TensorLayout
    batch: bool = False

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of a rank's piece."""
        return local_shape(self.mesh, self.shape, self.layout)

    def region(self, rank: int) -> tuple[slice, ...]:
        """Where a rank's piece lies in the logical tensor."""
        return region(self.mesh, self.shape, self.layout, rank)

    def piece(self, logical: np.ndarray) -> np.ndarray:
        """This rank's piece, a copy."""
        return logical[self.region(current().rank)].copy()

    def arrangement(self) -> tuple[list[int], list, list[int]]:
        """MindSpore's tuple: (device matrix, tensor map, slice shape)."""
        return (*device_arrangement(self.mesh, self.layout), list(self.local_shape))

    def run(self, fn: Callable, args: Sequence, kwargs: dict):
        """An op or function of tensors of which some are pieces, as a program of its own, which knows how they lie."""
        state = current()
        before = state.compiler
        try:
            if before is None:                  # outside of the modes, or of the AutoParallel cell, that made the pieces
                from minispore.parallel.program import Compiler  # it makes Placements
                plain = {**PARALLEL_DEFAULTS, "device_num": self.mesh.n}
                state.compiler = state.single_ops.setdefault(self.mesh, Compiler(plain))
            return state.single_ops.setdefault((fn, getattr(fn, "strategy", None)), Compiled(fn))(*args, **kwargs)
        finally:
            state.compiler = before

    def full(self, tensor: Tensor) -> Tensor:
        """The logical tensor of which `tensor` is this rank's piece. A collective."""
        piece = Tensor.from_numpy(tensor._data(), replace(self, batch=False))      # of a batch programs return rows
        whole = self.run(Identity().shard(None, ((1,) * len(self.shape),)), [piece], {})
        return Tensor.from_numpy(whole._data())

    def __str__(self):
        return f"{self.shape} as {self.layout} on {self.mesh.n} ranks"
