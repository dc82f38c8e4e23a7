"""Optimizers: they turn gradients into new parameters (MindSpore: `mindspore.nn.optim`).

`optimizer.py` holds what all have in common; then a file a family, and in it a class an optimizer with one update rule.
"""
from minispore.nn.optim.adagrad import FTRL, Adadelta, Adagrad, ProximalAdagrad, RMSProp, Rprop
from minispore.nn.optim.adam import Adam, AdaMax, AdamWeightDecay, Lamb
from minispore.nn.optim.optimizer import Optimizer
from minispore.nn.optim.sgd import SGD, Momentum

__all__ = [
    "FTRL", "SGD", "AdaMax", "Adadelta", "Adagrad", "Adam", "AdamWeightDecay", "Lamb", "Momentum", "Optimizer",
    "ProximalAdagrad", "RMSProp", "Rprop",
]
