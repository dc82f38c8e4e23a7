"""How a user writes down what is to be split: strategies and layouts with names, as data.

A strategy holds one entry an input: a tuple of split counts, one a dim, or a tensor layout made by a `Layout`. Whether it
is legal the compiler decides from the op's rule (parallel/legality.py).
"""
from dataclasses import dataclass
from math import prod


class Layout:
    """Names for the axes of a device matrix; called with the names that split each dim it gives a tensor's layout
    (MindSpore: `mindspore.Layout`).

    Args:
        device_matrix: ints whose product is the number of devices.
        alias_name: a name for each. In the call "None" means a dim that isn't split, a tuple several axes in order.
        rank_list: the ranks in the order of the matrix; only 0 … n-1 in this order.

    >>> layout = Layout((2, 2, 2), ("dp", "sp", "mp"))
    >>> layout("dp", ("sp", "mp"), "None")
    Layout((2, 2, 2), ('dp', 'sp', 'mp'))('dp', ('sp', 'mp'), 'None')
    """

    def __init__(self, device_matrix, alias_name, rank_list=None):
        for what, value, kind in (("device_matrix", device_matrix, int), ("alias_name", alias_name, str)):
            if not isinstance(value, tuple):
                raise TypeError(f"Layout: {what} {value!r} is a {type(value).__name__}; give a tuple")
            for item in value:
                if not isinstance(item, kind) or isinstance(item, bool):
                    raise TypeError(f"Layout: {what} {value!r} holds {item!r}; it takes {kind.__name__}s")
        if len(device_matrix) != len(alias_name):
            raise ValueError(f"Layout: device_matrix {device_matrix} has {len(device_matrix)} axes, alias_name {alias_name} "
                             f"{len(alias_name)}; give each axis one name")
        if any(n < 1 for n in device_matrix):
            raise ValueError(f"Layout: device_matrix {device_matrix} must be whole numbers ≥ 1")
        if "" in alias_name or "None" in alias_name or len(set(alias_name)) < len(alias_name):
            raise ValueError(f"Layout: alias_name {alias_name} must be different names, none empty and none 'None'")
        if rank_list is not None and list(rank_list) != list(range(prod(device_matrix))):
            raise ValueError(f"Layout: rank_list {rank_list!r}; only the ranks 0 … {prod(device_matrix) - 1} in order are there")
        self.device_matrix, self.alias_name = device_matrix, alias_name

    def __call__(self, *tensor_map) -> "NamedLayout":
        used = [name for entry in tensor_map for name in (entry if isinstance(entry, tuple) else (entry,))]
        for name in used:
            if not isinstance(name, str):
                raise TypeError(f"Layout: {tensor_map} holds {name!r}; each dim takes a name, a tuple of names or 'None'")
            if name != "None" and name not in self.alias_name:
                raise ValueError(f"Layout: {name!r} in {tensor_map} is unknown; the axes are {', '.join(self.alias_name)}")
        twice = [name for name in self.alias_name if used.count(name) > 1]
        if twice:
            raise ValueError(f"Layout: axis {twice[0]!r} splits the tensor twice in {tensor_map}; an axis can split one dim")
        return NamedLayout(self.device_matrix, self.alias_name, tensor_map)

    def __repr__(self):
        return f"Layout({self.device_matrix}, {self.alias_name})"


@dataclass(frozen=True)
class NamedLayout:
    """A tensor's layout as written with a `Layout`'s names."""
    device_matrix: tuple
    alias_name: tuple
    tensor_map: tuple

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of pieces of each dim."""
        size = {"None": 1, **dict(zip(self.alias_name, self.device_matrix, strict=True))}
        return tuple(prod(size[name] for name in (e if isinstance(e, tuple) else (e,))) for e in self.tensor_map)

    def __repr__(self):
        return f"Layout({self.device_matrix}, {self.alias_name})({', '.join(map(repr, self.tensor_map))})"


@dataclass(frozen=True)
class Strategy:
    """in_strategy, out_strategy as given to `shard`, checked for their form only."""
    ins: tuple | None
    outs: tuple | None = None

    def __str__(self):
        return f"{self.ins}" + (f" -> {self.outs}" if self.outs else "")


def strategy_of(name: str, in_strategy, out_strategy=None) -> Strategy:
    """A Strategy, after the checks that need no shapes."""
    for what, value in (("in_strategy", in_strategy), ("out_strategy", out_strategy)):
        if value is None:
            continue
        if not isinstance(value, tuple):
            raise TypeError(f"{name}.shard: {what} {value!r} is a {type(value).__name__}; give a tuple with one tuple an "
                            f"{'input' if what[0] == 'i' else 'output'}, e.g. ((2, 1), (1, 4))")
        for i, entry in enumerate(value):
            if entry is None or isinstance(entry, NamedLayout):
                continue
            if not isinstance(entry, tuple):
                raise TypeError(f"{name}.shard: entry {i} of {what} {value!r} is {entry!r}; each must be a tuple of split "
                                "counts, one a dim (mind the outer tuple: ((2, 1),) for one input), or a Layout's")
            for n in entry:
                if not isinstance(n, int) or isinstance(n, bool):
                    raise TypeError(f"{name}.shard: entry {i} of {what} {value!r} holds {n!r}; split counts are whole numbers")
                if n < 1:
                    raise ValueError(f"{name}.shard: entry {i} of {what} {value!r} holds {n}; a split count is at least 1 "
                                     "(1: not split)")
    if in_strategy is not None and any(isinstance(e, NamedLayout) for e in in_strategy) and \
            any(isinstance(e, tuple) for e in in_strategy):
        raise TypeError(f"{name}.shard: in_strategy {in_strategy!r} mixes tuples and layouts; use one kind")
    return Strategy(in_strategy, out_strategy)
