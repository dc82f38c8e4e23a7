"""Functions over functions, as MindSpore's scripts use them to clip gradients: HyperMap, Map, MultitypeFuncGraph."""
from minispore.common.dtype import is_float, is_integer
from minispore.common.tensor import Tensor

# What MindSpore's registrations call the kinds of arguments.
KINDS = {
    "Tensor": lambda x: isinstance(x, Tensor), "Number": lambda x: isinstance(x, (int, float)),
    "Bool": lambda x: isinstance(x, bool), "Int64": lambda x: type(x) is int, "Float32": lambda x: type(x) is float,
    "Float64": lambda x: type(x) is float, "String": lambda x: isinstance(x, str), "None": lambda x: x is None,
    "Tuple": lambda x: isinstance(x, tuple), "List": lambda x: isinstance(x, list), "Function": callable,
    "mstype.float": lambda x: isinstance(x, Tensor) and is_float(x.dtype),
    "mstype.int": lambda x: isinstance(x, Tensor) and is_integer(x.dtype),
}


class MultitypeFuncGraph:
    """One name for several functions, chosen by the kinds of the arguments (MindSpore: `ops.MultitypeFuncGraph`).

    >>> double = MultitypeFuncGraph("double")
    >>> @double.register("Tensor")
    ... def of_tensor(x):
    ...     return x * 2
    >>> @double.register("Tuple")
    ... def of_tuple(xs):
    ...     return tuple(map(double, xs))
    >>> [t.tolist() for t in double((Tensor([1.0]), Tensor([2.0])))]
    [[2.0], [4.0]]
    """

    def __init__(self, name, read_value=False):
        self.name, self.entries = name, []

    def register(self, *kinds):
        """Decorator of the function for arguments of these kinds: "Tensor", "Number", "Tuple", "Function", …"""
        unknown = [k for k in kinds if k not in KINDS]
        if unknown:
            raise ValueError(f"MultitypeFuncGraph {self.name}: kinds {unknown} are unknown; use {', '.join(KINDS)}")

        def keep(function):
            self.entries.append((kinds, function))
            return function
        return keep

    def __call__(self, *args):
        for kinds, function in self.entries:
            if len(kinds) == len(args) and all(KINDS[k](a) for k, a in zip(kinds, args, strict=True)):
                return function(*args)
        found = ", ".join(type(a).__name__ for a in args)
        known = "; ".join(", ".join(kinds) for kinds, _ in self.entries) or "nothing"
        raise TypeError(f"{self.name}: there is no function for ({found}); registered is: {known}")


class HyperMap:
    """A function applied to the items of tuples and lists, also of nested ones (MindSpore: `ops.HyperMap`).

    >>> [t.tolist() for t in HyperMap()(lambda a, b: a + b, (Tensor([1]), Tensor([2])), (Tensor([10]), Tensor([20])))]
    [[11], [22]]
    """

    def __init__(self, ops=None, reverse=False):
        self.function = ops

    def __call__(self, *args):
        function, args = (args[0], args[1:]) if self.function is None else (self.function, args)
        return self._over(function, args)

    def _over(self, function, args):
        if not any(isinstance(a, (tuple, list)) for a in args):
            return function(*args)
        lengths = [len(a) if isinstance(a, (tuple, list)) else None for a in args]
        if len(set(lengths)) > 1:
            raise ValueError(f"HyperMap: the sequences have the lengths {lengths}; they must agree")
        return tuple(self._over(function, items) for items in zip(*args, strict=True))


class Map(HyperMap):
    """The same over the outermost tuples only (MindSpore: `ops.Map`)."""

    def _over(self, function, args):
        return tuple(function(*items) for items in zip(*args, strict=True))
