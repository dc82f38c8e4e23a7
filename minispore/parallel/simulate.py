"""A rank's program without a cluster: compiled for any number of devices, looked at, and run in lock-step."""
from collections import Counter
from collections.abc import Callable
from math import prod

import numpy as np

from minispore.common.state import PARALLEL_DEFAULTS, current
from minispore.common.tensor import Tensor
from minispore.common.tree import flatten
from minispore.context import merged
from minispore.graph import memory
from minispore.graph.compile import is_input, trace
from minispore.graph.ir import Graph
from minispore.graph.overlap import overlap
from minispore.graph.passes import simplify
from minispore.parallel.collectives import Between, sent_values
from minispore.parallel.lockstep import LockStep
from minispore.parallel.placement import Placement
from minispore.parallel.program import Compiler

PASSES = ("trace", "simplify", "complete", "partition", "local", "overlap")


class LocalProgram:
    """What `compile` returns: the program of rank `global_rank` of `device_num`.

    graph: this rank's nodes on slices; parameters: {name: Placement} of those that lie in pieces; collectives: how many of
    each kind a rank takes part in; sent_bytes: what it sends in one run; memory: bytes of its parameters, its inputs, the
    intermediate results' arena, and of the three.
    """

    def __init__(self, shown: dict[str, str], logical: Graph, cut, global_rank: int):
        self.logical, self.cut, self.global_rank = logical, cut, global_rank
        self.graph = cut.for_rank(global_rank)
        self._shown = {**shown, "partition": cut.show(), "local": self.graph.show()}
        self.scheduled = overlap(cut.for_rank(global_rank))
        self._shown["overlap"] = self.scheduled.show()
        layouts = {p: cut.plan.layout[v] for p, v in logical.parameters.items()}
        self.parameters = {p.name: Placement(cut.mesh, logical.parameters[p].shape, layout)
                           for p, layout in layouts.items() if not layout.whole}

    @property
    def plan(self):
        """What auto parallel's search has found (parallel/search/explain.py), with `show()`, and as a map in a
        notebook; None where nothing was searched."""
        return self.cut.plan.found

    @property
    def communications(self) -> list:
        """The nodes that communicate."""
        return [n for n in self.graph.nodes if isinstance(n.op, Between)]

    @property
    def collectives(self) -> Counter:
        return Counter(n.op.name.removesuffix("Over") for n in self.communications)

    @property
    def sent_bytes(self) -> int:
        return sum(sent_values(n.op, v.shape) * n.op.wire(v.dtype) for n in self.communications for v in n.outs)

    @property
    def memory(self) -> dict[str, int]:
        return memory.taken(self.scheduled)

    def show(self, after: str = "local") -> str:
        """The program as text after a pass: "trace", "simplify", "complete" (a layout for every value), "partition" (the
        steps of all ranks), "local" (this rank's nodes), "overlap" (the same, with collectives begun early)."""
        if after not in self._shown:
            raise ValueError(f"show: {after!r} is no pass; there are {', '.join(PASSES)}")
        return self._shown[after]

    def lockstep(self, *inputs) -> LockStep:
        """An executor of all ranks' programs on these (logical) inputs; iterate over it step by step, or `run()` it."""
        leaves = flatten(inputs, is_input)[0]
        arrays = [np.asarray(t._data() if isinstance(t, Tensor) else t) for t in leaves]
        feed = dict(zip(self.logical.inputs, arrays, strict=True))
        return LockStep(self.cut, feed | {v: p._data() for p, v in self.logical.parameters.items()})

    def __str__(self):
        lines = [f"rank {self.global_rank} of {self.cut.mesh.n}: {len(self.graph.nodes)} nodes, {self.sent_bytes:,} bytes sent",
                 "collectives: " + (", ".join(f"{n} {name}" for name, n in self.collectives.items()) or "none"),
                 "memory: " + ", ".join(f"{name} {n:,} bytes" for name, n in self.memory.items())]
        return "\n".join(lines + [f"{name}: {p}, here {p.local_shape}" for name, p in self.parameters.items()])


def compile(net: Callable, *inputs, device_num: int, global_rank: int = 0, cluster=None, memory: int | None = None,
            **settings) -> LocalProgram:
    """The program that one of `device_num` ranks would run, made without them.

    Args:
        net: a Cell or function of tensors; a training step such as nn.TrainOneStepCell, or value_and_grad's.
        inputs: its (logical) arguments; Parameters are neither changed nor laid out.
        device_num, global_rank: for how many devices, and for which of them.
        cluster, memory: for parallel_mode="auto_parallel": the cluster for which a plan is searched, by name ("a100",
            "ascend910b", …) or JSON file, and the bytes that a device has at most. `plan` of the result says what was found.
        settings: keys of set_auto_parallel_context, as far as they concern the compiler.

    >>> from minispore import Tensor, ops
    >>> product = ops.MatMul().shard(((2, 1), (1, 2)))
    >>> program = compile(product, Tensor([[1.0, 2.0]] * 4), Tensor([[1.0, 2.0]] * 2), device_num=4, global_rank=3)
    >>> program.graph.nodes[-3].outs[0].shape, dict(program.collectives)
    ((2, 1), {'AllGather': 2})
    """
    if not isinstance(device_num, int) or device_num < 1 or not 0 <= global_rank < device_num:
        raise ValueError(f"compile: global_rank={global_rank!r} of device_num={device_num!r}; ranks are 0 … device_num - 1")
    if unknown := sorted(settings.keys() - PARALLEL_DEFAULTS.keys()):
        raise ValueError(f"compile: unknown setting {unknown[0]!r}; they are set_auto_parallel_context's keys: "
                         f"{', '.join(sorted(PARALLEL_DEFAULTS))}")
    if memory is not None and (not isinstance(memory, int) or isinstance(memory, bool) or memory < 1):
        raise ValueError(f"compile: memory={memory!r} must be a whole number of bytes, such as 30 * 2**30")
    state = current()
    settings = {**merged(state.parallel, settings), "device_num": device_num}
    leaves, skeleton = flatten((inputs, {}), is_input)
    run = getattr(net, "_run", net)
    before, state.compiler = state.compiler, Compiler(settings, cluster, memory)
    try:
        graph, _ = trace(run, leaves, skeleton)
        shown = {"trace": graph.show()}
        simplify(graph)
        shown["simplify"] = graph.show()
        cut = state.compiler.cut(graph, [t.layout if isinstance(t, Tensor) else None for t in leaves])
    finally:
        state.compiler = before
    shown["complete"] = "\n".join(f"{v!r}: {cut.plan.layout[v]}" for v in (*graph.inputs, *graph.parameters.values(),
                                                                           *(v for n in graph.nodes for v in n.outs)))
    return LocalProgram(shown, graph, cut, global_rank)


class Simulation:
    """In the place of a Program where the other ranks aren't there: it has the rank's program, and gives zeros.

    program: a LocalProgram, or in data and hybrid parallel the rank's graph. ran: told of each run.
    """

    def __init__(self, program: LocalProgram | Graph, layouts: list | None = None, ran: Callable | None = None):
        local = isinstance(program, Graph)
        self.program, self.ran, self.fresh = program, ran, False
        self.graph = program if local else program.graph
        self.scheduled = overlap(program) if local else program.scheduled
        self.layouts = layouts or [None] * len(self.graph.outputs)

    def fits(self) -> bool:
        return True

    def run(self, tensors: list) -> list[Tensor]:
        if self.ran is not None:
            self.ran(self)
        arrays = [np.zeros(v.shape, v.dtype) for v in self.graph.outputs]
        return list(map(Tensor.from_numpy, arrays, self.layouts))

    def batch(self, ranks: int) -> int | None:
        """Rows of all ranks together that one run works on, where that is to be seen: all inputs have as many, and are no
        gradients, of which each weight has one."""
        logical = isinstance(self.program, LocalProgram)
        graph = self.program.logical if logical else self.graph
        shapes = {v.shape for v in graph.inputs if v.shape}
        weights = {v.shape for v in graph.parameters.values() if prod(v.shape) > 1}
        rows = {shape[0] for shape in shapes}
        return rows.pop() * (1 if logical else ranks) if len(rows) == 1 and weights and not weights <= shapes else None


def shown(program: LocalProgram, layouts: list) -> Simulation:
    """What `msrun --sim_level` makes of a program: it prints it."""
    print(program, flush=True)
    return Simulation(program, layouts)
