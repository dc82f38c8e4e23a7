"""All ranks' files of one checkpoint, read as the logical tensors that they hold together.

Of each file only its table of contents is read, and the arrays that are wanted. What a file's own note says
of its slices, what a strategy file says and what shapes are there must agree; nothing is guessed or filled up.
"""
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minispore.parallel.assemble import Uncovered, all_of, assemble
from minispore.parallel.placement import Placement
from minispore.parallel.strategy_file import Region, Stored, Strategy, everywhere
from minispore.train.entries import Damage
from minispore.train.files import Place, find_entries, naming, read_entry, some
from minispore.train.pieces import noted_slices

NOTED = ("state", "appended")           # what a note says of the checkpoint as a whole


@dataclass(frozen=True)
class RankFile:
    """One rank's file. slices: how the parameters lie of which it has a piece; all others in it are whole, if it is `noted`."""
    file: str
    entries: dict[str, Place | str]
    note: dict
    rank: int | None
    slices: dict[str, Placement]

    @property
    def noted(self) -> bool:
        return "minispore" in self.note

    def read(self, name: str) -> np.ndarray:
        """An array; ValueError names the file and the parameter if it is damaged."""
        return read_entry(self.file, name, self.entries[name], self.note)


def open_file(file: str) -> RankFile:
    """ValueError if the file is damaged, FileNotFoundError."""
    entries, note, file = find_entries(file)
    with naming(file):
        rank, slices = noted_slices(note)
        for name, placement in slices.items():
            shape = getattr(entries.get(name), "shape", None)
            if shape != placement.local_shape:
                raise Damage(f"its note says a slice of shape {placement.local_shape} ({placement}), there is {shape}", name)
    return RankFile(file, entries, note, rank, slices)


class RankFiles:
    """A checkpoint: the file of each rank, and how parameters lie in them.

    strategy: None where the files say it themselves, as minispore's do.
    """

    def __init__(self, who: str, files: Mapping[int, str], strategy: Strategy | None = None):
        self.who, self.files, self.strategy = who, dict(files), strategy or {}
        self._open: dict[int, RankFile] = {}
        self._stored: dict[str, Stored] = {}

    def opened(self, rank: int) -> RankFile:
        """A rank's file; ValueError if it is another rank's, or of another moment of the training than the others."""
        if rank not in self._open:
            new = open_file(self.files[rank])
            if new.slices and new.rank != rank:
                raise ValueError(f"{self.who}: {new.file} is given as rank {rank}'s, but has rank {new.rank}'s slices; give the "
                                 "files in order of their ranks")
            for other in list(self._open.values())[:1]:
                if moment(new) != moment(other):
                    raise ValueError(f"{self.who}: {new.file} was saved at {moment(new)}, {other.file} at {moment(other)}; give "
                                     "files of one moment")
            self._open[rank] = new
        return self._open[rank]

    def each(self) -> Iterator[tuple[int, RankFile]]:
        return ((rank, self.opened(rank)) for rank in sorted(self.files))

    @cached_property
    def names(self) -> list[str]:
        """All that is in the files."""
        return list(dict.fromkeys(name for _, file in self.each() for name in file.entries))

    @property
    def note(self) -> dict:
        """What the files' notes say of all of them."""
        _, first = next(self.each())
        return {key: first.note[key] for key in NOTED if key in first.note}

    def text(self, name: str) -> str | None:
        """The value, if it is a str."""
        value = next(file.entries[name] for _, file in self.each() if name in file.entries)
        return value if isinstance(value, str) else None

    def stored(self, name: str) -> Stored:
        """How a parameter lies: by the strategy, or by the note of the first file that has it."""
        if name not in self._stored:
            self._stored[name] = self.strategy.get(name) or self._by_files(name)
        return self._stored[name]

    def _by_files(self, name: str) -> Stored:
        having = [(rank, file) for rank, file in self.each() if name in file.entries]
        if not having:
            raise ValueError(f"{self.who}: no file has parameter {name!r}; the files {some(list(self.files.values()))} have "
                             f"{some(self.names)}")
        first = having[0][1]
        if name in first.slices:
            placement = first.slices[name]
            return Stored(placement, tuple(sorted({r // placement.mesh.n for r, _ in having})))
        if not first.noted:
            value = first.read(name)
            for _, other in having[1:]:
                if other.entries[name].shape != value.shape or other.read(name).tobytes() != value.tobytes():
                    raise ValueError(f"{self.who}: parameter {name!r} isn't in the strategy, so it should be whole, but it "
                                     f"differs between {first.file} and {other.file}; save the strategy file with "
                                     "strategy_ckpt_config={'save_file': …, 'only_trainable_params': False}")
        return Stored(everywhere(first.entries[name].shape, max(self.files) + 1))

    def slice_of(self, name: str, rank: int) -> np.ndarray:
        """A rank's slice of a parameter, as it must be."""
        file, stored = self.opened(rank), self.stored(name)
        placement = stored.placement
        if name not in file.entries:
            raise ValueError(f"{self.who}: {file.file} has no parameter {name!r}, of which rank {rank} has a slice of shape "
                             f"{placement.local_shape} ({placement}); use the file that was saved with the others")
        noted = file.slices.get(name)
        if noted != placement if noted else file.noted and not placement.layout.whole:
            raise ValueError(f"{self.who}: {file.file} has parameter {name!r} as {noted or 'a whole tensor'}, it should be "
                             f"{placement}; use the strategy file saved with these files")
        first = next(other for _, other in self.each() if name in other.entries)
        if file.entries[name].dtype != first.entries[name].dtype:
            raise ValueError(f"{self.who}: parameter {name!r} is {first.entries[name].dtype} in {first.file} and "
                             f"{file.entries[name].dtype} in {file.file}; use files saved together")
        value = file.read(name)
        if value.shape != placement.local_shape:
            raise ValueError(f"{self.who}: {file.file} has shape {value.shape} for parameter {name!r}, it should be a slice of "
                             f"shape {placement.local_shape} ({placement}); use the strategy file saved with these files")
        return value

    def part(self, name: str, want: Region | None = None) -> np.ndarray:
        """A part of a logical tensor, or all of it; not to be written to. ValueError names the file and the parameter where
        something is missing or wrong."""
        stored = self.stored(name)
        have = self.files
        if stored.placement.layout.whole:           # any file that has it will do
            have = {rank: file.file for rank, file in self.each() if name in file.entries} or have
        try:
            return assemble(stored, all_of(stored) if want is None else want, have, lambda rank: self.slice_of(name, rank))
        except Uncovered as e:
            raise ValueError(f"{self.who}: parameter {name!r} ({stored}) is incomplete: {e}, whose file isn't there; the files "
                             f"are {some([f'{r}: {f}' for r, f in self.files.items()])}") from None


def moment(file: RankFile) -> str:
    """When in its training a file was saved, as far as its note says."""
    state = file.note.get("state") or {}
    return f"epoch {state.get('epoch')}, step {state.get('step')}" if state else "a moment unknown"
