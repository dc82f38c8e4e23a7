"""Single messages; what is received is written into the tensor that is given."""
from minispore.communication import comm_func
from minispore.communication.management import communicator
from minispore.communication.pending import CommHandle, check_batch, demand_tensor, into, not_in_a_graph, place
from minispore.mint.distributed.collectives import IN_A_GRAPH


def isend(tensor, dst=0, group=None, tag=0) -> CommHandle:
    """Begin to send to world rank dst. The tensor is copied first: it may change at once."""
    return CommHandle([_sent("isend", tensor, dst, group, tag)])


def irecv(tensor, src=0, group=None, tag=0) -> CommHandle:
    """Begin to receive into a tensor what world rank src sends with this tag, of the tensor's shape and dtype."""
    return CommHandle([_received("irecv", tensor, src, group, tag)])


def send(tensor, dst=0, group=None, tag=0) -> None:
    """Send to world rank dst. The tensor is copied first, so this doesn't wait for the other one."""
    _sent("send", tensor, dst, group, tag)


def recv(tensor, src=0, group=None, tag=0) -> int:
    """tensor becomes what world rank src sends with this tag, of the tensor's shape and dtype. Returns 0, as MindSpore's.

    >>> from minispore import Tensor
    >>> from minispore.mint.distributed import get_rank, init_process_group
    >>> from minispore.lab import run_ranks
    >>> def program():
    ...     init_process_group()
    ...     x = Tensor([float(get_rank())])
    ...     send(x, 1) if get_rank() == 0 else recv(x, 0)
    ...     return x.tolist()
    >>> run_ranks(program, 2)
    [[0.0], [0.0]]
    """
    irecv(tensor, src, group, tag).wait()
    return 0


class P2POp(comm_func.P2POp):
    """One message of batch_isend_irecv: "isend" or "irecv", or one of these functions; a tensor; the other's world rank."""

    def __init__(self, op, tensor, peer, group=None, tag=0):
        super().__init__(op, demand_tensor("P2POp", "tensor", tensor), peer, group, tag)


def batch_isend_irecv(p2p_op_list) -> list[CommHandle]:
    """Begin many messages at once. Returns: a list of one handle for all of them, as in MindSpore.

    What is received is in its tensors once the handle's wait() has returned.
    """
    name = "batch_isend_irecv"
    begin = {"isend": _sent, "irecv": _received}
    ops = check_batch(name, p2p_op_list, P2POp)
    for o in ops:
        place(name, "peer", o.peer, o.group)            # all are looked at before the first begins
    return [CommHandle([begin[o.op](name, o.tensor, o.peer, o.group, o.tag) for o in ops])]


def _sent(name, tensor, dst, group, tag):
    demand_tensor(name, "tensor", tensor)
    not_in_a_graph(f"mint.distributed.{name}", IN_A_GRAPH)
    return communicator(group).send(tensor._data(), place(name, "dst", dst, group), tag), None


def _received(name, tensor, src, group, tag):
    demand_tensor(name, "tensor", tensor)
    not_in_a_graph(f"mint.distributed.{name}", IN_A_GRAPH)
    return communicator(group).receive(tensor.shape, tensor.dtype, place(name, "src", src, group), tag), into(tensor)
