"""Data for training, under the names of `mindspore.dataset`: sources, samplers, shards, transforms, batches.

`block` is what flows, `reading` is where it begins, `stages`, `mapping` and `combining` are what it flows
through; `core` is the Dataset a script sees, `sources`, `generator` and `files` are the data.
"""
from minispore.common.errors import missing
from minispore.dataset import config, transforms, vision
from minispore.dataset.core import Dataset
from minispore.dataset.core import zip_ as zip
from minispore.dataset.files import Cifar10Dataset, Cifar100Dataset, ImageFolderDataset, Shuffle, TextFileDataset
from minispore.dataset.generator import GeneratorDataset
from minispore.dataset.mapping import BatchInfo
from minispore.dataset.samplers import (
    DistributedSampler,
    PKSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    SubsetSampler,
    WeightedRandomSampler,
)
from minispore.dataset.sources import FashionMnistDataset, MnistDataset, NumpySlicesDataset

__all__ = ["BatchInfo", "Cifar10Dataset", "Cifar100Dataset", "Dataset", "DistributedSampler", "FashionMnistDataset",
           "GeneratorDataset", "ImageFolderDataset", "MnistDataset", "NumpySlicesDataset", "PKSampler", "RandomSampler",
           "Sampler", "SequentialSampler", "Shuffle", "SubsetRandomSampler", "SubsetSampler", "TextFileDataset",
           "WeightedRandomSampler", "config", "transforms", "vision", "zip"]

__getattr__ = missing(__name__, globals())
