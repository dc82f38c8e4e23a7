"""Sources that read files: CIFAR, folders of images, texts."""
import sys

import numpy as np
import pytest

import minispore.dataset as ds
from minispore.dataset.vision import Decode


def rows_of(data):
    return [row for row, _ in data.batches(0)]


@pytest.fixture
def cifar(tmp_path):
    """Both kinds of CIFAR files, few rows each; image i is filled with i, its red plane with i + 100."""
    def write(name, labels):
        rows = []
        for i, label in enumerate(labels):
            image = np.full((3, 32, 32), i, np.uint8)
            image[0] += 100
            rows.append(np.concatenate([np.array(label, np.uint8).ravel(), image.ravel()]))
        (tmp_path / name).write_bytes(np.concatenate(rows).tobytes())
    write("data_batch_1.bin", [3, 4])
    write("data_batch_3.bin", [5])
    write("test_batch.bin", [9, 9, 9])
    write("train.bin", [(1, 11), (2, 22)])
    return tmp_path


def test_cifar10(cifar):
    data = ds.Cifar10Dataset(cifar, shuffle=False)
    rows = rows_of(data)
    assert [int(row["label"]) for row in rows] == [3, 4, 5, 9, 9, 9] and rows[0]["label"].dtype == np.uint32
    assert rows[1]["image"].shape == (32, 32, 3) and rows[1]["image"][5, 7].tolist() == [101, 1, 1]
    assert ds.Cifar10Dataset(str(cifar), "train").get_dataset_size() == ds.Cifar10Dataset(cifar, "test").get_dataset_size() == 3
    picked = ds.Cifar10Dataset(cifar, sampler=ds.PKSampler(1))
    assert [int(row["label"]) for row in rows_of(picked)] == [3, 4, 5, 9]
    shard = ds.Cifar10Dataset(cifar, shuffle=False, num_shards=2, shard_id=1)
    assert [int(row["label"]) for row in rows_of(shard)] == [4, 9, 9]


def test_cifar100(cifar):
    rows = rows_of(ds.Cifar100Dataset(cifar, "train", shuffle=False))
    assert [(int(row["coarse_label"]), int(row["fine_label"])) for row in rows] == [(1, 11), (2, 22)]
    assert rows[1]["image"][0, 0].tolist() == [101, 1, 1]


@pytest.fixture
def folder(tmp_path):
    """cats: 2 x 3 images of brightness 0, 1, …; dogs: two more in folders within; and what is no image."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is optional")
    for i, name in enumerate(["cats/b.png", "cats/c.PNG", "cats/a.png", "dogs/x/d.png", "dogs/y.bmp"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((2, 3 + i % 2, 3), i, np.uint8)).save(path)
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def test_image_folder(folder):
    data = ds.ImageFolderDataset(folder, decode=True, shuffle=False)
    rows = rows_of(data)
    assert [(int(row["image"][0, 0, 0]), int(row["label"])) for row in rows] == [(2, 0), (0, 0), (1, 0), (3, 1), (4, 1)]
    assert rows[2]["image"].shape == (2, 4, 3) and rows[0]["label"].dtype == np.int32
    assert data.num_classes() == 2 and data.batch(1).get_class_indexing() == {"cats": 0, "dogs": 1}
    encoded = ds.ImageFolderDataset(folder, shuffle=False, num_parallel_workers=3)
    assert rows_of(encoded)[0]["image"].ndim == 1
    decoded = rows_of(encoded.map(Decode(), "image", num_parallel_workers=2))
    assert all((a["image"] == b["image"]).all() for a, b in zip(rows, decoded, strict=True))
    dogs = ds.ImageFolderDataset(folder, class_indexing={"dogs": 7}, extensions=".bmp", decode=True)
    assert [(int(row["image"][0, 0, 0]), int(row["label"])) for row in rows_of(dogs)] == [(4, 7)]
    assert len(rows_of(ds.ImageFolderDataset(folder, sampler=ds.PKSampler(1)))) == 2
    parts = data.split([3, 2])
    assert sorted(int(row["image"][0, 0, 0]) for part in parts for row in rows_of(part)) == [0, 1, 2, 3, 4]


def test_a_damaged_image_is_named(folder):
    (folder / "dogs" / "y.bmp").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"ImageFolderDataset: .*y\.bmp: Decode: these 7 bytes are no image"):
        rows_of(ds.ImageFolderDataset(folder, decode=True))


def test_without_pillow_images_stay_encoded(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert len(rows_of(ds.ImageFolderDataset(folder))) == 5
    with pytest.raises(ImportError, match="pip install pillow"):
        ds.ImageFolderDataset(folder, decode=True)


def test_text_files(tmp_path):
    (tmp_path / "b.txt").write_text("drei\n\nvier\n", "utf-8")
    (tmp_path / "a.txt").write_text("eins\nzwölf", "utf-8")
    files = [tmp_path / "b.txt", str(tmp_path / "a.txt")]

    def texts(**options):
        return [str(row["text"]) for row in rows_of(ds.TextFileDataset(files, **options))]
    assert texts(shuffle=False) == ["eins", "zwölf", "drei", "vier"]
    assert sorted(texts()) == sorted(texts(shuffle=ds.Shuffle.GLOBAL)) == sorted(texts(shuffle=False))
    assert texts(shuffle=False, num_shards=2, shard_id=1) == ["zwölf", "vier"]
    batch, = rows_of(ds.TextFileDataset(files, shuffle=False).batch(4))
    assert batch["text"].tolist() == ["eins", "zwölf", "drei", "vier"]


def test_messages(tmp_path, cifar):
    (tmp_path / "text").write_bytes(b"\xff\n")
    (tmp_path / "empty").write_bytes(b"\n")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "test_batch.bin").write_bytes(b"123")
    (tmp_path / "bare" / "class").mkdir(parents=True)
    for ask, kind, words in [
        (lambda: ds.Cifar10Dataset("no/such"), ValueError, "no folder 'no/such'.*binary version"),
        (lambda: ds.Cifar10Dataset(3), TypeError, "dataset_dir must be a path, got 3"),
        (lambda: ds.Cifar10Dataset(cifar, "valid"), ValueError, "usage must be .* got 'valid'"),
        (lambda: ds.Cifar100Dataset(cifar, "test"), ValueError, "none of the files test.bin for usage='test'.*data_batch_1"),
        (lambda: ds.Cifar10Dataset(tmp_path / "cut"), ValueError, "test_batch.bin: 3 bytes are no whole number of rows of 3073"),
        (lambda: ds.ImageFolderDataset("no/such"), ValueError, "no folder 'no/such'.*folder of images for each class"),
        (lambda: ds.ImageFolderDataset(tmp_path / "bare"), ValueError, r"no images.*\['class'\]"),
        (lambda: ds.ImageFolderDataset(tmp_path / "bare", class_indexing={"cats": 1}), ValueError,
         r"names \['cats'\].*\['class'\]"),
        (lambda: ds.ImageFolderDataset(tmp_path / "bare", class_indexing=["cats"]), TypeError, "class_indexing must be a dict"),
        (lambda: ds.ImageFolderDataset(tmp_path / "bare", decode=1), TypeError, "decode must be True or False, got 1"),
        (lambda: ds.TextFileDataset("no/such"), ValueError, "no file 'no/such'"),
        (lambda: ds.TextFileDataset([]), TypeError, r"path or a list of paths, got \[\]"),
        (lambda: ds.TextFileDataset(tmp_path / "text"), ValueError, "text is no UTF-8 text"),
        (lambda: ds.TextFileDataset(tmp_path / "empty"), ValueError, "hold no line"),
        (lambda: ds.TextFileDataset(tmp_path / "empty", shuffle=ds.Shuffle.FILES), NotImplementedError, "Shuffle.FILES"),
        (lambda: ds.Cifar10Dataset(cifar, cache=3), NotImplementedError, "cache=3"),
    ]:
        with pytest.raises(kind, match=f"(?s){words}"):
            ask()
