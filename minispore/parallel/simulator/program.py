"""A rank's graph as events: what each node costs, what its collectives move over which links, what memory it takes."""
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from minispore.communication.management import WORLD_NAMES, communicator
from minispore.graph import memory, overlap
from minispore.graph.ir import Graph, Node, Value
from minispore.ops import communication as local
from minispore.ops.primitive import Pin, Primitive
from minispore.parallel import collectives as between
from minispore.parallel.cost.cluster import Cluster
from minispore.parallel.cost.compute import node_seconds, size_of
from minispore.parallel.cost.exchange import group_seconds
from minispore.parallel.simulator.events import Begin, Compute, Wait


class Exchange(NamedTuple):
    """A collective as the cost model knows it: its name there, the ranks, and the bytes it is about as a whole."""
    op: str
    ranks: Sequence[int]
    bytes: float


SENT = {"all_reduce": 2, "barrier": 0}       # times that a rank sends the whole but its own part; of all others: once


def events_of(graph: Graph, cluster: Cluster, ranks: int, keys: Iterator[int]) -> list:
    """The events of one run of a scheduled graph (after `overlap`) on one of so many ranks. keys: of its collectives."""
    events, room = [Compute("begin", cluster.begin, kind="begin")] if cluster.begin else [], memory_of(graph)
    begun: dict[int, int] = {}                     # Starts by id: those of equal collectives are equal
    for node in graph.nodes:
        takes, frees = room[node]
        if isinstance(node.op, overlap.Wait):
            events.append(Wait(begun.pop(id(node.op.begun)), frees))
            continue
        op = node.op.op if isinstance(node.op, overlap.Start) else node.op
        if not communicates(op):
            if not node.op.view and not isinstance(node.op, Pin):
                events.append(Compute(node.scope or op.name, node_seconds(cluster.device, node), takes, frees, op.name))
            continue
        key, name = next(keys), op.name.removesuffix("Over")
        what = exchange_of(op, node, ranks)
        inside, outside = sent(cluster, what)
        events.append(Begin(key, node.scope or name, group_seconds(cluster, *what), inside, outside, takes=takes, kind=name))
        if isinstance(node.op, overlap.Start):
            begun[id(node.op)] = key
            if not cluster.overlap:                         # who computes moves the bytes as well
                events.append(Wait(key))
        elif not isinstance(op, local.Send):
            events.append(Wait(key, frees))
    return events


def communicates(op: Primitive) -> bool:
    return isinstance(op, between.Between | local.Collective)


def exchange_of(op: Primitive, node: Node, ranks: int) -> Exchange:
    """What a node's collective costs. A program's own Send and Receive are taken as if every rank did the same at once."""
    ins, outs = size_of(node.ins), size_of(node.outs)
    if isinstance(op, between.HaloOver):
        return Exchange("halo", op.ranks, max(op.size - op.length, 0) / op.length * ins)
    name = NAMES.get(type(op), "permute")
    if isinstance(op, between.Between):
        group = op.ranks
    else:
        group = range(ranks) if op.group in WORLD_NAMES else communicator(op.group).ranks
    return Exchange(name, group, max(ins, outs))


NAMES = {between.AllReduceOver: "all_reduce", between.AllGatherOver: "all_gather", between.ReduceScatterOver: "reduce_scatter",
         between.AllToAllOver: "all_to_all", local.AllReduce: "all_reduce", local.AllGather: "all_gather",
         local.ReduceScatter: "reduce_scatter", local.AlltoAll: "all_to_all", local.Broadcast: "broadcast",
         local.Reduce: "reduce", local.Barrier: "barrier"}


def sent(cluster: Cluster, what: Exchange) -> tuple[float, float]:
    """Bytes that a rank sends inside its node and to other nodes, the mean over the group."""
    n = len(what.ranks)
    total = what.bytes if what.op in ("permute", "halo") else SENT.get(what.op, 1) * what.bytes * (n - 1) / n
    leaving = cluster.leaving(what.ranks, everyone=what.op == "all_to_all")
    return total * (1 - leaving), total * leaving


def memory_of(graph: Graph) -> dict[Node, tuple[int, int]]:
    """(bytes taken before, bytes given back after) each node; see graph/memory.py, whose plan says where they lie."""
    owned = {v for n in graph.nodes for v in n.outs} | set(graph.inputs)
    root = memory.roots(graph, lambda v: v in owned)
    elsewhere = {graph.assigned[p] for p in memory.in_place(graph, root)} | set(graph.inputs)
    mine = {v for node in graph.nodes for v in node.outs if v not in root and v not in elsewhere}
    last = {root.get(v, v): i for i, node in enumerate(graph.nodes) for v in (*node.outs, *node.ins)}
    last |= {root.get(v, v): len(graph.nodes) for v in graph.results()}
    dying: dict[int, list[Value]] = {}
    for v, i in last.items():
        if v in mine:
            dying.setdefault(i, []).append(v)
    out = {}
    for i, node in enumerate(graph.nodes):
        new, ending = [v for v in node.outs if v in mine], dying.get(i, [])
        for v in list(new) if node.op.overwrites else ():   # its result lies where an input lay that dies with it
            heir = next((u for u in ending if u in node.ins and (u.shape, u.dtype) == (v.shape, v.dtype)), None)
            if heir is not None:
                new.remove(v)
                ending.remove(heir)
        out[node] = sum(map(memory.bytes_of, new)), sum(map(memory.bytes_of, ending))
    return out


def held(graphs: Sequence[Graph]) -> int:
    """Bytes that are there before anything runs: parameters and inputs."""
    parameters = {p: v for graph in graphs for p, v in graph.parameters.items()}
    return sum(map(memory.bytes_of, [*parameters.values(), *dict.fromkeys(v for graph in graphs for v in graph.inputs)]))
