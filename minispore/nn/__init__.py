"""Networks: Cell, layers, losses, optimizers and training wrappers, under MindSpore's names."""
from minispore.common.errors import missing
from minispore.nn.cell import Cell
from minispore.nn.containers import CellDict, CellList, SequentialCell
from minispore.nn.dynamic_lr import (
    cosine_decay_lr,
    exponential_decay_lr,
    inverse_decay_lr,
    natural_exp_decay_lr,
    piecewise_constant_lr,
    polynomial_decay_lr,
    warmup_lr,
)
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
from minispore.nn.learning_rate_schedule import (
    CosineDecayLR,
    ExponentialDecayLR,
    InverseDecayLR,
    LearningRateSchedule,
    NaturalExpDecayLR,
    PolynomialDecayLR,
    WarmUpLR,
)
from minispore.nn.loss import CrossEntropyLoss, LossBase, SoftmaxCrossEntropyWithLogits
from minispore.nn.optim import (
    FTRL,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    AdaMax,
    AdamWeightDecay,
    Lamb,
    Momentum,
    Optimizer,
    ProximalAdagrad,
    RMSProp,
    Rprop,
)
from minispore.nn.wrap import (
    DistributedGradReducer,
    DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell,
    ForwardValueAndGrad,
    ParameterUpdate,
    TrainOneStepCell,
    TrainOneStepWithLossScaleCell,
    WithEvalCell,
    WithLossCell,
)

__all__ = [
    "FTRL", "SGD", "AdaMax", "Adadelta", "Adagrad", "Adam", "AdamWeightDecay", "Cell", "CellDict", "CellList", "Conv2d",
    "CosineDecayLR", "CrossEntropyLoss", "Dense", "DistributedGradReducer", "DynamicLossScaleUpdateCell",
    "ExponentialDecayLR", "FixedLossScaleUpdateCell", "Flatten", "ForwardValueAndGrad", "InverseDecayLR", "Lamb",
    "LearningRateSchedule", "LogSoftmax", "LossBase", "MaxPool2d", "Momentum", "NaturalExpDecayLR", "Optimizer",
    "ParameterUpdate", "PolynomialDecayLR", "ProximalAdagrad", "RMSProp", "ReLU", "Rprop", "SequentialCell", "Sigmoid",
    "Softmax", "SoftmaxCrossEntropyWithLogits", "Tanh", "TrainOneStepCell", "TrainOneStepWithLossScaleCell", "WarmUpLR",
    "WithEvalCell", "WithLossCell", "cosine_decay_lr", "exponential_decay_lr", "inverse_decay_lr", "natural_exp_decay_lr",
    "piecewise_constant_lr", "polynomial_decay_lr", "warmup_lr",
]

__getattr__ = missing(__name__, globals())
