"""The moves of a redistribution as ops of a rank's program: each knows the ranks it talks to, and how one thread that
holds all ranks' arrays does the same (`joint`, for the lock-step executor)."""
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from minispore.common.dtype import NARROW
from minispore.common.state import current
from minispore.communication.management import communicator
from minispore.ops.primitive import Primitive
from minispore.ops.shape import StridedSlice
from minispore.parallel.halo import Halo
from minispore.parallel.layout import local_shape
from minispore.parallel.mesh import Mesh
from minispore.parallel.redistribution import Move

FOLD = {"sum": np.add.reduce, "max": np.maximum.reduce, "min": np.minimum.reduce, "prod": np.multiply.reduce}


@dataclass(frozen=True)
class Between(Primitive):
    """Base: a collective among `ranks`, in the order of their places along the mesh axes."""
    ranks: tuple[int, ...]
    effect, widens = True, False

    def rule(self, *shapes):
        return None

    def flops(self, *xs):
        return 0

    def wire(self, dtype) -> int:
        """Bytes of a value on its way: 16-bit floats that are summed go as float32."""
        return 4 if self.widens and dtype in NARROW else dtype.itemsize

    @property
    def comm(self):
        """The communicator of these ranks, made when it is first wanted."""
        world, groups = communicator(), current().groups
        if self.ranks == world.ranks:
            return world
        name = f"ranks {','.join(map(str, self.ranks))}"
        if name not in groups:
            groups[name] = world.split(self.ranks, name)
        return groups[name]

    def forward(self, *xs):
        raise TypeError(f"{self.name} runs on CPU ranks' arrays; device arrays come with the native backend")

    def cpu(self, out, *xs):
        for handle in self.post(out, *xs):
            handle.wait()

    def joint(self, xs: list[np.ndarray]) -> list[np.ndarray]:
        """What each of the ranks gets, from what each of them has."""
        raise NotImplementedError(f"{self.name} defines no joint(arrays)")


@dataclass(frozen=True)
class AllReduceOver(Between):
    """The reduction ("sum", "max", "min", "prod") of the ranks' tensors; several tensors go as one message.

    16-bit floats are sent and summed as float32 (MindSpore: gradient_fp32_sync), here and in ReduceScatterOver.
    """
    kind: str = "sum"
    arity, widens = None, True

    def message(self, xs) -> np.ndarray:
        """The tensors one behind the other, in an array that is reduced in place."""
        return joined(xs, self.comm.buffer((sum(x.size for x in xs),), xs[0].dtype))

    def post(self, out, *xs):
        if isinstance(out, list):
            flat = self.message(xs)
            return [self.comm.all_reduce(flat, self.kind, flat).then(partial(fill, out))]
        return [self.comm.all_reduce(xs[0], self.kind, out=out)]

    def cpu(self, out, *xs):
        if isinstance(out, list):
            flat = self.message(xs)
            fill(out, self.comm.all_reduce_now(flat, self.kind, flat))
        else:
            self.comm.all_reduce_now(xs[0], self.kind, out)

    def joint(self, xs):
        return [reduced(self.kind, xs)] * len(xs)


@dataclass(frozen=True)
class Along(Between):
    """Base of collectives along one tensor dim, of one tensor or of several as one message."""
    dim: int = 0
    arity = None


@dataclass(frozen=True)
class AllGatherOver(Along):
    """The ranks' tensors joined along `dim`."""

    def post(self, out, *xs):
        def arrange(everybody):
            at = 0
            for o, x in zip(out if isinstance(out, list) else [out], xs, strict=True):
                np.concatenate([row[at:at + x.size].reshape(x.shape) for row in everybody], self.dim, out=o)
                at += x.size
        return [self.comm.all_gather(joined(xs)[None]).then(arrange)]

    def joint(self, xs):
        return [np.concatenate(xs, self.dim)] * len(xs)


@dataclass(frozen=True)
class ReduceScatterOver(Along):
    """The reduction of the ranks' tensors, cut along `dim`; each rank gets its piece."""
    kind: str = "sum"
    widens = True

    def post(self, out, *xs):
        outs = out if isinstance(out, list) else [out]
        pieces = zip(*(np.split(x, len(self.ranks), self.dim) for x in xs), strict=True)
        mine = self.comm.reduce_scatter(np.stack(list(map(joined, pieces))), self.kind)
        return [mine.then(lambda rows: fill(outs, rows[0]))]

    def joint(self, xs):
        return np.split(reduced(self.kind, xs), len(xs), self.dim)


@dataclass(frozen=True)
class AllToAllOver(Along):
    """`dim` becomes whole, dim `cut` is split over the ranks instead."""
    cut: int = 0
    arity = 1

    def post(self, out, x):
        parts = np.stack(np.split(x, len(self.ranks), self.cut))
        return [self.comm.all_to_all(parts).then(lambda arrived: np.concatenate(list(arrived), self.dim, out=out))]

    def joint(self, xs):
        parts = [np.split(x, len(xs), self.cut) for x in xs]
        return [np.concatenate([p[i] for p in parts], self.dim) for i in range(len(xs))]


def reduced(kind: str, xs: list[np.ndarray]) -> np.ndarray:
    """The ranks' arrays reduced to one; 16-bit floats by way of float32."""
    wide = np.float32 if xs[0].dtype in NARROW else xs[0].dtype
    return FOLD[kind](np.stack(xs).astype(wide), 0).astype(xs[0].dtype)


def joined(xs, out: np.ndarray | None = None) -> np.ndarray:
    """Tensors one behind the other, flat; in `out`, if given."""
    return np.concatenate([x.reshape(-1) for x in xs], out=out) if len(xs) > 1 or out is not None else xs[0].reshape(-1)


def fill(outs: list[np.ndarray], flat: np.ndarray) -> None:
    """Take a joined message apart."""
    at = 0
    for o in outs:
        np.copyto(o, flat[at:at + o.size].reshape(o.shape))
        at += o.size


@dataclass(frozen=True)
class PermuteOver(Between):
    """Whole pieces change hands: this rank receives that of `source` and sends its own to `targets` (world ranks).

    ranks: those along the mesh axes that change; the first that has a piece may be another one.
    """
    source: int = 0
    targets: tuple[int, ...] = ()

    def cpu(self, out, x):
        comm, me = communicator(), communicator().rank
        for target in self.targets:
            if target != me:
                comm.send(x, target, _PERMUTE)
        np.copyto(out, x if self.source == me else comm.receive(out.shape, out.dtype, self.source, _PERMUTE).wait())


@dataclass(frozen=True)
class HaloOver(Between):
    """Each rank's window of `dim`, of which it has piece number `place` of `length`: what it lacks comes from its neighbours,
    and is zero outside the whole."""
    dim: int = 0
    begins: tuple[int, ...] = ()
    size: int = 0
    length: int = 0
    place: int = 0

    def overlap(self, reader: int, owner: int) -> tuple[int, int]:
        """[from, to) of the whole, that window number `reader` has of piece number `owner`."""
        begin, own = self.begins[reader], owner * self.length
        return max(begin, own), min(begin + self.size, own + self.length)

    def part(self, array, start: int, stop: int, first: int):
        """[start, stop) of the whole, in an array that begins at `first`."""
        return array[(*(slice(None),) * self.dim, slice(start - first, stop - first))]

    def cpu(self, out, x):
        comm, me, others = communicator(), self.place, [k for k in range(len(self.ranks)) if k != self.place]
        for other in others:
            start, stop = self.overlap(other, me)
            if start < stop:
                comm.send(self.part(x, start, stop, me * self.length), self.ranks[other], _HALO)
        out[...] = 0
        for owner in (me, *others):
            start, stop = self.overlap(me, owner)
            if start < stop:
                mine = self.part(out, start, stop, self.begins[me])
                mine[...] = self.part(x, start, stop, me * self.length) if owner == me else \
                    comm.receive(mine.shape, out.dtype, self.ranks[owner], _HALO).wait()

    def joint(self, xs):
        whole, length = np.concatenate(xs, self.dim), self.length * len(xs)
        outs = []
        for begin in self.begins:
            start, stop = max(begin, 0), min(begin + self.size, length)
            out = np.zeros((*whole.shape[:self.dim], self.size, *whole.shape[self.dim + 1:]), whole.dtype)
            if start < stop:
                self.part(out, start, stop, begin)[...] = self.part(whole, start, stop, 0)
            outs.append(out)
        return outs

    def sent(self, out_shape: tuple) -> int:
        """Values that this rank sends."""
        rows = sum(max(stop - start, 0) for k in range(len(self.ranks)) if k != self.place
                   for start, stop in [self.overlap(k, self.place)])
        return rows * prod(out_shape) // self.size


_PERMUTE, _HALO = 0x4001, 0x4002            # the tags of PermuteOver's and HaloOver's messages


def operation(mesh: Mesh, move: Move, rank: int, shape: tuple) -> Primitive:
    """The op by which a rank takes part in a move of a tensor of the logical `shape`."""
    if move.op == "slice":
        have, n = local_shape(mesh, shape, move.src), mesh.count(move.axes)
        size = have[move.dim] // n
        at = mesh.index(rank, move.axes) * size
        return StridedSlice((*(0,) * move.dim, at), (*have[:move.dim], at + size), (1,) * (move.dim + 1))
    if move.op == "permute":
        sources = permute_sources(mesh, move)
        return PermuteOver(mesh.group(rank, move.axes), sources[rank], tuple(r for r, s in enumerate(sources) if s == rank))
    ranks, kind = mesh.group(rank, move.axes), move.src.kind
    if isinstance(move, Halo):
        return HaloOver(ranks, move.dim, move.begins, move.size, move.length, ranks.index(rank))
    return {"all_reduce": lambda: AllReduceOver(ranks, kind),
            "all_gather": lambda: AllGatherOver(ranks, move.dim),
            "reduce_scatter": lambda: ReduceScatterOver(ranks, move.dim, kind),
            "all_to_all": lambda: AllToAllOver(ranks, move.dim, move.to)}[move.op]()


def permute_sources(mesh: Mesh, move: Move) -> list[int]:
    """For each rank the rank whose piece it needs: itself if it has it, else the first that has."""
    holders: dict[tuple, list[int]] = {}

    def place(layout, rank):
        return (*(mesh.index(rank, axes) for axes in layout.dims), *(mesh.coordinates(rank)[a] for a in sorted(layout.partial)))
    for rank in range(mesh.n):
        holders.setdefault(place(move.src, rank), []).append(rank)
    needed = [holders[place(move.dst, rank)] for rank in range(mesh.n)]
    return [rank if rank in have else have[0] for rank, have in enumerate(needed)]


def joint_move(mesh: Mesh, move: Move, xs: list[np.ndarray], shape: tuple) -> list[np.ndarray]:
    """A move of all ranks' arrays at once."""
    if move.op == "slice":
        return [operation(mesh, move, r, shape).forward(x) for r, x in enumerate(xs)]
    if move.op == "permute":
        return [xs[s] for s in permute_sources(mesh, move)]
    out: list = [None] * mesh.n
    for group in mesh.groups(move.axes):
        op = operation(mesh, move, group[0], shape)
        for r, x in zip(group, op.joint([xs[r] for r in group]), strict=True):
            out[r] = x
    return out


def sent_values(op: Primitive, out_shape: tuple) -> int:
    """Values that one rank sends in a collective of ring or pairwise algorithms."""
    if isinstance(op, HaloOver):
        return op.sent(out_shape)
    n, size = len(op.ranks), prod(out_shape)
    share = {AllReduceOver: 2 * size * (n - 1) // n, AllGatherOver: size * (n - 1) // n,
             ReduceScatterOver: size * (n - 1), AllToAllOver: size * (n - 1) // n}
    return share.get(type(op), size)
