"""Passes: each takes a graph and leaves a simpler one that computes the same."""
from minispore.graph.ir import Graph

SMALL = 1024            # values; larger constants aren't worth computing at compile time


def simplify(graph: Graph) -> Graph:
    """All passes, in the order in which they help each other."""
    for run in (fold_constants, merge_duplicates, prune):
        run(graph)
    return graph


def prune(graph: Graph) -> None:
    """Drop nodes that no output needs. Nodes with an effect (communication) stay."""
    live = set(graph.results())
    kept = []
    for node in reversed(graph.nodes):
        if node.op.effect or any(v in live for v in node.outs):
            live.update(node.ins)
            kept.append(node)
    graph.nodes = kept[::-1]
    graph.parameters = {p: v for p, v in graph.parameters.items() if v in live}


def merge_duplicates(graph: Graph) -> None:
    """Compute what is written twice only once: the same op on the same values."""
    seen, same, kept = {}, {}, []
    for node in graph.nodes:
        node.ins = tuple(same.get(v, v) for v in node.ins)
        key = (node.op, node.op.strategy, tuple(v.number for v in node.ins))
        # repr tells 0.0 from -0.0, which are equal.
        if not node.op.effect and key in seen and repr(node.op) == repr(seen[key].op):
            same.update(zip(node.outs, seen[key].outs, strict=True))
            for v in node.outs:
                same[v].wants(v.like)
        else:
            seen[key] = node
            kept.append(node)
    graph.nodes = kept
    for node in kept:
        for v in node.outs:
            v.like = same.get(v.like, v.like)
    _rename(graph, same)


def fold_constants(graph: Graph) -> None:
    """Compute at once what depends on small constants alone."""
    kept = []
    for node in graph.nodes:
        known = bool(node.ins) and all(v.array is not None and v.array.size <= SMALL for v in node.ins)
        if not known or node.op.effect or any(_size(v) > SMALL for v in node.outs):
            kept.append(node)
            continue
        out = node.op.compute(node.op.infer(*node.ins), [v.array for v in node.ins])
        for v, array in zip(node.outs, [out] if node.single else out, strict=True):
            v.array, v.node = array, None
    graph.nodes = kept


def _size(value) -> int:
    size = 1
    for n in value.shape:
        size *= n
    return size


def _rename(graph, same) -> None:
    graph.outputs = [same.get(v, v) for v in graph.outputs]
    graph.assigned = {p: same.get(v, v) for p, v in graph.assigned.items()}
