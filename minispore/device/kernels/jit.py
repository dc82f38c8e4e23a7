"""`@kernel`: a plain Python loop that becomes machine code the first time it is called.

Numba is imported at that first call and not before (it would double the time `import minispore` takes). Each
combination of dtypes and dimensions is compiled once, by one process: ranks start together and want the same
kernels, so they queue at a lock file; the first compiles, the others load its result from the cache.

TIP: `NUMBA_DISABLE_JIT=1 python ...` runs the same loops as ordinary Python, for a debugger or a print().
"""
import getpass
import os
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType

import numpy as np

# What the compiler may do to sums: reorder them and fuse multiply with add. Not among them are "nnan" and
# "ninf" (a promise that no NaN and no infinity occurs): a diverging training must be seen to diverge.
FAST_SUMS = frozenset({"reassoc", "contract", "arcp", "nsz"})

_compiling = threading.RLock()      # ranks may be threads, too


def cache_dir() -> Path:
    """The user's folder for compiled kernels: $MINISPORE_CACHE, ~/.cache/minispore or a temporary one."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "minispore").expanduser()
    for folder in (Path(os.environ.get("MINISPORE_CACHE") or home),
                   Path(tempfile.gettempdir(), f"minispore-{getpass.getuser()}")):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    raise OSError("no folder to keep compiled kernels in; set MINISPORE_CACHE to one that can be written")


def kernel(function=None, *, fastmath=False):
    """Mark a function of arrays, numbers and tuples of ints: `@kernel` or `@kernel(fastmath=FAST_SUMS)`.

    Kernels may call kernels of their own file (its date tells the cache whether it is up to date). Arrays
    must be C-contiguous, others raise a ValueError; what is only read may be read-only. The GIL is released.
    """
    if function is None:
        return lambda function: Kernel(function, fastmath)
    return Kernel(function, fastmath)


class Kernel:
    """A function and its compiled forms, one per combination of argument kinds."""

    def __init__(self, function, fastmath):
        self.python = function
        self.options = {"nogil": True, "error_model": "numpy", "boundscheck": False,
                        "fastmath": set(fastmath) if fastmath else False}
        self.compiled = {}          # kinds of the arguments -> machine code
        self.inner = None           # what Numba compiles into kernels that call this one
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __repr__(self):
        return f"<kernel {self.__name__}, {len(self.compiled)} compiled>"

    def __call__(self, *args):
        return self.code(*args)(*args)

    def code(self, *args):
        """The machine code for arguments of these kinds: to call it saves the look-up, and nothing is checked any more."""
        kinds = tuple([_kind(arg) for arg in args])
        return self.compiled.get(kinds) or self._prepare(kinds, args)

    def _prepare(self, kinds, args):
        for arg in args:
            if isinstance(arg, np.ndarray) and not arg.flags.c_contiguous:
                raise ValueError(f"kernel {self.__name__} takes C-contiguous arrays, one of shape {arg.shape} has "
                                 f"strides {arg.strides}; pass np.ascontiguousarray(...)")
        if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
            return self.python
        import numba

        signature = tuple(_numba_type(numba, arg) for arg in args)
        with _one_at_a_time(numba):
            if kinds not in self.compiled:
                jitted = numba.njit(signature, cache=True, **self.options)(self._linked(numba))
                # The entry point is the machine code's own C function. Numba's dispatcher before it would
                # only find out the types once more, and refuse arrays that are read-only.
                self.compiled[kinds] = jitted.overloads[signature].entry_point
        return self.compiled[kinds]

    def _linked(self, numba):
        """The function, its names of other kernels bound to functions that Numba can compile into it."""
        scope = dict(self.python.__globals__)
        for name in self.python.__code__.co_names:
            if isinstance(scope.get(name), Kernel):
                scope[name] = scope[name]._inner(numba)
        linked = FunctionType(self.python.__code__, scope, self.__name__, self.python.__defaults__)
        linked.__qualname__ = self.python.__qualname__
        return linked

    def _inner(self, numba):
        if self.inner is None:
            self.inner = numba.njit(**self.options)(self._linked(numba))
        return self.inner


def _kind(arg):
    """All that the machine code depends on."""
    if type(arg) is np.ndarray:
        return arg.dtype, arg.ndim, arg.flags.c_contiguous
    return (tuple, len(arg)) if type(arg) is tuple else type(arg)


def _numba_type(numba, arg):
    if isinstance(arg, np.ndarray):
        return numba.types.Array(numba.from_dtype(arg.dtype), arg.ndim, "C")
    return numba.typeof(arg)


@contextmanager
def _one_at_a_time(numba):
    """One thread of one process compiles; all keep machine code in our cache folder.

    Without the lock, processes that compile one function for different types lose entries of Numba's index.
    Without the folder, Numba would write beside the source, which an installed package may not allow.
    """
    from filelock import FileLock

    with _compiling, FileLock(cache_dir() / "compile.lock"):
        chosen = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = chosen or str(cache_dir())
        try:
            yield
        finally:
            numba.config.CACHE_DIR = chosen
