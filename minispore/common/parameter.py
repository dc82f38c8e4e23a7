"""Parameter: a tensor that training changes, with a name; ParameterTuple: several of them."""
from numbers import Real

import numpy as np

from minispore.common.initializer import Constant, Pending
from minispore.common.recorder import recorder
from minispore.common.tensor import Tensor


class Parameter(Tensor):
    """A named tensor that keeps its memory while its values change (MindSpore: `mindspore.Parameter`).

    Args:
        default_input: Tensor, numpy array or number with the first values; they are copied.
        name: unique in a network; a Cell puts its own name in front ("conv1.weight").
        requires_grad: whether `trainable_params()` lists it.
        layerwise_parallel: True: the values differ between ranks by intent (hybrid parallel), so they are neither
            broadcast nor are their gradients reduced.
        parallel_optimizer: False: keep its optimizer state whole where states are sharded.

    >>> from minispore import Parameter, Tensor
    >>> w = Parameter(Tensor([1.0, 2.0]), name="w")
    >>> w.set_data(Tensor([3.0, 4.0])).asnumpy().tolist()
    [3.0, 4.0]
    """

    __slots__ = ("__dict__",)

    def __init__(self, default_input, name=None, requires_grad=True, layerwise_parallel=False,
                 parallel_optimizer=True):
        if isinstance(default_input, Tensor) and default_input._pending:
            self._array, self._value, self._layout = None, default_input._value, None
        else:
            super().__init__(default_input)
        self.name = "Parameter" if name is None else name
        self.requires_grad = requires_grad
        self.layerwise_parallel = layerwise_parallel
        self.parallel_optimizer = parallel_optimizer
        self.strategy = None            # how it is to be split (Cell.shard's parameter_plan)
        self.comm_fusion = 1            # gradients of equal numbers are reduced in one message; 0: each alone

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; of a parameter that lies in pieces over the ranks the piece's, inside a program the logical one."""
        return super().shape if self._layout is None or recorder() is None else self._layout.shape

    def set_data(self, data, slice_shape=False) -> "Parameter":
        """Replace all values. Shape must agree; the dtype is kept.

        Where the parameter lies in pieces over the ranks, data may be the logical tensor, of which each rank takes its
        piece, or the piece itself.
        """
        tensor = data if isinstance(data, Tensor) else Tensor(data)
        if self._layout is not None and tensor.shape == self._layout.shape != self.shape:
            tensor = Tensor.from_numpy(self._layout.piece(tensor._data()))
        if tensor.shape != self.shape:
            raise ValueError(f"Parameter {self.name}: set_data got shape {tensor.shape}, the parameter has "
                             f"{self.shape}; give a tensor of the parameter's shape")
        if tensor.dtype != self.dtype:
            tensor = tensor.astype(self.dtype)
        listener = recorder()
        if listener is None:
            np.copyto(self._data(), tensor._data())
        else:
            listener.assign(self, tensor)
        return self

    assign_value = set_data

    def value(self) -> Tensor:
        """A tensor with the present values."""
        return Tensor(self)

    def clone(self, init="same") -> "Parameter":
        """A new Parameter of the same name and attributes; init "same", or what its values shall be: "zeros", "ones" or a
        number. Where this one has no values yet, or only a rank's piece of them, those are put off too."""
        numbers = {"zeros": 0, "ones": 1}
        if init != "same" and init not in numbers and not isinstance(init, Real):
            raise ValueError(f"Parameter {self.name}: clone(init={init!r}); use 'same', 'zeros', 'ones' or a number")
        if init == "same":
            values = Tensor._symbol(self._value) if self._pending else self._data()
        elif self._pending or self._layout is not None:
            shape = self.shape if self._layout is None else self._layout.shape
            values = Tensor._symbol(Pending(Constant(numbers.get(init, init)), (), shape, self.dtype))
        else:
            values = np.full_like(self._data(), numbers.get(init, init))
        new = Parameter(values, self.name, self.requires_grad, self.layerwise_parallel, self.parallel_optimizer)
        new._layout = self._layout if init == "same" else None
        return new

    def __repr__(self):
        return (f"Parameter (name={self.name}, shape={self.shape}, dtype={self.dtype}, "
                f"requires_grad={self.requires_grad})")

    def __deepcopy__(self, memo):
        return self.clone()

    def __reduce__(self):
        self._demand_whole()
        return Parameter, (self.asnumpy(), self.name, self.requires_grad, self.layerwise_parallel,
                           self.parallel_optimizer)


class ParameterTuple(tuple):
    """A tuple of Parameters (MindSpore: `mindspore.ParameterTuple`)."""

    def __new__(cls, iterable=()):
        items = tuple(iterable)
        for i, p in enumerate(items):
            if not isinstance(p, Parameter):
                raise TypeError(f"ParameterTuple: item {i} is a {type(p).__name__}; all items must be Parameters")
        return super().__new__(cls, items)

    def clone(self, prefix: str, init="same") -> "ParameterTuple":
        """Clones whose names begin with `prefix.`, e.g. the "moments" of an optimizer."""
        clones = [p.clone(init) for p in self]
        for p in clones:
            p.name = f"{prefix}.{p.name}"
        return ParameterTuple(clones)
