"""Cell: a part of a network, with parameters and other cells inside (MindSpore: `nn.Cell`)."""
from collections import OrderedDict
from collections.abc import Iterator

from minispore.common import random
from minispore.common.errors import warn
from minispore.common.parameter import Parameter, ParameterTuple
from minispore.common.recorder import recorder
from minispore.common.state import GRAPH_MODE, current
from minispore.common.tensor import Tensor, is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.graph.compile import Compiled
from minispore.graph.trace import tracing
from minispore.nn.cell_hooks import Hooks
from minispore.nn.cell_precision import Precision
from minispore.nn.cell_settings import Settings
from minispore.nn.cell_state import States
from minispore.ops.control import CustomGradient, StopGradient
from minispore.ops.sharded import pinned


class Cell(Hooks, States, Precision, Settings):
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

    bprop = None            # a subclass may define bprop(self, *inputs, out, dout)

    def __init__(self, auto_prefix=True, flags=None):
        self.__dict__.update(_params=OrderedDict(), _cells=OrderedDict(), _buffers=OrderedDict(), _passing=set(), _fixed=set(),
                             _hooks={}, _flags={}, _dtype=None, _strategy=None, _compiled=None, _version=0, _running=0,
                             training=False, requires_grad=False, cell_init_args="", cls_name=type(self).__name__,
                             auto_prefix=auto_prefix)
        self.add_flags(**(flags or {}))

    # ---- parts -----------------------------------------------------------------------------------

    def __setattr__(self, name, value):
        if "_params" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}.__init__ sets {name!r} before super().__init__(); call "
                                 "super().__init__() first")
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            kept = self._params.get(name)
            kept = self._buffers.get(name) if kept is None else kept
            if kept is not None:
                kept.set_data(value)                # self.count = self.count + 1 changes the Parameter
                return
            if name in self._buffers:
                self.register_buffer(name, value, name not in self._passing)
                return
        stores = (self._params, self._cells, self._buffers, self.__dict__)
        if any(name in store and _same(store[name], value) for store in stores):
            return
        if name in self._buffers and value is None:
            self.register_buffer(name, None, name not in self._passing)
            return
        self._changed()
        for store in stores:
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
        if name in self.__dict__.get("_params", {}):
            return self._used(name)
        for store in (self.__dict__.get("_cells", {}), self.__dict__.get("_buffers", {})):
            if name in store:
                return store[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name):
        for store in (self._params, self._cells, self._buffers, self.__dict__):
            if name in store:
                del store[name]
                self._changed()
                return
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __getstate__(self):
        """What a copy or a pickle gets: all but the compiled programs, which belong to this cell's own parameters."""
        return {**self.__dict__, "_compiled": None}

    def __setstate__(self, state):
        self.__dict__.update(state)

    def _changed(self) -> None:
        """Note that compiled programs may differ now. What construct itself sets is part of a program, not a change of it."""
        if not self._running:
            self.__dict__["_version"] += 1

    def _stamp(self) -> tuple:
        """What a program compiled from this cell depends on; see graph/compile.py."""
        return self.training, self._version

    def insert_param_to_cell(self, param_name, param, check_name_contain_dot=True) -> None:
        """Make a Parameter a part of this cell; one without a name of its own takes `param_name`."""
        self._changed()
        if param.name == "Parameter":
            param.name = param_name
        self._params[param_name] = param
        (self._fixed.discard if param.requires_grad else self._fixed.add)(param_name)

    def insert_child_to_cell(self, child_name, child_cell) -> None:
        """Make a Cell a part of this one; the names of its parameters get `child_name.` in front."""
        self._changed()
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

    def get_sub_cell(self, target: str) -> "Cell":
        """The cell at a place such as "block.conv"; "" is this one."""
        cell = self
        for name in target.split(".") if target else ():
            if name not in cell._cells:
                raise AttributeError(f"get_sub_cell({target!r}): {type(cell).__name__} has no cell {name!r}; it has "
                                     f"{', '.join(cell._cells) or 'none'}")
            cell = cell._cells[name]
        return cell

    def parameters_dict(self, recurse=True) -> OrderedDict:
        """Parameters by name."""
        return OrderedDict((p.name, p) for p in self.get_parameters(recurse))

    def parameters_broadcast_dict(self, recurse=True) -> OrderedDict | None:
        """Those by name that all ranks share, that is without `layerwise_parallel`; None if there are none."""
        return OrderedDict((p.name, p) for p in self.get_parameters(recurse) if not p.layerwise_parallel) or None

    def trainable_params(self, recurse=True) -> list[Parameter]:
        """The parameters with requires_grad; an error when two have one name, since optimizers keep states by name.

        A warning names attributes that hide Cells or Parameters in a plain list, tuple or dict, where nobody finds them.
        """
        params = [p for p in self.get_parameters(recurse) if p.requires_grad]
        self._warn_of_hidden()
        self._check_unique(params)
        return params

    def untrainable_params(self, recurse=True) -> list[Parameter]:
        """The parameters without requires_grad."""
        return [p for p in self.get_parameters(recurse) if not p.requires_grad]

    def _warn_of_hidden(self):
        found = set(self.get_parameters())
        for place, cell in self.cells_and_names():
            for name, value in cell.__dict__.items():
                if name.startswith("_") or not isinstance(value, (list, tuple, dict)):
                    continue
                items = flatten(value, lambda x: isinstance(x, (Cell, Parameter)))[0]
                lost = [p for x in items for p in (x.get_parameters() if isinstance(x, Cell) else [x])
                        if p.requires_grad and p not in found]
                where = f"{type(self).__name__}{'.' if place else ''}{place}.{name}"
                if lost and where not in current().warned:
                    current().warned.add(where)
                    holder = "ParameterTuple" if isinstance(items[0], Parameter) else "CellList"
                    warn(f"{where} is a plain {type(value).__name__}, so its {len(lost)} parameters ({lost[0].name}, …) don't "
                         f"belong to the network and aren't trained; use nn.CellList or ParameterTuple (here {holder}), or set "
                         "their requires_grad to False")

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
        self.__dict__["requires_grad"] = bool(requires_grad)
        return self

    # ---- running -------------------------------------------------------------------------------------

    def construct(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__} defines no construct(self, ...): say there what it computes")

    def __call__(self, *args, **kwargs):
        if recorder() is not None:
            return self._run(*args, **kwargs)
        state = current()
        if state.mode == GRAPH_MODE or state.compiler is not None:
            if self._compiled is None:
                self.__dict__["_compiled"] = Compiled(self._run)
            return self._compiled(*args, **kwargs)
        with random.step():
            return self._run(*args, **kwargs)

    def _run(self, *args, **kwargs):
        """construct, or what bprop makes of it, in the cell's dtype and with its hooks."""
        if tracing():
            recorder().graph.cells[self] = None
        place = random.enter(self._own_name())
        self.__dict__["_running"] += 1
        try:
            run = self.construct if self.bprop is None else self._with_bprop
            if self._strategy is not None:
                run = pinned(type(self).__name__, run, self._strategy)
            if self._dtype is None and not self._hooks:         # the usual case
                return run(*args, **kwargs)
            return self._precisely(lambda args, kwargs: self._hooked(run, args, kwargs), args, kwargs)
        finally:
            self.__dict__["_running"] -= 1
            random.leave(place)

    def _with_bprop(self, *args, **kwargs):
        """construct, cut off from differentiation, and an op behind it that asks bprop for the gradient."""
        listener, own = recorder(), [p.name for p in self.get_parameters() if p.requires_grad]
        if own and listener is not None and listener.nesting:
            raise RuntimeError(f"{type(self).__name__} has a bprop, which gives gradients to its inputs only, and parameters to "
                               f"be trained: {', '.join(own)}. Pass them to it as arguments from the cell that uses it, or set "
                               "their requires_grad to False")
        stop = StopGradient()
        inputs = [a for a in args if isinstance(a, Tensor)]
        out = self.construct(*[stop(a) if isinstance(a, Tensor) else a for a in args], **kwargs)
        outs, shape = flatten(out, is_tensor)
        if len(inputs) < len(args):
            raise TypeError(f"{type(self).__name__} has a bprop, so all its arguments must be tensors")
        op = CustomGradient(self.bprop, len(inputs), type(self).__name__)
        return unflatten(shape, list(op(*inputs, *[stop(o) for o in outs])))

    def compile_and_run(self, *args, **kwargs):
        """Compile for arguments of this kind if need be, and run."""
        self.__dict__["_compiled"] = self._compiled or Compiled(self._run)
        return self._compiled(*args, **kwargs)

    def compile(self, *args, **kwargs) -> None:
        """Compile for arguments of this kind, and run once."""
        self.compile_and_run(*args, **kwargs)

    def _own_name(self) -> str:
        return self.__dict__.get("_scope_name") or type(self).__name__

    # ---- looking at it -------------------------------------------------------------------------------

    def extend_repr(self) -> str:
        """What a subclass adds to its line in repr()."""
        return ""

    def __repr__(self):
        inside = "".join(f"\n  ({n}): " + repr(c).replace("\n", "\n  ") for n, c in self._cells.items())
        return f"{type(self).__name__}({self.extend_repr()}{inside}{chr(10) if inside else ''})"


def _same(old, new) -> bool:
    """Whether an attribute set to `new` is what it was; only plain values are compared."""
    return old is new or (type(old) is type(new) and isinstance(new, (int, float, str, type(None))) and old == new)
