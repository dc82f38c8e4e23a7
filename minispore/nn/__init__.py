"""Networks: Cell, layers, losses, optimizers and training wrappers, under MindSpore's names."""
from minispore.nn.cell import Cell
from minispore.nn.containers import CellList, SequentialCell
from minispore.nn.layer.activation import (
    CELU,
    ELU,
    GELU,
    Hardtanh,
    HSigmoid,
    HSwish,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    SeLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
    get_activation,
)
from minispore.nn.layer.basic import ClipByNorm, Dense, Dropout, Embedding, Flatten, Identity, Norm
from minispore.nn.layer.conv import Conv2d
from minispore.nn.layer.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm, RMSNorm, SyncBatchNorm
from minispore.nn.layer.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from minispore.nn.layer.transformer import MultiheadAttention, TransformerEncoder, TransformerEncoderLayer
from minispore.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    LossBase,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
    SoftmaxCrossEntropyWithLogits,
)
from minispore.nn.optim import SGD, Adam, Momentum, Optimizer
from minispore.nn.wrap import DistributedGradReducer, TrainOneStepCell, WithLossCell
