"""Losses: cells that turn (logits, labels) into one number, or one a row."""
from minispore import ops
from minispore.common.dtype import is_integer
from minispore.nn.cell import Cell
from minispore.ops.loss import check_reduction


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
