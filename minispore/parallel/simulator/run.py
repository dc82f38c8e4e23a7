"""Simulate: one run of a rank's program in virtual time."""
from collections.abc import Sequence
from itertools import count

from minispore.graph.ir import Graph
from minispore.parallel.cost.cluster import Cluster, cluster_of
from minispore.parallel.mesh import Mesh
from minispore.parallel.simulate import LocalProgram
from minispore.parallel.simulator.events import Role
from minispore.parallel.simulator.program import events_of, held
from minispore.parallel.simulator.timeline import Timeline, timeline


def simulate(program: LocalProgram | Graph, cluster: str | Cluster | None = "cpu", mesh: Mesh | None = None) -> Timeline:
    """One run of a rank's program in virtual time; all ranks do the same.

    Args:
        program: what `minispore.compile` returns, or a rank's graph after `overlap`.
        cluster: a name (cpu, a100, h100, ascend910, ascend910b), a JSON file, or a Cluster.
        mesh: of a graph, the devices it is for.

    >>> from minispore import Tensor, ops
    >>> from minispore.parallel import compile
    >>> product = ops.MatMul().shard(((1, 2), (2, 1)))
    >>> line = simulate(compile(product, Tensor([[1.0, 2.0]]), Tensor([[1.0], [2.0]]), device_num=2), "a100")
    >>> [(span.kind, span.stream) for span in line.spans][-2:]
    [('MatMul', 'compute'), ('AllReduce', 'communication')]
    """
    if isinstance(program, LocalProgram):
        return simulate_graphs([program.scheduled], program.cut.mesh.n, cluster)
    if not isinstance(program, Graph):
        raise TypeError(f"simulate: {type(program).__name__} is no program; give what minispore.compile(net, *inputs, "
                        "device_num=n) returns, or a rank's Graph and its Mesh")
    if mesh is None:
        raise TypeError("simulate: of a Graph it isn't known for how many devices it is; give mesh=Mesh(n)")
    return simulate_graphs([program], mesh.n, cluster)


def simulate_graphs(graphs: Sequence[Graph], ranks: int, cluster: str | Cluster | None = "cpu") -> Timeline:
    """The same of several scheduled graphs, one behind the other, as a training step that isn't one program."""
    cluster, keys = cluster_of(cluster), count()
    events = [event for graph in graphs for event in events_of(graph, cluster, ranks, keys)]
    return timeline([Role(f"each of {ranks} ranks" if ranks > 1 else "rank 0", events, ranks, held(graphs))], cluster)
