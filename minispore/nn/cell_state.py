"""What a Cell keeps besides parameters (buffers), and all of it by name (state_dict)."""
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from minispore.common.parameter import Parameter
from minispore.common.tensor import Tensor


class LoadResult(NamedTuple):
    """Names the network has and the dict lacked, and the reverse."""
    missing_keys: list
    unexpected_keys: list


class States:
    """The part of Cell about buffers and state_dict."""

    def register_buffer(self, name: str, tensor, persistent: bool = True) -> None:
        """Keep a tensor as `self.<name>` that is part of the state but isn't trained; None: a place for one.

        persistent=False: state_dict leaves it out. Assigning a tensor of its shape to it changes its values, in construct
        too, in both modes.
        """
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"register_buffer: name {name!r} must be a text without '.'")
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"register_buffer: {type(self).__name__} has an attribute {name!r} already; take another name")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"register_buffer: {name!r} is a {type(tensor).__name__}; it must be a Tensor or None")
        # A Parameter that get_parameters doesn't list: graphs read and assign it as they do any other.
        self._buffers[name] = None if tensor is None else Parameter(tensor, name, requires_grad=False)
        (self._passing.discard if persistent else self._passing.add)(name)
        self._changed()

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator:
        """(place in the tree, buffer)."""
        seen = set()
        for place, cell in self.cells_and_names(prefix) if recurse else [(prefix, self)]:
            for name, buffer in cell._buffers.items():
                if buffer is not None and not (remove_duplicate and buffer in seen):
                    seen.add(buffer)
                    yield f"{place}.{name}" if place else name, buffer

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this cell and all inside."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a place such as "block.mask"."""
        place, _, name = target.rpartition(".")
        cell = self.get_sub_cell(place)
        if cell._buffers.get(name) is None:
            raise AttributeError(f"{type(cell).__name__} has no buffer {name!r}; it has {sorted(cell._buffers) or 'none'}")
        return cell._buffers[name]

    def state_dict(self, *, destination=None, prefix="", keep_vars=False) -> OrderedDict:
        """Parameters and persistent buffers by their place in the tree.

        keep_vars: the tensors themselves; otherwise copies, which later training leaves as they are.

        >>> from minispore import nn
        >>> list(nn.SequentialCell(nn.Dense(2, 3)).state_dict())
        ['0.weight', '0.bias']
        """
        out = OrderedDict() if destination is None else destination
        for name, tensor in self._named_state():
            out[prefix + name] = tensor if keep_vars else Tensor(tensor)
        return out

    def load_state_dict(self, state_dict, strict: bool = True) -> LoadResult:
        """Take all values from a dict as state_dict makes it: all of them or, after an error, none.

        strict: names that only one side has are an error; otherwise they are returned.
        """
        mine = dict(self._named_state())
        result = LoadResult([n for n in mine if n not in state_dict], [n for n in state_dict if n not in mine])
        wrong = [f"{n} has shape {tuple(v.shape)} there and {mine[n].shape} here" for n, v in state_dict.items()
                 if n in mine and tuple(v.shape) != mine[n].shape]
        if strict:
            wrong += [f"{n} is missing there" for n in result.missing_keys]
            wrong += [f"{n} is unknown here" for n in result.unexpected_keys]
        if wrong:
            raise RuntimeError(f"load_state_dict into {type(self).__name__}: {'; '.join(wrong)}. Nothing was loaded"
                               + ("; strict=False leaves out names that only one side has" if strict else ""))
        for name, value in state_dict.items():
            if name in mine:
                mine[name].set_data(value if isinstance(value, Tensor) else Tensor(value))
        return result

    def _named_state(self):
        yield from self.parameters_and_names()
        for place, cell in self.cells_and_names():
            for name, buffer in cell._buffers.items():
                if buffer is not None and name not in cell._passing:
                    yield f"{place}.{name}" if place else name, buffer
