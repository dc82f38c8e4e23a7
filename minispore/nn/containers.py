"""Cells that hold a list of cells: SequentialCell runs them in turn, CellList only keeps them."""
from collections import OrderedDict

from minispore.nn.cell import Cell


class _Holder(Cell):
    """What both have in common: access by position, names "0", "1", … ."""

    def __init__(self, *args, auto_prefix=True):
        super().__init__(auto_prefix=auto_prefix)
        cells = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple, OrderedDict)) else args
        for name, cell in cells.items() if isinstance(cells, OrderedDict) else enumerate(cells):
            self._insert(str(name), cell)

    def _insert(self, name, cell):
        if not isinstance(cell, Cell):
            raise TypeError(f"{type(self).__name__}: item {name} is a {type(cell).__name__}; all must be Cells")
        self.insert_child_to_cell(name, cell)

    def append(self, cell) -> "_Holder":
        """Add a cell at the end."""
        self._insert(str(len(self)), cell)
        return self

    def __len__(self):
        return len(self._cells)

    def __iter__(self):
        return iter(list(self._cells.values()))

    def __getitem__(self, index):
        cells = list(self._cells.values())
        if isinstance(index, slice):
            return type(self)(cells[index], auto_prefix=False)
        if not -len(cells) <= index < len(cells):
            raise IndexError(f"{type(self).__name__}: index {index} of {len(cells)} cells")
        return cells[index]


class SequentialCell(_Holder):
    """Runs its cells one after the other (MindSpore: `nn.SequentialCell`).

    >>> from minispore import Tensor, nn
    >>> nn.SequentialCell(nn.ReLU(), nn.Flatten())(Tensor([[-1.0, 2.0]])).tolist()
    [[0.0, 2.0]]
    """

    def construct(self, x):
        for cell in self._cells.values():
            x = cell(x)
        return x


class CellList(_Holder):
    """A list of cells whose parameters belong to the network (MindSpore: `nn.CellList`)."""

    def extend(self, cells) -> "CellList":
        """Add several at the end."""
        for cell in cells:
            self.append(cell)
        return self
