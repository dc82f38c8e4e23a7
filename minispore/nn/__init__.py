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
from minispore.nn.learning_rate_schedule import (
    CosineDecayLR,
    ExponentialDecayLR,
    InverseDecayLR,
    LearningRateSchedule,
    NaturalExpDecayLR,
    PolynomialDecayLR,
    WarmUpLR,
)
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

# Metrics stand above nn in this house; older scripts say nn.Accuracy and nn.metrics.Accuracy.
METRICS = ("Accuracy", "ConfusionMatrix", "ConfusionMatrixMetric", "CosineSimilarity", "Dice", "F1", "Fbeta", "Loss", "MAE",
           "MSE", "Metric", "Perplexity", "Precision", "ROC", "Recall", "Top1CategoricalAccuracy", "Top5CategoricalAccuracy",
           "TopKCategoricalAccuracy", "auc", "get_metric_fn", "names", "rearrange_inputs")
__getattr__ = missing(__name__, globals(), {"metrics": "minispore.nn.metrics",
                                            **dict.fromkeys(METRICS, "minispore.train.metrics")})
