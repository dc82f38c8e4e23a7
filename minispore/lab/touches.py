"""What a kernel touches: its loops run as plain Python on arrays that write down every element read or written.

From the list follows how often a kernel with a cache of a given size would have to go to memory, exactly and the same each time;
chapter 02 looks at loops that way, and exercise E3 is graded by it.
"""
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FunctionType

import numpy as np


def touches(kernel: Callable, *args) -> list[int]:
    """The elements that kernel(*args) touches, in order. Each array's are numbered behind those of the array before it.

    kernel: a function of loops, or one compiled by Numba: its Python source is run, and that of kernels it calls. It may index
    its arrays, take slices of them and calculate with these, ask for shape, size, ndim, dtype and len. What it makes itself
    isn't counted. Arrays that it writes to are changed.

    >>> def add(x, y):
    ...     for i in range(len(x)):
    ...         y[i] = y[i] + x[i]
    >>> touches(add, np.ones(2), np.zeros(2))
    [2, 0, 2, 3, 1, 3]
    """
    log, watched, start = [], [], 0
    for a in args:
        if isinstance(a, np.ndarray):
            watched.append(NotedArray(a, np.arange(start, start + a.size).reshape(a.shape), log))
            start += a.size
        else:
            watched.append(a)
    as_python(kernel)(*watched)
    return log


def loads(touched: list[int], cache: int, line: int = 1) -> int:
    """How many of the touches have to go to memory, with a cache that holds the `cache` elements that were touched last.

    line: memory hands over so many neighbours at once, and the cache keeps them together.

    >>> loads([0, 1, 0, 2, 1], cache=2)        # 0 is still there, 1 is not
    4
    >>> loads([0, 1, 2, 3, 0], cache=4, line=2)
    2
    """
    return sum(loaded for loaded, _ in through_cache(touched, cache, line))


def through_cache(touched: list[int], cache: int, line: int = 1) -> Iterator[tuple[bool, OrderedDict]]:
    """For each touch: whether it was a load, and the numbers of the lines (element // line) that are held after it. The held ones
    are the same object each time."""
    if not 1 <= line <= cache:
        raise ValueError(f"a cache of {cache} elements in lines of {line} holds nothing; the cache must hold one line or more")
    held, most = OrderedDict(), cache // line
    for element in touched:
        place = element // line
        loaded = place not in held
        held[place] = None
        held.move_to_end(place)
        if len(held) > most:
            held.popitem(last=False)
        yield loaded, held


def as_python(kernel: Callable, known: dict | None = None) -> Callable:
    """The Python function of a compiled kernel, with the kernels it calls as Python functions, too."""
    known = {} if known is None else known
    function = getattr(kernel, "py_func", kernel)
    if not isinstance(function, FunctionType):
        raise TypeError(f"touches: {kernel!r} is no function written in Python, so its loops can't be looked at; give a "
                        "function, or one compiled by numba.njit")
    if function not in known:
        scope = dict(function.__globals__)
        known[function] = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
        for name in function.__code__.co_names:
            if hasattr(scope.get(name), "py_func"):
                scope[name] = as_python(scope[name], known)
    return known[function]


class NotedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array, or a slice of one, that writes down which elements are used. ids: the elements' numbers, of the same shape."""

    def __init__(self, values: np.ndarray, ids: np.ndarray, log: list[int]):
        self.values, self.ids, self.log = values, ids, log
        self.shape, self.ndim, self.size, self.dtype = values.shape, values.ndim, values.size, values.dtype

    def __getattr__(self, name):
        raise AttributeError(f"touches: the kernel asks an array for .{name}; while it is watched it can index, slice and "
                             "calculate, and ask for shape, size, ndim, dtype and len")

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index):
        values, ids = self.values[index], self.ids[index]
        if ids.ndim:
            return NotedArray(values, ids, self.log)
        self.log.append(int(ids))
        return values

    def __setitem__(self, index, value):
        self.values[index] = self._read(value)
        ids = self.ids[index]
        self.log.extend(ids.ravel().tolist())

    def __array__(self, dtype=None, copy=None):
        return np.array(self._read(self), dtype)

    def __array_ufunc__(self, ufunc, method, *ins, out=None, **options):
        ins = [self._read(x) for x in ins]
        if out is None:
            return getattr(ufunc, method)(*ins, **options)
        getattr(ufunc, method)(*ins, out=tuple(o.values if isinstance(o, NotedArray) else o for o in out), **options)
        for o in out:
            self._read(o)
        return out[0]

    def _read(self, x):
        """The plain values; all of them count as touched."""
        if not isinstance(x, NotedArray):
            return x
        x.log.extend(x.ids.ravel().tolist())
        return x.values
