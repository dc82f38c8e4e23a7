"""Metrics that compare predicted classes with labels: accuracy, top-k, precision, recall, F."""
import numpy as np

from minispore.train.metrics.metric import Rows, ShardedMetric, Sum

TINY = np.finfo(np.float64).tiny        # keeps 0 / 0 at 0, and no other quotient notices it


class ByClass(ShardedMetric):
    """Base of metrics with an eval_type: 'classification' or 'multilabel'.

    Classification: predictions (N, C, …) with a score a class, labels (N, …) with class indices or one-hot (N, C, …).
    Multilabel: both (N, C, …), of zeros and ones.
    """

    def __init__(self, eval_type="classification"):
        if eval_type not in ("classification", "multilabel"):
            raise TypeError(f"{type(self).__name__}: eval_type {eval_type!r} must be 'classification' or 'multilabel'")
        self.multilabel = eval_type == "multilabel"
        super().__init__()

    def add(self, predictions, labels):
        if self.multilabel:
            self.add_labels(*zeros_and_ones(type(self).__name__, predictions, labels))
        else:
            self.add_classes(*classes(type(self).__name__, predictions, labels), predictions.shape[1])


class Accuracy(ByClass):
    """Share of rows predicted right (MindSpore: `train.Accuracy`).

    Classification: the largest score is at the label. Multilabel: all classes of the row are right.

    >>> Accuracy()([[0.1, 0.9], [0.8, 0.2]], [1, 1])
    0.5
    """

    def clear(self):
        self.hits, self.count = Sum(), Sum()

    def add_classes(self, predicted, labels, number):
        self._add(predicted == labels)

    def add_labels(self, predictions, labels):
        self._add((predictions == labels).all(1))

    def _add(self, hits):
        self.hits += hits.sum()
        self.count += hits.size

    def eval(self) -> float:
        return float(self.hits.value / self.counted(self.count))


class _PerClass(ByClass):
    """True positives of each class divided by something; multilabel: of each row."""

    def clear(self):
        self.true, self.all = Sum(), Sum()
        self.rows = Rows()

    def add_classes(self, predicted, labels, number):
        self.true += np.bincount(labels[predicted == labels], minlength=number)
        self.all += np.bincount(self.divisor(predicted, labels), minlength=number)

    def add_labels(self, predictions, labels):
        right = (predictions & labels).sum(1)
        self.rows += np.stack([right, self.divisor(predictions, labels).sum(1)], 1)       # (N, 2, …)

    def eval(self, average=False):
        """float64 (classes,), multilabel: (rows,); average=True: their mean, a float."""
        if self.multilabel:
            true, whole = np.moveaxis(self.counted(self.rows), 1, 0).reshape(2, -1)
        else:
            true, whole = self.counted(self.true), self.all.value
        result = true / (whole + TINY)
        return float(result.mean()) if average else result


class Precision(_PerClass):
    """Of what was predicted as a class, the share that is (MindSpore: `train.Precision`). See Recall for the shapes.

    >>> Precision()([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]], [1, 0, 1]).tolist()
    [0.5, 1.0]
    """

    @staticmethod
    def divisor(predicted, labels):
        return predicted


class Recall(_PerClass):
    """Of what is a class, the share that was predicted as it (MindSpore: `train.Recall`).

    eval(): one value a class. With eval_type 'multilabel' one a row, over the row's classes, as in MindSpore.
    eval(True): their mean.

    >>> Recall()([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]], [1, 0, 1]).tolist()
    [1.0, 0.5]
    """

    @staticmethod
    def divisor(predicted, labels):
        return labels


class Fbeta(ShardedMetric):
    """(1 + β²)·true / (β²·actual + predicted) of each class (MindSpore: `train.Fbeta`); eval(True): the mean.

    >>> Fbeta(2)([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]], [1, 0, 1]).round(3).tolist()
    [0.833, 0.556]
    """

    def __init__(self, beta):
        if not beta > 0:
            raise ValueError(f"{type(self).__name__}: beta {beta!r} must be > 0")
        self.beta = beta
        super().__init__()

    def clear(self):
        self.true, self.actual, self.predicted = Sum(), Sum(), Sum()

    def add(self, predictions, labels):
        predicted, labels = classes(type(self).__name__, predictions, labels)
        number = predictions.shape[1]
        self.true += np.bincount(labels[predicted == labels], minlength=number)
        self.actual += np.bincount(labels, minlength=number)
        self.predicted += np.bincount(predicted, minlength=number)

    def eval(self, average=False):
        square = self.beta ** 2
        result = (1 + square) * self.counted(self.true) / (square * self.actual.value + self.predicted.value + TINY)
        return float(result.mean()) if average else result


class F1(Fbeta):
    """Fbeta(1) (MindSpore: `train.F1`).

    >>> F1()([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]], [1, 0, 1]).round(3).tolist()
    [0.667, 0.667]
    """

    def __init__(self):
        super().__init__(1.0)


class TopKCategoricalAccuracy(ShardedMetric):
    """Share of rows whose label is among the k largest scores (MindSpore: `train.TopKCategoricalAccuracy`).

    predictions (N, C), labels (N,) or one-hot (N, C). Of equal scores the first counts as larger.

    >>> TopKCategoricalAccuracy(2)([[0.2, 0.5, 0.3], [0.1, 0.35, 0.5]], [2, 0])
    0.5
    """

    def __init__(self, k):
        if not isinstance(k, int) or isinstance(k, bool):
            raise TypeError(f"{type(self).__name__}: k {k!r} must be a whole number")
        if k < 1:
            raise ValueError(f"{type(self).__name__}: k {k} must be ≥ 1")
        self.k = k
        super().__init__()

    def clear(self):
        self.hits, self.count = Sum(), Sum()

    def add(self, predictions, labels):
        _, labels = classes(type(self).__name__, predictions, labels)
        if predictions.ndim != 2 or predictions.shape[1] < self.k:
            raise ValueError(f"{type(self).__name__}: predictions {predictions.shape} must be (rows, classes) with at least "
                             f"k = {self.k} classes")
        best = np.argsort(-predictions, 1, kind="stable")[:, :self.k]
        self.hits += (best == labels[:, None]).sum()
        self.count += len(labels)

    def eval(self) -> float:
        return float(self.hits.value / self.counted(self.count))


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    """TopKCategoricalAccuracy(1) (MindSpore: `train.Top1CategoricalAccuracy`)."""

    def __init__(self):
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    """TopKCategoricalAccuracy(5) (MindSpore: `train.Top5CategoricalAccuracy`)."""

    def __init__(self):
        super().__init__(5)


def classes(name: str, predictions: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(predicted class, label) of every position, flat and integer; ValueError where they don't fit."""
    if labels.ndim == predictions.ndim and labels.shape == predictions.shape and is_one_hot(labels):
        labels = labels.argmax(1)
    if predictions.ndim < 2 or labels.shape != (predictions.shape[0], *predictions.shape[2:]):
        wanted = (*predictions.shape[:1], *predictions.shape[2:])
        raise ValueError(f"{name}: predictions {predictions.shape} need labels of shape {wanted} with class indices, or "
                         f"one-hot ones of shape {predictions.shape}; got shape {labels.shape}")
    labels = indices(name, labels, predictions.shape[1])
    return predictions.argmax(1).reshape(-1), labels.reshape(-1)


def indices(name: str, labels: np.ndarray, number: int) -> np.ndarray:
    """Labels as integers below the number of classes."""
    whole = labels.astype(np.int64)
    if (whole != labels).any() or (whole.size and not 0 <= whole.min() <= whole.max() < number):
        bad = labels[(whole != labels) | (whole < 0) | (whole >= number)].flat[0]
        raise ValueError(f"{name}: label {bad} is no class; the predictions have the {number} classes 0 … {number - 1}")
    return whole


def zeros_and_ones(name: str, predictions: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and labels as bools; ValueError if they differ in shape or hold anything else."""
    if predictions.shape != labels.shape or predictions.ndim < 2:
        raise ValueError(f"{name}(eval_type='multilabel'): predictions {predictions.shape} and labels {labels.shape} must "
                         "both be (rows, classes, …)")
    for what, x in (("predictions", predictions), ("labels", labels)):
        if not np.isin(x, (0, 1)).all():
            raise ValueError(f"{name}(eval_type='multilabel'): {what} must be 0 or 1, they are in {x.min()} … {x.max()}; "
                             "compare scores with a threshold first, e.g. scores > 0.5")
    return predictions.astype(bool), labels.astype(bool)


def is_one_hot(labels: np.ndarray) -> bool:
    """Zeros, and a single one along axis 1."""
    return labels.ndim > 1 and bool(np.isin(labels, (0, 1)).all() and (labels.sum(1) == 1).all())
