"""Collectives of Python objects: pickled, first their lengths are exchanged, then the bytes.

Unpickling runs what the pickle says: use them among ranks that trust one another, as those of one job do.
"""
import pickle

import numpy as np

from minispore.communication.management import communicator
from minispore.communication.pending import demand_list, not_in_a_graph, place

IN_A_GRAPH = "objects can't be values of a graph. Call it outside"


def all_gather_object(object_list, obj, group=None) -> None:
    """object_list[r] becomes rank r's object, which may be anything that pickles.

    >>> from minispore.mint.distributed import get_rank, init_process_group
    >>> from minispore.lab import run_ranks
    >>> def program():
    ...     init_process_group()
    ...     names = [None] * 2
    ...     all_gather_object(names, {"rank": get_rank()})
    ...     return names
    >>> run_ranks(program, 2)[0]
    [{'rank': 0}, {'rank': 1}]
    """
    comm = _comm("all_gather_object", group)
    demand_list("all_gather_object", "object_list", object_list, comm.size, comm.name)
    data, lengths = _padded(comm, obj)
    object_list[:] = _objects(comm.all_gather(data[None]).wait(), lengths)


def gather_object(obj, object_gather_list=None, dst=0, group=None) -> None:
    """On world rank dst object_gather_list[r] becomes rank r's object; the other ranks' lists aren't looked at."""
    comm, root = _comm("gather_object", group), place("gather_object", "dst", dst, group)
    if comm.rank == root:
        demand_list("gather_object", "object_gather_list", object_gather_list, comm.size, comm.name)
    data, lengths = _padded(comm, obj)
    rows = comm.gather(data[None], root).wait()
    if comm.rank == root:
        object_gather_list[:] = _objects(rows, lengths)


def broadcast_object_list(object_list, src=0, group=None, device=None) -> None:
    """All ranks' object_list becomes that of world rank src, in place; all lists have the same length.

    device: MindSpore's, without effect.
    """
    comm, root = _comm("broadcast_object_list", group), place("broadcast_object_list", "src", src, group)
    if not isinstance(object_list, list) or not object_list:
        raise TypeError(f"broadcast_object_list: {object_list!r} must be a list that isn't empty; it is filled in place")
    here = comm.rank == root
    data = [_pickled(o) for o in object_list] if here else []
    lengths = comm.broadcast(np.array([d.size for d in data] if here else [0] * len(object_list)), root).wait()
    everything = comm.broadcast(np.concatenate(data) if here else np.empty(lengths.sum(), np.uint8), root).wait()
    if not here:
        object_list[:] = [pickle.loads(d) for d in np.split(everything, np.cumsum(lengths)[:-1])]


def scatter_object_list(scatter_object_output_list, scatter_object_input_list, src=0, group=None) -> None:
    """The output list's first entry becomes the r-th of world rank src's input list on rank r.

    The other ranks' input lists aren't looked at.
    """
    name = "scatter_object_list"
    comm, root = _comm(name, group), place(name, "src", src, group)
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise TypeError(f"{name}: the output list {scatter_object_output_list!r} must be a list with at least one entry, which "
                        "is overwritten")
    here, data = comm.rank == root, []
    if here:
        data = [_pickled(o) for o in demand_list(name, "the input list", scatter_object_input_list, comm.size, comm.name)]
    lengths = comm.broadcast(np.array([d.size for d in data] if here else [0] * comm.size), root).wait()
    rows = np.zeros((comm.size, lengths.max()), np.uint8)
    for row, d in zip(rows, data, strict=False):
        row[:d.size] = d
    mine = comm.scatter(rows, root).wait()
    scatter_object_output_list[0] = _objects(mine, lengths[[comm.rank]])[0]


def _comm(name, group):
    not_in_a_graph(f"mint.distributed.{name}", IN_A_GRAPH)
    return communicator(group)


def _pickled(obj) -> np.ndarray:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


def _padded(comm, obj):
    """This rank's object as bytes, made as long as the longest; and all ranks' lengths."""
    data = _pickled(obj)
    lengths = comm.all_gather(np.array([data.size])).wait()
    return np.pad(data, (0, lengths.max() - data.size)), lengths


def _objects(rows, lengths) -> list:
    return [pickle.loads(row[:n]) for row, n in zip(rows, lengths, strict=True)]
