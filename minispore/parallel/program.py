"""Compiler: makes this rank's program of a logical graph, and lays parameters out over the ranks."""
import re
from dataclasses import replace
from functools import partial
from zlib import crc32

import numpy as np

from minispore.common.errors import warn
from minispore.common.parameter import Parameter
from minispore.common.state import current
from minispore.common.tensor import Tensor
from minispore.graph import memory
from minispore.graph.execute import Program
from minispore.graph.ir import Graph, Value
from minispore.graph.overlap import overlap
from minispore.ops.random import Random
from minispore.parallel import feeding
from minispore.parallel.complete import Plan
from minispore.parallel.cost import cluster_of
from minispore.parallel.fusion import fuse
from minispore.parallel.layout import TensorLayout, whole
from minispore.parallel.logical import compile_graph, cut_by, describe, rows, stored_layout
from minispore.parallel.mesh import Mesh
from minispore.parallel.operator_strategy import keep_operators, loaded_checks, loaded_parameters, read_operators
from minispore.parallel.optimizer import Sharding
from minispore.parallel.partition import Partitioned
from minispore.parallel.placement import Placement
from minispore.parallel.strategy_file import build_searched_strategy, keep_strategy, load_file


class Compiler:
    """What `set_auto_parallel_context(parallel_mode="semi_auto_parallel", …)` puts in a rank's state.

    settings: the parallel context. One object stands for one setting of it: programs made under another aren't used.
    """

    def __init__(self, settings: dict, cluster=None, memory: int | None = None):
        """cluster, memory: what auto parallel searches for, a Cluster or what cluster_of takes, and the bytes a device has; None:
        as MINISPORE_CLUSTER and set_context(max_device_memory=…) say."""
        self.settings, self.cluster, self.memory = settings, cluster, memory
        self.strategy = {}              # how the parameters of its programs lie, for the strategy file
        self.file = None                # what the strategy file to be loaded says, once it is read
        self.operators = {}             # how the ops of its programs are split, for the operator strategy file

    @property
    def mesh(self) -> Mesh:
        """The devices: device_num of the context, or all ranks."""
        n = self.settings["device_num"]
        return Mesh(n if n != 1 else current().size)

    def fed(self, shapes: dict[str, tuple], share: tuple[int, int]) -> list[Placement | None]:
        """How the columns of a dataset's batch lie: see feeding.py."""
        return feeding.placements(self.settings["dataset_strategy"], self.mesh, shapes, share)

    def cut(self, graph: Graph, placements: list[Placement | None], together: bool = False) -> Partitioned:
        """The graph cut for the mesh; placements: how the inputs lie, None for a plain tensor that is whole everywhere. together:
        all ranks of the job do this now, so that rank 0 can search for all."""
        mesh, given = self.mesh, {}
        if self.settings["pipeline_stages"] > 1:
            raise NotImplementedError(f"pipeline_stages={self.settings['pipeline_stages']}: pipeline parallel isn't there yet; "
                                      "use 1")
        drawn_by_shards(graph, placements)
        silent = all(node.op.strategy is None for node in graph.nodes)
        batch = next((v.shape[0] for v in graph.inputs if v.shape), 0) if silent else None
        for v, placed in zip(graph.inputs, placements, strict=True):
            given[v] = [self.demand(mesh, placed, repr(v)).layout] if placed else plain_input(mesh, v.shape, batch)
        for p, v in graph.parameters.items():
            if p.layout is not None:
                given[v] = [self.demand(mesh, p.layout, f"parameter {p.name}").layout]
        pieces = any(p.layout is not None for p in graph.parameters) and not any(v.shape for v in graph.inputs)
        cut = compile_graph(graph, mesh, given, leave(placements, pieces), Sharding.of(self.settings), self.loaded(graph),
                            partial(self.search, together) if self.settings["parallel_mode"] == "auto_parallel" else None,
                            self.saved if self.settings["op_strategy_load_file"] else None)
        keep_operators(self.operators, graph, cut.plan, self.settings["op_strategy_save_file"])
        fuse(cut, self.settings, bucketed(graph))
        return cut

    def saved(self, graph: Graph, mesh: Mesh, rules) -> tuple[dict, dict[Value, list[TensorLayout]]]:
        """What the operator strategy file to be loaded says of a graph."""
        file = self.settings["op_strategy_load_file"]
        saved = read_operators(file, mesh)
        return loaded_checks(file, saved, graph, mesh, rules, describe), loaded_parameters(saved, graph, mesh)

    def search(self, together: bool, graph, mesh, rules, given, checks, goal, leave, apart, draft: bool) -> Plan:
        """The plan that auto parallel finds; together: on rank 0, for all ranks; draft: it needn't keep the memory limit."""
        from minispore.parallel.search import Task, search  # only wanted here
        from minispore.parallel.search.agree import agreed

        def taken(plan: Plan) -> int:
            cut = cut_by(graph, plan, goal, leave)
            fuse(cut, self.settings, bucketed(graph))
            return memory.taken(overlap(cut.for_rank(0)))["total"]

        def make() -> Plan:
            task = Task(graph, mesh, cluster_of(self.cluster), rules, given, checks, goal, leave, frozenset(apart), taken,
                        current().algorithm)
            return search(task, self.settings["search_mode"], None if draft else self.limit()).result()
        return agreed(graph, rules, make) if together else make()

    def limit(self) -> int | None:
        """Bytes a device has, where the user says it."""
        text = current().context.get("max_device_memory")
        return self.memory if self.memory is not None or text is None else bytes_of(text)

    def loaded(self, graph: Graph) -> dict[Value, list[TensorLayout]]:
        """How the strategy file to be loaded lays parameters out; one of another number of devices is only for checkpoints."""
        file = load_file(self.settings)
        if file and self.file is None:
            self.file = build_searched_strategy(file)
        lies = {name: stored.placement for name, stored in (self.file or {}).items() if stored.placement.mesh == self.mesh}
        return {v: [lies[p.name].layout] for p, v in graph.parameters.items() if p.name in lies and lies[p.name].shape == v.shape}

    def demand(self, mesh: Mesh, placed: Placement, what: str) -> Placement:
        if placed.mesh != mesh:
            raise ValueError(f"{what} is laid out over {placed.mesh.n} ranks ({placed}), this program is for {mesh.n}; keep "
                             "device_num, or load the values anew")
        return placed

    def program(self, graph: Graph, leaves: list) -> Program:
        """This rank's program. The graph's parameters are laid out as it needs them."""
        state, mesh = current(), self.mesh
        if mesh.n != state.size:
            raise RuntimeError(f"this program is for device_num={mesh.n} devices, the job has {state.size} ranks: start it with "
                               f"msrun --worker_num={mesh.n}, or call init() first. minispore.compile(net, *inputs, "
                               f"device_num={mesh.n}) shows a rank's program without them")
        if state.size > 1 and state.world is None and not state.simulated:
            raise RuntimeError(f"rank {state.rank} of {state.size} runs a logical program, but can't reach the others yet; call "
                               "minispore.init() first")
        placements = [t.layout if isinstance(t, Tensor) else None for t in leaves]
        cut = self.cut(graph, placements, together=not state.simulated)
        layouts = [placed(mesh, held.value, held.layout, placements) for held in cut.results[:len(graph.outputs)]]
        if state.simulated:
            from minispore.parallel.simulate import LocalProgram, shown  # they stand above this
            return (state.stand_in or shown)(LocalProgram({}, graph, cut, state.rank), layouts)
        shared = agree(graph, leaves)
        for p in {**graph.parameters, **graph.assigned}:
            lay_out(p, mesh, cut.plan.layout[graph.parameters[p]] if p in graph.parameters else stored_layout(p))
        keep_strategy(self.strategy, {**graph.parameters, **graph.assigned}, mesh)
        return RankProgram(cut.for_rank(state.rank), layouts, shared)


def bytes_of(text: str) -> int:
    """set_context's max_device_memory, such as "30GB", in bytes.

    >>> bytes_of("1.5GB")
    1610612736
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*GB\s*", text) if isinstance(text, str) else None
    if not found:
        raise ValueError(f"max_device_memory={text!r} must be a number with its unit GB, such as \"30GB\"")
    return int(float(found[1]) * 2**30)


def bucketed(graph: Graph) -> dict[Value, int]:
    """The values whose collectives may be fused: gradients and new parameters, each with its parameter's comm_fusion, and
    outputs such as the loss, for which nobody waits."""
    owners = {v: getattr(p, "state_of", p) for p, v in graph.parameters.items()}
    groups = {v: owners[v.like].comm_fusion for node in graph.nodes for v in node.outs if v.like in owners}
    return dict.fromkeys(graph.outputs, 1) | groups


def drawn_by_shards(graph: Graph, placements) -> None:
    """Row i of shard r of n is row i·n + r of the dataset, but row r·b + i of the logical batch: what is drawn for each row of
    it is drawn in the dataset's order, so that dropout is one rank's."""
    batch = next((p for p in placements if p is not None and p.batch), None)
    shards = batch.mesh.count(batch.layout.dims[0]) if batch is not None else 1
    if shards == 1 or not batch.shape[0]:
        return
    for node in graph.nodes:
        if isinstance(node.op, Random) and node.op.by_rows and node.op.shape and node.op.shape[0] % batch.shape[0] == 0:
            node.op = replace(node.op, shards=(shards, batch.shape[0] // shards))


def plain_input(mesh: Mesh, shape: tuple, batch: int | None) -> list[TensorLayout]:
    """A plain tensor is whole on every rank, so that its rows are at hand as well: a program without any strategy works on
    a batch in data parallel. batch: its number of rows in such a program."""
    known = [whole(len(shape))]
    if shape and shape[0] == batch and not (split := rows(mesh, shape)).whole:
        known.append(split)
    return known


def leave(placements, pieces: bool):
    """How outputs leave that are no gradients: of a sharded dataset each rank's rows; of other pieces as they come; whole if
    all inputs were. pieces: there are no inputs but numbers, and parameters lie in pieces."""
    batch = next((p for p in placements if p is not None and p.batch), None)
    if batch is not None:
        def final(v: Value, made: TensorLayout) -> TensorLayout:
            if v.shape and v.shape[0] == batch.shape[0]:
                return TensorLayout((batch.layout.dims[0], *((),) * (len(v.shape) - 1)))
            return whole(len(v.shape))
        return final
    if any(p is not None for p in placements) or pieces:
        return lambda v, made: made
    return lambda v, made: whole(len(v.shape))


def placed(mesh: Mesh, v: Value, layout: TensorLayout, placements) -> Placement | None:
    """What an output carries: nothing if it is whole."""
    batch = any(p is not None and p.batch for p in placements) and v.like is None
    return None if layout.whole else Placement(mesh, v.shape, layout, batch)


def lay_out(p: Parameter, mesh: Mesh, layout: TensorLayout) -> None:
    """Keep only this rank's piece of a parameter that was whole."""
    if p.layout is None and not layout.whole:
        placement = Placement(mesh, p.shape, layout)
        if p._pending:
            p._array, p._value = p._value.make(placement.region(current().rank)), None
        else:
            p._array = placement.piece(p._data())
        p._layout = placement


class RankProgram(Program):
    """A rank's program of a logical one. shared: the plain inputs that differ between ranks, so that rank 0's are taken."""

    def __init__(self, graph: Graph, layouts: list, shared: list[int]):
        super().__init__(graph, layouts)
        self.shared = shared

    def run(self, tensors: list) -> list[Tensor]:
        tensors = list(tensors)
        for i in self.shared:
            tensors[i] = current().world.broadcast(values_of(tensors[i]), 0).wait()
        return super().run(tensors)


def values_of(x) -> np.ndarray:
    return x._data() if isinstance(x, Tensor) else x


def agree(graph: Graph, leaves: list) -> list[int]:
    """Rank 0's values are the logical ones: parameters that differ on other ranks get them, with one warning. The numbers of
    the plain inputs that differ are returned.
    """
    state = current()
    if state.size == 1:
        return []
    params = [p for p in graph.parameters if p.layout is None and not p._pending]
    plain = [i for i, t in enumerate(leaves) if not (isinstance(t, Tensor) and t.layout is not None)]
    arrays = [p._data() for p in params] + [values_of(leaves[i]) for i in plain]
    names = [f"parameter {p.name}" for p in params] + [f"input {i}" for i in plain]
    if not arrays:
        return []
    sums = np.array([crc32(np.asarray(a, order="C").reshape(-1).view(np.uint8)) for a in arrays], np.int64)
    everybody = state.world.all_gather(sums[None]).wait()
    differ = (everybody != everybody[0]).any(0)
    for p, odd in zip(params, differ, strict=False):
        if odd:
            np.copyto(p._data(), state.world.broadcast(p._data(), 0).wait())
    if differ.any() and state.rank == 0:
        odd = ", ".join(name for name, d in zip(names, differ, strict=True) if d)
        warn(f"{odd}: the ranks gave different values; in semi_auto_parallel and auto_parallel a tensor is one logical tensor, "
             "so rank 0's are taken. Use ms.set_seed and minispore's initializers, or seed numpy alike on all ranks")
    return [i for i, d in zip(plain, differ[len(params):], strict=True) if d]
