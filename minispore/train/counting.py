"""Which rows of an evaluation's batch count: some only fill a shard up to the length of the others."""
import numpy as np

from minispore.common.state import current
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten


class Counted:
    """The rows of a batch that count, and what keeps them.

    Where each rank runs its own program, it leaves out its own rows that don't count. Where all run one program on a batch
    of which each holds rows (semi-auto and auto mode), they all have to go on with the same rows: as soon as one doesn't
    count, every rank takes the whole batch, without it and in the dataset's order, and the first rank counts it.

    marks: the rows' valid marks; all, none: of the marks; mine: how many rows this rank gives to the metrics; ranks: those
    whose rows make up the batch, in order of the shards; () if that is all ranks.
    """

    def __init__(self, inputs: list[Tensor], marks: np.ndarray, world):
        self.marks, self.ranks, self._rows, me = marks, (), None, current().rank
        batch = next((t.layout for t in inputs if t.layout is not None and t.layout.batch), None)
        if current().compiler is not None and world:
            self.ranks = batch.mesh.group(me, batch.layout.dims[0]) if batch is not None else (me,)
        if len(self.ranks) > 1:
            shards = world.all_gather(np.asarray(marks, bool)[None]).wait()[list(self.ranks)]
            if not shards.all():
                numbers = np.arange(shards.size).reshape(shards.shape).T      # of the logical rows, in the dataset's order
                self._rows = numbers[shards.T]
        whole = self._rows is not None
        self.all, self.none = not whole and bool(np.all(marks)), not whole and not np.any(marks)
        self.mine = int(np.sum(marks)) if not whole else len(self._rows) if me == self.ranks[0] else 0

    def has(self, tensor: Tensor) -> bool:
        """Whether it has a row for each of the batch's."""
        batch = self._rows is None or (tensor.layout is not None and tensor.layout.batch)
        return batch and tensor.shape[:1] == self.marks.shape

    def keep(self, outputs):
        """The rows that count, of all tensors in a nest of them."""
        if self.all:
            return outputs
        leaves, shape = flatten(outputs, is_tensor)
        return unflatten(shape, [Tensor.from_numpy(t._data()[self.marks] if self._rows is None else t.full()._data()[self._rows])
                                 for t in leaves])
