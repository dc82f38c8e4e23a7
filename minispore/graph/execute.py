"""Program: a graph made ready to run as a flat list of calls on memory that is already there."""
from math import prod

import numpy as np

from minispore.common.parameter import Parameter
from minispore.common.tensor import Tensor
from minispore.graph import memory
from minispore.graph.ir import Graph, Value
from minispore.graph.overlap import Start, Wait, overlap, progress


class Program:
    """Runs a graph again and again: no allocation, no shape work and no look-up by name while it runs.

    The arrays of parameters are used as they are. Should one of them be another array than last time (an assignment
    on a tape replaces it), the calls are prepared again.
    """

    def __init__(self, graph: Graph, layouts: list | None = None):
        """layouts: of the outputs that are pieces of logical tensors (see parallel/program.py)."""
        self.graph = graph = overlap(graph)
        self.layouts = layouts or [None] * len(graph.outputs)
        self.fresh = any(n.op.fresh for n in graph.nodes)       # random numbers are drawn
        self.parameters: list[Parameter] = list(dict.fromkeys([*graph.parameters, *graph.assigned]))
        self.root, self.in_place, self.plan = memory.places(graph)
        self.placed = [p._layout for p in self.parameters]
        self.allocate()
        self.prepare()

    def allocate(self) -> None:
        """Memory for inputs and intermediate results."""
        self.arena = memory.arena(self.plan.size)
        self.inputs = [np.empty(v.shape, v.dtype) for v in self.graph.inputs]

    def fits(self) -> bool:
        """Whether the parameters lie as they did when the program was made."""
        return all(p._layout is layout or p._layout == layout for p, layout in zip(self.parameters, self.placed, strict=True))

    def prepare(self) -> None:
        """Make the list of calls for the arrays the parameters have now."""
        self.bound = [p._data() for p in self.parameters]
        at: dict[Value, np.ndarray] = dict(zip(self.graph.inputs, self.inputs, strict=True))
        at |= {v: p._array for p, v in self.graph.parameters.items()}
        at |= {self.graph.assigned[p]: p._array for p in self.in_place}
        self.calls = []
        under_way: list = []                    # collectives, begun and not waited for
        for node in self.graph.nodes:
            ins = [self._array(v, at) for v in node.ins]
            if node.outs and node.outs[0] in self.root:
                at[node.outs[0]] = node.op.forward(ins[0])
                continue
            for v in node.outs:
                if v not in at:
                    at[v] = self._place(v)
            outs = [at[v] for v in node.outs]
            self.calls.append((node.op.runner((*node.ins, *node.outs)), outs[0] if node.single else outs, ins, node))
            if isinstance(node.op, Start):
                under_way.append(node)
            elif isinstance(node.op, Wait):
                under_way = [n for n in under_way if n.op is not node.op.begun]
            elif under_way:
                self.calls.append((progress, None, (), under_way[-1]))
        self.outputs = [self._array(v, at) for v in self.graph.outputs]
        # A new value that is another parameter's old one is taken aside before any parameter changes.
        self.updates = [(p._array, self._array(v, at), v.node is None) for p, v in self.graph.assigned.items()
                        if p not in self.in_place]

    def _array(self, v: Value, at) -> np.ndarray:
        return at[v] if v in at else v.array

    def _place(self, v: Value) -> np.ndarray:
        start = self.plan.offset[v]
        return self.arena[start:start + prod(v.shape) * v.dtype.itemsize].view(v.dtype).reshape(v.shape)

    def recover(self) -> None:
        """After a failure: what is under way keeps the memory in which it may still write, the next run gets another one."""
        begun = [n.op.handles for n in self.graph.nodes if isinstance(n.op, Start) and n.op.handles]
        for handles in begun:
            handles.clear()
        if begun:
            self.allocate()
            for p in self.in_place:
                p._array = p._array.copy()
            self.prepare()

    def run(self, tensors: list) -> list[Tensor]:
        """Run on these tensors (or arrays); returns new ones, and leaves the parameters changed."""
        arrays = self([t._data() if isinstance(t, Tensor) else t for t in tensors])
        return list(map(Tensor.from_numpy, arrays, self.layouts))

    def __call__(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The same on arrays."""
        if any(p._array is not b for p, b in zip(self.parameters, self.bound, strict=True)):
            self.prepare()
        for mine, given in zip(self.inputs, arrays, strict=True):
            np.copyto(mine, given)
        node = None
        try:
            with np.errstate(all="ignore"):
                for call, out, ins, node in self.calls:     # noqa: B007  (the error message wants it)
                    call(out, *ins)
        except BaseException as e:
            self.recover()
            e.add_note(f"while running {node.op}" + (f" of cell {node.scope}" if node.scope else ""))
            raise
        results = [a.copy() for a in self.outputs]
        updates = [(target, value.copy() if foreign else value) for target, value, foreign in self.updates]
        for target, value in updates:
            np.copyto(target, value)
        return results
