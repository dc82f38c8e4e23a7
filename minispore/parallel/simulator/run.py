"""Simulate: one run of a rank's program in virtual time."""
from collections.abc import Sequence

from minispore.graph.ir import Graph
from minispore.parallel.cost.cluster import Cluster, cluster_of
from minispore.parallel.mesh import Mesh
from minispore.parallel.simulate import LocalProgram
from minispore.parallel.simulator.program import Seat, role_of
from minispore.parallel.simulator.timeline import Timeline, timeline


def simulate(program: LocalProgram | Graph, cluster: str | Cluster | None = None, mesh: Mesh | None = None) -> Timeline:
    """One run of a rank's program in virtual time; all ranks do the same.

    Args:
        program: what `minispore.compile` returns, or a rank's graph after `overlap`.
        cluster: a name (cpu, a100, h100, ascend910, ascend910b), a JSON file, or a Cluster; None: MINISPORE_CLUSTER's, else cpu.
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


def simulate_graphs(graphs: Sequence[Graph], ranks: int, cluster: str | Cluster | None = None) -> Timeline:
    """The same of several scheduled graphs, one behind the other, as a training step that isn't one program.

    A message that such a program receives is the one of this tag that every rank sends. Where ranks do different things, as in a
    pipeline, each is a role of its own: see program.role_of.
    """
    cluster = cluster_of(cluster)
    return timeline([role_of(graphs, cluster, Seat(ranks))], cluster)
