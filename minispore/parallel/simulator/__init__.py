"""The simulator: a rank's program in virtual time on a described cluster.

    events.py       the engine: roles, their two streams, and how they wait for one another
    program.py      the events of a rank's graph, by the cost model
    timeline.py     what happened when: step time, idle share, exposed communication, bytes by link, memory
    scaling.py      step times on more and more cards
"""
from minispore.graph.ir import Graph
from minispore.parallel.cost.cluster import Cluster, cluster_of
from minispore.parallel.mesh import Mesh
from minispore.parallel.simulate import LocalProgram
from minispore.parallel.simulator.events import Role
from minispore.parallel.simulator.program import events_of, held
from minispore.parallel.simulator.timeline import Timeline, timeline

__all__ = ["Timeline", "simulate"]


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
    cluster = cluster_of(cluster)
    if isinstance(program, LocalProgram):
        graph, n = program.scheduled, program.cut.mesh.n
    elif isinstance(program, Graph):
        if mesh is None:
            raise TypeError("simulate: of a Graph it isn't known for how many devices it is; give mesh=Mesh(n)")
        graph, n = program, mesh.n
    else:
        raise TypeError(f"simulate: {type(program).__name__} is no program; give what minispore.compile(net, *inputs, "
                        "device_num=n) returns, or a rank's Graph and its Mesh")
    return timeline([Role(f"each of {n} ranks" if n > 1 else "rank 0", events_of(graph, cluster, n), n, held(graph))], cluster)
