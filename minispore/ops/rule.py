"""Sharding rules: what the dims of an op's inputs and outputs have to do with one another.

    "m k, k n -> m n"    a lower-case factor may be split: m splits the output, k leaves partial sums
    "... C -> ... C"     an upper-case factor must stay whole (softmax needs its whole axis)
    "..."                right-aligned dims of any number, broadcast where an input has size 1
    "1"                  a dim of size 1
    "n (c h w)"          a dim made of several factors, outermost first

The notation is einops'. Everything a compiler asks - is a strategy legal, how is the output split, what is left to
be summed, which strategies are there - follows from the equation and the shapes.
"""
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd, prod

Dim = tuple[str, ...]           # the factors a dim is made of, outermost first; () for a dim of size 1
Term = tuple[Dim, ...]          # the dims of one tensor
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rule:
    """An equation bound to shapes."""
    ins: tuple[Term, ...]
    outs: tuple[Term, ...]
    sizes: dict[str, int]

    def splittable(self, factor: str) -> bool:
        return not factor[0].isupper()

    def contracted(self, factor: str) -> bool:
        """A factor that no output has: splitting it leaves partial results."""
        return not any(factor in dim for term in self.outs for dim in term)

    def factors(self) -> list[str]:
        """The factors that may be split."""
        return [f for f in self.sizes if self.splittable(f)]


def bind(text: str, ins: Iterable[Shape], outs: Iterable[Shape], **known: int) -> Rule:
    """The rule `text` for these shapes; ValueError where it doesn't fit. known: sizes of factors that the shapes don't tell.

    >>> rule = bind("m k, k n -> m n", [(4, 6), (6, 8)], [(4, 8)])
    >>> rule.sizes, rule.contracted("k")
    ({'m': 4, 'k': 6, 'n': 8}, True)
    """
    ins, outs = [tuple(s) for s in ins], [tuple(s) for s in outs]
    left, right = (side.split(",") for side in text.split("->"))
    left = left if ins else []              # an empty side may also be one scalar
    if (len(left), len(right)) != (len(ins), len(outs)):
        raise ValueError(f"rule '{text}' is for {len(left)} inputs and {len(right)} outputs; "
                         f"there are {len(ins)} and {len(outs)}")
    shapes = ins + outs
    terms = [_dims(term, shape, text) for term, shape in zip(left + right, shapes, strict=True)]
    sizes = _sizes(terms, shapes, text, known)
    terms = [tuple(() if n == 1 and all(sizes[f] != 1 for f in dim) else dim
                   for dim, n in zip(term, shape, strict=True)) for term, shape in zip(terms, shapes, strict=True)]
    return Rule(tuple(terms[:len(ins)]), tuple(terms[len(ins):]), sizes)


def _dims(term: str, shape: Shape, text: str) -> list[Dim]:
    tokens = re.findall(r"\([^)]*\)|\.\.\.|\w+", term)
    dots = len(shape) - sum(t != "..." for t in tokens)
    dims: list[Dim] = []
    for t in tokens:
        if t == "...":
            dims += [(f"e{dots - 1 - i}",) for i in range(dots)]
        else:
            dims.append(() if t == "1" else tuple(t.strip("()").split()))
    if len(dims) != len(shape):
        raise ValueError(f"rule '{text}': '{term.strip()}' does not fit shape {shape}")
    return dims


def _sizes(terms: list[list[Dim]], shapes: list[Shape], text: str, known: dict[str, int]) -> dict[str, int]:
    sizes = dict(known)
    flat = [(dim, n) for term, shape in zip(terms, shapes, strict=True) for dim, n in zip(term, shape, strict=True)]
    for dim, n in flat:
        if len(dim) == 1:
            sizes[dim[0]] = max(sizes.get(dim[0], 0), n) if n else 0
    compound = [(dim, n) for dim, n in flat if len(dim) > 1]
    while unknown := [(dim, n) for dim, n in compound if any(f not in sizes for f in dim)]:
        solvable = next(((dim, n) for dim, n in unknown if sum(f not in sizes for f in dim) == 1), None)
        if solvable is None:
            raise ValueError(f"rule '{text}': the sizes of {unknown[0][0]} can't be told from the shapes {shapes}")
        dim, n = solvable
        told = prod(sizes[f] for f in dim if f in sizes)
        sizes[next(f for f in dim if f not in sizes)] = n // told if told else 0
    for dim, n in flat:
        whole = prod(sizes[f] for f in dim)
        broadcast = n == 1 and len(dim) == 1 and re.fullmatch(r"e\d+", dim[0])
        if n != whole and not broadcast:
            raise ValueError(f"rule '{text}': {' '.join(dim) or '1'} is {whole} elsewhere but {n} in {shapes}")
    return sizes


def reshape_rule(old: Shape, new: Shape) -> Rule:
    """The common factors of two row-major shapes of equal size; where they don't nest, whole (upper-case) ones.

    >>> reshape_rule((4, 6), (24,)).outs
    ((('r0', 'r1'),),)
    """
    sizes: dict[str, int] = {}
    ins: list[list[str]] = [[] for _ in old]
    outs: list[list[str]] = [[] for _ in new]
    i = j = 0
    a, b = (old or (1,))[0], (new or (1,))[0]
    while i < len(old) and j < len(new):
        if a == 1:
            i += 1
            a = old[i] if i < len(old) else 1
        elif b == 1:
            j += 1
            b = new[j] if j < len(new) else 1
        elif (g := gcd(a, b)) > 1:
            factor = f"r{len(sizes)}"
            sizes[factor] = g
            ins[i].append(factor)
            outs[j].append(factor)
            a, b = a // g, b // g
        else:                       # coprime remainders: whole from here on
            for dims, k, rest, shape in ((ins, i, a, old), (outs, j, b, new)):
                for d in range(k, len(shape)):
                    factor = f"W{len(sizes)}"
                    sizes[factor] = rest if d == k else shape[d]
                    dims[d].append(factor)
            break
    return Rule((tuple(map(tuple, ins)),), (tuple(map(tuple, outs)),), sizes)


def letters(n: int) -> list[str]:
    """n factor names, for rules that are made for a number of dims."""
    return list("abcdfghijklmnopqrst"[:n])


def whole_dims(n: int, whole: Iterable[int]) -> list[str]:
    """n factor names, of which some may not be split.

    >>> whole_dims(3, [1])
    ['a', 'B', 'c']
    """
    return [name.upper() if i in whole else name for i, name in enumerate(letters(n))]
