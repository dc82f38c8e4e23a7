"""Metrics that average a number over the rows: loss, errors, perplexity, Dice."""
import math

import numpy as np

from minispore.train.metrics.classification import indices
from minispore.train.metrics.metric import ShardedMetric, Sum, array_of, rearrange_inputs


class Loss(ShardedMetric):
    """Mean loss (MindSpore: `train.Loss`): a number, or one a row, for each batch.

    Without `valid` every batch weighs the same, as in MindSpore. Model gives `valid`, and then every row does: so a short
    last batch counts for what it is, and the result doesn't depend on the batches.

    >>> metric = Loss()
    >>> metric.update(0.5)
    >>> metric.update([0.2, 0.6])
    >>> metric.eval()
    0.45
    """

    takes = ("loss",)

    def clear(self):
        self.total, self.count = Sum(), Sum()

    @rearrange_inputs
    def update(self, *inputs, valid=None):
        if len(inputs) != 1:
            raise ValueError(f"Loss: update got {len(inputs)} inputs, it takes 1: the loss. With an eval_network of several "
                             "outputs, give Model eval_indexes=[loss, predictions, labels], or use Loss().set_indexes([0])")
        loss, rows = array_of(inputs[0]).astype(np.float64), 1
        if valid is not None:
            keep = np.asarray(valid, bool)
            loss, rows = (loss[keep] if loss.shape[:1] == keep.shape else loss), int(keep.sum())
        if not rows:
            return
        self.total += loss.mean() * rows
        self.count += rows

    def eval(self) -> float:
        return float(self.total.value / self.counted(self.count))


class _MeanError(ShardedMetric):
    """A sum over all values, divided by the number of rows."""

    def clear(self):
        self.total, self.count = Sum(), Sum()

    def add(self, predictions, labels):
        if predictions.size != labels.size or not predictions.ndim or len(predictions) != len(labels):
            raise ValueError(f"{type(self).__name__}: predictions {predictions.shape} and labels {labels.shape} must be of "
                             "one shape")
        self.total += self.error(predictions.astype(np.float64) - labels.reshape(predictions.shape)).sum()
        self.count += len(labels)

    def eval(self) -> float:
        return float(self.total.value / self.counted(self.count))


class MAE(_MeanError):
    """Σ |prediction - label| / rows (MindSpore: `train.MAE`). Rows of several values count as one.

    >>> MAE()([1.0, 2.0, 4.0], [1.0, 3.0, 2.0])
    1.0
    """

    error = staticmethod(np.abs)


class MSE(_MeanError):
    """Σ (prediction - label)² / rows (MindSpore: `train.MSE`). Rows of several values count as one.

    >>> MSE()([1.0, 2.0, 4.0], [1.0, 3.0, 1.0]).__round__(4)
    3.3333
    """

    error = staticmethod(np.square)


class Perplexity(ShardedMetric):
    """exp(-Σ log p(label) / labels) (MindSpore: `train.Perplexity`); a probability below 1e-10 counts as 1e-10.

    Args:
        ignore_label: this label is left out of the mean.

    predictions (…, classes), probabilities; labels (…) of class indices.

    >>> Perplexity()([[0.5, 0.5], [0.25, 0.75]], [0, 0]).__round__(4)
    2.8284
    """

    def __init__(self, ignore_label=None):
        if ignore_label is not None and (not isinstance(ignore_label, int) or isinstance(ignore_label, bool)):
            raise TypeError(f"Perplexity: ignore_label {ignore_label!r} must be a whole number or None")
        self.ignore_label = ignore_label
        super().__init__()

    def clear(self):
        self.total, self.count = Sum(), Sum()

    def add(self, predictions, labels):
        if predictions.ndim < 2 or labels.size * predictions.shape[-1] != predictions.size:
            raise ValueError(f"Perplexity: predictions {predictions.shape} need labels of shape {predictions.shape[:-1]} with "
                             f"class indices; got shape {labels.shape}")
        predictions, labels = predictions.reshape(-1, predictions.shape[-1]), labels.reshape(-1)
        if self.ignore_label is not None:
            keep = labels != self.ignore_label
            predictions, labels = predictions[keep], labels[keep]
        labels = indices("Perplexity", labels, predictions.shape[1])
        p = predictions[np.arange(len(labels)), labels].astype(np.float64)
        self.total += -np.log(np.maximum(p, 1e-10)).sum()
        self.count += len(labels)

    def eval(self) -> float:
        return math.exp(self.total.value / self.counted(self.count))


class Dice(ShardedMetric):
    """2·Σ p·y / (Σ p² + Σ y² + smooth) / rows (MindSpore: `train.Dice`).

    That is MindSpore's value of one `update`, the division by the rows included. Over several updates it is the value of
    one that has all their rows, where MindSpore adds up the batches' coefficients and so depends on their size.

    >>> Dice()([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]], [[0, 1], [1, 0], [0, 1]]).__round__(12)
    0.204677913718
    """

    def __init__(self, smooth=1e-5):
        if not isinstance(smooth, (int, float)) or smooth <= 0:
            raise ValueError(f"Dice: smooth {smooth!r} must be a number > 0")
        self.smooth = smooth
        super().__init__()

    def clear(self):
        self.common, self.squares, self.count = Sum(), Sum(), Sum()

    def add(self, predictions, labels):
        if predictions.shape != labels.shape or not predictions.ndim:
            raise ValueError(f"Dice: predictions {predictions.shape} and labels {labels.shape} must be of one shape")
        p, y = predictions.astype(np.float64), labels.astype(np.float64)
        self.common += (p * y).sum()
        self.squares += (p * p).sum() + (y * y).sum()
        self.count += len(y)

    def eval(self) -> float:
        count = self.counted(self.count)
        return float(2 * self.common.value / (self.squares.value + self.smooth) / count)
