"""A script's variables, kept for who started it: MINISPORE_VALUES names the folder, each rank writes values_<rank>.pkl there.

So a notebook finds them when the processes are gone (lab/in_processes.py), also those of a script that failed.
"""
import io
import os
import pickle
import time
from collections.abc import Iterable
from inspect import isbuiltin, isclass, isfunction, ismodule

VARIABLE = "MINISPORE_VALUES"
MOST = 64 << 20         # bytes that a rank's variables may take
PATIENCE = 0.7          # seconds in which the other ranks may save theirs, too; less than msrun waits for last words


class Full(Exception):
    """There is no room for a variable."""


class Capped(io.BytesIO):
    """A file that raises Full when it grows beyond `most` bytes."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def write(self, data) -> int:
        if self.tell() + memoryview(data).nbytes > self.most:
            raise Full
        return super().write(data)


class Unpickler(pickle.Unpickler):
    """Leaves MPI alone: to import it makes this process an MPI job of its own, and Jupyter's kernels don't survive that."""

    def find_class(self, module, name):
        if module.partition(".")[0] == "mpi4py":
            raise pickle.UnpicklingError("it belongs to MPI, which isn't loaded here")
        return super().find_class(module, name)


def is_tool(x) -> bool:
    """Whether it is something that a program works with, not on: a module, function or class."""
    return ismodule(x) or isfunction(x) or isbuiltin(x) or isclass(x)


def path(folder, rank: int) -> str:
    return os.path.join(folder, f"values_{rank}.pkl")


def pack(names: dict, most: int = MOST) -> tuple[dict[str, bytes], dict[str, str]]:
    """The variables, pickled one by one, and why the others are not among them.

    >>> kept, absent = pack({"x": 1, "os": os, "_y": 2, "lock": __import__("threading").Lock(), "long": bytes(500)}, most=100)
    >>> list(kept), absent
    (['x'], {'lock': "it can't be pickled (cannot pickle '_thread.lock' object)", 'long': "it takes more than is left of the \
0 MB that a rank's variables may take; keep a part of it, or its shape"})
    """
    kept, absent, room = {}, {}, most
    for name, x in names.items():
        if name.startswith("_") or is_tool(x):
            continue
        file = Capped(room)
        try:
            pickle.Pickler(file, pickle.HIGHEST_PROTOCOL).dump(x)
        except Full:
            absent[name] = (f"it takes more than is left of the {most >> 20} MB that a rank's variables may take; keep a part of "
                            "it, or its shape")
        except Exception as e:                  # whatever an object's own pickling may raise
            absent[name] = f"it can't be pickled ({e})"
        else:
            kept[name] = file.getvalue()
            room -= len(kept[name])
    return kept, absent


def save(names: dict, rank: int, error: BaseException | None = None) -> None:
    """Write this rank's variables, if somebody wants them."""
    if not (folder := os.environ.get(VARIABLE)):
        return
    said = None if error is None else f"{type(error).__name__}: {error}"
    whole = f"{path(folder, rank)}.part"
    try:
        with open(whole, "wb") as f:
            pickle.dump((*pack(names), said), f)
        os.replace(whole, path(folder, rank))           # whoever sees it sees all of it
    except OSError as e:
        print(f"minispore: the variables of rank {rank} can't be written to {folder} ({e.strerror})", flush=True)


def await_others(ranks: Iterable[int]) -> None:
    """After a failure, before it becomes the end of all: a moment for other ranks to save theirs."""
    folder, until = os.environ.get(VARIABLE), time.monotonic() + PATIENCE
    while folder and not all(os.path.exists(path(folder, r)) for r in ranks) and time.monotonic() < until:
        time.sleep(0.01)


def load(folder, rank: int) -> tuple[dict, dict[str, str], str | None]:
    """A rank's variables; why others aren't among them, by their name ("*": why none is); its error in words, or None."""
    try:
        with open(path(folder, rank), "rb") as f:
            packed, absent, error = pickle.load(f)
    except FileNotFoundError:
        return {}, {"*": "its process was ended from outside, before it could save its variables"}, None
    names = {}
    for name, data in packed.items():
        try:
            names[name] = Unpickler(io.BytesIO(data)).load()
        except Exception as e:                  # of a class that is only in the script, above all
            absent[name] = f"it was pickled, but can't be read here ({e})"
    return names, absent, error
