"""Collectives, each written once against send and receive; link.py says how. One file a family, one table of all.

    AllReduce (link, x, accumulate)         ReduceScatter (link, chunks, accumulate)    AllGather (link, chunks)
    Broadcast (link, x, root)               Reduce (link, x, root, accumulate)          AlltoAll (link, outgoing, incoming)
    Gather (link, x, chunks, root)          Scatter (link, chunks, x, root)             Barrier (link)

Any number of ranks, any length. The order of summation depends on size, group and algorithm alone, and all ranks get the
same bits. Which one runs, selection.py decides. Apart from these stands shared.py: what ranks do in
memory they share, without messages.
"""
from minispore.communication.algorithms.bruck import bruck_all_gather, bruck_all_to_all, dissemination_barrier
from minispore.communication.algorithms.hierarchical import (
    hierarchical_all_gather,
    hierarchical_all_reduce,
    hierarchical_barrier,
    hierarchical_broadcast,
    hierarchical_reduce,
    hierarchical_reduce_scatter,
)
from minispore.communication.algorithms.linear import linear_gather, linear_scatter, message_in, message_out
from minispore.communication.algorithms.link import Accumulate, Steps, Within, split
from minispore.communication.algorithms.pairwise import pairwise_all_to_all, pairwise_reduce_scatter
from minispore.communication.algorithms.recursive import (
    rabenseifner_all_reduce,
    recursive_doubling_all_gather,
    recursive_doubling_all_reduce,
    recursive_halving_reduce_scatter,
)
from minispore.communication.algorithms.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from minispore.communication.algorithms.tree import (
    rabenseifner_reduce,
    tree_all_reduce,
    tree_barrier,
    tree_broadcast,
    tree_gather,
    tree_reduce,
    tree_scatter,
    van_de_geijn_broadcast,
)

ALGORITHMS = {
    "AllReduce": {"ring": ring_all_reduce, "recursive_doubling": recursive_doubling_all_reduce,
                  "rabenseifner": rabenseifner_all_reduce, "tree": tree_all_reduce, "hierarchical": hierarchical_all_reduce},
    "ReduceScatter": {"ring": ring_reduce_scatter, "recursive_halving": recursive_halving_reduce_scatter,
                      "pairwise": pairwise_reduce_scatter, "hierarchical": hierarchical_reduce_scatter},
    "AllGather": {"ring": ring_all_gather, "recursive_doubling": recursive_doubling_all_gather, "bruck": bruck_all_gather,
                  "hierarchical": hierarchical_all_gather},
    "Broadcast": {"tree": tree_broadcast, "van_de_geijn": van_de_geijn_broadcast, "hierarchical": hierarchical_broadcast},
    "Reduce": {"tree": tree_reduce, "rabenseifner": rabenseifner_reduce, "hierarchical": hierarchical_reduce},
    "AlltoAll": {"pairwise": pairwise_all_to_all, "bruck": bruck_all_to_all},
    "Gather": {"linear": linear_gather, "tree": tree_gather},
    "Scatter": {"linear": linear_scatter, "tree": tree_scatter},
    "Barrier": {"dissemination": dissemination_barrier, "tree": tree_barrier, "hierarchical": hierarchical_barrier},
}
