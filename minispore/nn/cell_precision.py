"""Mixed precision of a Cell: what it computes in, whatever its parameters and inputs are."""
from contextvars import ContextVar

from minispore import ops
from minispore.common.dtype import is_float, to_dtype
from minispore.common.tensor import is_tensor
from minispore.common.tree import flatten, unflatten

_computing: ContextVar = ContextVar("minispore_compute_dtype", default=None)     # of the cell that runs


class Precision:
    """The part of Cell about `to_float`."""

    def to_float(self, dst_type):
        """Compute in dst_type, in this cell and all inside: float inputs are cast to it, and parameters where they are used.

        The parameters themselves, and so their gradients and the optimizer's states, keep their dtype. Those made with
        requires_grad=False, such as moving means, aren't cast, so that construct can assign to them. A cell inside may be
        given another dtype afterwards; what it returns is cast back.

        >>> import minispore as ms
        >>> from minispore import Tensor, nn
        >>> net = nn.Dense(2, 3).to_float(ms.float16)
        >>> net(Tensor([[1.0, 2.0]])).dtype.name, net.weight.dtype.name
        ('float16', 'float32')
        """
        dtype = to_dtype(dst_type)
        if not is_float(dtype):
            raise ValueError(f"{type(self).__name__}.to_float: {dst_type!r} must be a float type, e.g. ms.float16")
        for _, cell in self.cells_and_names():
            cell.__dict__["_dtype"] = dtype
            cell._changed()
        return self

    def cast_inputs(self, inputs, dst_type) -> list:
        """The tensors in another dtype."""
        return [ops.cast(t, dst_type) for t in inputs]

    def _precisely(self, run, args, kwargs):
        """run(args, kwargs) in the cell's dtype; a cell without one keeps its caller's."""
        outer, own = _computing.get(), self._dtype
        if own is None:
            return run(args, kwargs)
        token = _computing.set(own)
        try:
            out = run(*_cast((args, kwargs), own))
        finally:
            _computing.reset(token)
        return out if outer is None else _cast(out, outer)

    def _used(self, name):
        """The parameter of a name as construct sees it."""
        dtype, parameter = _computing.get(), self._params[name]
        if dtype is None or name in self._fixed or not is_float(parameter.dtype):
            return parameter
        return ops.cast(parameter, dtype)


def _cast(tree, dtype):
    """The tree with its float tensors in another dtype."""
    leaves, skeleton = flatten(tree, is_tensor)
    return unflatten(skeleton, [ops.cast(t, dtype) if is_float(t.dtype) else t for t in leaves])
