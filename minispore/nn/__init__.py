"""Networks: Cell, layers, losses, optimizers and training wrappers, under MindSpore's names."""
from minispore.nn.cell import Cell
from minispore.nn.containers import CellList, SequentialCell
from minispore.nn.layers import (
    Conv2d,
    Dense,
    Flatten,
    LogSoftmax,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Softmax,
    Tanh,
)
from minispore.nn.loss import CrossEntropyLoss, LossBase, SoftmaxCrossEntropyWithLogits
from minispore.nn.optim import SGD, Adam, Momentum, Optimizer
from minispore.nn.wrap import DistributedGradReducer, TrainOneStepCell, WithLossCell

__all__ = [
    "SGD", "Adam", "Cell", "CellList", "Conv2d", "CrossEntropyLoss", "Dense", "DistributedGradReducer", "Flatten",
    "LogSoftmax", "LossBase", "MaxPool2d", "Momentum", "Optimizer", "ReLU", "SequentialCell", "Sigmoid", "Softmax",
    "SoftmaxCrossEntropyWithLogits", "Tanh", "TrainOneStepCell", "WithLossCell",
]
