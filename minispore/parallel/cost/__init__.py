"""The cost model: what a program should cost on a cluster, before it is run.

    cluster.py      devices, links and how many cards a node has, as data; the known ones in a table
    file.py         a cluster as a JSON file
    compute.py      seconds of an op on a rank's pieces
    exchange.py     seconds of a move from one layout to another
"""
from minispore.parallel.cost.cluster import CLUSTERS, Cluster, Device, Link, Rate, cluster_of
from minispore.parallel.cost.compute import node_seconds, op_seconds
from minispore.parallel.cost.exchange import exchange_seconds, group_seconds, move_seconds

__all__ = ["CLUSTERS", "Cluster", "Device", "Link", "Rate", "cluster_of", "exchange_seconds", "group_seconds", "move_seconds",
           "node_seconds", "op_seconds"]
