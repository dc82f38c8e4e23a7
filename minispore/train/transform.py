"""Checkpoints of one layout made into those of another, without running anything (MindSpore: `transform_checkpoints`, …).

Folders are as MindSpore has them: rank_0, rank_1, …, each with the files of that rank.
"""
import json
import os
import re
from collections.abc import Iterable
from itertools import accumulate
from math import prod

from minispore.parallel.assemble import all_of, ranks_for
from minispore.parallel.strategy_file import Region, Stored, Strategy, as_stored, build_searched_strategy, describe
from minispore.train.atomic import make_folder, write_whole
from minispore.train.entries import Entry
from minispore.train.files import FORMATS, some
from minispore.train.rank_files import RankFiles
from minispore.train.serialization import save_entries

PART, NUMBER = 2 ** 30, 8       # bytes in one of unified_safetensors' files, unless it is told how many; bytes of a number
NAMES = "param_name_map.json"


def rank_list_for_transform(rank_id, src_strategy_file=None, dst_strategy_file=None) -> list[int]:
    """The source ranks whose files are needed for a destination rank's file (MindSpore: `rank_list_for_transform`).

    Args:
        rank_id: the destination rank.
        src_strategy_file, dst_strategy_file: how parameters lie there and here; None: whole, on one rank.

    >>> import tempfile
    >>> from minispore.parallel.layout import TensorLayout
    >>> from minispore.parallel.mesh import Mesh
    >>> from minispore.parallel.placement import Placement
    >>> from minispore.parallel.strategy_file import write_strategy
    >>> src, dst = (tempfile.mkdtemp() + "/strategy.json" for _ in range(2))
    >>> write_strategy(src, {"w": Stored(Placement(Mesh(8), (16,), TensorLayout(((0, 1, 2),))))})
    >>> write_strategy(dst, {"w": Stored(Placement(Mesh(4), (16,), TensorLayout(((0, 1),))))})
    >>> rank_list_for_transform(1, src, dst)
    [2, 3]
    """
    src, dst = strategy(src_strategy_file), strategy(dst_strategy_file)
    _check_rank("rank_list_for_transform", rank_id, dst)
    wanted = [(stored, want) for name, stored in src.items() if (want := wanted_region(name, stored, dst, rank_id)) is not None]
    return ranks_for(wanted) or [0]


def transform_checkpoint_by_rank(rank_id, checkpoint_files_map, save_checkpoint_file_name, src_strategy_file=None,
                                 dst_strategy_file=None) -> None:
    """Make one destination rank's file (MindSpore: `transform_checkpoint_by_rank`).

    Args:
        rank_id: the destination rank.
        checkpoint_files_map: {source rank: file} of all ranks, or of those of `rank_list_for_transform`.
        save_checkpoint_file_name: the file to write; its suffix says the format.
        src_strategy_file, dst_strategy_file: how parameters lie there and here. src None: the files say it themselves (as
            minispore's do), or are whole; dst None: whole.

    A parameter that dst_strategy_file doesn't have is written whole: into a network it goes, whatever its layout is there.
    ValueError names file and parameter where a slice is missing, of another shape, or damaged; nothing is written then.
    """
    who = "transform_checkpoint_by_rank"
    if not isinstance(checkpoint_files_map, dict) or not checkpoint_files_map:
        raise TypeError(f"{who}: checkpoint_files_map {checkpoint_files_map!r} must be a dict {{rank: file}}")
    dst = strategy(dst_strategy_file)
    _check_rank(who, rank_id, dst)
    source = RankFiles(who, checkpoint_files_map, strategy(src_strategy_file))
    write_rank(source, dst, rank_id, save_checkpoint_file_name)


def transform_checkpoints(src_checkpoints_dir, dst_checkpoints_dir, ckpt_prefix, src_strategy_file=None, dst_strategy_file=None,
                          process_num=1, output_format="ckpt") -> None:
    """Make all destination ranks' files (MindSpore: `transform_checkpoints`).

    Args:
        src_checkpoints_dir: folder with rank_0, rank_1, …; of each the last file by name is taken ("net-10_1" is after
            "net-9_1"; breakpoints aren't).
        dst_checkpoints_dir: where rank_0/{ckpt_prefix}0.ckpt, … are written.
        src_strategy_file, dst_strategy_file: see transform_checkpoint_by_rank.
        process_num: accepted as in MindSpore.
        output_format: "ckpt" or "safetensors".

    All files are checked and written one after another; an error leaves those before it.
    """
    who = "transform_checkpoints"
    if output_format not in FORMATS:
        raise ValueError(f"{who}: output_format {output_format!r} is unknown; use one of {FORMATS}")
    if os.path.realpath(src_checkpoints_dir) == os.path.realpath(dst_checkpoints_dir):
        raise ValueError(f"{who}: {src_checkpoints_dir} is both source and destination; give another folder for the new files")
    dst = strategy(dst_strategy_file)
    source = RankFiles(who, rank_folders(who, src_checkpoints_dir), strategy(src_strategy_file))
    write_ranks(source, dst, os.fspath(dst_checkpoints_dir), ckpt_prefix, output_format)


def unified_safetensors(src_dir, src_strategy_file, dst_dir, merge_with_redundancy=True, file_suffix=None, max_process_num=64,
                        choice_func=None, split_dst_file=()) -> None:
    """Merge all ranks' safetensors files into whole tensors (MindSpore: `unified_safetensors`): part0.safetensors, …, and
    param_name_map.json, which says what is where. load_distributed_checkpoint(unified_safetensors_dir=…) reads them.

    Args:
        src_dir: folder with rank_0, rank_1, ….
        src_strategy_file: how parameters lie in them; None: the files say it themselves.
        file_suffix: take of each folder the last file whose name ends so before ".safetensors".
        choice_func: name -> whether to take it; or a str: take it under this name.
        split_dst_file: (i, n): write only the i-th (from 1) of n files, so that n processes can share the work.
        merge_with_redundancy, max_process_num: accepted as in MindSpore; of equal slices one is enough in any case.
    """
    who = "unified_safetensors"
    source = RankFiles(who, rank_folders(who, src_dir, f"{file_suffix or ''}.safetensors"), strategy(src_strategy_file))
    names = {name: name if choice is True else choice for name in source.names
             if (choice := choice_func(name) if choice_func else True)}
    if len(set(names.values())) < len(names):
        raise ValueError(f"{who}: choice_func gives two parameters one name; names are {some(sorted(names.values()))}")
    only, count = split_dst_file or (None, None)
    if count is not None and not 1 <= only <= count:
        raise ValueError(f"{who}: split_dst_file={split_dst_file} must be (i, n) with i from 1 to n, or ()")
    parts = in_parts(source, list(names), count)
    place = {names[name]: f"part{i}.safetensors" for i, part in enumerate(parts) for name in part}
    make_folder(os.fspath(dst_dir))
    for i, part in enumerate(parts):
        if only in (None, i + 1):
            entries = [(names[name], source.part(name) if source.text(name) is None else source.text(name)) for name in part]
            save_entries(entries, os.path.join(dst_dir, f"part{i}.safetensors"), source.note, "safetensors")
    write_whole(os.path.join(dst_dir, NAMES), [json.dumps(place, indent=1).encode()])


# ---- what they share -----------------------------------------------------------------------------------


def strategy(file) -> Strategy:
    """What a strategy file says; {} for None. It may also be given as {name: layout}."""
    if isinstance(file, dict):
        return {name: as_stored(name, value) for name, value in file.items()}
    return build_searched_strategy(file) if file else {}


def wanted_region(name: str, stored: Stored, dst: Strategy, rank: int) -> Region | None:
    """The part of a parameter that a destination rank gets, all of it if `dst` doesn't say; None if it gets none."""
    if name not in dst:
        return all_of(stored)
    there = dst[name]
    if there.placement.shape != stored.placement.shape:
        raise ValueError(f"parameter {name!r} has shape {stored.placement.shape} in the source, {there.placement.shape} in the "
                         "destination's strategy; use the strategy files of one network")
    return there.region(rank) if rank in there.ranks else None


def write_ranks(source: RankFiles, dst: Strategy, folder: str, prefix: str, format: str, ranks: Iterable[int] | None = None):
    """Write the files of destination ranks, all unless told which: folder/rank_0/{prefix}0.{format}, …."""
    for rank in range(rank_count(dst)) if ranks is None else ranks:
        place = os.path.join(folder, f"rank_{rank}")
        make_folder(place)
        write_rank(source, dst, rank, os.path.join(place, f"{prefix}{rank}.{format}"))


def write_rank(source: RankFiles, dst: Strategy, rank: int, file: str) -> None:
    """Write one destination rank's file."""
    lost = [name for name, stored in dst.items() if rank in stored.ranks and name not in source.names]
    if lost:
        raise ValueError(f"{source.who}: no source file has parameter {lost[0]!r}, of which the destination's strategy gives "
                         f"rank {rank} a slice; use the strategy file of the network that was saved")
    entries: list[Entry] = []
    slices: dict[str, dict] = {}
    for name in source.names:
        text = source.text(name)
        want = None if text is not None else wanted_region(name, source.stored(name), dst, rank)
        if text is not None:
            entries.append((name, text))
        elif want is not None:
            entries.append((name, source.part(name, want)))
            if name in dst and not dst[name].placement.layout.whole:
                slices[name] = describe(dst[name].placement)
    note = {**source.note, **({"slices": {"rank": rank, "parameters": slices}} if slices else {})}
    save_entries(entries, file, note, "safetensors" if os.fspath(file).endswith(".safetensors") else "ckpt")


def rank_count(strategy: Strategy) -> int:
    """The number of ranks of a job; 1 without a strategy."""
    return 1 + max((max(stored.ranks) for stored in strategy.values()), default=0)


def _check_rank(who: str, rank, dst: Strategy) -> None:
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < rank_count(dst):
        raise ValueError(f"{who}: rank_id={rank!r}, the destination's strategy has ranks 0 … {rank_count(dst) - 1}; give one of "
                         "these, and the strategy file if the destination has several")


def rank_folders(who: str, folder, suffix: str = "") -> dict[int, str]:
    """{rank: its last file} of the folders rank_0, rank_1, …."""
    folder = os.fspath(folder)
    found = {int(m[1]): os.path.join(folder, m[0]) for m in map(re.compile(r"rank_(\d+)").fullmatch, _list(folder)) if m}
    if not found:
        raise FileNotFoundError(f"{who}: {folder} has no folders rank_0, rank_1, …; give the folder in which they are")
    out = {}
    for rank, place in sorted(found.items()):
        files = [f for f in _list(place) if f.endswith(suffix or tuple(f".{format}" for format in FORMATS))]
        files = sorted((f for f in files if "_breakpoint." not in f), key=_in_order)
        if not files:
            raise FileNotFoundError(f"{who}: {place} has no file of rank {rank} ({suffix or '.ckpt, .safetensors'}); put it "
                                    "there, or remove the folder if others have its slices, too")
        out[rank] = os.path.join(place, files[-1])
    return out


def _list(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def _in_order(name: str) -> list:
    """A key under which 10 comes after 9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def in_parts(source: RankFiles, names: list[str], count: int | None) -> list[list[str]]:
    """The names in `count` parts of like many numbers, or in as many as PART asks for."""
    sizes = [prod(source.stored(name).placement.shape) if source.text(name) is None else 0 for name in names]
    total = max(1, sum(sizes))
    count = count or -(-total * NUMBER // PART)
    parts: list[list[str]] = [[] for _ in range(count)]
    for name, before in zip(names, accumulate(sizes, initial=0), strict=False):
        parts[min(count - 1, before * count // total)].append(name)
    return parts
