"""Random networks with random strategies, written down as data so that every rank can build the same one."""
from math import prod

import numpy as np

from minispore import Parameter, Tensor, nn, ops
from minispore.common.state import current
from minispore.ops.primitive import specs
from minispore.ops.random import Keep, Random
from minispore.ops.strategy import Strategy
from minispore.parallel.layout import TensorLayout
from minispore.parallel.legality import Check, layouts_of_input
from minispore.parallel.mesh import Mesh
from minispore.parallel.sharding import as_strategy, candidates

SIZES = (1, 2, 3, 4, 6, 8, 12)
LARGEST = 3000              # values of a tensor
F64 = np.dtype("float64")


class Draw:
    """Draws a network op by op. pick: chooses one of a list.

    steps: (op, places of its inputs); a place is ("step", i), ("parameter", i), ("input", 0) or ("constant", i).
    """

    def __init__(self, pick, devices):
        current().steps = 0             # what is drawn depends on values, and random ones on the step
        self.pick, self.mesh = pick, Mesh(devices)
        self.steps, self.values, self.parameters, self.constants, self.asked = [], [], [], [], {}
        self.x = self.some((pick(SIZES), pick([2, 4, 6]), 4, 4) if self.yes() else [pick(SIZES) for _ in range(pick([2, 3]))])
        at = ("input", 0)
        for _ in range(pick(range(2, 10))):
            new = self.op(at)
            if self.shape(new) == self.shape(at) and self.yes(3):
                new = self.call(ops.Add(), new, at)
            at = self.tamed(new)
        self.call(ops.ReduceMean(), self.call(ops.Mul(), at, at))

    def yes(self, n=2):
        return self.pick(range(n)) == 0

    # ---- values -----------------------------------------------------------------------------------------

    def some(self, shape):
        """Different numbers between -1 and 1."""
        n = prod(shape)
        return np.random.default_rng(n + len(self.constants)).permutation(np.linspace(-1, 1, n + 2)[:n]).reshape(shape)

    def array(self, at):
        kind, i = at
        return {"step": self.values, "parameter": self.parameters, "input": [self.x], "constant": self.constants}[kind][i]

    def shape(self, at):
        return self.array(at).shape

    def constant(self, array):
        self.constants.append(np.asarray(array))
        return "constant", len(self.constants) - 1

    def index(self, shape, n):
        return self.constant(np.random.default_rng(len(self.constants)).integers(0, n, shape))

    def parameter(self, shape):
        """A new one, or one that is there already, perhaps with another strategy."""
        same = [i for i, p in enumerate(self.parameters) if p.shape == tuple(shape)]
        if same and self.yes():
            return "parameter", self.pick(same)
        self.parameters.append(self.some(tuple(shape)))
        return "parameter", len(self.parameters) - 1

    def call(self, op, *places):
        tensors = [Tensor(self.array(at)) for at in places]
        op = self.strategy(op, places, [t.shape for t in tensors], specs(op.infer(*tensors)))
        self.steps.append((op, places))
        self.values.append(op(*tensors).asnumpy())
        return "step", len(self.steps) - 1

    def strategy(self, op, places, shapes, outs):
        """With one for two of three ops; one parameter gets the same layout everywhere."""
        if self.yes(3) or not places:
            return op
        rule = op.bound_rule(shapes, [s.shape for s in outs])
        strategy = as_strategy(rule, self.pick(list(candidates(rule, self.mesh))))
        check = Check(op.name, rule, shapes, Strategy(strategy), self.mesh)
        asked = {at: layouts_of_input(check, i)[0] for i, at in enumerate(places) if at[0] == "parameter"}
        if any(self.asked.get(at, layout) != layout for at, layout in asked.items()):
            return op
        self.asked.update(asked)
        return op.shard(strategy)

    def tamed(self, at):
        """Neither too large nor too many."""
        if np.abs(self.array(at)).max(initial=0) > 8:
            at = self.call(ops.Tanh(), at)
        while self.array(at).size > LARGEST:
            at = self.call(ops.ReduceMean(axis=0), at)
        return at

    def layout(self, shape):
        """Any layout of a stored tensor."""
        dims = [()] * len(shape)
        for a in self.pick([tuple(self.mesh.axes), tuple(self.mesh.axes)[::-1]]):
            d = self.pick(range(len(shape) + 1))
            if d < len(shape) and shape[d] % self.mesh.count((*dims[d], a)) == 0:
                dims[d] = (*dims[d], a)
        return TensorLayout(tuple(dims))

    # ---- ops --------------------------------------------------------------------------------------------

    def op(self, at):
        """One more op (or a few) on a value."""
        shape = self.shape(at)
        kinds = ["simple", "with_parameter", "random", "arranged"] * 2
        if shape:
            kinds += ["dense"] * 5 + ["along", "reduced", "joined", "cut", "picked"] * 2
        kinds += ["convolved"] * 5 if len(shape) == 4 else []
        kinds += ["attended"] * 4 if len(shape) == 3 else []
        return getattr(self, self.pick(kinds))(at, shape)

    def simple(self, at, shape):
        return self.call(self.pick([ops.Tanh(), ops.ReLU(), ops.Sigmoid(), ops.Neg(), ops.Square(), ops.GeLU(), ops.Abs(),
                                    ops.Identity(), ops.Sin()]), at)

    def with_parameter(self, at, shape):
        part = tuple(1 if self.yes(3) else n for n in shape)[self.pick(range(len(shape) + 1)):]
        op = self.pick([ops.Add(), ops.Sub(), ops.Mul(), ops.Div(), ops.Maximum()])
        p = self.parameter(part)
        if isinstance(op, ops.Div):
            return self.call(op, at, self.call(ops.Add(), self.call(ops.Square(), p), self.constant(1.0)))
        return self.call(op, at, p) if self.yes() else self.call(op, p, at)

    def random(self, at, shape):
        return self.call(ops.Mul(), at, self.call(Random(shape, Keep(0.5), F64, ("network", len(self.steps)))))

    def arranged(self, at, shape):
        how = self.pick(["turned", "reshaped", "repeated"])
        if how == "turned" and shape:
            return self.call(ops.Transpose(self.pick([tuple(range(len(shape)))[::-1], (*range(1, len(shape)), 0)])), at)
        if how == "repeated" and len(shape) < 4:
            k = self.pick(range(len(shape) + 1))
            return self.call(ops.BroadcastTo((*shape[:k], self.pick([2, 3, 4]), *shape[k:])),
                             self.call(ops.Reshape((*shape[:k], 1, *shape[k:])), at))
        k = self.pick(range(len(shape) + 1))
        f = next((f for f in (self.pick([2, 3, 4]), 2, 3) if k < len(shape) and shape[k] % f == 0), 1)
        return self.call(ops.Reshape(self.pick([
            (-1,), shape[::-1], (*shape[:k], prod(shape[k:k + 2]), *shape[k + 2:]),
            (*shape[:k], f, shape[k] // f, *shape[k + 1:]) if k < len(shape) < 4 else shape])), at)

    def dense(self, at, shape):
        n, turned = self.pick(SIZES), self.yes()
        return self.call(ops.MatMul(False, turned), at, self.parameter((n, shape[-1]) if turned else (shape[-1], n)))

    def attended(self, at, shape):
        scores = self.call(ops.BatchMatMul(False, True), at, at)
        return self.call(ops.BatchMatMul(), self.call(ops.Softmax(), scores), at)

    def along(self, at, shape):
        axis = self.pick(range(len(shape)))
        return self.call(self.pick([ops.Softmax(axis), ops.LogSoftmax(axis), ops.CumSum(axis=axis)]), at)

    def reduced(self, at, shape):
        axes = tuple(range(self.pick(range(len(shape))), len(shape)))
        kind = self.pick([ops.ReduceSum, ops.ReduceMean, ops.ReduceMax, ops.ReduceMin])
        op = kind(self.yes(), axes if self.yes() else axes[:1])
        if isinstance(op, (ops.ReduceMax, ops.ReduceMin)):          # no ties, which rounding would decide
            at = self.call(ops.Add(), at, self.constant(2 * self.some(shape)))
        return self.call(op, at)

    def joined(self, at, shape):
        other = self.parameter(shape) if self.yes() else self.call(ops.Tanh(), at)
        return self.call(ops.Concat(self.pick(range(len(shape)))), *self.pick([(at, other), (other, at, other)]))

    def cut(self, at, shape):
        d = self.pick(range(len(shape)))
        begin = self.pick(range(shape[d]))
        return self.call(ops.StridedSlice((*(0,) * d, begin), (*shape[:d], shape[d]), (*(1,) * d, self.pick([1, 2]))), at)

    def picked(self, at, shape):
        axis = self.pick(range(len(shape)))
        if len(shape) < 4 and self.yes():
            return self.call(ops.Gather(axis), at, self.index(self.pick([(4,), (2, 3), (12,)]), shape[axis]))
        if len(shape) == 2:                                         # an embedding, and classes by one-hot
            return self.call(ops.MatMul(), at, self.call(ops.OneHot(-1, 6, 1.0, 0.0, F64), self.index(shape[-1:], 6)))
        return self.call(ops.GatherD(axis), at, self.index(shape, shape[axis]))

    def convolved(self, at, shape):
        if min(shape[2:]) > 1 and self.yes(3):
            return self.call(self.pick([ops.MaxPool(2, 1), ops.AvgPool(2, 2)]), at)
        k, o = self.pick([(1, 1), (3, 3), (2, 1)]), self.pick([2, 4, 6])
        return self.call(ops.Conv2D(o, k, pad_mode="same"), at, self.parameter((o, shape[1], *k)))


class Network(nn.Cell):
    """A drawn network; called with its input it returns the loss."""

    def __init__(self, drawn):
        super().__init__()
        self.drawn = drawn
        self.weights = [Parameter(Tensor(p), name=f"p{i}") for i, p in enumerate(drawn.parameters)]
        for i, p in enumerate(self.weights):
            setattr(self, f"p{i}", p)

    def construct(self, x):
        at = {("input", 0): x, **{("parameter", i): p for i, p in enumerate(self.weights)},
              **{("constant", i): Tensor(c) for i, c in enumerate(self.drawn.constants)}}
        for k, (op, places) in enumerate(self.drawn.steps):
            at["step", k] = op(*(at[p] for p in places))
        return at["step", len(self.drawn.steps) - 1]
