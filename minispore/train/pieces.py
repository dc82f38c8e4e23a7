"""Parameters that lie in pieces over the ranks: to the entries of a file, and back.

The file of a rank that saves its pieces says in its note which rank that was, and how each parameter lies.
"""
from dataclasses import dataclass

import numpy as np

from minispore.common.parameter import Parameter
from minispore.common.state import current
from minispore.common.tensor import Tensor
from minispore.parallel.placement import Placement
from minispore.parallel.strategy_file import describe, described
from minispore.train.entries import Damage, Entry, in_order


@dataclass(frozen=True)
class Origin:
    """Where values come from. rank: who saved the file, if that matters; noted: the file says itself how its values lie."""
    file: str = "parameter_dict"
    rank: int | None = None
    noted: bool = False


class Misfit(ValueError):
    """A value that can't be a parameter's; `elsewhere` if other ranks' files have what is wanted."""

    def __init__(self, what: str, elsewhere: bool = False):
        super().__init__(what)
        self.elsewhere = elsewhere


# ---- saving --------------------------------------------------------------------------------------------


def to_entries(named: list[tuple], integrated: bool = True) -> tuple[list[Entry], dict]:
    """What to save of (name, Tensor, array or str) pairs, and the note on it.

    integrated: gather the logical tensors, which all ranks must do, in the same order; False: this rank's pieces.
    """
    entries, slices = [], {}
    for name, value in named:
        if isinstance(value, Tensor):
            if value.layout is not None and not integrated:
                slices[name] = describe(value.layout)
            elif value.layout is not None:
                value = value.full()
            value = in_order(value._data())
        entries.append((name, value))
    return entries, {"slices": {"rank": current().rank, "parameters": slices}} if slices else {}


def take_part(tensors) -> None:
    """Do what a rank must that saves nothing itself while another saves these with integrated_save=True."""
    for tensor in tensors:
        if tensor.layout is not None:
            tensor.full()


# ---- loading -------------------------------------------------------------------------------------------


def noted_slices(note: dict) -> tuple[int | None, dict[str, Placement]]:
    """(rank, how each parameter lies of which the file has a piece) by the note of a file. Damage for a senseless one."""
    try:
        about = note.get("slices") or {"rank": None, "parameters": {}}
        return about["rank"], {name: described(item) for name, item in about["parameters"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise Damage(f"minispore's note on its slices can't be read ({e})") from None


def tensors(entries: list[Entry], note: dict, file: str) -> tuple[list[tuple[str, Tensor | str]], Origin]:
    """A file's entries as tensors that say how they lie, and where they come from."""
    rank, placements = noted_slices(note)
    for name, placement in placements.items():
        shape = next((a.shape for n, a in entries if n == name), None)
        if shape != placement.local_shape:
            raise Damage(f"its note says a slice of shape {placement.local_shape} ({placement}), there is {shape}", name)
    return ([(name, v if isinstance(v, str) else Tensor.from_numpy(v, placements.get(name))) for name, v in entries],
            Origin(file, rank, "minispore" in note))


def fit(p: Parameter, name: str, value: Tensor, origin: Origin) -> tuple[np.ndarray, Placement | None]:
    """(what the parameter is to hold on this rank, how it lies then); Misfit says why the value can't be that.

    A piece also goes into a parameter that is still whole, if the program will be for as many ranks: it lies so then.
    """
    array, there, here = value._data(), value.layout, p.layout
    shape, state, mine = p.shape if here is None else here.shape, current(), getattr(p, "name", name)
    if there is None:
        extra = array.shape[len(shape):]
        if array.shape[:len(shape)] == shape and set(extra) == {1}:
            array = array.reshape(shape)            # (12, 2048, 1, 1) for (12, 2048): MindSpore's files have such
        if array.shape == shape:
            return (array if here is None else array[here.region(state.rank)]), here
        if array.shape == p.shape and not origin.noted:
            return array, here                      # MindSpore's own files of slices don't say that they are
        as_piece = "" if here is None else f" ({p.shape} on each rank)"
        raise Misfit(f"{mine} has shape {shape}{as_piece} in the network, {name} has {array.shape} in the file")
    if there.shape != shape:
        raise Misfit(f"{mine} has shape {shape} in the network, {name} is a slice of one of {there.shape} in the file")
    if here is None and state.compiler is not None and there.mesh == state.compiler.mesh:
        here = there
    if here is None or (here.mesh, here.layout) != (there.mesh, there.layout):
        lies = f"whole, {shape}," if here is None else str(here)
        raise Misfit(f"{mine} is {lies} in the network, {name} is a slice of {there} in the file", True)
    rank = state.rank if origin.rank is None else origin.rank
    if here.region(rank) != here.region(state.rank):
        raise Misfit(f"{mine} on rank {state.rank} is another slice than {name} in the file, which rank {rank} saved", True)
    return array, here


def put(p: Parameter, array: np.ndarray, placement: Placement | None) -> None:
    """Give a parameter its values, and its place if that is new. What it hadn't drawn yet is never drawn."""
    if p._pending or placement is not p.layout:
        p._array, p._value, p._layout = np.array(array, order="C"), None, placement
    else:
        np.copyto(p._data(), array)
