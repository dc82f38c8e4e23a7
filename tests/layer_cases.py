"""One case a layer or loss: the cell in float64, and inputs that keep clear of its kinks."""
import numpy as np

import minispore as ms
from minispore import Tensor, nn

F64 = {"dtype": ms.float64}


def distinct(*shape, seed=0, low=-2.0, high=2.0):
    """Values in a shuffled row, equally far apart, none near 0."""
    n = int(np.prod(shape))
    return np.random.default_rng(seed).permutation(np.linspace(low, high, n) + (high - low) / (3 * n)).reshape(shape)


def share(*shape, seed=0):
    """Values between 0.05 and 0.95."""
    return distinct(*shape, seed=seed, low=0.05, high=0.9)


X, Y, IMAGE = distinct(3, 4), distinct(3, 4, seed=1), distinct(2, 4, 5, 4)
LABELS = np.array([2, 0, 3])
SEQUENCE = distinct(2, 3, 4)

LAYERS = {
    **{name: (getattr(nn, name), [X]) for name in (
        "CELU", "ELU", "GELU", "HSigmoid", "HSwish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "ReLU", "ReLU6",
        "SeLU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh", "Flatten", "Identity", "Norm")},
    "PReLU": (lambda: nn.PReLU(4, Tensor(np.array([0.1, 0.2, 0.3, 0.4]))), [X]),
    "ClipByNorm": (nn.ClipByNorm, [X, np.array(1.5)]),
    "Dense": (lambda: nn.Dense(4, 2, activation="tanh", **F64), [SEQUENCE]),
    "Dropout": (lambda: nn.Dropout(p=0.3), [X]),
    "Embedding": (lambda: nn.Embedding(5, 3, padding_idx=1, **F64), [np.array([[1, 4], [0, 4]])]),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, group=2, has_bias=True, dilation=2, **F64), [IMAGE]),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, "same"), [IMAGE]), "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, "same"), [IMAGE]),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((2, 3)), [IMAGE]),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4, 0.1, **F64).set_train(), [X]),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, 0.1, **F64).set_train(), [IMAGE]),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4, 0.1, **F64).set_train(), [IMAGE[:, :, None]]),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(4, 0.1, **F64).set_train(), [IMAGE]),
    "LayerNorm": (lambda: nn.LayerNorm((3, 4), 1, 1, epsilon=0.1, **F64), [SEQUENCE]),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4, 0.1, **F64), [IMAGE]),
    "RMSNorm": (lambda: nn.RMSNorm(4, epsilon=0.1, **F64), [SEQUENCE]),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(4, 2, batch_first=True, **F64), [SEQUENCE, 0.5 * SEQUENCE, SEQUENCE]),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 2, 5, activation="gelu", **F64), [SEQUENCE]),
    "TransformerEncoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 3, norm_first=True, activation="tanh",
                                                                                    **F64), 2), [SEQUENCE]),
    "CrossEntropyLoss": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), [X, LABELS]),
    "SoftmaxCrossEntropyWithLogits": (lambda: nn.SoftmaxCrossEntropyWithLogits(sparse=True), [X, LABELS]),
    "NLLLoss": (lambda: nn.NLLLoss(Tensor(np.array([0.5, 1, 2, 1.5]))), [X, LABELS]),
    "MSELoss": (nn.MSELoss, [X, Y]), "L1Loss": (nn.L1Loss, [X, Y]), "SmoothL1Loss": (lambda: nn.SmoothL1Loss(0.7), [X, Y]),
    "HuberLoss": (nn.HuberLoss, [X, Y]), "BCELoss": (nn.BCELoss, [share(3, 4), share(3, 4, seed=1)]),
    "BCEWithLogitsLoss": (lambda: nn.BCEWithLogitsLoss(pos_weight=Tensor(np.array([1.0, 2, 3, 4]))), [X, share(3, 4)]),
    "KLDivLoss": (lambda: nn.KLDivLoss("batchmean"), [X, share(3, 4)]),
    "CosineEmbeddingLoss": (lambda: nn.CosineEmbeddingLoss(-0.9), [X, Y, np.array([1, -1, 1])]),
}
