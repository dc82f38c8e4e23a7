"""Whether a strategy is legal: it is checked against the op's rule, and turned into mesh axes for the rule's factors."""
from itertools import takewhile
from math import log2, prod

from minispore.ops.rule import Rule
from minispore.ops.strategy import NamedLayout, Strategy
from minispore.parallel.layout import TensorLayout, fits_shape, named_layout
from minispore.parallel.mesh import Mesh
from minispore.parallel.sharding import (
    Assignment,
    as_strategy,
    assignments,
    candidates,
    factor_counts,
    fits,
    term_layout,
)


class Check:
    """One op's strategy against its rule. `where`: the op and its line in the user's script, for messages."""

    def __init__(self, where: str, rule: Rule, shapes: list[tuple], strategy: Strategy, mesh: Mesh):
        self.where, self.rule, self.shapes, self.strategy, self.mesh = where, rule, shapes, strategy, mesh

    def options(self, free: list[int]) -> list[Assignment]:
        """The assignments over the `free` axes that realise the in_strategy, the row-major one first."""
        ins = self.strategy.ins
        if len(ins) != len(self.rule.ins):
            raise self.error(f"has {len(ins)} entries for {len(self.rule.ins)} inputs of shape "
                             f"{', '.join(map(str, self.shapes))}; give one tuple an input")
        if any(isinstance(e, NamedLayout) for e in ins):
            named = self.named(ins)
            return [named] if set().union(*named.values()) <= set(free) else []
        counts = self.counts(ins)
        return [a for a in assignments(self.rule, self.mesh, counts, free) if fits(self.rule, self.mesh, a)]

    def counts(self, ins) -> dict[str, int]:
        """{factor: pieces} of tuples of split counts."""
        counts, where = {}, {}
        for i, (term, shape, cuts) in enumerate(zip(self.rule.ins, self.shapes, ins, strict=True)):
            if cuts is None:
                continue
            if len(cuts) != len(shape):
                raise self.error(f"gives input {i} of shape {shape} the {len(cuts)} counts {cuts}; give one count a dim")
            for d, (dim, n) in enumerate(zip(term, cuts, strict=True)):
                at = f"splits dim {d} of input {i} (shape {shape}) by {n}"
                if shape[d] % n:
                    raise self.error(f"{at}, which does not divide {shape[d]}")
                split = factor_counts(dim, n, self.rule)
                if split is None:
                    raise self.error(f"{at}, but {self._divisible(dim)}")
                for f, c in split.items():
                    if counts.setdefault(f, c) != c:
                        raise self.error(f"{at}, but {where[f]}, which belongs to it, by {counts[f]}; they must agree")
                    where.setdefault(f, f"dim {d} of input {i}")
        needed = prod(counts.values())
        if self.mesh.n % needed:
            raise self.error(f"needs {needed} devices, which does not divide the {self.mesh.n} there are")
        if next(assignments(self.rule, self.mesh, counts, list(self.mesh.axes)), None) is None:
            raise self.error(f"can't be laid out on {self.mesh.n} = {' · '.join(map(str, self.mesh.sizes))} devices")
        return counts

    def named(self, ins) -> Assignment:
        """{factor: axes} of tensor layouts."""
        assignment, where = {}, {}
        owner = {}
        for i, (term, shape, entry) in enumerate(zip(self.rule.ins, self.shapes, ins, strict=True)):
            if entry is None:
                continue
            layout = self._named(entry, f"input {i} of shape {shape}", len(shape))
            for d, (dim, axes) in enumerate(zip(term, layout.dims, strict=True)):
                at = f"splits dim {d} of input {i} (shape {shape}) over {entry.tensor_map[d]!r}"
                if shape[d] % self.mesh.count(axes):
                    raise self.error(f"{at}, {self.mesh.count(axes)} pieces, which does not divide {shape[d]}")
                for f, mine in self._spread(dim, axes, at).items():
                    if assignment.setdefault(f, mine) != mine:
                        raise self.error(f"{at}, but {where[f]}, which belongs to it, otherwise; they must agree")
                    where.setdefault(f, f"dim {d} of input {i}")
                    for other in (owner.setdefault(a, f) for a in mine):
                        if other != f:
                            raise self.error(f"{at}, an axis that splits {where[other]} already; an axis can split one of the "
                                             "op's dims")
        return assignment

    def _named(self, entry: NamedLayout, what: str, ndim: int) -> TensorLayout:
        """A named layout in the mesh's axes."""
        if len(entry.tensor_map) != ndim:
            raise self.error(f"gives {what} the layout {entry} of {len(entry.tensor_map)} dims; give each dim an entry")
        if prod(entry.device_matrix) != self.mesh.n:
            raise self.error(f"gives {what} the layout {entry}, whose device matrix has {prod(entry.device_matrix)} devices; "
                             "make their product the number of devices")
        return named_layout(self.mesh, entry)

    def _spread(self, dim, axes, at) -> Assignment:
        """A dim's axes on its factors, outermost first."""
        split = factor_counts(dim, self.mesh.count(axes), self.rule)
        if split is None:
            raise self.error(f"{at}, but {self._divisible(dim)}")
        out, rest = {}, list(axes)
        for f, n in split.items():
            mine = []
            while self.mesh.count(mine) < n:
                mine.append(rest.pop(0))
            out[f] = tuple(mine)
        return out

    def out_layouts(self, assignment: Assignment, made: list[TensorLayout]) -> list[TensorLayout]:
        """The layouts that the out_strategy asks for: a split of more than the op gives takes axes over which the output
        is partial first, which makes a ReduceScatter of the AllReduce."""
        outs = self.strategy.outs
        if len(outs) != len(made):
            raise self.error(f"has {len(outs)} entries for {len(made)} outputs; give one tuple an output")
        wanted = []
        for i, (entry, term, lay) in enumerate(zip(outs, self.rule.outs, made, strict=True)):
            shape = tuple(prod(self.rule.sizes[f] for f in dim) for dim in term)
            wanted.append(lay.reduced() if entry is None else self._out(entry, lay, f"output {i} of shape {shape}"))
            if not fits_shape(self.mesh, shape, wanted[-1]):
                raise self.error(f"splits output {i} of shape {shape} by {entry}, which does not divide it")
        return wanted

    def _out(self, entry, made: TensorLayout, what: str) -> TensorLayout:
        if isinstance(entry, NamedLayout):
            return self._named(entry, what, len(made.dims))
        if len(entry) != len(made.dims):
            raise self.error(f"gives {what} the {len(entry)} counts {entry}; give one count a dim")
        if self.mesh.n % prod(entry):
            raise self.error(f"splits {what} by {entry}: that needs {prod(entry)} devices, which does not divide the "
                             f"{self.mesh.n} there are")
        dims, sizes = list(made.dims), self.mesh.sizes
        spare = sorted(made.partial) + [a for a in self.mesh.axes if a not in made.partial | made.axes]
        for d, n in enumerate(entry):
            while self.mesh.count(dims[d]) > n or n % self.mesh.count(dims[d]):
                spare.append(dims[d][-1])
                dims[d] = dims[d][:-1]
        for d, n in enumerate(entry):
            while self.mesh.count(dims[d]) < n:
                rest = n // self.mesh.count(dims[d])
                axis = next((a for a in spare if rest % sizes[a] == 0), None)
                if axis is None:
                    raise self.error(f"splits {what} by {entry}, which can't be laid out on {self.mesh.n} = "
                                     f"{' · '.join(map(str, sizes))} devices")
                spare.remove(axis)
                dims[d] = (*dims[d], axis)
        return TensorLayout(tuple(dims))

    def _divisible(self, dim) -> str:
        """Why a dim can't be split so, though its size could."""
        outer = prod(self.rule.sizes[f] for f in takewhile(self.rule.splittable, dim))
        if not dim or not self.rule.splittable(dim[0]):
            return "this op needs that dim whole"
        by = " or ".join(str(n) for n in range(1, outer + 1) if outer % n == 0)
        return (f"for these shapes this op can split it only by {by}: what belongs to it in the op's other tensors must be "
                "divisible too")

    # ---- messages ----------------------------------------------------------------------------------------

    def error(self, what: str) -> ValueError:
        """Who asked, for what, and the nearest strategy that would do."""
        near = self.nearest()
        return ValueError(f"{self.where}: strategy {self.strategy} {what}. On {self.mesh.n} devices"
                          + (f" the nearest legal strategy is {near}" if near else " no strategy fits these shapes"))

    def nearest(self) -> tuple | None:
        asked = [e.counts if isinstance(e, NamedLayout) else e or () for e in self.strategy.ins or ()]

        def distance(strategy):
            pairs = zip(strategy, [*asked, *[()] * len(strategy)], strict=False)
            return sum(abs(log2(n) - log2(max(a, 1))) for mine, theirs in pairs
                       for n, a in zip(mine, [*theirs, *[1] * len(mine)], strict=False))
        legal = [as_strategy(self.rule, c) for c in candidates(self.rule, self.mesh)]
        return min(legal, key=lambda s: (distance(s), s), default=None)


def layouts_of_input(check: Check, index: int) -> list[TensorLayout]:
    """The layouts an in_strategy can give one input, that of the row-major choice of axes first."""
    return list(dict.fromkeys(term_layout(check.rule.ins[index], a) for a in check.options(list(check.mesh.axes))))
