"""Cell: a part of a network, with parameters and other cells inside (MindSpore: `nn.Cell`)."""
from collections import OrderedDict
from collections.abc import Iterator

from minispore.common import random
from minispore.common.parameter import Parameter, ParameterTuple
from minispore.common.recorder import recorder
from minispore.common.state import GRAPH_MODE, current
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.graph.compile import Compiled
from minispore.graph.trace import tracing
from minispore.ops.control import CustomGradient, StopGradient


class Cell:
    """Base of all networks and layers. A subclass makes its parts in __init__ and uses them in construct.

    In GRAPH_MODE the outermost cell that is called is compiled, once for each kind of arguments; in PYNATIVE_MODE its
    ops run one by one. A cell with `bprop(*inputs, out, dout)` answers for its own gradient.

    >>> from minispore import Tensor, nn
    >>> class Twice(nn.Cell):
    ...     def construct(self, x):
    ...         return x * 2
    >>> Twice()(Tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """

    def __init__(self, auto_prefix=True, flags=None):
        self.__dict__.update(_params=OrderedDict(), _cells=OrderedDict(), _compiled=None, training=False,
                             cell_init_args="", auto_prefix=auto_prefix)
        if flags:
            self.__dict__.update(flags)

    # ---- parts -----------------------------------------------------------------------------------

    def __setattr__(self, name, value):
        if "_params" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}.__init__ sets {name!r} before super().__init__(); call "
                                 "super().__init__() first")
        if name in self._params and isinstance(value, Tensor) and not isinstance(value, Parameter):
            self._params[name].set_data(value)      # self.count = self.count + 1 changes the Parameter
            return
        for store in (self._params, self._cells, self.__dict__):
            store.pop(name, None)
        if isinstance(value, Parameter):
            self.insert_param_to_cell(name, value)
        elif isinstance(value, ParameterTuple):
            self.__dict__[name] = value
            for p in value:
                self.insert_param_to_cell(p.name, p)
        elif isinstance(value, Cell):
            self.insert_child_to_cell(name, value)
        else:
            self.__dict__[name] = value

    def __getattr__(self, name):
        for store in (self.__dict__.get("_params", {}), self.__dict__.get("_cells", {})):
            if name in store:
                return store[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name):
        for store in (self._params, self._cells, self.__dict__):
            if name in store:
                del store[name]
                return
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __getstate__(self):
        """What a copy or a pickle gets: all but the compiled programs, which belong to this cell's own parameters."""
        return {**self.__dict__, "_compiled": None}

    def __setstate__(self, state):
        self.__dict__.update(state)

    def insert_param_to_cell(self, param_name, param) -> None:
        """Make a Parameter a part of this cell; one without a name of its own takes `param_name`."""
        if param.name == "Parameter":
            param.name = param_name
        self._params[param_name] = param

    def insert_child_to_cell(self, child_name, child_cell) -> None:
        """Make a Cell a part of this one; the names of its parameters get `child_name.` in front."""
        self._cells[child_name] = child_cell
        child_cell.__dict__.setdefault("_scope_name", child_name)
        if self.auto_prefix:
            child_cell.update_parameters_name(f"{child_name}.")

    def update_parameters_name(self, prefix="", recurse=True) -> None:
        """Name the parameters by their place in this cell, with a prefix in front, as MindSpore does."""
        for place, p in list(self.parameters_and_names(expand=recurse)):
            p.name = prefix + place

    def cells(self) -> list["Cell"]:
        """The cells directly inside this one."""
        return list(self._cells.values())

    def name_cells(self) -> OrderedDict:
        """The cells directly inside this one by name."""
        return OrderedDict(self._cells)

    def cells_and_names(self, name_prefix="") -> Iterator[tuple[str, "Cell"]]:
        """(name, cell) of this cell and all inside, each once."""
        seen, todo = set(), [(name_prefix, self)]
        while todo:
            name, cell = todo.pop(0)
            if cell not in seen:
                seen.add(cell)
                yield name, cell
                dot = f"{name}." if name else ""
                todo[:0] = [(dot + n, c) for n, c in cell._cells.items()]

    def get_parameters(self, expand=True) -> Iterator[Parameter]:
        """All parameters in the order in which they were made, each once; expand=False: this cell's own only."""
        return (p for _, p in self.parameters_and_names(expand=expand))

    def parameters_and_names(self, name_prefix="", expand=True) -> Iterator[tuple[str, Parameter]]:
        """(place in the tree, parameter)."""
        seen = set()
        for name, cell in self.cells_and_names(name_prefix) if expand else [(name_prefix, self)]:
            for own, p in cell._params.items():
                if p not in seen:
                    seen.add(p)
                    yield f"{name}.{own}" if name else own, p

    def parameters_dict(self, recurse=True) -> OrderedDict:
        """Parameters by name."""
        return OrderedDict((p.name, p) for p in self.get_parameters(recurse))

    def trainable_params(self, recurse=True) -> list[Parameter]:
        """The parameters with requires_grad; an error when two have one name, since optimizers keep states by name."""
        params = [p for p in self.get_parameters(recurse) if p.requires_grad]
        seen: dict[str, Parameter] = {}
        for p in params:
            if seen.setdefault(p.name, p) is not p:
                raise ValueError(f"two parameters of {type(self).__name__} are named {p.name!r} (shapes {seen[p.name].shape} "
                                 f"and {p.shape}); give Parameter(…, name=…) different names, or put the cells that own "
                                 "them into attributes or a CellList")
        return params

    def untrainable_params(self, recurse=True) -> list[Parameter]:
        """The parameters without requires_grad."""
        return [p for p in self.get_parameters(recurse) if not p.requires_grad]

    def apply(self, fn) -> "Cell":
        """Call fn on every cell inside, then on this one."""
        for cell in self.cells():
            cell.apply(fn)
        fn(self)
        return self

    # ---- training or not -----------------------------------------------------------------------------

    def set_train(self, mode=True) -> "Cell":
        """Training behaviour (True) or that of evaluation, in this cell and all inside."""
        for _, cell in self.cells_and_names():
            cell.__dict__["training"] = bool(mode)
        return self

    def set_grad(self, requires_grad=True) -> "Cell":
        """Kept for MindSpore's programs; gradients are recorded when grad or value_and_grad ask for them."""
        return self

    # ---- running -------------------------------------------------------------------------------------

    def construct(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__} defines no construct(self, ...): say there what it computes")

    def __call__(self, *args, **kwargs):
        if recorder() is not None:
            return self._run(*args, **kwargs)
        if current().mode == GRAPH_MODE:
            if self._compiled is None:
                self.__dict__["_compiled"] = Compiled(self._run)
            return self._compiled(*args, **kwargs)
        with random.step():
            return self._run(*args, **kwargs)

    def _run(self, *args, **kwargs):
        if tracing():
            recorder().graph.cells[self] = self.training
        with random.scope(self._own_name()):
            return self._with_bprop(*args, **kwargs) if hasattr(self, "bprop") else self.construct(*args, **kwargs)

    def _with_bprop(self, *args, **kwargs):
        """construct, cut off from differentiation, and an op behind it that asks bprop for the gradient."""
        stop = StopGradient()
        inputs = [a for a in args if isinstance(a, Tensor)]
        out = self.construct(*[stop(a) if isinstance(a, Tensor) else a for a in args], **kwargs)
        outs, shape = flatten(out, is_tensor)
        if len(inputs) < len(args):
            raise TypeError(f"{type(self).__name__} has a bprop, so all its arguments must be tensors")
        op = CustomGradient(self.bprop, len(inputs), type(self).__name__)
        return unflatten(shape, list(op(*inputs, *[stop(o) for o in outs])))

    def compile(self, *args, **kwargs) -> None:
        """Compile for arguments of this kind, and run once."""
        self.__dict__["_compiled"] = self._compiled or Compiled(self._run)
        self._compiled(*args, **kwargs)

    def _own_name(self) -> str:
        return self.__dict__.get("_scope_name") or type(self).__name__

    # ---- looking at it -------------------------------------------------------------------------------

    def extend_repr(self) -> str:
        """What a subclass adds to its line in repr()."""
        return ""

    def __repr__(self):
        inside = "".join(f"\n  ({n}): " + repr(c).replace("\n", "\n  ") for n, c in self._cells.items())
        return f"{type(self).__name__}({self.extend_repr()}{inside}{chr(10) if inside else ''})"
