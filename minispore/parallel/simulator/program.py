"""A rank's graphs as a role: what each node costs, what its collectives move over which links, what memory it takes."""
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from minispore.communication.management import WORLD_NAMES, communicator
from minispore.graph import memory, overlap
from minispore.graph.ir import Graph, Node
from minispore.ops import communication as local
from minispore.ops.primitive import Pin, Primitive
from minispore.parallel import collectives as between
from minispore.parallel.cost.cluster import Cluster
from minispore.parallel.cost.compute import node_seconds, size_of
from minispore.parallel.cost.exchange import group_seconds
from minispore.parallel.simulator.events import Begin, Compute, Hold, Receive, Role, Send, Wait


class Seat(NamedTuple):
    """Whose program it is: rank number `rank` of so many. own: it is a role of its own; else all ranks are one role, that do the
    same at the same times."""
    ranks: int
    rank: int = 0
    own: bool = False

    def role(self, rank: int) -> str:
        """The role that a rank is, or is part of."""
        return f"rank {rank}" if self.own or self.ranks == 1 else f"each of {self.ranks} ranks"


class Exchange(NamedTuple):
    """A collective as the cost model knows it: its name there, the ranks, and the bytes it is about as a whole."""
    op: str
    ranks: Sequence[int]
    bytes: float


MESSAGES = (local.Send, local.Receive, local.NeighborExchange)
NAMES = {between.AllReduceOver: "all_reduce", between.AllGatherOver: "all_gather", between.ReduceScatterOver: "reduce_scatter",
         between.AllToAllOver: "all_to_all", between.PermuteOver: "permute", between.HaloOver: "halo",
         local.AllReduce: "all_reduce", local.AllGather: "all_gather", local.ReduceScatter: "reduce_scatter",
         local.AlltoAll: "all_to_all", local.Broadcast: "broadcast", local.Reduce: "reduce", local.Barrier: "barrier"}
SENT = {"all_reduce": 2, "barrier": 0}       # times that a rank sends the whole but its own part; in all others: once


def role_of(graphs: Sequence[Graph], cluster: Cluster, seat: Seat) -> Role:
    """One run of scheduled graphs (after `overlap`), one behind the other. Groups made by create_group are those of the rank that
    asks."""
    calls: Counter[str] = Counter()
    events = [event for graph in graphs for event in events_of(graph, cluster, seat, calls)]
    return Role(seat.role(seat.rank), events, 1 if seat.own else seat.ranks, held(graphs))


def events_of(graph: Graph, cluster: Cluster, seat: Seat, calls: Counter[str]) -> Iterator:
    """The events of one run. calls: collectives of each group before it, by which its ranks' are matched."""
    room = memory_of(graph)
    begun: dict[int, str] = {}                     # keys of Starts by id: those of equal collectives are equal
    if cluster.begin:
        yield Compute("begin", cluster.begin, kind="begin")
    for node in graph.nodes:
        takes, frees = room[node]
        op = node.op.op if isinstance(node.op, overlap.Start) else node.op
        if isinstance(op, overlap.Wait):
            yield Wait(begun.pop(id(op.begun)), frees)
        elif op.view or isinstance(op, Pin):
            yield Hold(takes - frees)
        elif isinstance(op, MESSAGES):
            yield from (Hold(takes), *messages(op, node, cluster, seat), Hold(-frees))
        elif not communicates(op):
            yield Compute(node.scope or op.name, node_seconds(cluster.device, node), takes, frees, op.name)
        else:
            group, what, name = group_of(op), exchange_of(op, node, seat.ranks), op.name.removesuffix("Over")
            calls[group] += 1
            key, members = f"call {calls[group]} of {group}", tuple(map(seat.role, what.ranks)) if seat.own else ()
            yield Begin(key, node.scope or name, group_seconds(cluster, *what), *sent(cluster, what), members, takes, name)
            if isinstance(node.op, overlap.Start):
                begun[id(node.op)] = key
                if not cluster.overlap:            # who computes moves the bytes as well; its memory is free when it was to wait
                    yield Wait(key)
            else:
                yield Wait(key, frees)
    yield Hold(sum(frees - takes for takes, frees in room.values()))            # results go to whoever asked for them


def communicates(op: Primitive) -> bool:
    return isinstance(op, between.Between | local.Collective)


def group_of(op: Primitive) -> str:
    """A group's name. Of Between's, whose ranks are all in one role, it tells nothing but the size."""
    if isinstance(op, between.Between):
        return f"{len(op.ranks)} ranks"
    return "the world" if op.group in WORLD_NAMES else op.group


def ranks_of(op: Primitive, ranks: int) -> Sequence[int]:
    if isinstance(op, between.Between):
        return op.ranks
    return range(ranks) if op.group in WORLD_NAMES else communicator(op.group).ranks


def messages(op: Primitive, node: Node, cluster: Cluster, seat: Seat) -> Iterator:
    """A program's own messages, matched by group and tag as they are when it runs."""
    ranks, group = ranks_of(op, seat.ranks), group_of(op)
    match op:
        case local.Send():
            tag, out, into = op.sr_tag, [(op.dest_rank, node.ins[0])], []
        case local.Receive():
            tag, out, into = op.sr_tag, [], [op.src_rank]
        case _:
            tag, out, into = "neighbours", zip(op.send_rank_ids, node.ins, strict=True), op.recv_rank_ids
    key = f"{tag} (in {group})"
    for place, value in out:
        to = seat.role(ranks[place])
        pair = tuple({seat.rank, ranks[place]})
        what = Exchange("permute", pair if seat.own else ranks, size_of([value]))
        yield Send(to, key, node.scope or op.name, group_seconds(cluster, *what), *sent(cluster, what), op.name)
    for place in into:
        yield Receive(seat.role(ranks[place]), key)


def exchange_of(op: Primitive, node: Node, ranks: int) -> Exchange:
    """What a node's collective is about."""
    wire = op.wire if isinstance(op, between.Between) else lambda dtype: dtype.itemsize
    ins, outs = (sum(prod(v.shape) * wire(v.dtype) for v in values) for values in (node.ins, node.outs))
    if isinstance(op, between.HaloOver):
        return Exchange("halo", op.ranks, max(op.size - op.length, 0) / op.length * ins)
    return Exchange(NAMES[type(op)], ranks_of(op, ranks), max(ins, outs))


def sent(cluster: Cluster, what: Exchange) -> tuple[float, float]:
    """Bytes that a rank sends inside its node and to other nodes: the mean over the group; of a permute, those of a rank whose
    piece changes hands."""
    n = len(what.ranks)
    total = what.bytes if what.op == "permute" and n > 1 else SENT.get(what.op, 1) * what.bytes * (n - 1) / n
    leaving = cluster.leaving(what.op, what.ranks)
    return total * (1 - leaving), total * leaving


def memory_of(graph: Graph) -> dict[Node, tuple[int, int]]:
    """(bytes taken before, bytes given back after) each node; graph/memory.py says where they lie."""
    root, written, _ = memory.places(graph)
    takes, frees = Counter(), Counter()
    for span in dict.fromkeys(memory.lives(graph, root, {graph.assigned[p] for p in written}).values()):
        takes[span.begin] += memory.bytes_of(span.first)
        frees[span.end] += memory.bytes_of(span.first)
    return {node: (takes[i], frees[i]) for i, node in enumerate(graph.nodes)}


def held(graphs: Sequence[Graph]) -> int:
    """Bytes that are there before anything runs: parameters and inputs."""
    parameters = {p: v for graph in graphs for p, v in (*graph.assigned.items(), *graph.parameters.items())}
    return sum(map(memory.bytes_of, [*parameters.values(), *dict.fromkeys(v for graph in graphs for v in graph.inputs)]))
