"""Transforms for `Dataset.map` that work on many rows at once, as `mindspore.dataset.transforms`."""
from minispore.dataset.transforms.base import Transform
from minispore.dataset.transforms.choice import Compose, RandomApply, RandomChoice, RandomOrder
from minispore.dataset.transforms.common import Concatenate, Duplicate, Fill, Mask, OneHot, PadEnd, Relational, Slice, TypeCast

__all__ = ["Compose", "Concatenate", "Duplicate", "Fill", "Mask", "OneHot", "PadEnd", "RandomApply", "RandomChoice",
           "RandomOrder", "Relational", "Slice", "Transform", "TypeCast"]
