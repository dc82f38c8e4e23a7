"""The confusion matrix, and the many rates that follow from it."""
import numpy as np

from minispore.train.metrics.classification import indices
from minispore.train.metrics.metric import Rows, ShardedMetric, Sum


class ConfusionMatrix(ShardedMetric):
    """How often label i (row) was predicted as j (column), float64 (C, C) (MindSpore: `train.ConfusionMatrix`).

    Args:
        num_classes: C.
        normalize: "no_norm"; "target": each row adds up to 1; "prediction": each column; "all": the whole matrix.
        threshold: predictions of floats with the labels' shape are class 1 from here on, else 0.

    predictions: classes (N, …), or a score a class (N, C, …); labels (N, …).

    >>> ConfusionMatrix(2)([1, 0, 1, 0], [1, 0, 0, 1]).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self, num_classes, normalize="no_norm", threshold=0.5):
        if not isinstance(num_classes, int) or isinstance(num_classes, bool) or num_classes < 1:
            raise TypeError(f"ConfusionMatrix: num_classes {num_classes!r} must be a whole number ≥ 1")
        if normalize not in SUMMED:
            raise ValueError(f"ConfusionMatrix: normalize {normalize!r} must be one of {list(SUMMED)}")
        if not isinstance(threshold, float):
            raise TypeError(f"ConfusionMatrix: threshold {threshold!r} must be a float")
        self.num_classes, self.normalize, self.threshold = num_classes, normalize, threshold
        super().__init__()

    def clear(self):
        self.matrix = Sum()

    def add(self, predictions, labels):
        if predictions.ndim not in (labels.ndim, labels.ndim + 1):
            raise ValueError(f"ConfusionMatrix: predictions {predictions.shape} must have the labels' shape {labels.shape}, "
                             "or a classes axis behind the first besides")
        if predictions.ndim > labels.ndim:
            predictions = predictions.argmax(1)
        elif predictions.dtype.kind == "f":
            predictions = predictions >= self.threshold
        if predictions.shape != labels.shape:
            raise ValueError(f"ConfusionMatrix: predictions of shape {predictions.shape} don't fit labels of shape "
                             f"{labels.shape}")
        predicted, labels = (indices("ConfusionMatrix", x, self.num_classes).reshape(-1) for x in (predictions, labels))
        pairs = np.bincount(labels * self.num_classes + predicted, minlength=self.num_classes ** 2)
        self.matrix += pairs.reshape(self.num_classes, -1)

    def eval(self) -> np.ndarray:
        matrix = self.counted(self.matrix).astype(np.float64)
        if self.normalize == "no_norm":
            return matrix
        whole = matrix.sum(SUMMED[self.normalize], keepdims=True)
        return np.divide(matrix, whole, out=np.zeros_like(matrix), where=whole != 0)


SUMMED = {"no_norm": (), "target": 1, "prediction": 0, "all": (0, 1)}     # over which axes a normalized matrix adds up to 1


class ConfusionMatrixMetric(ShardedMetric):
    """A rate from true and false positives and negatives (MindSpore: `train.ConfusionMatrixMetric`).

    Args:
        skip_channel: False leaves the first class out. (So MindSpore computes it, though its documents say the reverse.)
        metric_name: "sensitivity", "specificity", "precision", "negative predictive value", "miss rate", "fall out",
            "false discovery rate", "false omission rate", "prevalence threshold", "threat score", "accuracy",
            "balanced accuracy", "f1 score", "matthews correlation coefficient", "fowlkes mallows index", "informedness",
            "markedness", or another common name of one of them.
        calculation_method: False: the counts of all rows and classes are added up first, eval() is float64 (1,). True: the
            rate of each row and class, put together as `decrease` says; for segmentation (N, C, H, W).
        decrease: "mean" of the classes, then of the rows; "sum"; "mean_batch", "sum_batch": over rows, (C,);
            "mean_channel", "sum_channel": over classes, (N,); "none": (N, C). What is 0/0 is left out.

    predictions and labels (N, C, …), of zeros and ones.

    >>> metric = ConfusionMatrixMetric(metric_name="tpr")
    >>> metric([[[0], [1]], [[1], [0]]], [[[0], [1]], [[0], [1]]]).tolist()
    [0.5]
    """

    def __init__(self, skip_channel=True, metric_name="sensitivity", calculation_method=False, decrease="mean"):
        for name, value in (("skip_channel", skip_channel), ("calculation_method", calculation_method)):
            if not isinstance(value, bool):
                raise TypeError(f"ConfusionMatrixMetric: {name} {value!r} must be True or False")
        if not isinstance(metric_name, str):
            raise TypeError(f"ConfusionMatrixMetric: metric_name {metric_name!r} must be a string")
        known = ALIASES.get(metric_name.lower().replace(" ", "_"))
        if known is None:
            raise NotImplementedError(f"ConfusionMatrixMetric: metric_name {metric_name!r} is unknown; use one of "
                                      f"{sorted(ALIASES)}")
        if decrease not in DECREASE:
            raise ValueError(f"ConfusionMatrixMetric: decrease {decrease!r} must be one of {list(DECREASE)}")
        self.skip_channel, self.by_row = skip_channel, calculation_method
        self.rate, self.decrease = RATES[known], DECREASE[decrease]
        super().__init__()

    def clear(self):
        self.counts, self.rates = Sum(), Rows()

    def add(self, predictions, labels):
        if predictions.shape != labels.shape or predictions.ndim < 2:
            raise ValueError(f"ConfusionMatrixMetric: predictions {predictions.shape} and labels {labels.shape} must both be "
                             "(rows, classes, …), one-hot")
        for what, x in (("predictions", predictions), ("labels", labels)):
            if not np.isin(x, (0, 1)).all():
                raise ValueError(f"ConfusionMatrixMetric: {what} must be 0 or 1 (one-hot), they are in {x.min()} … {x.max()}")
        if self.by_row and (predictions.ndim == 2 or predictions.shape[2:] == (1,)):
            raise ValueError(f"ConfusionMatrixMetric(calculation_method=True): predictions {predictions.shape} have one value a "
                             "row and class, so there is no rate of each; use calculation_method=False")
        if not self.skip_channel and labels.shape[1] > 1:
            predictions, labels = predictions[:, 1:], labels[:, 1:]
        p, y = (x.reshape(*x.shape[:2], -1) for x in (predictions, labels))
        table = np.stack([((p == a) & (y == b)).sum(2) for a, b in ((1, 1), (1, 0), (0, 0), (0, 1))])     # tp, fp, tn, fn
        if self.by_row:
            self.rates += quotient(self.rate, table.astype(np.float64))
        else:
            self.counts += table.sum((1, 2))

    def eval(self):
        if not self.by_row:
            return np.atleast_1d(quotient(self.rate, self.counted(self.counts).astype(np.float64)))
        result = self.decrease(self.counted(self.rates))
        return float(result) if np.ndim(result) == 0 else result


def quotient(rate, table: np.ndarray) -> np.ndarray:
    """A rate of (tp, fp, tn, fn) tables (4, …); NaN where it is 0/0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        top, bottom = rate(*table)
        return np.where(bottom != 0, top / bottom, np.nan)


# (top, bottom) of each rate, from true and false positives and negatives.
RATES = {
    "tpr": lambda tp, fp, tn, fn: (tp, tp + fn),
    "tnr": lambda tp, fp, tn, fn: (tn, fp + tn),
    "ppv": lambda tp, fp, tn, fn: (tp, tp + fp),
    "npv": lambda tp, fp, tn, fn: (tn, tn + fn),
    "fnr": lambda tp, fp, tn, fn: (fn, tp + fn),
    "fpr": lambda tp, fp, tn, fn: (fp, fp + tn),
    "fdr": lambda tp, fp, tn, fn: (fp, fp + tp),
    "for": lambda tp, fp, tn, fn: (fn, fn + tn),
    "ts": lambda tp, fp, tn, fn: (tp, tp + fn + fp),
    "acc": lambda tp, fp, tn, fn: (tp + tn, tp + fp + tn + fn),
    "f1": lambda tp, fp, tn, fn: (2 * tp, 2 * tp + fn + fp),
    "mcc": lambda tp, fp, tn, fn: (tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))),
    "pt": lambda tp, fp, tn, fn: _prevalence_threshold(tp / (tp + fn), tn / (fp + tn)),
    "ba": lambda tp, fp, tn, fn: (tp / (tp + fn) + tn / (fp + tn), 2.0),
    "fm": lambda tp, fp, tn, fn: (np.sqrt(tp / (tp + fp) * (tp / (tp + fn))), 1.0),
    "bm": lambda tp, fp, tn, fn: (tp / (tp + fn) + tn / (fp + tn) - 1, 1.0),
    "mk": lambda tp, fp, tn, fn: (tp / (tp + fp) + tn / (tn + fn) - 1, 1.0),
}


def _prevalence_threshold(tpr, tnr):
    return np.sqrt(tpr * (1 - tnr)) + tnr - 1, tpr + tnr - 1


ALIASES = {alias: rate for rate, aliases in {
    "tpr": "sensitivity recall hit_rate true_positive_rate tpr",
    "tnr": "specificity selectivity true_negative_rate tnr",
    "ppv": "precision positive_predictive_value ppv",
    "npv": "negative_predictive_value npv",
    "fnr": "miss_rate false_negative_rate fnr",
    "fpr": "fall_out false_positive_rate fpr",
    "fdr": "false_discovery_rate fdr",
    "for": "false_omission_rate for",
    "pt": "prevalence_threshold pt",
    "ts": "threat_score critical_success_index ts csi",
    "acc": "accuracy acc",
    "ba": "balanced_accuracy ba",
    "f1": "f1_score f1",
    "mcc": "matthews_correlation_coefficient mcc",
    "fm": "fowlkes_mallows_index fm",
    "bm": "informedness bookmaker_informedness bm",
    "mk": "markedness deltap mk",
}.items() for alias in aliases.split()}


def _mean(axis):
    """The mean of what isn't NaN; 0 where all is."""
    def mean(x):
        there = ~np.isnan(x)
        count = there.sum(axis)
        return np.where(count > 0, np.where(there, x, 0).sum(axis) / np.maximum(count, 1), 0.0)
    return mean


def _mean_of_rows(x):
    """The mean of each row's mean, without rows that are NaN throughout."""
    rows = np.where(np.isnan(x).all(1), np.nan, _mean(1)(x))
    return _mean(0)(rows)


# From the rates (N, C) of rows and classes.
DECREASE = {
    "none": lambda x: np.where(np.isnan(x), 0.0, x),
    "mean": _mean_of_rows,
    "sum": lambda x: np.nansum(x),
    "mean_batch": _mean(0),
    "sum_batch": lambda x: np.nansum(x, 0),
    "mean_channel": _mean(1),
    "sum_channel": lambda x: np.nansum(x, 1),
}
