"""Data from other files than MNIST's: CIFAR's binary ones, folders of images, texts."""
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from minispore.dataset import checks
from minispore.dataset.block import stack
from minispore.dataset.core import Dataset
from minispore.dataset.reading import Arrays, Items
from minispore.dataset.sources import folder_of, source, usage_of
from minispore.dataset.stages import ROWS_AT_ONCE
from minispore.dataset.vision.pixels import Decode, pillow

_CIFAR = "unpack the 'binary version' of https://www.cs.toronto.edu/~kriz/cifar.html there"
_CIFAR10 = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
_CIFAR100 = {"train": ["train.bin"], "test": ["test.bin"]}


class Cifar10Dataset(Dataset):
    """Small photos of ten kinds of things (MindSpore: `mindspore.dataset.Cifar10Dataset`).

    `dataset_dir` holds data_batch_1.bin … data_batch_5.bin and test_batch.bin, or some of them: rows of a
    byte with the label and 3 x 32 x 32 bytes of red, green and blue. Columns: "image" (32, 32, 3) uint8,
    "label" () uint32. The arguments are MnistDataset's.

    ValueError for a missing folder, one without these files, and a file that ends within a row.
    """

    def __init__(self, dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=None,
                 sampler=None, num_shards=None, shard_id=None, cache=None):
        labels, images = _read_cifar(dataset_dir, usage, _CIFAR10, 1)
        super().__init__(source(Arrays({"image": images, "label": labels[:, 0]}), num_samples, num_parallel_workers, shuffle,
                                sampler, num_shards, shard_id, cache))


class Cifar100Dataset(Dataset):
    """As Cifar10Dataset, of a hundred kinds in twenty groups (MindSpore: `mindspore.dataset.Cifar100Dataset`).

    The files are train.bin and test.bin; the columns "image", "coarse_label" and "fine_label".
    """

    def __init__(self, dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=None,
                 sampler=None, num_shards=None, shard_id=None, cache=None):
        labels, images = _read_cifar(dataset_dir, usage, _CIFAR100, 2)
        table = {"image": images, "coarse_label": labels[:, 0], "fine_label": labels[:, 1]}
        super().__init__(source(Arrays(table), num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache))


def _read_cifar(folder, usage, files: dict[str, list[str]], labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels (rows, labels) uint32 and images (rows, 32, 32, 3) uint8 of the files that are there."""
    usage, folder = usage_of(usage, files), folder_of(folder, _CIFAR)
    names = [name for part in (files if usage in (None, "all") else [usage]) for name in files[part]]
    there = [folder / name for name in names if (folder / name).is_file()]
    if not there:
        raise ValueError(f"dataset_dir {str(folder)!r} has none of the files {', '.join(names)} for usage={usage!r}; it "
                         f"holds {sorted(os.listdir(folder))[:10]}; {_CIFAR}")
    row = labels + 3 * 32 * 32
    read = []
    for path in there:
        data = np.fromfile(path, np.uint8)
        if not len(data) or len(data) % row:
            raise ValueError(f"{path}: {len(data)} bytes are no whole number of rows of {row} bytes; the file is cut off or "
                             "another kind: fetch it again")
        read.append(data.reshape(-1, row))
    rows = np.concatenate(read)
    images = rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return rows[:, :labels].astype(np.uint32), np.ascontiguousarray(images)


_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp")


class ImageFolderDataset(Dataset):
    """Images in a folder for each class (MindSpore: `mindspore.dataset.ImageFolderDataset`).

    Columns: "image", the bytes of the file (n,) uint8, or with `decode` the picture (H, W, 3) uint8 in RGB;
    "label" () int32. Files are read when their rows are needed.

    Args:
        extensions: what the names of the images end with, e.g. [".jpg"]; the usual ones if left out.
        class_indexing: {folder name: label}; only these folders are taken. The folders' names in their
            alphabetical order are 0, 1, 2, … if left out.
        decode: needs Pillow.

    The other arguments are MnistDataset's. ValueError for a missing folder, no images, an unknown class or (while
    iterating) a file that can't be decoded, with its name.
    """

    def __init__(self, dataset_dir, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None,
                 extensions=None, class_indexing=None, decode=False, num_shards=None, shard_id=None, cache=None):
        folder = folder_of(dataset_dir, "it must hold a folder of images for each class")
        if checks.flag("decode", decode):
            pillow("ImageFolderDataset")        # say now that it isn't there
        endings = _IMAGES if extensions is None else tuple(ending.lower() for ending in checks.names("extensions", extensions))
        classes = _classes(folder, class_indexing)
        found = [(path, label) for name, label in classes.items() for path in sorted((folder / name).rglob("*"))
                 if path.suffix.lower() in endings and path.is_file()]
        if not found:
            raise ValueError(f"dataset_dir {str(folder)!r} has no images ({', '.join(endings)}) in its folders "
                             f"{list(classes)[:10]}; put those of each class into a folder named after it")
        paths, labels = zip(*found, strict=True)
        reader = ImageFiles(paths, np.array(labels, np.int32), decode, classes)
        super().__init__(source(reader, num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache))


def _classes(folder: Path, class_indexing) -> dict[str, int]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if class_indexing is None:
        return {name: label for label, name in enumerate(names)}
    if not isinstance(class_indexing, dict) or not all(isinstance(label, int) for label in class_indexing.values()):
        raise TypeError(f"class_indexing must be a dict from folder names to integers, got {class_indexing!r}")
    unknown = [name for name in class_indexing if name not in names]
    if unknown:
        raise ValueError(f"class_indexing names {unknown}, but the folders in {str(folder)!r} are {names[:10]}")
    return dict(class_indexing)


@dataclass(frozen=True)
class ImageFiles:
    """Reads image files; see `reading.Reader`."""

    paths: tuple[Path, ...]
    labels: np.ndarray
    decode: bool
    classes: dict[str, int]

    columns, rows_at_once = ("image", "label"), ROWS_AT_ONCE

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {"image": stack([self._image(self.paths[i]) for i in rows]), "label": self.labels[rows]}

    def column(self, name: str) -> np.ndarray:
        return self.labels if name == "label" else self.read(np.arange(len(self)))[name]

    def _image(self, path: Path) -> np.ndarray:
        data = np.fromfile(path, np.uint8)
        if not self.decode:
            return data
        try:
            return Decode()(data)
        except ValueError as error:
            raise ValueError(f"ImageFolderDataset: {path}: {error}") from None


class Shuffle(StrEnum):
    """How texts are shuffled (MindSpore: `mindspore.dataset.Shuffle`). Here there is only GLOBAL, over all lines."""

    GLOBAL = "global"
    FILES = "files"
    INFILE = "infile"


class TextFileDataset(Dataset):
    """The lines of UTF-8 files that aren't empty, as column "text" (MindSpore: `mindspore.dataset.TextFileDataset`).

    Args:
        dataset_files: a path or a list of them, read in alphabetical order.
        shuffle: Shuffle.GLOBAL or True (also if left out): the lines in another random order each epoch. False: as
            they are.

    The other arguments are MnistDataset's. Iterate with output_numpy=True: a Tensor can't hold strings. ValueError
    for a missing file and for files without lines.
    """

    def __init__(self, dataset_files, num_samples=None, num_parallel_workers=None, shuffle=Shuffle.GLOBAL,
                 num_shards=None, shard_id=None, cache=None):
        if isinstance(shuffle, Shuffle):
            if shuffle is not Shuffle.GLOBAL:
                raise NotImplementedError(f"shuffle=Shuffle.{shuffle.name} isn't there in minispore; use Shuffle.GLOBAL or False")
            shuffle = True
        files = [dataset_files] if isinstance(dataset_files, (str, os.PathLike)) else dataset_files
        if not isinstance(files, (list, tuple)) or not files or not all(isinstance(f, (str, os.PathLike)) for f in files):
            raise TypeError(f"dataset_files must be a path or a list of paths, got {dataset_files!r}")
        missing = [str(file) for file in files if not Path(file).is_file()]
        if missing:
            raise ValueError(f"dataset_files: there is no file {missing[0]!r} (looked for {Path(missing[0]).absolute()})")
        lines = [line for file in sorted(map(Path, files)) for line in _lines(file)]
        if not lines:
            raise ValueError(f"dataset_files {[str(file) for file in files]} hold no line of text; give at least one row")
        super().__init__(source(Items(lines, ("text",)), num_samples, num_parallel_workers, shuffle, None, num_shards,
                                shard_id, cache))


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text("utf-8").split("\n") if line]
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no UTF-8 text: {error}; convert it first") from None
