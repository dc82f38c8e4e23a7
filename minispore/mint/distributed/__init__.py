"""Communication under PyTorch-like names (MindSpore: `mindspore.mint.distributed`).

Results are written into the tensors that are given for them. For PYNATIVE_MODE, outside of gradients; in a graph use ops or
`communication.comm_func`. `src`, `dst` and `peer` are ranks of the world; group None is all ranks. With async_op=True a call
returns a handle at once, and the tensors have their values when its wait() has returned; else it returns None.

All raise TypeError for what is no tensor and dtypes that differ, ValueError for ranks outside the group, lists of a wrong length
and shapes that don't fit, RuntimeError before init_process_group(), CollectiveError where it can't complete.
"""
from minispore.mint.distributed.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_gather_into_tensor_uneven,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    reduce_scatter_tensor_uneven,
    scatter,
)
from minispore.mint.distributed.groups import (
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
    new_group,
)
from minispore.mint.distributed.messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from minispore.mint.distributed.objects import all_gather_object, broadcast_object_list, gather_object, scatter_object_list

__all__ = [
    "P2POp", "all_gather", "all_gather_into_tensor", "all_gather_into_tensor_uneven", "all_gather_object", "all_reduce",
    "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list",
    "destroy_process_group", "gather", "gather_object", "get_backend", "get_global_rank", "get_group_rank",
    "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group", "irecv", "is_available", "is_initialized",
    "isend", "new_group", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_tensor_uneven",
    "scatter", "scatter_object_list", "send",
]
