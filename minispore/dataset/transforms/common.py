"""Transforms of any arrays: types, classes, parts."""
from enum import IntEnum
from numbers import Real

import numpy as np

from minispore.common.dtype import to_dtype
from minispore.dataset import checks
from minispore.dataset.transforms.base import Transform


class TypeCast(Transform):
    """Convert to `data_type`; the shape stays (MindSpore: `mindspore.dataset.transforms.TypeCast`).

    TypeError if `data_type` is no dtype.

    >>> TypeCast("int32")(np.uint32(7))
    array(7, dtype=int32)
    """

    def __init__(self, data_type):
        self.dtype = to_dtype(data_type)

    def rows(self, block: np.ndarray) -> np.ndarray:
        return block.astype(self.dtype)


class OneHot(Transform):
    """An integer label as a row of `num_classes` values (MindSpore: `mindspore.dataset.transforms.OneHot`).

    With smoothing rate s, float64: 1 - s + s / num_classes for the label's class, s / num_classes for the
    others; without, 1 and 0 of the label's own type. Labels (...) become (..., num_classes).

    TypeError if the labels aren't integers, ValueError if one is outside [0, num_classes - 1].

    >>> OneHot(3)(np.int32(1)).tolist(), OneHot(2, 0.5)(1).tolist()
    ([0, 1, 0], [0.25, 0.75])
    """

    def __init__(self, num_classes: int, smoothing_rate: float = 0.0):
        self.classes = checks.integer("OneHot: num_classes", num_classes, 1, "it is the number of classes")
        if not isinstance(smoothing_rate, Real) or not 0 <= smoothing_rate <= 1:
            raise ValueError(f"OneHot: smoothing_rate must be a number in [0, 1], got {smoothing_rate!r}")
        self.rate = float(smoothing_rate)

    def rows(self, block: np.ndarray) -> np.ndarray:
        if block.dtype.kind not in "iu":
            raise TypeError(f"OneHot takes integer labels, got {block.dtype}; TypeCast('int32') before")
        outside = (block < 0) | (block >= self.classes)
        if outside.any():
            raise ValueError(f"OneHot: label {block[outside][0]} lies outside [0, {self.classes - 1}]; "
                             f"num_classes={self.classes} must be greater than every label")
        hot = block[..., None] == np.arange(self.classes)
        if not self.rate:
            return hot.astype(block.dtype)
        return hot * (1 - self.rate) + self.rate / self.classes


class Fill(Transform):
    """All elements become `fill_value`; shape and type stay (MindSpore: `mindspore.dataset.transforms.Fill`)."""

    def __init__(self, fill_value):
        self.value = fill_value

    def rows(self, block: np.ndarray) -> np.ndarray:
        return np.full_like(block, self.value)


class Duplicate(Transform):
    """The column twice; `output_columns` names both (MindSpore: `mindspore.dataset.transforms.Duplicate`)."""

    def rows(self, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return block, block.copy()


class Concatenate(Transform):
    """One-dimensional columns joined into one (MindSpore: `mindspore.dataset.transforms.Concatenate`).

    `prepend` and `append` are arrays put before and after; `axis` is 0 or -1, the only one there is.

    >>> Concatenate(append=[9])(np.array([1, 2])).tolist()
    [1, 2, 9]
    """

    takes = None

    def __init__(self, axis: int = 0, prepend=None, append=None):
        if axis not in (0, -1):
            raise ValueError(f"Concatenate: axis must be 0 or -1, got {axis!r}; it joins one-dimensional arrays")
        self.prepend, self.append = prepend, append

    def rows(self, *blocks: np.ndarray) -> np.ndarray:
        for block in blocks:
            if block.ndim != 2:
                raise ValueError(f"Concatenate takes one-dimensional arrays, got one of shape {block.shape[1:]}")
        ends = [[] if end is None else [np.broadcast_to(np.asarray(end, blocks[0].dtype), (len(blocks[0]), np.size(end)))]
                for end in (self.prepend, self.append)]
        return np.concatenate([*ends[0], *blocks, *ends[1]], axis=1)


class Relational(IntEnum):
    """How Mask compares (MindSpore: `mindspore.dataset.transforms.Relational`)."""

    EQ, NE, GT, GE, LT, LE = range(6)


_COMPARE = [np.equal, np.not_equal, np.greater, np.greater_equal, np.less, np.less_equal]


class Mask(Transform):
    """Where does an element compare so with `constant`? (MindSpore: `mindspore.dataset.transforms.Mask`)

    >>> Mask(Relational.GT, 2)(np.array([1, 2, 3])).tolist()
    [False, False, True]
    """

    def __init__(self, operator: Relational, constant, dtype="bool"):
        if not isinstance(operator, Relational):
            raise TypeError(f"Mask: operator must be a Relational, got {operator!r}; e.g. Relational.EQ")
        self.compare, self.constant, self.dtype = _COMPARE[operator], constant, to_dtype(dtype)

    def rows(self, block: np.ndarray) -> np.ndarray:
        return self.compare(block, self.constant).astype(self.dtype)


class PadEnd(Transform):
    """Filled up with `pad_value` behind the end of each dim, or cut, to `pad_shape`, None keeps a dim (`PadEnd`).

    >>> PadEnd([4], -1)(np.array([1, 2])).tolist()
    [1, 2, -1, -1]
    """

    def __init__(self, pad_shape, pad_value=None):
        self.shape = tuple(None if size is None else checks.integer("PadEnd: pad_shape", size, 1, "or None to keep a dim")
                           for size in pad_shape)
        self.value = 0 if pad_value is None else pad_value

    def rows(self, block: np.ndarray) -> np.ndarray:
        if block.ndim != len(self.shape) + 1:
            raise ValueError(f"PadEnd: pad_shape {self.shape} has {len(self.shape)} dims, the array has shape "
                             f"{block.shape[1:]}; give one size for each dim")
        shape = [have if want is None else want for have, want in zip(block.shape[1:], self.shape, strict=True)]
        out = np.full((len(block), *shape), self.value, block.dtype)
        there = tuple(slice(min(have, want)) for have, want in zip(block.shape[1:], shape, strict=True))
        out[(slice(None), *there)] = block[(slice(None), *there)]
        return out


class Slice(Transform):
    """A part of each dim: an index list, a slice, an int, None or Ellipsis for all (MindSpore: `transforms.Slice`).

    >>> Slice(slice(1, 3))(np.array([5, 6, 7])).tolist(), Slice([0, 2])(np.array([5, 6, 7])).tolist()
    ([6, 7], [5, 7])
    """

    def __init__(self, *slices):
        for part in slices:
            if not (part is None or part is Ellipsis or isinstance(part, (int, slice, list))):
                raise TypeError(f"Slice takes an int, a list of ints, a slice, None or Ellipsis for each dim, got {part!r}")
        self.slices = slices

    def rows(self, block: np.ndarray) -> np.ndarray:
        axis = 1
        for part in self.slices:
            if part is Ellipsis:
                axis = block.ndim - (len(self.slices) - self.slices.index(Ellipsis) - 1)
                continue
            if axis >= block.ndim:
                raise ValueError(f"Slice has {len(self.slices)} parts, the array has shape {block.shape[1:]}; "
                                 "give one for each dim at most")
            # an int keeps its dim, as in MindSpore
            index = slice(None) if part is None else [part] if isinstance(part, int) else part
            try:
                block = block[(slice(None),) * axis + (index,)]
            except IndexError as error:
                raise ValueError(f"Slice: {part!r} can't be taken from shape {block.shape[1:]}: {error}") from None
            axis += 1
        return block
