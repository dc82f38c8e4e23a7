"""Recording: how calls of ops become nodes.

Two recorders, the same nodes: a Tracer sees symbols and only writes down; a Tape computes at once (PYNATIVE) and
writes down what a gradient may need.
"""
from minispore.common import random
from minispore.common.errors import TraceError, script_line
from minispore.common.parameter import Parameter
from minispore.common.recorder import recorder
from minispore.common.tensor import Tensor
from minispore.graph.ir import Graph, Value
from minispore.ops.control import Identity
from minispore.ops.primitive import Spec


class Recorder:
    """What Tracer and Tape have in common: the graph, and which value stands for which tensor."""

    def __init__(self):
        self.graph = Graph()
        self.current: dict[Parameter, Value] = {}       # a parameter's value at this point of the program
        self.nesting = 0                                # gradients being taken, one inside the other
        self.seen: dict[int, tuple[Tensor, Value]] = {} # constants by identity; the tensor is kept alive

    def value_of(self, tensor: Tensor) -> Value:
        """The value that stands for a tensor; what comes from outside becomes a parameter or a constant."""
        value = tensor._value
        if value is not None and value.graph is self.graph:
            return value
        if isinstance(tensor, Parameter):
            if tensor not in self.current:
                value = self.graph.value(tensor.shape, tensor.dtype, self.data_of(tensor), tensor.name)
                self.current[tensor] = self.graph.parameters[tensor] = value
            return self.current[tensor]
        if id(tensor) not in self.seen:
            if tensor._array is None:
                raise TraceError(f"a tensor of shape {tensor.shape} left over from another trace is used here: values "
                                 "of a graph exist only inside it. Return it from the function that makes it")
            if tensor._layout is not None:
                raise TraceError(f"a piece of a logical tensor ({tensor._layout}) is used as a constant here; pass it as an "
                                 "argument to the function or cell that is compiled")
            self.seen[id(tensor)] = tensor, self.graph.value(tensor.shape, tensor.dtype, tensor._array)
        return self.seen[id(tensor)][1]

    def alias(self, tensor: Tensor) -> Tensor:
        """The tensor under a new name, so that a gradient to it doesn't count its other uses."""
        node = self.graph.add(Identity(), [self.value_of(tensor)], Spec(tensor.shape, tensor.dtype))
        node.outs[0].array = tensor._array
        return self.finish(node)

    def finish(self, node):
        outs = list(map(Tensor._symbol, node.outs))
        return outs[0] if node.single else tuple(outs)


class Tracer(Recorder):
    """Writes down every op; nothing is computed."""

    def data_of(self, parameter):
        return None

    def apply(self, op, tensors):
        specs = op.infer(*tensors)
        node = self.graph.add(op, map(self.value_of, tensors), specs, random.path())
        node.line = script_line()
        return self.finish(node)

    def assign(self, parameter, tensor):
        self.value_of(parameter)                        # make it known as it was before
        self.current[parameter] = self.graph.assigned[parameter] = self.value_of(tensor)
        self.current[parameter].wants(self.graph.parameters[parameter])


class Tape(Recorder):
    """Computes every op, and writes down those that depend on something on the tape."""

    def data_of(self, parameter):
        return parameter._array

    def apply(self, op, tensors):
        specs = op.infer(*tensors)
        out = op.compute(specs, [t._data() for t in tensors])
        results = out if isinstance(out, list) else [out]
        if not op.effect and not any(self.knows(t) for t in tensors):
            made = list(map(Tensor.from_numpy, results))
            return tuple(made) if isinstance(out, list) else made[0]
        node = self.graph.add(op, map(self.value_of, tensors), specs)
        for v, array in zip(node.outs, results, strict=True):
            v.array = array
        return self.finish(node)

    def knows(self, tensor) -> bool:
        if isinstance(tensor, Parameter):
            return True
        return tensor._value is not None and tensor._value.graph is self.graph

    def assign(self, parameter, tensor):
        """The parameter gets a new array: values recorded before keep the old one."""
        self.value_of(parameter)
        self.current[parameter] = self.value_of(tensor)
        parameter._array = tensor._array.copy()


def tracing() -> bool:
    """Whether a graph is being traced (not: a tape kept)."""
    return isinstance(recorder(), Tracer)
