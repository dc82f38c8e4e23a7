"""Overlap: a collective begins as soon as its inputs are there, and is waited for when its result is first read.

What is computed in between hides it: in data parallel a bucket of gradients goes out while the rest of the backward pass
still runs. Whatever has an effect keeps its order, and with it the collectives of every group.
"""
from dataclasses import dataclass, field
from math import prod

from minispore.communication.management import communicator
from minispore.graph.ir import Graph, Node, Value
from minispore.ops.primitive import Primitive


@dataclass(frozen=True)
class Start(Primitive):
    """Begins a collective. What is under way lies in `handles` until the wait."""
    op: Primitive
    handles: list = field(default_factory=list, repr=False, compare=False)
    effect, widens = True, False

    def runner(self, values):
        post, handles = self.op.poster(values), self.handles

        def start(out, *xs):
            handles[:] = post(out, *xs)
        return start


@dataclass(frozen=True)
class Wait(Primitive):
    """Ends it. Inputs: the collective's outputs and inputs, so that their memory is theirs until then."""
    begun: Start
    effect, widens = True, False

    def runner(self, values):
        handles = self.begun.handles

        def wait(out, *xs):
            for handle in handles:
                handle.wait()
            handles.clear()
        return wait


def overlap(graph: Graph) -> Graph:
    """Bring every collective that can be begun and waited for (see Primitive.post) to its earliest place, and take it apart
    into Start and Wait where something is computed between the two."""
    if any(node.op.post for node in graph.nodes):
        hoist(graph)
        take_apart(graph)
    return graph


def hoist(graph: Graph) -> None:
    """Move collectives, and the light nodes that only prepare them, up behind what they wait for.

    `ready`: behind which place of the program a light node or a collective can run. Whatever computes in earnest, has
    another effect or reads the result of a collective (it waits) stays in its place.
    """
    ready: dict[Node, int] = {}
    last, place = -1, {}
    for i, node in enumerate(graph.nodes):
        place[node] = i
        makers = [v.node for v in node.ins if v.node in place]
        if (node.op.post or light(node)) and not any(m.op.post for m in makers):
            ready[node] = max((ready.get(m, place[m]) for m in makers), default=-1)
        if node.op.effect:
            ready[node] = last = max(last, ready.get(node, i)) if node.op.post else i
    goal = dict(place)
    for node in reversed(graph.nodes):
        if node.op.post:
            goal[node] = ready[node]
        elif goal[node] == place[node]:
            continue
        for v in node.ins:
            if v.node in ready and not v.node.op.effect:
                goal[v.node] = min(goal[v.node], goal[node])
    graph.nodes.sort(key=goal.get)                  # stable


def light(node: Node) -> bool:
    """Whether it computes no more than one operation a value: moves and elementwise ops, as pack and scale gradients."""
    op = node.op
    return not op.effect and op.flops(*node.ins) <= sum(prod(v.shape) for v in node.outs)


def take_apart(graph: Graph) -> None:
    """Put Start in the place of a collective, and Wait in front of its result's first reader."""
    nodes: list[Node] = []
    open_: dict[Value, Node] = {}                   # results that are under way, and views of them
    idle: dict[Node, bool] = {}                     # collectives under way: whether nothing was computed since

    def wait(collective: Node) -> None:
        for v in [v for v, c in open_.items() if c is collective]:
            del open_[v]
        if not idle.pop(collective):
            start = collective.op = Start(collective.op)
            nodes.append(Node(Wait(start), (*collective.outs, *collective.ins), (), collective.scope, False))

    for node in graph.nodes:
        if node.op.view:
            if node.ins[0] in open_:
                open_[node.outs[0]] = open_[node.ins[0]]
        else:
            for collective in dict.fromkeys(open_[v] for v in node.ins if v in open_):
                if collective in idle:
                    wait(collective)
            idle = dict.fromkeys(idle, False)
        nodes.append(node)
        if node.op.post:
            open_ |= dict.fromkeys(node.outs, node)
            idle[node] = True
    for collective in list(idle):
        wait(collective)
    graph.nodes = nodes


def progress(out) -> None:
    """Between a Start and its Wait: move on what is under way, without waiting."""
    endpoint = communicator().endpoint
    if endpoint.pending:
        endpoint.progress()
