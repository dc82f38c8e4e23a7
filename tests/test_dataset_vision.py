"""Transforms of images and other arrays, and that what is drawn at random depends on the row alone."""
import io
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minispore.dataset as ds
from minispore.common import random
from minispore.common.state import current
from minispore.dataset import draws, stages, transforms, vision
from minispore.dataset.transforms import (
    Compose,
    Concatenate,
    Duplicate,
    Fill,
    Mask,
    OneHot,
    PadEnd,
    RandomApply,
    RandomChoice,
    RandomOrder,
    Relational,
    Slice,
    Transform,
    TypeCast,
)
from minispore.dataset.vision import (
    HWC2CHW,
    Border,
    CenterCrop,
    Crop,
    Decode,
    Grayscale,
    HorizontalFlip,
    Inter,
    Invert,
    Normalize,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    Rescale,
    Resize,
    SliceMode,
    SlicePatches,
    ToTensor,
    VerticalFlip,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 7, 6, 3), np.uint8)


def images(n=40, **options):
    return ds.NumpySlicesDataset({"image": IMAGES[:n], "i": np.arange(n)}, **options)


def out(data, column="image", epoch=0):
    return [row[column] for row, _ in data.batches(epoch)]


# ---- random transforms: the same rows for any number of shards, workers and rows a block ---------

AUGMENT = {
    "blocks": [RandomCrop(5, 1), RandomHorizontalFlip(), RandomVerticalFlip(0.3), Rescale(1 / 255, 0), HWC2CHW()],
    "functions": [lambda image: RandomCrop(5, 1)(image), lambda image: RandomHorizontalFlip()(image)],
    "choices": [RandomApply([Invert(), HorizontalFlip()], 0.4), RandomChoice([VerticalFlip(), Invert()]),
                RandomOrder([RandomHorizontalFlip(), Invert(), RandomCrop(5)])],
    "mixed": [Compose([RandomHorizontalFlip(), lambda image: image[:6], RandomCrop(4)])],
}


@pytest.mark.parametrize("ops", AUGMENT.values(), ids=AUGMENT)
@pytest.mark.parametrize("shards", range(1, 9))
def test_all_shards_together_see_what_one_rank_sees(ops, shards):
    epoch = shards % 3
    whole = [(int(row["i"]), row["image"]) for row, _ in images().map(ops, "image").batches(epoch)]
    together = {}
    for r in range(shards):
        data = images(num_shards=shards, shard_id=r).map(ops, "image", num_parallel_workers=1 + r % 3)
        rows = list(data.batches(epoch))
        assert len(rows) == data.get_dataset_size()
        together |= {int(row["i"]): row["image"] for row, valid in rows if valid}
    assert len(together) == 40
    assert all((together[i] == image).all() for i, image in whole)


@given(st.sampled_from(sorted(AUGMENT)), st.integers(1, 50), st.integers(1, 4), st.integers(1, 9), st.integers(0, 2))
def test_blocks_workers_and_batches_change_nothing(which, block_rows, workers, size, epoch):
    ops, usual = AUGMENT[which], stages.BLOCK_ROWS
    expected = np.stack(out(images().map(ops, "image"), epoch=epoch))
    try:
        stages.BLOCK_ROWS = block_rows
        assert (np.stack(out(images().map(ops, "image", num_parallel_workers=workers), epoch=epoch)) == expected).all()
        if which == "blocks":           # transforms of images know batches of them
            batched = images().batch(size).map(ops, "image", num_parallel_workers=workers)
            assert (np.concatenate(out(batched, epoch=epoch)) == expected).all()
    finally:
        stages.BLOCK_ROWS = usual


def test_rows_are_drawn_for_anew_each_epoch_and_in_each_branch():
    def flips(data, epoch=0):
        return [tuple(image.ravel()[:6]) for image in out(data.map(RandomCrop(4), "image"), epoch=epoch)]
    data = images(shuffle=False)
    first, second = flips(data), flips(data, 1)
    assert first != second and flips(data) == first                             # as a resumed run sees it
    assert flips(data.repeat(2)) == first + second                              # map after repeat, or before it
    assert [tuple(image.ravel()[:6]) for image in out(data.map(RandomCrop(4), "image").repeat(2))] == first + second
    assert flips(data.skip(7).take(9)) == first[7:16]                           # the row's place counts, not its number here
    assert flips(data.filter(lambda i: i % 2 == 1, "i")) == flips(data.filter(lambda i: True, "i"))[1::2]
    double = flips(data + data)
    assert double[:40] == first and sum(a == b for a, b in zip(double[40:], first, strict=True)) < 20
    views = data.map(RandomCrop(4), "image").zip(data.map(RandomCrop(4), "image").rename(["image", "i"], ["other", "j"]))
    same = [np.array_equal(row["image"], row["other"]) for row, _ in views.batches(0)]
    assert sum(same) < 20
    chain = out(data.map([RandomHorizontalFlip(), RandomHorizontalFlip()], "image"))
    assert 8 < sum(np.array_equal(a, b) for a, b in zip(chain, IMAGES, strict=True)) < 32       # the two draw apart
    current().seed = 5
    assert flips(data) != first


def test_shuffled_and_ragged_batches_are_augmented_alike():
    ragged = images(10, shuffle=False).batch(4).shuffle(10).map(RandomCrop(4), "image")
    by_row = {int(row["i"]): row["image"] for row, _ in images(10, shuffle=False).map(RandomCrop(4), "image").batches(0)}
    for row, _ in ragged.batches(0):
        assert all((image == by_row[int(i)]).all() for i, image in zip(row["i"], row["image"], strict=True))


def test_images_of_one_row_move_together():
    videos = np.repeat(IMAGES[:10, None], 5, axis=1)
    for video in out(ds.NumpySlicesDataset(videos, "image").map([RandomCrop(4), RandomHorizontalFlip()], "image")):
        assert video.shape == (5, 4, 4, 3) and (video == video[:1]).all()


def test_several_columns_of_a_row_move_together():
    mask = IMAGES[..., 0]
    data = ds.NumpySlicesDataset({"image": IMAGES, "mask": mask}).map([RandomCrop(5, 1), RandomHorizontalFlip(),
                                                                      RandomVerticalFlip()], ["image", "mask"])
    rows = [row for row, _ in data.batches(0)]
    assert rows[0]["mask"].shape == (5, 5) and all((row["image"][..., 0] == row["mask"]).all() for row in rows)
    image, again = RandomCrop(3)(IMAGES[0], IMAGES[0])
    assert (image == again).all()
    with pytest.raises(ValueError, match=r"RandomCrop: the images in the columns differ.*\[\(7, 6\), \(5, 5\)\]"):
        RandomCrop(3)(IMAGES[0], IMAGES[0, :5, :5])


def test_called_alone_a_transform_draws_from_the_ranks_stream():
    crop, key = RandomCrop(3), current().draws
    pieces = [crop(IMAGES[0]) for _ in range(20)]
    assert current().draws == key + 20 and len({piece.tobytes() for piece in pieces}) > 5
    current().draws = key
    assert all((crop(IMAGES[0]) == piece).all() for piece in pieces)
    draws_before = current().draws
    out(images().map(lambda image: crop(image), "image"))       # in a pipeline, a training's numbers stay as they are
    assert current().draws == draws_before


@given(st.lists(st.integers(0, 10 ** 13), min_size=1, max_size=50), st.integers(1, 3))
def test_numbers_of_a_place_dont_depend_on_the_other_places(places, each):
    with draws.drawing(("k",), np.array(places)):
        together = draws.uniform(len(places), each)
    assert together.shape == (len(places), each) and (together >= 0).all() and (together < 1).all()
    for place, numbers in zip(places, together, strict=True):
        words = random.words(("k", 1), place * each, each)
        assert (numbers == (words >> np.uint64(11)) * 2.0 ** -53).all()


def test_a_random_transform_of_ones_own():
    class Noise(Transform):
        def rows(self, block):
            return block + draws.uniform(len(block), 2)
    data = ds.NumpySlicesDataset(np.zeros((9, 2)), "x").map(Noise(), "x")
    assert (np.stack(out(data, "x")) == np.stack(out(data, "x"))).all() and len(np.unique(np.stack(out(data, "x")))) == 18


# ---- geometry ------------------------------------------------------------------------------------

@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 3), st.booleans())
def test_random_crop_is_a_crop_of_the_padded_image(height, width, padding, needed):
    image = IMAGES[0]
    op = RandomCrop((height, width), padding, needed, fill_value=7)
    big = np.pad(image, ((padding,) * 2, (padding,) * 2, (0, 0)), constant_values=7)
    if needed:
        down, right = max(0, height - big.shape[0]), max(0, width - big.shape[1])
        big = np.pad(big, ((down, down), (right, right), (0, 0)), constant_values=7)
    if height > big.shape[0] or width > big.shape[1]:
        with pytest.raises(ValueError, match=r"RandomCrop: size .* larger than the image"):
            op(image)
        return
    windows = np.lib.stride_tricks.sliding_window_view(big, (height, width, 3))[:, :, 0]
    piece = op(image)
    assert piece.dtype == np.uint8 and (windows == piece).all((2, 3, 4)).any()


def test_random_crop_reaches_every_position_and_flips_half():
    corners = ds.NumpySlicesDataset(np.tile(np.arange(12).reshape(1, 3, 4), (600, 1, 1)), "x")
    counts = np.bincount([int(piece[0, 0]) for piece in out(corners.map(RandomCrop((2, 2)), "x"), "x")])
    assert set(np.flatnonzero(counts)) == {0, 1, 2, 4, 5, 6} and counts[counts > 0].min() > 60
    for op in (RandomHorizontalFlip(0.25), RandomVerticalFlip(0.25)):
        flipped = sum(int(image[0, 0] != 0) for image in out(corners.map(op, "x"), "x"))
        assert 110 < flipped < 190
    assert (RandomHorizontalFlip(0.0)(IMAGES[0]) == IMAGES[0]).all()
    assert (RandomHorizontalFlip(1.0)(IMAGES[0]) == IMAGES[0][:, ::-1]).all()
    assert (RandomVerticalFlip(1.0)(IMAGES[0]) == IMAGES[0][::-1]).all()


def test_flips_crops_and_borders():
    image, grey = IMAGES[0], IMAGES[0, ..., 0]
    assert (HorizontalFlip()(image) == image[:, ::-1]).all() and (VerticalFlip()(grey) == grey[::-1]).all()
    assert (Crop((1, 2), (3, 4))(image) == image[1:4, 2:6]).all() and (Crop((0, 1), 2)(grey) == grey[:2, 1:3]).all()
    assert (CenterCrop((3, 2))(image) == image[2:5, 2:4]).all()
    assert (CenterCrop(9)(grey) == np.pad(grey, ((1, 1), (2, 1)))).all()
    assert (CenterCrop((3, 9))(grey) == np.pad(grey, ((0, 0), (2, 1)))[2:5]).all()
    for mode in Border:
        options = {"constant_values": 5} if mode is Border.CONSTANT else {}
        expected = np.pad(image, ((2, 4), (1, 3), (0, 0)), mode.value, **options)
        assert (Pad((1, 2, 3, 4), 5, mode)(image) == expected).all()
    assert Pad((1, 2))(image).shape == (11, 8, 3) and Pad(1)(grey).shape == (9, 8)
    assert Pad(1, (1, 2, 3))(image)[0, 0].tolist() == [1, 2, 3]
    assert Pad(1)(IMAGES[:4]).shape == (4, 9, 8, 3)             # a batch


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from(SliceMode))
def test_slice_patches(down, across, mode):
    patches = SlicePatches(down, across, mode, 9)(IMAGES[0])
    patches = patches if isinstance(patches, tuple) else (patches,)
    h, w = ((-(-7 // down), -(-6 // across)) if mode is SliceMode.PAD else (7 // down, 6 // across))
    big = np.pad(IMAGES[0], ((0, 9), (0, 9), (0, 0)), constant_values=9)
    assert len(patches) == down * across
    for k, patch in enumerate(patches):
        y, x = k // across * h, k % across * w
        assert (patch == big[y:y + h, x:x + w]).all() and patch.shape == (h, w, 3)


def test_slice_patches_makes_columns():
    data = images(5, shuffle=False).map(SlicePatches(1, 2), "image", ["left", "right"])
    assert data.get_col_names() == ["left", "right", "i"]
    assert (np.concatenate([np.stack(out(data, "left")), np.stack(out(data, "right"))], 2) == IMAGES[:5]).all()


# ---- resize --------------------------------------------------------------------------------------

def test_resize_equals_opencv():
    """The numbers are cv2.resize's (4.14) for these twelve pixels."""
    image = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    assert Resize((2, 5), Inter.NEAREST)(image).tolist() == [[0, 0, 20, 40, 60], [80, 80, 100, 120, 140]]
    cubic = np.array([[14, 28, 45, 63, 77], [143, 157, 175, 192, 206]])
    linear = np.array([[20, 34, 50, 66, 80], [140, 154, 170, 186, 200]])
    for inter, theirs in ((Inter.BILINEAR, linear), (Inter.BICUBIC, cubic)):       # computed there with 11 bits
        assert np.abs(Resize((2, 5), inter)(image).astype(int) - theirs).max() <= 1


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.integers(1, 12))
def test_bilinear_is_the_formula_and_nearest_a_choice(height, width, h, w):
    image = IMAGES[0][:min(height, 7), :min(width, 6)].astype(np.float64)
    height, width = image.shape[:2]

    def at(y, x):       # the value between the pixels' centres, clamped
        y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
        y0, x0 = int(y), int(x)
        y1, x1, dy, dx = min(y0 + 1, height - 1), min(x0 + 1, width - 1), y - y0, x - x0
        return (image[y0, x0] * (1 - dy) * (1 - dx) + image[y0, x1] * (1 - dy) * dx
                + image[y1, x0] * dy * (1 - dx) + image[y1, x1] * dy * dx)
    expected = [[at((i + 0.5) * height / h - 0.5, (j + 0.5) * width / w - 0.5) for j in range(w)] for i in range(h)]
    assert np.allclose(Resize((h, w))(image), expected, atol=1e-9)
    rounded = Resize((h, w))(image.astype(np.uint8))
    assert rounded.dtype == np.uint8 and np.abs(rounded - np.array(expected)).max() <= 0.51
    nearest = Resize((h, w), Inter.NEAREST)(image)
    assert all((nearest[i, j] == image[i * height // h, j * width // w]).all() for i in range(h) for j in range(w)
               if i * height % h and j * width % w)


def test_bicubic_keeps_constants_and_limits():
    assert Resize((6, 6), Inter.BICUBIC)(np.full((3, 3), 255, np.uint8)).tolist() == np.full((6, 6), 255).tolist()
    sharp = np.repeat(np.array([[0, 255]], np.uint8), 4, 1)
    assert Resize((1, 16), Inter.BICUBIC)(sharp).max() == 255       # clipped, not wrapped around


def test_resize_to_the_shorter_side():
    assert Resize(14)(np.zeros((28, 21, 3), np.uint8)).shape == (19, 14, 3)
    assert Resize(14)(np.zeros((20, 35))).shape == (14, 25)        # 24.5, rounded as lround does
    assert Resize(9)(np.zeros((4, 4, 1))).shape == (9, 9, 1)
    assert (Resize((7, 6))(IMAGES[0]) == IMAGES[0]).all()


# ---- pixels and arrays ---------------------------------------------------------------------------

def test_pixels():
    image = IMAGES[0]
    chw = ToTensor()(image)
    assert chw.dtype == np.float32 and chw.flags.c_contiguous
    assert np.allclose(chw, image.transpose(2, 0, 1) / 255, atol=1e-7)
    assert ToTensor()(image[..., 0]).shape == (1, 7, 6) and ToTensor(np.float16)(image).dtype == np.float16
    assert (Invert()(image) == 255 - image).all()
    grey = Grayscale()(image)
    assert grey.shape == (7, 6) and np.abs(grey - image @ [0.299, 0.587, 0.114]).max() <= 0.51
    assert (Grayscale(3)(image) == grey[..., None]).all()
    data = images(8, shuffle=False).map([Resize(5), ToTensor(), Normalize((0.5,) * 3, (0.25,) * 3, is_hwc=False)], "image")
    assert data.batch(4).output_shapes() == [[4, 3, 6, 5], [4]]
    assert (np.stack(out(images(8, shuffle=False).map(Grayscale(), "image")))[0] == grey).all()


def test_grayscale_and_decode_equal_pillow():
    image = pytest.importorskip("PIL.Image", reason="Pillow is optional")
    pillow = image.fromarray(IMAGES[0])
    assert (Grayscale()(IMAGES[0]) == np.array(pillow.convert("L"))).all()
    file = io.BytesIO()
    pillow.save(file, "png")
    data = np.frombuffer(file.getvalue(), np.uint8)
    assert (Decode()(data) == IMAGES[0]).all()
    with pytest.raises(ValueError, match="these 20 bytes are no image"):
        Decode()(data[:20])


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="Decode reads image files with Pillow.*pip install pillow"):
        Decode()(np.zeros(4, np.uint8))


def test_arrays():
    assert OneHot(4)(np.array([0, 3])).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert OneHot(3)(np.uint8(2)).dtype == np.uint8
    smooth = OneHot(4, 0.2)(np.int32(1))
    assert np.allclose(smooth, [0.05, 0.85, 0.05, 0.05]) and np.isclose(smooth.sum(), 1)
    assert Fill(3)(np.zeros((2, 2), np.float32)).tolist() == [[3, 3], [3, 3]]
    assert Concatenate(prepend=[0], append=[9])(np.array([1, 2]), np.array([3])).tolist() == [0, 1, 2, 3, 9]
    assert [Mask(op, 2)(np.array([1, 2, 3])).tolist() for op in Relational] == [
        [False, True, False], [True, False, True], [False, False, True], [False, True, True], [True, False, False],
        [True, True, False]]
    assert Mask(Relational.EQ, 2, "int8")(np.array([2])).dtype == np.int8
    assert PadEnd([3, None], 7)(np.zeros((2, 2))).tolist() == [[0, 0], [0, 0], [7, 7]]
    assert PadEnd([1, 3])(np.ones((2, 2))).tolist() == [[1, 1, 0]]
    array = np.arange(24).reshape(2, 3, 4)
    assert (Slice(0, None, [1, 2])(array) == array[:1, :, 1:3]).all()
    assert (Slice(..., slice(1, None))(array) == array[..., 1:]).all()
    assert (Slice(slice(1, 2), ...)(array) == array[1:2]).all()
    data = ds.NumpySlicesDataset({"a": [[1], [2]], "b": [[3], [4]]}, shuffle=False)
    assert [x.tolist() for x in out(data.map(Concatenate(), ["a", "b"], "c"), "c")] == [[1, 3], [2, 4]]
    twice = data.map(Duplicate(), "a", ["a", "z"])
    assert twice.get_col_names() == ["a", "z", "b"] and [x.tolist() for x in out(twice, "z")] == [[1], [2]]


def test_compose_costs_nothing_and_nests():
    ops = Compose([TypeCast("float32"), Compose([Rescale(2, 0), lambda x: x + 1])])
    data = ds.NumpySlicesDataset([1, 2], "x", shuffle=False)
    assert [float(x) for x in out(data.map(ops, "x"), "x")] == [3, 5] and ops(1) == 3
    seen = []

    class Seen(Transform):
        def rows(self, block):
            seen.append(len(block))
            return block
    out(images().map(Compose([Seen(), Seen()]), "image"))
    assert seen == [40, 40]         # whole blocks
    assert Compose([lambda a, b: (b, a), lambda b, a: b - a])(1, 5) == 4


def test_older_import_paths_find_the_same_classes():
    from minispore.dataset.transforms import c_transforms as old
    from minispore.dataset.transforms import py_transforms as older
    from minispore.dataset.vision import c_transforms, py_transforms, utils
    assert c_transforms.Resize is vision.Resize is py_transforms.Resize and utils.Inter is vision.Inter is c_transforms.Inter
    assert old.TypeCast is older.TypeCast is transforms.TypeCast and older.Compose is transforms.Compose
    chw = np.ones((1, 2, 2))
    assert py_transforms.Normalize((1.0,), (2.0,))(chw).tolist() == np.zeros((1, 2, 2)).tolist()


SMALL = np.zeros((4, 4, 3), np.uint8)
MESSAGES = [
    (lambda: RandomCrop(0), ValueError, "RandomCrop: size must be at least 1, got 0"),
    (lambda: RandomCrop((1, 2, 3)), ValueError, r"size must be an integer or \(height, width\), got \(1, 2, 3\)"),
    (lambda: RandomCrop(2, (1, 2, 3)), ValueError, r"padding must be one number.*got \(1, 2, 3\)"),
    (lambda: RandomCrop(2, -1), ValueError, "padding must be at least 0, got -1"),
    (lambda: RandomCrop(5)(SMALL), ValueError, r"size \(5, 5\) is larger than the image of \(4, 4\).*pad_if_needed=True"),
    (lambda: RandomCrop(2, pad_if_needed=1), TypeError, "pad_if_needed must be True or False"),
    (lambda: RandomCrop(2)(np.zeros(4)), ValueError, r"RandomCrop takes images.*shape \(4,\)"),
    (lambda: RandomCrop(2, padding_mode="edge"), TypeError, "padding_mode must be a Border, got 'edge'"),
    (lambda: Pad(1, 256), ValueError, r"fill_value must be an integer in \[0, 255\].*got 256"),
    (lambda: Pad(1, (1, 2, 3))(SMALL[..., :1]), ValueError, r"fill_value \(1, 2, 3\) is for three channels.*has 1"),
    (lambda: Pad(4, padding_mode=Border.REFLECT)(SMALL), ValueError, "Pad: an image of 4 x 4 can't be reflected.*SYMMETRIC"),
    (lambda: Crop(3, 2), TypeError, r"coordinates must be \(top, left\), got 3"),
    (lambda: Crop((1, 3), 2)(SMALL), ValueError, r"\(2, 2\) pixels from \(1, 3\).*outside the image of \(4, 4\)"),
    (lambda: RandomHorizontalFlip(1.5), ValueError, r"RandomHorizontalFlip: prob must lie in \[0, 1\], got 1.5"),
    (lambda: RandomVerticalFlip("x"), TypeError, "RandomVerticalFlip: prob must be a number, got 'x'"),
    (lambda: SlicePatches(0), ValueError, "num_height must be at least 1, got 0"),
    (lambda: SlicePatches(1, 1, 0), TypeError, "slice_mode must be a SliceMode, got 0"),
    (lambda: SlicePatches(5, 1)(SMALL), ValueError, "image of 4 x 4 can't be cut into 5 x 1"),
    (lambda: Resize(0), ValueError, "Resize: size must be at least 1, got 0"),
    (lambda: Resize(3, 2), TypeError, "interpolation must be an Inter, got 2"),
    (lambda: Resize(3, Inter.AREA), ValueError, "Inter.AREA isn't there.*BILINEAR"),
    (lambda: Resize(3)(np.zeros((0, 4))), ValueError, "image of 0 x 4"),
    (lambda: ToTensor()(np.zeros(3)), ValueError, r"ToTensor takes images.*\(3,\)"),
    (lambda: Grayscale(2), ValueError, "num_output_channels must be 1 or 3, got 2"),
    (lambda: Grayscale()(SMALL[..., :1]), ValueError, r"three channels.*uint8 of shape \(4, 4, 1\)"),
    (lambda: Invert()(SMALL * 1.0), ValueError, "Invert takes uint8 images, this one is float64"),
    (lambda: Decode(True), NotImplementedError, "to_pil=True"),
    (lambda: Decode()(SMALL), TypeError, r"bytes of a file.*uint8 of shape \(4, 4, 3\)"),
    (lambda: OneHot(0), ValueError, "num_classes must be at least 1, got 0"),
    (lambda: OneHot(3, 2), ValueError, r"smoothing_rate must be a number in \[0, 1\], got 2"),
    (lambda: OneHot(3)(3), ValueError, r"label 3 lies outside \[0, 2\].*num_classes=3"),
    (lambda: OneHot(3)(1.0), TypeError, r"integer labels, got float64; TypeCast\('int32'\)"),
    (lambda: Concatenate(1), ValueError, "axis must be 0 or -1, got 1"),
    (lambda: Concatenate()(np.zeros((2, 2))), ValueError, r"one-dimensional arrays, got one of shape \(2, 2\)"),
    (lambda: Mask("EQ", 2), TypeError, "operator must be a Relational, got 'EQ'"),
    (lambda: PadEnd([2])(np.zeros((2, 2))), ValueError, r"has 1 dims, the array has shape \(2, 2\)"),
    (lambda: Slice("a"), TypeError, "for each dim, got 'a'"),
    (lambda: Slice(0, 0)(np.zeros(2)), ValueError, r"2 parts, the array has shape \(1,\)"),
    (lambda: Slice(5)(np.zeros(2)), ValueError, r"Slice: 5 can't be taken from shape \(2,\)"),
    (lambda: Compose(3), TypeError, "Compose: transforms must be a list of ops, got 3"),
    (lambda: RandomChoice([]), ValueError, "RandomChoice: transforms is an empty list"),
    (lambda: RandomApply([RandomCrop]), TypeError, r"got the class RandomCrop; write RandomCrop\(...\)"),
    (lambda: RandomOrder([3]), TypeError, "must be callable with a row, got 3"),
    (lambda: RandomApply([Invert()], 2), ValueError, r"RandomApply: prob must lie in \[0, 1\], got 2"),
    (lambda: out(images().map(Duplicate(), "image")), ValueError, "Duplicate returned 2 arrays for output_columns"),
    (lambda: out(images().map(RandomCrop(9), "image")), ValueError, "map on column 'image': RandomCrop: size"),
]


@pytest.mark.parametrize("ask, kind, words", MESSAGES, ids=[words[:40] for _, _, words in MESSAGES])
def test_messages(ask, kind, words):
    with pytest.raises(kind, match=f"(?s){words}"):
        ask()
