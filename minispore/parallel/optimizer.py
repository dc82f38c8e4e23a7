"""Optimizer parallel (ZeRO; Rajbhandari et al., 2020): what every replica would keep is shared out among them.

Nothing of it is a pass of its own kind: the states' layouts are split further along dim 0, gradients are told to want the
layout of the states, and a ReduceScatter and an AllGather follow by themselves. At level3 the parameters are stored so as
well, and gathered anew for each use.
"""
from dataclasses import dataclass
from math import prod

from minispore.common.parameter import Parameter
from minispore.graph.ir import Graph, Value
from minispore.parallel.layout import TensorLayout, fits_shape
from minispore.parallel.mesh import Mesh


@dataclass(frozen=True)
class Sharding:
    """parallel_optimizer_config: threshold in KB of a parameter's piece; shard_size, the most ranks a state is shared by
    (-1: all replicas); level: "level1" and "level2" share states (and so gradients), "level3" the parameters too."""
    threshold: int = 64
    shard_size: int = -1
    level: str = "level1"

    @classmethod
    def of(cls, settings: dict) -> "Sharding | None":
        """What the parallel context asks for, if it does."""
        if not settings["enable_parallel_optimizer"]:
            return None
        config = settings["parallel_optimizer_config"]
        return cls(config.get("parallel_optimizer_threshold", 64), config.get("optimizer_weight_shard_size", -1),
                   config.get("optimizer_level", "level1"))

    def stored(self, graph: Graph) -> set[Value]:
        """The parameters that are stored otherwise than they are used: how they lie now says nothing of how ops want them."""
        return {v for p, v in graph.parameters.items() if self.level == "level3" and trained(p)}

    def split(self, p: Parameter, shape: tuple, layout: TensorLayout, mesh: Mesh, last: frozenset) -> TensorLayout:
        """The parameter's layout, with dim 0 split over the ranks that would hold the same piece; the axes over which the
        gradient is summed come last, so that slices come before the ReduceScatter and what it moves is small."""
        if self.shard_size > mesh.n:
            raise RuntimeError(f"optimizer_weight_shard_size={self.shard_size} is more than the {mesh.n} devices there are; "
                               "use -1 or a smaller number")
        bytes_here = prod(shape) * p.dtype.itemsize // mesh.count(layout.axes)
        if not shape or not p.parallel_optimizer or bytes_here < self.threshold * 1024:
            return layout
        replicas, wider = 1, layout
        for a in sorted(mesh.axes, key=lambda a: a in last):
            more = wider.but(0, (*wider.dims[0], a))
            n = replicas * mesh.sizes[a]
            if a not in layout.axes and fits_shape(mesh, shape, more) and (self.shard_size < 0 or n <= self.shard_size):
                replicas, wider = n, more
        return wider


def trained(p: Parameter) -> bool:
    """Whether it has a gradient; optimizer states have none."""
    return p.requires_grad and not hasattr(p, "state_of")


def share_out(graph: Graph, mesh: Mesh, layouts: dict[Value, TensorLayout], sharding: Sharding
              ) -> tuple[dict[Value, list[TensorLayout]], set[Value]]:
    """(layouts of the states, and at level3 of the parameters; values to be gathered for each use). `layouts`: what a
    first completion, without sharing out, has decided."""
    given: dict[Value, list[TensorLayout]] = {}
    apart: set[Value] = set()
    states: dict[Parameter, list[Value]] = {}
    for p, v in graph.parameters.items():
        if getattr(p, "state_of", None) in graph.parameters:
            states.setdefault(p.state_of, []).append(v)
    belonging: dict[Value | None, list[Value]] = {}
    for out in (out for node in graph.nodes for out in node.outs):
        belonging.setdefault(out.like, []).append(out)
    for p, v in graph.parameters.items():
        if not trained(p):
            continue
        gradients = [out for out in belonging.get(v, ()) if out is not graph.assigned.get(p)]
        summed = frozenset().union(*(layouts[out].partial for out in gradients))
        wider = sharding.split(p, v.shape, layouts[v], mesh, summed)
        if wider == layouts[v] or not (states.get(p) or sharding.level == "level3"):
            continue
        mine = [s for s in states.get(p, ()) if s.shape == v.shape]
        given.update((s, [wider]) for s in mine)
        if sharding.level == "level3":
            given[v] = [wider]
            apart.add(v)
        elif mine:
            for out in gradients:
                out.like = mine[0]
    return given, apart
