"""Where data come from that are arrays in memory: MNIST's files, arrays of one's own."""
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from minispore.dataset import checks, idx
from minispore.dataset.core import Dataset, workers_of
from minispore.dataset.reading import Arrays, Source
from minispore.dataset.samplers import select

_MNIST = {"train": "train", "test": "t10k"}     # what the files of each part begin with


class MnistDataset(Dataset):
    """Handwritten digits from a folder of IDX files (MindSpore: `mindspore.dataset.MnistDataset`).

    The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same with `t10k`, as they are
    or gzipped (`.gz`). Columns: "image" (height, width, 1) uint8, for MNIST (28, 28, 1); "label" () uint32.

    Args:
        dataset_dir: the folder; `minispore data digits --out DIR` and `… data mnist …` make one.
        usage: "train", "test", or "all" (also if left out): both, as far as they are there.
        num_samples: rows to take at most, on each shard; all if left out.
        shuffle: another random order each epoch; True if left out.
        sampler: which rows an epoch has, in which order: a sampler (see `dataset.samplers`), a list of row numbers
            or an iterable of them. It excludes shuffle, num_shards and shard_id, and num_samples if it is a
            sampler object (ValueError).
        num_shards, shard_id: cut the data into that many equally long shards and take this one. A shard's
            last row may be there a second time, marked as not valid (see `Dataset.batches`).

    RuntimeError for one of num_shards and shard_id without the other; ValueError for values out of range, a
    missing folder, missing, damaged or contradicting files.

    >>> data = MnistDataset(DIGITS, "test", shuffle=False)
    >>> image, label = next(iter(data))
    >>> image.shape, label.dtype.name, data.get_dataset_size()
    ((8, 8, 1), 'uint32', 360)
    """

    def __init__(self, dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=None,
                 sampler=None, num_shards=None, shard_id=None, cache=None):
        images, labels = _read_mnist(dataset_dir, usage)
        reader = Arrays({"image": images[..., None], "label": labels.astype(np.uint32)},
                        {str(digit): digit for digit in range(10)})
        super().__init__(source(reader, num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache))


class FashionMnistDataset(MnistDataset):
    """Pictures of clothes, in files like MNIST's (MindSpore: `mindspore.dataset.FashionMnistDataset`)."""


class NumpySlicesDataset(Dataset):
    """The slices of arrays in memory (MindSpore: `mindspore.dataset.NumpySlicesDataset`).

    Args:
        data: a list or an array (one column), a tuple of them (a column each) or a dict from column names.
            All columns must be equally long; row i consists of their i-th items.
        column_names: a name or a list; the dict's keys or "column_0", "column_1", … if left out.

    The other arguments and errors are MnistDataset's; ValueError also for no data, columns of different
    lengths and the wrong number of names.

    >>> data = NumpySlicesDataset({"x": [[1, 2], [3, 4]], "y": [0, 1]}, shuffle=False)
    >>> [(x.asnumpy().tolist(), int(y.asnumpy())) for x, y in data]
    [([1, 2], 0), ([3, 4], 1)]
    """

    def __init__(self, data, column_names=None, num_samples=None, num_parallel_workers=1, shuffle=None,
                 sampler=None, num_shards=None, shard_id=None):
        super().__init__(source(Arrays(_columns(data, column_names)), num_samples, num_parallel_workers, shuffle, sampler,
                                num_shards, shard_id))


DIGITS = Path(__file__).parent / "digits"       # 1,797 digits of 8 x 8 pixels; see NOTICE


def source(reader, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None, num_shards=None,
           shard_id=None, cache=None, processes=False) -> Source:
    """A source's stage, from the arguments all of them share."""
    if cache is not None:
        raise NotImplementedError(f"cache={cache!r}: minispore's datasets have no cache; leave it out")
    chosen = select(sampler, num_samples, shuffle, num_shards, shard_id)
    return Source(reader, chosen, workers_of(num_parallel_workers), processes)


def usage_of(usage, parts) -> str | None:
    """`usage`, checked: one of the parts, or "all" or None for all of them."""
    if usage not in (None, "all", *parts):
        raise ValueError(f"usage must be 'train', 'test' or 'all', got {usage!r}")
    return usage


def folder_of(folder, remedy: str) -> Path:
    """The folder a script names, which must be there."""
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"dataset_dir must be a path, got {folder!r}")
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"dataset_dir: there is no folder {str(folder)!r} (looked for {folder.absolute()}); "
                         f"{remedy}")
    return folder


def _read_mnist(folder, usage) -> tuple[np.ndarray, np.ndarray]:
    """All images (rows, height, width) and labels (rows,) of one part or both."""
    remedy = ("'minispore data digits --out DIR' makes such a folder, "
              "'minispore data mnist --out DIR' fetches MNIST")
    usage, folder = usage_of(usage, _MNIST), folder_of(folder, remedy)
    parts = list(_MNIST.values()) if usage in (None, "all") else [_MNIST[usage]]
    names = [(f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte") for part in parts]
    found = [tuple(_find(folder, name) for name in pair) for pair in names]
    there = [pair for pair in found if any(pair)]
    missing = [name for pair, wanted in zip(found, names, strict=True) if any(pair) or not there
               for name, path in zip(wanted, pair, strict=True) if path is None]
    if missing:
        raise ValueError(f"dataset_dir {str(folder)!r} lacks the MNIST files {', '.join(missing)} (or .gz) "
                         f"for usage={usage!r}; it holds {sorted(os.listdir(folder))[:10]}; {remedy}")
    read = [_read_pair(*pair) for pair in there]
    shapes = {images.shape[1:] for images, _ in read}
    if len(shapes) > 1:
        raise ValueError(f"the images in {str(folder)!r} are of different sizes, {sorted(shapes)}; "
                         "choose usage='train' or usage='test'")
    return read[0] if len(read) == 1 else tuple(np.concatenate(arrays) for arrays in zip(*read, strict=True))


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_pair(image_file: Path, label_file: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = idx.read(image_file, 3), idx.read(label_file, 1)
    if len(images) != len(labels):
        raise ValueError(f"{image_file} holds {len(images)} images, but {label_file} {len(labels)} labels; "
                         "the two files don't belong together: fetch both again")
    if images.size == 0:
        raise ValueError(f"{image_file} holds no images (shape {images.shape}); fetch it again")
    return images, labels


def _columns(data, column_names) -> dict[str, np.ndarray]:
    """The columns of a NumpySlicesDataset's data."""
    if isinstance(data, Mapping):
        default, parts = [str(key) for key in data], list(data.values())
    elif isinstance(data, (tuple, list, np.ndarray)):
        parts = list(data) if isinstance(data, tuple) else [data]
        default = [f"column_{i}" for i in range(len(parts))]
    else:
        raise TypeError("data must be a list, a tuple of arrays, a dict or an array, "
                        f"got {type(data).__name__}")
    names = checks.names("column_names", default if column_names is None else column_names) if parts else ()
    if len(names) != len(parts):
        raise ValueError(f"column_names {list(names)} are {len(names)} names, the data have {len(parts)} "
                         "columns; give one each")
    table = {name: _column(name, part) for name, part in zip(names, parts, strict=True)}
    lengths = {name: len(array) for name, array in table.items()}
    if not table or 0 in lengths.values():
        raise ValueError(f"data is empty (rows a column: {lengths}); give at least one row")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of data must be equally long, but their lengths are {lengths}")
    return table


def _column(name: str, values) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"column {name!r}: its rows differ in shape; give rows of one shape") from None
    if array.ndim == 0 or array.dtype.kind not in "biufU":
        raise TypeError(f"column {name!r} must be a list or array of numbers, bools or strings, "
                        f"got {type(values).__name__} of {array.dtype}")
    return array
