"""Collectives that write into the tensors they are given. What holds for all of them is said in the package's docstring."""
import numpy as np

from minispore.communication.management import communicator
from minispore.communication.pending import (
    EXCHANGE,
    Done,
    demand_like,
    demand_list,
    demand_rows,
    demand_tensor,
    finish,
    into,
    not_in_a_graph,
    pieces,
    place,
    split_sizes,
)
from minispore.ops.communication import AllReduce

IN_A_GRAPH = "it writes into a tensor, which no graph can. Use communication.comm_func or the ops there"


def all_reduce(tensor, op="sum", group=None, async_op=False):
    """tensor becomes the reduction ("sum", "max", "min", "prod") over the ranks, on all of them.

    MindSpore: `mint.distributed.all_reduce`.

    >>> from minispore import Tensor
    >>> from minispore.mint.distributed import get_rank, init_process_group
    >>> from minispore.lab import run_ranks
    >>> def program():
    ...     init_process_group()
    ...     x = Tensor([1, get_rank()])
    ...     work = all_reduce(x, async_op=True)
    ...     work.wait()
    ...     return x.tolist()
    >>> run_ranks(program, 3)
    [[3, 3], [3, 3], [3, 3]]
    """
    comm = _comm("all_reduce", group, tensor=tensor)
    AllReduce(op)               # says which reductions there are
    return finish([(comm.all_reduce(tensor._data(), op), into(tensor))], async_op)


def reduce(tensor, dst, op="sum", group=None, async_op=False):
    """World rank dst's tensor becomes the reduction over the ranks; the others' stay as they are."""
    comm, root = _comm("reduce", group, tensor=tensor), place("reduce", "dst", dst, group)
    AllReduce(op)
    return finish([(comm.reduce(tensor._data(), root, op), into(tensor) if comm.rank == root else None)], async_op)


def broadcast(tensor, src, group=None, async_op=False):
    """All ranks' tensor becomes that of world rank src; shape and dtype must be the same everywhere."""
    comm, root = _comm("broadcast", group, tensor=tensor), place("broadcast", "src", src, group)
    return finish([(comm.broadcast(tensor._data(), root), into(tensor))], async_op)


def barrier(group=None, async_op=False, device_ids=None):
    """Returns when all ranks of the group have called it."""
    return finish([(_comm("barrier", group).barrier(), None)], async_op)


# ---- gathering ----------------------------------------------------------------------------------------------------------

def all_gather(tensor_list, tensor, group=None, async_op=False):
    """tensor_list[r] becomes rank r's tensor; all have one shape and dtype."""
    comm = _comm("all_gather", group, tensor=tensor)
    outs = _alike("all_gather", "tensor_list", tensor_list, tensor, comm)
    return finish([(comm.all_gather(tensor._data()[None]), _into_all(outs))], async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """output_tensor (ranks·k, …) becomes the ranks' input_tensor (k, …), one behind the other along dim 0."""
    name = "all_gather_into_tensor"
    comm, x = _comm(name, group), demand_rows(name, "input_tensor", input_tensor)
    demand_like(name, "output_tensor", output_tensor, (comm.size * x.shape[0], *x.shape[1:]), x.dtype)
    return finish([(comm.all_gather(x._data()), into(output_tensor))], async_op)


def all_gather_into_tensor_uneven(output, input, output_split_sizes=None, group=None, async_op=False):
    """output (Σk, …) becomes the ranks' inputs (k, …), one behind the other, where each rank may have another k.

    output_split_sizes: the k of each rank, the same list on all ranks; None: all alike.
    """
    name = "all_gather_into_tensor_uneven"
    comm = _comm(name, group)
    demand_rows(name, "output", output), demand_rows(name, "input", input)
    sizes = split_sizes(name, "output_split_sizes", output_split_sizes, output.shape[0], comm)
    demand_like(name, "input", input, (sizes[comm.rank], *output.shape[1:]), output.dtype)
    whole = np.empty(output.shape, output.dtype)
    def keep(part):
        return lambda result: np.copyto(part, result)
    parts = [(comm.broadcast(input._data() if r == comm.rank else p, r), keep(p)) for r, p in enumerate(pieces(whole, sizes))]
    return finish([*parts, (Done(), lambda _: into(output)(whole))], async_op)


def gather(tensor, gather_list, dst=0, group=None, async_op=False):
    """On world rank dst gather_list[r] becomes rank r's tensor; the other ranks' lists aren't looked at."""
    comm, root = _comm("gather", group, tensor=tensor), place("gather", "dst", dst, group)
    store = _into_all(_alike("gather", "gather_list", gather_list, tensor, comm)) if comm.rank == root else None
    return finish([(comm.gather(tensor._data()[None], root), store)], async_op)


def scatter(tensor, scatter_list, src=0, group=None, async_op=False):
    """tensor becomes the r-th of world rank src's scatter_list on rank r; the other ranks' lists aren't looked at."""
    comm, root = _comm("scatter", group, tensor=tensor), place("scatter", "src", src, group)
    if comm.rank == root:
        x = np.stack([t._data() for t in _alike("scatter", "scatter_list", scatter_list, tensor, comm)])
    else:
        x = np.empty((comm.size, *tensor.shape), tensor.dtype)
    return finish([(comm.scatter(x, root), into(tensor))], async_op)


# ---- reducing and scattering --------------------------------------------------------------------------------------------

def reduce_scatter(output, input_list, op="sum", group=None, async_op=False):
    """output becomes, on rank r, the reduction of the ranks' input_list[r]."""
    comm = _comm("reduce_scatter", group, output=output)
    AllReduce(op)
    x = np.stack([t._data() for t in _alike("reduce_scatter", "input_list", input_list, output, comm)])
    return finish([(comm.reduce_scatter(x, op), into(output))], async_op)


def reduce_scatter_tensor(output, input, op="sum", group=None, async_op=False):
    """output (k, …) becomes, on rank r, the r-th part of the reduction of the ranks' input (ranks·k, …)."""
    name = "reduce_scatter_tensor"
    comm, out = _comm(name, group), demand_rows(name, "output", output)
    AllReduce(op)
    demand_like(name, "input", input, (comm.size * out.shape[0], *out.shape[1:]), out.dtype)
    return finish([(comm.reduce_scatter(input._data(), op), into(output))], async_op)


def reduce_scatter_tensor_uneven(output, input, input_split_sizes=None, op="sum", group=None, async_op=False):
    """output (k, …) becomes this rank's rows of the reduction of the ranks' input (Σk, …), where each rank may have another k.

    input_split_sizes: the k of each rank, the same list on all ranks; None: all alike.
    """
    name = "reduce_scatter_tensor_uneven"
    comm = _comm(name, group)
    AllReduce(op)
    demand_rows(name, "output", output), demand_rows(name, "input", input)
    sizes = split_sizes(name, "input_split_sizes", input_split_sizes, input.shape[0], comm)
    demand_like(name, "output", output, (sizes[comm.rank], *input.shape[1:]), input.dtype)
    return finish([(comm.reduce(p, r, op), into(output) if r == comm.rank else None)
                   for r, p in enumerate(pieces(input._data(), sizes))], async_op)


# ---- all to all ---------------------------------------------------------------------------------------------------------

def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """output_tensor_list[s] becomes what rank s has in its input_tensor_list for this rank.

    Shapes may be any; the sender's and the receiver's must agree, and all have one dtype.
    """
    name = "all_to_all"
    comm = _comm(name, group)
    outs = demand_list(name, "output_tensor_list", output_tensor_list, comm.size, comm.name)
    xs = demand_list(name, "input_tensor_list", input_tensor_list, comm.size, comm.name)
    tensors = [demand_tensor(name, "an entry of a list", t) for t in (*xs, *outs)]
    for t in tensors:
        demand_like(name, "a tensor", t, t.shape, tensors[0].dtype)
    return _exchange(comm, [x._data() for x in xs], [o.shape for o in outs], list(map(into, outs)), async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """The parts of input's dim 0 go to the ranks; output becomes what comes from them, one behind the other.

    output_split_sizes, input_split_sizes: rows from and to each rank; None: equally many.
    """
    name = "all_to_all_single"
    comm = _comm(name, group)
    demand_rows(name, "output", output), demand_rows(name, "input", input)
    demand_like(name, "output", output, (output.shape[0], *input.shape[1:]), input.dtype)
    outgoing = split_sizes(name, "input_split_sizes", input_split_sizes, input.shape[0], comm)
    incoming = split_sizes(name, "output_split_sizes", output_split_sizes, output.shape[0], comm)
    arrived = []
    def last(part):
        arrived.append(part)
        into(output)(np.concatenate(arrived))
    return _exchange(comm, pieces(input._data(), outgoing), [(n, *input.shape[1:]) for n in incoming],
                     [arrived.append] * (comm.size - 1) + [last], async_op)


def _exchange(comm, xs, shapes, stores, async_op):
    """Array r to rank r; what comes from rank s, of the s-th shape, goes to the s-th store."""
    sent = [(comm.send(x, r, EXCHANGE), None) for r, x in enumerate(xs)]
    came = [(comm.receive(shape, xs[0].dtype, r, EXCHANGE), store)
            for r, (shape, store) in enumerate(zip(shapes, stores, strict=True))]
    return finish(sent + came, async_op)


# ---- what they share ----------------------------------------------------------------------------------------------------

def _comm(name, group, **tensors):
    """The group's communicator, once we know that we are in no graph and what is given are tensors."""
    not_in_a_graph(f"mint.distributed.{name}", IN_A_GRAPH)
    for what, x in tensors.items():
        demand_tensor(name, what, x)
    return communicator(group)


def _alike(name, what, xs, like, comm):
    """A list with one tensor a rank, all of `like`'s shape and dtype."""
    return [demand_like(name, f"{what}[{r}]", x, like.shape, like.dtype)
            for r, x in enumerate(demand_list(name, what, xs, comm.size, comm.name))]


def _into_all(tensors):
    """What puts the rows of a result into tensors."""
    def store(result):
        for t, row in zip(tensors, result, strict=True):
            into(t)(row)
    return store
