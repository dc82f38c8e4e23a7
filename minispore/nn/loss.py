"""Losses: cells that turn (logits, labels) into one number, or one a row."""
from minispore import ops
from minispore.common.dtype import is_integer
from minispore.nn.cell import Cell
from minispore.ops.function.nn import check_reduction


class LossBase(Cell):
    """Base of losses: reduction "mean", "sum" or "none" (MindSpore: `nn.LossBase`)."""

    def __init__(self, reduction="mean"):
        super().__init__()
        check_reduction(type(self).__name__, reduction)
        self.reduction = reduction

    def get_loss(self, x):
        """x reduced as asked for."""
        return {"mean": ops.mean, "sum": ops.sum, "none": lambda x: x}[self.reduction](x)


class CrossEntropyLoss(LossBase):
    """Softmax cross-entropy of logits (batch, classes, …) and class indices or probabilities.

    See `ops.cross_entropy` for weight, ignore_index and label_smoothing (MindSpore: `nn.CrossEntropyLoss`).
    """

    def __init__(self, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        super().__init__(reduction)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    def construct(self, logits, labels):
        return ops.cross_entropy(logits, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class SoftmaxCrossEntropyWithLogits(LossBase):
    """Softmax cross-entropy of logits (batch, classes) (MindSpore: `nn.SoftmaxCrossEntropyWithLogits`).

    sparse=True: labels are class indices (batch,); False (default): probabilities (batch, classes). reduction is "none"
    by default, one loss a row.
    """

    def __init__(self, sparse=False, reduction="none"):
        super().__init__(reduction)
        self.sparse = sparse

    def construct(self, logits, labels):
        if self.sparse:
            return self.get_loss(ops.SparseSoftmaxCrossEntropyWithLogits()(logits, labels))
        if is_integer(labels.dtype) and labels.shape == logits.shape[:-1]:
            raise TypeError(f"SoftmaxCrossEntropyWithLogits(sparse=False): labels {labels.shape} of {labels.dtype} are class "
                            f"indices, but sparse=False (the default) takes probabilities of shape {logits.shape}. Use "
                            "nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction='mean')")
        loss, _ = ops.SoftmaxCrossEntropyWithLogits()(logits, ops.cast(labels, logits.dtype))
        return self.get_loss(loss)


class NLLLoss(LossBase):
    """-x[label] of log probabilities (batch, classes, …) and class indices (MindSpore: `nn.NLLLoss`)."""

    def __init__(self, weight=None, ignore_index=-100, reduction="mean"):
        super().__init__(reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def construct(self, logits, labels):
        return ops.nll_loss(logits, labels, self.weight, self.ignore_index, self.reduction)


class MSELoss(LossBase):
    """(logits - labels)² (MindSpore: `nn.MSELoss`).

    >>> from minispore import Tensor, nn
    >>> float(nn.MSELoss()(Tensor([1.0, 3.0]), Tensor([0.0, 0.0])))
    5.0
    """

    def construct(self, logits, labels):
        return ops.mse_loss(logits, labels, self.reduction)


class L1Loss(LossBase):
    """|logits - labels| (MindSpore: `nn.L1Loss`)."""

    def construct(self, logits, labels):
        return ops.l1_loss(logits, labels, self.reduction)


class SmoothL1Loss(LossBase):
    """Squared below beta, linear above; reduction "none" by default (MindSpore: `nn.SmoothL1Loss`)."""

    def __init__(self, beta=1.0, reduction="none"):
        super().__init__(reduction)
        self.beta = beta

    def construct(self, logits, labels):
        return ops.smooth_l1_loss(logits, labels, self.beta, self.reduction)


class HuberLoss(LossBase):
    """½·d² up to delta, delta·(d - ½·delta) above (MindSpore: `nn.HuberLoss`)."""

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction)
        self.delta = delta

    def construct(self, logits, labels):
        return ops.huber_loss(logits, labels, self.reduction, self.delta)


class BCELoss(LossBase):
    """Binary cross-entropy of probabilities; reduction "mean" by default (MindSpore: `nn.BCELoss`)."""

    def __init__(self, weight=None, reduction="mean"):
        super().__init__(reduction)
        self.weight = weight

    def construct(self, logits, labels):
        return ops.binary_cross_entropy(logits, labels, self.weight, self.reduction)


class BCEWithLogitsLoss(LossBase):
    """Binary cross-entropy of sigmoid(logits) (MindSpore: `nn.BCEWithLogitsLoss`)."""

    def __init__(self, reduction="mean", weight=None, pos_weight=None):
        super().__init__(reduction)
        self.weight, self.pos_weight = weight, pos_weight

    def construct(self, logits, labels):
        return ops.binary_cross_entropy_with_logits(logits, labels, self.weight, self.pos_weight, self.reduction)


class KLDivLoss(LossBase):
    """labels · (log labels - logits), of log probabilities and probabilities (MindSpore: `nn.KLDivLoss`)."""

    def __init__(self, reduction="mean"):
        super().__init__("mean" if reduction == "batchmean" else reduction)
        self.reduction = reduction

    def construct(self, logits, labels):
        return ops.kl_div(logits, labels, self.reduction)


class CosineEmbeddingLoss(LossBase):
    """1 - cos(x1, x2) where the label is 1, max(0, cos - margin) where it is -1 (MindSpore: `nn.CosineEmbeddingLoss`)."""

    def __init__(self, margin=0.0, reduction="mean"):
        super().__init__(reduction)
        self.margin = margin

    def construct(self, logits_x1, logits_x2, labels):
        cosine = ops.cosine_similarity(logits_x1, logits_x2, -1)
        apart = ops.maximum(cosine - self.margin, 0.0)
        return self.get_loss(ops.select(ops.equal(labels, 1), 1 - cosine, apart))
