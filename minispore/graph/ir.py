"""The graph: nodes (an op called on values), values (shape, dtype, perhaps data), inputs and outputs.

One kind of graph serves both modes. In GRAPH_MODE it is traced and compiled; in PYNATIVE_MODE it is the tape kept
while a gradient is wanted, and its values hold their arrays. Graphs are functional: a Parameter is an input, its new
value an output; only the executor writes in place.
"""
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from minispore.common.parameter import Parameter


@dataclass(eq=False, slots=True)
class Value:
    """One tensor of a graph. `array`: its data where they are known, for constants and on a tape."""
    graph: "Graph"
    number: int
    shape: tuple
    dtype: np.dtype
    array: np.ndarray | None = None
    node: "Node | None" = None          # who makes it; None for inputs, parameters and constants
    name: str = ""
    like: "Value | None" = None         # it wants that one's layout: a gradient its value's, a new parameter the old one's

    def __repr__(self):
        return self.name or f"%{self.number}"

    def wants(self, other: "Value | None") -> None:
        """Note whose layout it should have, if nothing is noted yet and a node makes it."""
        if self.like is None and self.node is not None and other is not self:
            self.like = other


@dataclass(eq=False, slots=True)
class Node:
    """One call of an op."""
    op: object
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]
    scope: str = ""                     # the cell that called it, e.g. "conv1"
    single: bool = True                 # the op returns one tensor, not a tuple
    line: str = ""                      # where in the user's script it is called


@dataclass(eq=False)
class Graph:
    """Nodes in the order of the program."""
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    parameters: dict[Parameter, Value] = field(default_factory=dict)    # as they are when the graph starts
    outputs: list[Value] = field(default_factory=list)
    assigned: dict[Parameter, Value] = field(default_factory=dict)      # as they are when it ends
    cells: dict = field(default_factory=dict)       # cells called and those inside, each with its state then
    _numbers: object = field(default_factory=lambda: count(1))

    def value(self, shape, dtype, array=None, name="") -> Value:
        return Value(self, next(self._numbers), tuple(shape), dtype, array, None, name)

    def add(self, op, ins, specs, scope="") -> Node:
        """Append a call of `op`; its outputs have the inferred specs."""
        many = isinstance(specs, list)
        outs = tuple(self.value(s.shape, s.dtype) for s in (specs if many else [specs]))
        node = Node(op, tuple(ins), outs, scope, not many)
        for v in outs:
            v.node = node
        self.nodes.append(node)
        return node

    def results(self) -> list[Value]:
        """All values that must be there at the end."""
        return [*self.outputs, *self.assigned.values()]

    def show(self) -> str:
        """The graph as text, one line a node."""
        lines = [f"input     {v!r:<12} {_type(v)}" for v in self.inputs]
        lines += [f"parameter {v!r:<12} {_type(v)}" for v in self.parameters.values()]
        for n in self.nodes:
            left = ", ".join(f"{v!r}: {_type(v)}" for v in n.outs)
            args = ", ".join(_argument(v) for v in n.ins)
            lines.append(f"{left} = {n.op}({args})".removeprefix(" = ") + (f"    # {n.scope}" if n.scope else ""))
        lines += [f"{p.name} := {v!r}" for p, v in self.assigned.items()]
        return "\n".join([*lines, f"return {', '.join(map(_argument, self.outputs))}"])


def _type(v: Value) -> str:
    return f"{v.dtype}[{', '.join(map(str, v.shape))}]"


def _argument(v: Value) -> str:
    constant = v.node is None and v.array is not None and not v.name
    return (str(v.array.item()) if v.array.size == 1 else f"const {_type(v)}") if constant else repr(v)
