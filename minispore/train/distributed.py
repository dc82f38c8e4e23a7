"""load_distributed_checkpoint, merge_sliced_parameter: all ranks' slices into a network, or into one tensor."""
import json
import os

from minispore.common.errors import warn
from minispore.common.parameter import Parameter
from minispore.common.state import current
from minispore.common.tensor import Tensor
from minispore.nn.cell import Cell
from minispore.parallel.assemble import all_of, assemble
from minispore.parallel.placement import Placement
from minispore.parallel.strategy_file import Stored, as_stored, bounds, everywhere, load_file
from minispore.train.files import FORMATS, some
from minispore.train.pieces import Origin
from minispore.train.rank_files import RankFiles
from minispore.train.serialization import ParameterDict, assign_all
from minispore.train.transform import NAMES, rank_count, strategy, write_ranks


def load_distributed_checkpoint(network, checkpoint_filenames=None, predict_strategy=None, train_strategy_filename=None,
                                strict_load=False, dec_key=None, dec_mode="AES-GCM", format="ckpt", unified_safetensors_dir=None,
                                dst_safetensors_dir=None, rank_id=None, output_format="safetensors", name_map=None,
                                max_process_num=64, return_param_dict=False) -> dict | None:
    """Load all ranks' files into a network of any layout and number of ranks (MindSpore: `load_distributed_checkpoint`).

    Each rank reads only what its pieces are made of. All that can be loaded is loaded, or nothing.

    Args:
        network: a Cell; None to write files only, see dst_safetensors_dir.
        checkpoint_filenames: the files of all ranks, in order of rank; or unified_safetensors_dir instead.
        predict_strategy: how the network's parameters shall lie: {name: layout}, as of build_searched_strategy, or a
            strategy file. None, or a parameter it doesn't name: as it lies in the network now, whole before that has run.
        train_strategy_filename: how they lie in the files; None: what the parallel context loads
            (strategy_ckpt_config={"load_file": …}), else the files say it themselves, as minispore's do.
        strict_load: True: no dtype is converted.
        dst_safetensors_dir: with a predict_strategy: write rank_0/net0.safetensors, … there instead, of all ranks or of
            rank_id; output_format is theirs.
        rank_id: the rank whose pieces are loaded; None: this one.
        name_map: {name in the files: name in the network}.
        return_param_dict: True: return {name: Parameter} of what was loaded.
        format, max_process_num: accepted as in MindSpore.

    Raises ValueError that names file and parameter where a slice is missing, of another shape, or its file damaged;
    RuntimeError for parameters that don't fit the network; FileNotFoundError. Nothing has been changed then. Parameters that
    the files haven't got keep their values, with a warning.
    """
    who = "load_distributed_checkpoint"
    if dec_key is not None:
        raise ValueError(f"{who}: dec_key was given, but minispore doesn't encrypt; leave it out")
    if output_format not in FORMATS:
        raise ValueError(f"{who}: output_format {output_format!r} is unknown; use one of {FORMATS}")
    source = RankFiles(who, unified_files(who, unified_safetensors_dir) if unified_safetensors_dir else
                       listed_files(who, checkpoint_filenames),
                       strategy(None if unified_safetensors_dir else train_strategy_filename or load_file(current().parallel)))
    if source.strategy and len(source.files) != (n := rank_count(source.strategy)):
        raise ValueError(f"{who}: {len(source.files)} checkpoint files, but the training strategy has {n} ranks; give the file "
                         "of each rank, in order of rank")
    wanted = strategy(predict_strategy)
    if dst_safetensors_dir:
        if not wanted:
            raise ValueError(f"{who}: dst_safetensors_dir needs a predict_strategy, which says how the files shall be cut")
        write_ranks(source, wanted, os.fspath(dst_safetensors_dir), "net", output_format, None if rank_id is None else [rank_id])
        return None
    if not isinstance(network, Cell):
        raise TypeError(f"{who}: network is a {type(network).__name__}; it must be a Cell")
    rank = current().rank if rank_id is None else rank_id
    names = {new: old for old, new in (name_map or {}).items()}
    pairs, missing = [], []
    for p in network.get_parameters():
        name = names.get(p.name, p.name)
        if name not in source.strategy and (name not in source.names or source.text(name) is not None):
            missing.append(p.name)
            continue
        placement = place_of(who, p, wanted.get(p.name))
        stored = source.stored(name)
        if placement is not None and placement.shape != stored.placement.shape:
            placement = None                    # it won't fit: the message is to show both shapes
        region = None if placement is None else bounds(placement.region(rank))
        pairs.append((p, name, Tensor.from_numpy(source.part(name, region), placement)))
    origin = Origin(some(list(source.files.values())), rank, noted=True)
    assign_all(who, origin, pairs, strict_load)
    if missing:
        warn(f"{who}: {len(missing)} of the network's parameters aren't in {origin.file} and keep their values: {some(missing)}")
    if return_param_dict:
        out = ParameterDict((p.name, p) for p, _, _ in pairs)
        out.origin = origin
        return out
    return None


def place_of(who: str, p: Parameter, asked: Stored | None) -> Placement | None:
    """How a parameter is to lie on this rank; None: whole."""
    if asked is None or asked.placement.layout.whole:
        return p.layout
    mesh = asked.placement.mesh
    if p.layout is not None and p.layout != asked.placement:
        raise RuntimeError(f"{who}: predict_strategy wants {p.name} as {asked}, but the network has run and it lies as "
                           f"{p.layout}; leave predict_strategy out, or load before the network runs")
    if p.layout is None and (current().compiler is None or current().compiler.mesh != mesh):
        raise RuntimeError(f"{who}: predict_strategy wants {p.name} as {asked}, but this job isn't one of {mesh.n} ranks in "
                           "semi_auto_parallel or auto_parallel mode; start it so, or leave predict_strategy out, or write files "
                           "with dst_safetensors_dir")
    return asked.placement


def listed_files(who: str, names) -> dict[int, str]:
    """{rank: file} of a list of files."""
    if not isinstance(names, (list, tuple)) or not names or any(not isinstance(n, (str, os.PathLike)) for n in names):
        raise TypeError(f"{who}: checkpoint_filenames {names!r} must be a list of all ranks' files, in order of rank")
    return {rank: os.fspath(name) for rank, name in enumerate(names)}


def unified_files(who: str, folder) -> dict[int, str]:
    """The files that unified_safetensors wrote; they take the place of ranks'."""
    table = os.path.join(os.fspath(folder), NAMES)
    try:
        with open(table, encoding="utf-8") as f:
            files = sorted(set(json.load(f).values()))
    except FileNotFoundError:
        raise FileNotFoundError(f"{who}: {table} isn't there; unified_safetensors writes it, with the files") from None
    except (ValueError, AttributeError):
        raise ValueError(f"{who}: {table} isn't what unified_safetensors writes; make the folder anew") from None
    return {i: os.path.join(os.fspath(folder), name) for i, name in enumerate(files)}


def merge_sliced_parameter(sliced_parameters, strategy=None) -> Parameter:
    """One whole parameter of all ranks' slices (MindSpore: `mindspore.merge_sliced_parameter`).

    Args:
        sliced_parameters: Parameters of one name, in order of rank.
        strategy: {name: layout}, as of build_searched_strategy. None: as the parameters' own layout says, which
            load_checkpoint gives them; without one they are put together along dim 0.

    Raises TypeError, ValueError for slices that aren't all of it, or that differ in name, dtype or shape.

    >>> from minispore import Tensor
    >>> merge_sliced_parameter([Parameter(Tensor([[1.0, 2.0]]), "w"), Parameter(Tensor([[3.0, 4.0]]), "w")]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    who = "merge_sliced_parameter"
    if not isinstance(sliced_parameters, (list, tuple)) or not sliced_parameters or \
            any(not isinstance(p, Parameter) for p in sliced_parameters):
        raise TypeError(f"{who}: sliced_parameters must be a list of Parameters, one of each rank, not {sliced_parameters!r}")
    if strategy is not None and not isinstance(strategy, dict):
        raise TypeError(f"{who}: strategy is a {type(strategy).__name__}; it must be a dict {{name: layout}} or None")
    first = sliced_parameters[0]
    if strategy is not None and first.name not in strategy:
        raise ValueError(f"{who}: strategy has no parameter {first.name!r}; it has {some(list(strategy))}")
    if strategy is not None:
        stored = as_stored(f"{who}: {first.name}", strategy[first.name])
    elif first.layout is not None:
        stored = Stored(first.layout)
    else:
        stored = rows_of(first, len(sliced_parameters))
    for rank, p in enumerate(sliced_parameters):
        if (p.name, p.dtype, p.shape) != (first.name, first.dtype, stored.placement.local_shape):
            raise ValueError(f"{who}: rank {rank}'s is {p.name} of {p.dtype} {p.shape}, it must be {first.name} of {first.dtype} "
                             f"{stored.placement.local_shape} ({stored}) like the others")
    if len(sliced_parameters) != len(stored.ranks):
        raise ValueError(f"{who}: {len(sliced_parameters)} slices of {first.name}, it lies as {stored}; give one of each rank, "
                         "in order of rank")
    whole = assemble(stored, all_of(stored), range(len(sliced_parameters)), lambda rank: sliced_parameters[rank]._data())
    return Parameter(whole, first.name, first.requires_grad, first.layerwise_parallel, first.parallel_optimizer)


def rows_of(p: Parameter, n: int) -> Stored:
    """How a parameter lies of which each of n ranks has as many rows."""
    if not p.shape or n == 1:
        return Stored(everywhere(p.shape, n))
    return as_stored(p.name, ([n], [0, *[-1] * (p.ndim - 1)], p.shape))
