"""Strategy files: how each parameter of a job lies over its ranks, so that others can put the slices together again.

The content is JSON with MindSpore's names, whatever the file is called:

    {"current_stage": 0, "parallel_strategy_item": {}, "parallel_layout_item": {
        "fc.weight": {"dev_matrix": [2, 4], "tensor_map": [0, -1], "tensor_shape": [64, 32], "slice_shape": [16, 32], …}}}

A number in the tensor map counts the dims of the device matrix from the right, -1 is a dim that isn't split, a list one
that is split by several. The same description stands in the note of a checkpoint file that holds slices.
"""
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from minispore.common.parameter import Parameter
from minispore.common.state import current
from minispore.parallel.layout import arranged, fits_shape, whole
from minispore.parallel.mesh import Mesh
from minispore.parallel.placement import Placement

Region = tuple[tuple[int, int], ...]        # (begin, end) of each dim


@dataclass(frozen=True)
class Stored:
    """Where the slices of a parameter are: its placement over the ranks of a pipeline stage, and the stages that have it."""
    placement: Placement
    stages: tuple[int, ...] = (0,)

    @property
    def ranks(self) -> list[int]:
        """The ranks that have a slice."""
        n = self.placement.mesh.n
        return [stage * n + i for stage in self.stages for i in range(n)]

    def region(self, rank: int) -> Region:
        """Where a rank's slice lies in the logical tensor."""
        return bounds(self.placement.region(rank % self.placement.mesh.n))

    def __str__(self):
        return str(self.placement)


Strategy = dict[str, Stored]


def bounds(slices: Iterable[slice]) -> Region:
    """Slices as (begin, end), which can be looked up and compared."""
    return tuple((s.start, s.stop) for s in slices)


def everywhere(shape: tuple[int, ...], ranks: int = 1) -> Placement:
    """The placement of a tensor that every rank has whole."""
    return Placement(Mesh(ranks), tuple(shape), whole(len(shape)))


# ---- a placement as MindSpore writes it ----------------------------------------------------------------


def describe(placement: Placement) -> dict:
    """A placement for JSON.

    >>> from minispore.parallel.layout import TensorLayout
    >>> describe(Placement(Mesh(8), (64, 32), TensorLayout(((1, 2), ()))))["tensor_map"]
    [0, -1]
    """
    matrix, tensor_map, slice_shape = placement.arrangement()
    return {"dev_matrix": matrix, "tensor_map": tensor_map, "tensor_shape": list(placement.shape), "slice_shape": slice_shape,
            "field": 0, "opt_weight_shard_step": 0, "opt_weight_shard_size": 0}


def described(item: Mapping) -> Placement:
    """The placement that was described so. ValueError says what is wrong with it."""
    try:
        matrix, tensor_map, shape = item["dev_matrix"], item["tensor_map"], tuple(item["tensor_shape"])
        if not all(type(n) is int and n >= 0 for n in (*matrix, *shape)) or 0 in matrix:
            raise TypeError
    except (KeyError, TypeError):
        raise ValueError(f"{item!r} must have dev_matrix, tensor_map and tensor_shape, lists of whole numbers") from None
    if item.get("opt_weight_shard_size"):
        raise ValueError(f"it was saved with optimizer parallel (opt_weight_shard_size {item['opt_weight_shard_size']}), which "
                         "MindSpore describes outside of the tensor map; save it there without optimizer parallel")
    if len(tensor_map) != len(shape):
        raise ValueError(f"tensor map {tensor_map} has {len(tensor_map)} entries for shape {shape}; it needs one for each dim")
    mesh, layout = arranged(matrix, tensor_map)
    if not fits_shape(mesh, shape, layout):
        raise ValueError(f"device matrix {matrix} and tensor map {tensor_map} don't divide shape {shape}")
    placement = Placement(mesh, shape, layout)
    if tuple(item.get("slice_shape", placement.local_shape)) != placement.local_shape:
        raise ValueError(f"slice shape {item['slice_shape']} where device matrix {matrix} and tensor map {tensor_map} make "
                         f"{placement.local_shape} of shape {shape}")
    return placement


def as_stored(what: str, value) -> Stored:
    """One parameter's entry of a strategy, which users may also give as a Placement or as MindSpore's tuple
    (device matrix, tensor map, slice shape, …); ValueError for anything else."""
    if isinstance(value, Stored):
        return value
    if isinstance(value, Placement):
        return Stored(value)
    try:
        matrix, tensor_map, piece = (list(part) for part in value[:3])
        mesh, layout = arranged(matrix, tensor_map)
        shape = tuple(n * mesh.count(axes) for n, axes in zip(piece, layout.dims, strict=True))
    except (TypeError, ValueError, KeyError) as e:
        raise ValueError(f"{what}: strategy {value!r} can't be used ({e}); give what build_searched_strategy returns, a tensor's "
                         "layout, or (device matrix, tensor map, slice shape)") from None
    return Stored(Placement(mesh, shape, layout))


# ---- files ---------------------------------------------------------------------------------------------


def write_strategy(file: str, strategy: Strategy, stage: int = 0) -> None:
    """Write a strategy file, whole or not at all."""
    from minispore.train.atomic import write_whole  # stands above; whoever compiles without saving needs none of it
    items = ",\n".join(f"  {json.dumps(name)}: {json.dumps({**describe(s.placement), 'stages': s.stages})}"
                       for name, s in strategy.items())
    write_whole(os.path.abspath(file), [f'{{"current_stage": {stage},\n "parallel_strategy_item": {{}},\n '
                                        f'"parallel_layout_item": {{\n{items}}}}}\n'.encode()])


def build_searched_strategy(strategy_filename) -> Strategy:
    """What a strategy file says, by parameter (MindSpore: `mindspore.build_searched_strategy`).

    Files in MindSpore's binary form aren't read: save them there under a name that ends in .json.

    Raises FileNotFoundError; ValueError for a file that is something else.

    >>> import tempfile
    >>> file = tempfile.mkdtemp() + "/strategy.json"
    >>> write_strategy(file, {"w": Stored(everywhere((3, 2), 4))})
    >>> print(build_searched_strategy(file)["w"])
    (3, 2) as (-, -) on 4 ranks
    """
    if not isinstance(strategy_filename, (str, os.PathLike)):
        raise TypeError(f"strategy_filename is a {type(strategy_filename).__name__}; it must be a strategy file's name")
    file = os.fspath(strategy_filename)
    if not os.path.isfile(file):
        raise FileNotFoundError(f"strategy file {file} isn't there; training writes one where "
                                "set_auto_parallel_context(strategy_ckpt_config={'save_file': …}) says")
    with open(file, "rb") as f:
        content = f.read()
    try:
        content = json.loads(content)
        items, stage = content["parallel_layout_item"], content.get("current_stage", 0)
        items = {name: (item, tuple(item.get("stages", (stage,)))) for name, item in items.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{file} is no strategy file in JSON; MindSpore writes such if its name ends in .json") from None
    out = {}
    for name, (item, stages) in items.items():
        try:
            out[name] = Stored(described(item), stages)
        except ValueError as e:
            raise ValueError(f"strategy file {file}, parameter {name!r}: {e}") from None
    return out


def merge_pipeline_strategys(src_strategy_dirs, dst_strategy_file) -> None:
    """Merge the strategy files in a folder, one of each pipeline stage, into one (MindSpore: `merge_pipeline_strategys`).

    Raises FileNotFoundError without a file; ValueError for one parameter that lies differently in two of them.
    """
    folder = os.fspath(src_strategy_dirs)
    files = sorted(f for f in os.listdir(folder) if f.endswith((".json", ".ckpt"))) if os.path.isdir(folder) else []
    if not files:
        raise FileNotFoundError(f"merge_pipeline_strategys: {folder} has no strategy file (.json, .ckpt); give the folder to "
                                "which the stages wrote theirs")
    merged: dict[str, tuple[Stored, str]] = {}
    for file in files:
        for name, stored in build_searched_strategy(os.path.join(folder, file)).items():
            other, of = merged.get(name, (stored, file))
            if other.placement != stored.placement:
                raise ValueError(f"merge_pipeline_strategys: {name} lies as {other} in {of} and as {stored} in {file}, so these "
                                 "files aren't of one training; remove the old ones")
            stages = tuple(sorted({*other.stages, *stored.stages}))
            merged[name] = replace(stored, stages=stages), of
    write_strategy(os.fspath(dst_strategy_file), {name: stored for name, (stored, _) in merged.items()})


# ---- written while training ----------------------------------------------------------------------------


def save_file(settings: Mapping) -> tuple[str, bool]:
    """(strategy file to write or "", only trainable parameters) of the parallel context."""
    config = settings["strategy_ckpt_config"] or {}
    return config.get("save_file") or settings["strategy_ckpt_save_file"], config.get("only_trainable_params", True)


def load_file(settings: Mapping) -> str:
    """The strategy file that the parallel context says to load, or ""."""
    return (settings["strategy_ckpt_config"] or {}).get("load_file") or settings["strategy_ckpt_load_file"]


def keep_strategy(known: Strategy, parameters: Iterable[Parameter], mesh: Mesh) -> None:
    """Write how a program's parameters lie where the context says. `known` is what the programs before had, and grows."""
    file, trainable = save_file(current().parallel)
    if not file:
        return
    new = {p.name: Stored(p.layout or everywhere(p.shape, mesh.n)) for p in parameters if p.requires_grad or not trainable}
    if not new.items() <= known.items():
        known.update(new)
        write_strategy(os.fspath(file), known)
