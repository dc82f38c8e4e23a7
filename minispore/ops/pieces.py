"""Functions called on pieces of logical tensors, outside of programs: what they do with shapes is about the logical ones."""
from collections.abc import Callable
from functools import wraps

from minispore.common.recorder import recorder
from minispore.common.tensor import Tensor


def of_pieces(fn: Callable) -> Callable:
    """fn, run as one program that knows how its arguments lie, if one of them is a rank's piece (see `Tensor.layout`)."""
    @wraps(fn)
    def call(*args, **kwargs):
        for a in args:                          # a loop: this is done for every function of PYNATIVE_MODE
            if isinstance(a, Tensor) and a._layout is not None and recorder() is None:
                return a._layout.run(fn, args, kwargs)
        return fn(*args, **kwargs)
    return call
