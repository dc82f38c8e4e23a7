"""Which nodes look alike, so that equal layers are solved once.

Colour refinement (Weisfeiler and Leman, 1968), a few rounds of it: nodes get a common colour if their ops, shapes and strategies
are equal, and their neighbours' colours were. All nodes of a colour then make one common choice. After some rounds the layers of
a deep network have common colours, except at its ends, whatever the cells are called.
"""
from minispore.graph.ir import Node, Value
from minispore.parallel.search.task import Task

ROUNDS = 4


def alike(task: Task, rounds: int | None = ROUNDS) -> tuple[dict[Node, int], dict[Value, int]]:
    """Colours of the nodes, and of the values that are kept. rounds None: each has its own."""
    graph = task.graph
    kept = [v for v in [*graph.inputs, *graph.parameters.values(), *(v for n in graph.nodes for v in n.outs)] if task.kept(v)]
    if rounds is None:
        return {n: i for i, n in enumerate(graph.nodes)}, {v: i for i, v in enumerate(kept)}
    numbers: dict = {}

    def colour(key) -> int:
        return numbers.setdefault(key, len(numbers))
    results = set(graph.results())
    users: dict[Value, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for i, v in enumerate(node.ins):
            users.setdefault(v, []).append((node, i))

    def source(v: Value):
        """What is known of a value that no node makes."""
        if v in graph.inputs:
            return "input", v.number
        return v.shape, str(v.dtype), v in task.stored, str(task.given.get(v)), v in task.apart
    of_node = {n: colour((what(n), str(n.op.strategy), tuple((v.shape, str(v.dtype)) for v in (*n.ins, *n.outs)),
                          tuple(task.kept(v) for v in (*n.ins, *n.outs)))) for n in graph.nodes}
    of_source = {v: colour(source(v)) for v in users if v.node is None}
    place = {v: (n, i) for n in graph.nodes for i, v in enumerate(n.outs)}

    def made(v: Value) -> tuple:
        return (of_source[v],) if v.node is None else (of_node[place[v][0]], place[v][1])

    def wanted(v: Value) -> tuple:
        goal = task.goal.get(v) if v in results else None
        return tuple(sorted((of_node[n], i) for n, i in users.get(v, ()))), v in results, \
            of_source.get(goal) if isinstance(goal, Value) else str(goal)
    for _ in range(rounds):
        seen = {n: colour((of_node[n], tuple(map(made, n.ins)), tuple(map(wanted, n.outs)))) for n in graph.nodes}
        of_source = {v: colour((of_source[v], wanted(v))) for v in of_source}
        of_node = seen
    of_value = {v: colour(("kept", *made(v), task.users[v])) if v.node is not None else
                of_source.get(v, colour(("unused", v.number))) for v in kept}
    return of_node, of_value


def what(node: Node):
    """Its op; of random numbers it doesn't matter which are drawn."""
    return type(node.op) if node.op.fresh else (node.op, repr(node.op))
