"""Names, flags and settings of a Cell that MindSpore's programs read and set."""
from collections import OrderedDict

from minispore.common.parameter import Parameter
from minispore.ops.strategy import strategy_of


class Settings:
    """The part of Cell about names and flags. Settings of MindSpore's compiler are accepted and change nothing."""

    # Plain attributes and no properties: subclasses may have attributes of these names for purposes of their own.
    param_prefix = ""           # the cell's place in the network, once update_cell_prefix was called on that
    cell_type = ""              # a word that update_cell_type sets
    bprop_debug = False         # accepted

    def update_cell_type(self, cell_type) -> None:
        """Set cell_type."""
        self.__dict__["cell_type"] = cell_type

    def update_cell_prefix(self) -> None:
        """Tell all cells inside their place: `param_prefix`."""
        for name, cell in self.cells_and_names():
            cell.__dict__["param_prefix"] = name

    def check_names(self) -> None:
        """An error when two parameters have one name, since checkpoints keep them by name."""
        self._check_unique(self.get_parameters())

    def _check_unique(self, params):
        seen: dict[str, Parameter] = {}
        for p in params:
            if seen.setdefault(p.name, p) is not p:
                raise ValueError(f"two parameters of {type(self).__name__} are named {p.name!r} (shapes {seen[p.name].shape} "
                                 f"and {p.shape}); give Parameter(…, name=…) different names, or put the cells that own "
                                 "them into attributes or a CellList")

    def check_names_and_refresh_name(self) -> None:
        """check_names; the names themselves are always up to date."""
        self.check_names()

    def generate_scope(self) -> None:
        """Nothing to do: the scopes of a graph's nodes are the cells' names."""

    def get_scope(self) -> str:
        """The name the cell's nodes carry in a graph."""
        return self._own_name()

    # ---- flags -------------------------------------------------------------------------------------

    def add_flags(self, **flags):
        """Set attributes that get_flags lists."""
        self._flags.update(flags)
        for name, value in flags.items():
            setattr(self, name, value)
        return self

    def add_flags_recursive(self, **flags):
        """add_flags in this cell and all inside."""
        for _, cell in self.cells_and_names():
            cell.add_flags(**flags)
        return self

    def get_flags(self) -> dict:
        """The flags set by add_flags."""
        return dict(self._flags)

    # ---- settings of distributed training ------------------------------------------------------------

    def set_comm_fusion(self, fusion_type, recurse=True):
        """The number of the message in which the parameters' gradients travel, kept as their `comm_fusion`.

        In data parallel all gradients of a dtype travel as one, whatever the number.
        """
        if not isinstance(fusion_type, int) or isinstance(fusion_type, bool) or fusion_type < 0:
            raise ValueError(f"set_comm_fusion: {fusion_type!r} must be a whole number ≥ 0")
        for p in self.get_parameters(recurse):
            p.comm_fusion = fusion_type
        return self

    def set_broadcast_flag(self, mode=True):
        """Accepted: which parameters the first rank hands out, `layerwise_parallel` says."""
        return self

    def set_data_parallel(self):
        """Accepted: an op without a strategy is data parallel anyway."""
        return self

    def recompute(self, **kwargs):
        """Accepted: results don't depend on it. Activations are kept, so it saves no memory yet."""
        return self

    def shard(self, in_strategy=None, out_strategy=None, parameter_plan=None):
        """Say how the cell's inputs, outputs and parameters are split in a logical program; what is inside follows.

        Args:
            in_strategy, out_strategy: an entry for each tensor that goes in (comes out): a tuple of split counts, a
                `Layout`'s layout, or None.
            parameter_plan: {name of a parameter, or its place in the cell: a tuple of split counts or a layout}.

        Returns: the cell.
        """
        name = type(self).__name__
        self.__dict__["_strategy"] = strategy_of(name, in_strategy, out_strategy)
        places = {**dict(self.parameters_and_names()), **self.parameters_dict()}
        for place, entry in (parameter_plan or {}).items():
            p = places.get(place.removeprefix("self."))
            if p is None:
                raise ValueError(f"{name}.shard: parameter_plan names {place!r}; the cell's parameters are {', '.join(places)}")
            p.strategy = strategy_of(p.name, (entry,))
        self._changed()
        return self

    @property
    def parameter_layout_dict(self) -> dict:
        """{name: [device matrix, tensor map, slice shape]} of the parameters that lie in pieces over the ranks."""
        return {p.name: list(p.layout.arrangement()) for p in self.get_parameters() if p.layout is not None}

    def place(self, role, rank_id):
        raise NotImplementedError("Cell.place: running a cell on another process isn't there; each rank runs the whole script")

    # ---- settings of MindSpore's compiler ------------------------------------------------------------

    def set_jit_config(self, jit_config):
        """Accepted."""
        return self

    def set_boost(self, boost_type):
        """Accepted."""
        return self

    def set_inputs(self, *inputs, **kwargs):
        """Kept for get_inputs: programs are compiled for the shapes they are called with."""
        self.__dict__["_inputs"] = inputs or kwargs

    def get_inputs(self):
        """What set_inputs was given."""
        return self.__dict__.get("_inputs")

    def init_parameters_data(self, auto_parallel_mode=False) -> OrderedDict:
        """{parameter: itself}: they have their values from the start."""
        return OrderedDict((p, p) for p in self.get_parameters())
