"""Data for training, under the names of `mindspore.dataset`: sources, shards, transforms, batches.

`block` is what flows, `stages` and `mapping` are what it flows through, `core` is the Dataset a script sees,
`sources` where data come from.
"""
from minispore.common.errors import missing
from minispore.dataset import config, transforms, vision
from minispore.dataset.core import Dataset
from minispore.dataset.sources import MnistDataset, NumpySlicesDataset

__all__ = ["Dataset", "MnistDataset", "NumpySlicesDataset", "config", "transforms", "vision"]

__getattr__ = missing(__name__, globals())
