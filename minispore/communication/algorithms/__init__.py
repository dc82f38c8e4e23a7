"""The collectives' algorithms: over messages (messages.py) and in memory that the ranks of a node share (shared.py).

ALGORITHMS[op][name] is a generator function; all of one op take the same arguments:

    AllReduce (link, x, accumulate)     ReduceScatter (link, chunks, accumulate)    AllGather (link, chunks)
    Broadcast (link, x, root)           Reduce (link, x, root, accumulate)          AlltoAll (link, outgoing, incoming)
    Gather (link, x, chunks, root)      Scatter (link, chunks, x, root)             Barrier (link)
"""
from minispore.communication.algorithms import messages, shared

ALGORITHMS = {
    "AllReduce": {"ring": messages.ring_all_reduce, "shared": shared.shared_all_reduce},
    "ReduceScatter": {"ring": messages.ring_reduce_scatter, "shared": shared.shared_reduce_scatter},
    "AllGather": {"ring": messages.ring_all_gather, "shared": shared.shared_all_gather},
    "Broadcast": {"tree": messages.tree_broadcast, "shared": shared.shared_broadcast},
    "Reduce": {"tree": messages.tree_reduce, "shared": shared.shared_reduce},
    "AlltoAll": {"pairwise": messages.pairwise_all_to_all, "shared": shared.shared_all_to_all},
    "Gather": {"linear": messages.linear_gather, "shared": shared.shared_gather},
    "Scatter": {"linear": messages.linear_scatter, "shared": shared.shared_scatter},
    "Barrier": {"dissemination": messages.dissemination_barrier, "shared": shared.shared_barrier},
}
