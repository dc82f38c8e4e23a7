"""Dataset strategies: of which logical tensors the columns of a rank's batch are pieces.

A rank feeds its own piece; the logical tensor is as much larger as the strategy says. "data_parallel": shard r of a dataset
in device_num shards is piece r of dim 0. "full_batch": all ranks feed the same, whole tensors. A tuple has one strategy or
one tensor layout a column.
"""
from math import prod

from minispore.common.state import current
from minispore.ops.strategy import NamedLayout
from minispore.parallel.layout import TensorLayout, named_layout
from minispore.parallel.mesh import Mesh
from minispore.parallel.placement import Placement
from minispore.parallel.sharding import assignments


def placements(strategy, mesh: Mesh, shapes: dict[str, tuple], share: tuple[int, int]) -> list[Placement | None]:
    """Where each column's piece lies in its logical tensor; None: it is the whole of it.

    shapes: of the columns as this rank has them; share: (which shard of the dataset they are of, of how many).
    """
    if strategy == "full_batch":
        if share[1] > 1:
            raise ValueError(f"dataset_strategy='full_batch' (full_batch=True): every rank feeds all rows, but the dataset is "
                             f"cut into {share[1]} shards; leave num_shards and shard_id out, or set "
                             "dataset_strategy='data_parallel'")
        return [None] * len(shapes)
    if strategy == "data_parallel":
        strategy = by_rows(mesh, shapes, share)
    if len(strategy) != len(shapes):
        raise ValueError(f"dataset_strategy {strategy} has {len(strategy)} entries for the dataset's {len(shapes)} columns "
                         f"({', '.join(shapes)}); give one a column")
    return [placed(f"dataset_strategy {strategy}: column {name!r} of shape {shape}", entry, mesh, shape, share)
            for (name, shape), entry in zip(shapes.items(), strategy, strict=True)]


def by_rows(mesh: Mesh, shapes: dict[str, tuple], share: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
    """What "data_parallel" means for these columns, as a tuple of strategies."""
    shards = share[1]
    if shards not in (1, mesh.n):
        raise ValueError(f"dataset_strategy='data_parallel': the dataset is cut into {shards} shards, but there are {mesh.n} "
                         "devices; give it num_shards=get_group_size() and shard_id=get_rank(), or, if ranks are to share "
                         f"shards, dataset_strategy=(({shards}, 1), ({shards},)), one entry a column")
    for name, shape in shapes.items():
        if shards > 1 and not shape:
            raise ValueError(f"dataset_strategy='data_parallel': column {name!r} is a single number, so there are no rows to "
                             "share out over the devices; batch() the dataset")
    return tuple((shards, *(1,) * (len(shape) - 1)) if shape else () for shape in shapes.values())


def placed(what: str, entry, mesh: Mesh, shape: tuple, share: tuple[int, int]) -> Placement | None:
    """One column's placement by its entry of the strategy."""
    layout = layout_of(what, entry, mesh, len(shape))
    used = [a for axes in layout.dims for a in axes]
    logical = tuple(n * mesh.count(axes) for n, axes in zip(shape, layout.dims, strict=True))
    shard, shards = share
    axes = layout.dims[0] if shape else ()
    if shards > 1 and shards != mesh.count(axes):
        raise ValueError(f"{what} has its rows in {mesh.count(axes)} pieces, but the dataset is cut into {shards} shards; "
                         "they must agree: change num_shards, or the first count of the strategy")
    rank = current().rank
    if shards > 1 and rank < mesh.n and shard != (piece := mesh.index(rank, axes)):     # too many ranks: the compiler says so
        raise ValueError(f"{what}: rank {rank} of {mesh.n} holds piece {piece} of {shards} of the rows, but its "
                         f"dataset has shard_id={shard}; give shard_id={piece} on this rank")
    return Placement(mesh, logical, layout, batch=True) if used else None


def layout_of(what: str, entry, mesh: Mesh, ndim: int) -> TensorLayout:
    """A strategy or a layout with names, in the mesh's axes."""
    length = len(entry.tensor_map if isinstance(entry, NamedLayout) else entry)
    if length != ndim:
        raise ValueError(f"{what} has {ndim} dims, its entry {entry} {length}; give one for each dim")
    if isinstance(entry, NamedLayout):
        return named_layout(mesh, entry)
    found = next(assignments(None, mesh, dict(enumerate(entry)), list(mesh.axes)), None)
    if found is None:
        raise ValueError(f"{what}: its entry {entry} needs {prod(entry)} devices, which does not divide the {mesh.n} there are; "
                         "choose counts whose product does")
    return TensorLayout(tuple(found.get(d, ()) for d in range(ndim)))
