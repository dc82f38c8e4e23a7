"""Cells that hold cells: SequentialCell runs them in turn, CellList and CellDict only keep them."""
from collections import OrderedDict

from minispore.nn.cell import Cell


class _Holder(Cell):
    """What the two with an order have in common: access by position, names "0", "1", … .

    Parameters are named by their place. When cells move because others come or go, their parameters' names move too, but not
    those of optimizer states made before.
    """

    def __init__(self, *args, auto_prefix=True):
        super().__init__(auto_prefix=auto_prefix)
        cells = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple, OrderedDict)) else args
        for name, cell in cells.items() if isinstance(cells, OrderedDict) else enumerate(cells):
            self.insert_child_to_cell(str(name), self._checked(name, cell))

    def _checked(self, name, cell):
        if not isinstance(cell, Cell):
            raise TypeError(f"{type(self).__name__}: item {name} is a {type(cell).__name__}; all must be Cells")
        return cell

    def append(self, cell) -> "_Holder":
        """Add a cell at the end."""
        self.insert(len(self), cell)
        return self

    def extend(self, cells) -> "_Holder":
        """Add several at the end."""
        for cell in list(cells):
            self.append(cell)
        return self

    def insert(self, index, cell) -> None:
        """Add a cell before the one at `index`, as a list does."""
        self._checked(index, cell)
        cells = list(self._cells.items())
        cells.insert(index, (None, cell))
        self._keep(cells)

    def __setitem__(self, index, cell):
        cells = list(self._cells.items())
        name = cells[self._position(index)][0]
        outer = self._outer()                       # before the old one, perhaps the only one, is gone
        self._cells[name] = self._checked(index, cell)
        self._name(cell, None, name, outer)
        self._changed()

    def __delitem__(self, index):
        cells = list(self._cells.items())
        del cells[index if isinstance(index, slice) else self._position(index)]
        self._keep(cells)

    def __iadd__(self, cells):
        return self.extend(cells)

    def __len__(self):
        return len(self._cells)

    def __iter__(self):
        return iter(list(self._cells.values()))

    def __contains__(self, cell):
        return any(c is cell for c in self._cells.values())

    def __getitem__(self, index):
        cells = list(self._cells.values())
        if isinstance(index, slice):
            return type(self)(cells[index], auto_prefix=False)
        return cells[self._position(index)]

    def _position(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError(f"{type(self).__name__}: index {index} of {len(self)} cells")
        return index % len(self)

    def _keep(self, cells):
        """Take these (name, cell) for the cells; numbers for names are counted anew. A new cell has no name yet."""
        outer = self._outer()
        self._cells.clear()
        for i, (old, cell) in enumerate(cells):
            name = str(i) if old is None or old.isdecimal() else old
            self._cells[name] = cell
            self._name(cell, old, name, outer)
        self._changed()

    def _outer(self) -> str:
        """What stands before this cell's own part in its parameters' names."""
        for name, cell in self._cells.items():
            for place, p in cell.parameters_and_names():
                if p.name.endswith(f"{name}.{place}"):
                    return p.name.removesuffix(f"{name}.{place}")
        return ""

    def _name(self, cell, old, new, outer):
        """Rename a cell's parameters for its new place."""
        cell.__dict__["_scope_name"] = new
        if not self.auto_prefix or old == new:
            return
        for place, p in cell.parameters_and_names():
            if old is None:
                p.name = f"{outer}{new}.{p.name}"
            elif p.name == f"{outer}{old}.{place}":
                p.name = f"{outer}{new}.{place}"


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
    """A list of cells whose parameters belong to the network (MindSpore: `nn.CellList`).

    >>> from minispore import nn
    >>> cells = nn.CellList([nn.Dense(2, 2)])
    >>> cells += [nn.ReLU(), nn.Dense(2, 1)]
    >>> del cells[1]
    >>> [p.name for p in cells.get_parameters()]
    ['0.weight', '0.bias', '1.weight', '1.bias']
    """


class CellDict(Cell):
    """A dict of cells whose parameters belong to the network (MindSpore: `nn.CellDict`).

    >>> from minispore import nn
    >>> heads = nn.CellDict({"left": nn.Dense(2, 1), "right": nn.ReLU()})
    >>> list(heads), "left" in heads, heads.left is heads["left"]
    (['left', 'right'], True, True)
    """

    def __init__(self, *args, auto_prefix=True):
        super().__init__(auto_prefix=auto_prefix)
        self.update(*args)

    def update(self, cells=()) -> None:
        """Add the cells of a dict or of (name, cell) pairs."""
        for name, cell in dict(cells).items():
            self[name] = cell

    def __setitem__(self, name, cell):
        taken = name in self.__dict__ or hasattr(type(self), str(name))
        if not isinstance(name, str) or not name or "." in name or taken:
            raise ValueError(f"CellDict: the name {name!r} must be a text without '.' that isn't an attribute of cells already")
        if not isinstance(cell, Cell):
            raise TypeError(f"CellDict: item {name!r} is a {type(cell).__name__}; all must be Cells")
        self.insert_child_to_cell(name, cell)

    def __getitem__(self, name):
        if name not in self._cells:
            raise KeyError(f"CellDict has no cell {name!r}; it has {', '.join(self._cells) or 'none'}")
        return self._cells[name]

    def __delitem__(self, name):
        self.pop(name)

    def pop(self, name) -> Cell:
        """Take a cell out and return it."""
        cell = self[name]
        del self._cells[name]
        self._changed()
        return cell

    def clear(self) -> None:
        self._cells.clear()
        self._changed()

    def keys(self):
        return self._cells.keys()

    def values(self):
        return self._cells.values()

    def items(self):
        return self._cells.items()

    def __len__(self):
        return len(self._cells)

    def __iter__(self):
        return iter(list(self._cells))

    def __contains__(self, name):
        return name in self._cells
