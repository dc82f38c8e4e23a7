"""One plan for all ranks: rank 0 searches, the others get its plan; a solver that stops after some time may stop elsewhere."""
import pickle
from collections.abc import Callable

import numpy as np

from minispore.common.state import current
from minispore.graph.ir import Graph, Value
from minispore.ops.rule import Rule
from minispore.parallel.complete import Plan


def agreed(graph: Graph, rules: dict, make: Callable[[], Plan]) -> Plan:
    """Rank 0's plan on every rank; ValueError on every rank if it finds none."""
    state = current()
    if state.size == 1:
        return make()
    plan, message = None, b""
    if state.rank == 0:
        try:
            plan = make()
            message = pickle.dumps(packed(graph, plan))
        except ValueError as e:
            message = pickle.dumps(str(e))
    size = state.world.broadcast(np.array([len(message)]), 0).wait()
    sent = np.frombuffer(message, np.uint8).copy() if message else np.empty(int(size[0]), np.uint8)
    got = pickle.loads(state.world.broadcast(sent, 0).wait().tobytes())
    if isinstance(got, str):
        raise ValueError(got)
    return plan or unpacked(graph, rules, got)


def values(graph: Graph) -> list[Value]:
    """All values of a graph, in an order that is the same on all ranks."""
    return list(dict.fromkeys([*graph.inputs, *graph.parameters.values(), *(v for n in graph.nodes for v in (*n.ins, *n.outs)),
                               *graph.results()]))


def packed(graph: Graph, plan: Plan) -> tuple:
    """A plan without its graph."""
    every = values(graph)
    return (plan.mesh, [v in plan.apart for v in every], [(plan.assignment[n], plan.want[n]) for n in graph.nodes],
            [plan.layout.get(v) for v in every], [plan.settle.get(v) for v in every])


def unpacked(graph: Graph, rules: dict[object, Rule], data: tuple) -> Plan:
    """The plan of this rank's graph that was packed so."""
    mesh, apart, nodes, layout, settle = data
    every = values(graph)
    if (len(nodes), len(layout)) != (len(graph.nodes), len(every)):
        raise ValueError(f"rank {current().rank} has traced a program of {len(graph.nodes)} ops and {len(every)} values, rank 0 "
                         f"one of {len(nodes)} and {len(layout)}; in auto_parallel all ranks must run the same script")
    plan = Plan(mesh, rules, apart=frozenset(v for v, anew in zip(every, apart, strict=True) if anew))
    for node, (assignment, want) in zip(graph.nodes, nodes, strict=True):
        plan.assignment[node], plan.want[node] = assignment, want
    plan.layout = {v: lay for v, lay in zip(every, layout, strict=True) if lay is not None}
    plan.settle = {v: lay for v, lay in zip(every, settle, strict=True) if lay is not None}
    return plan
