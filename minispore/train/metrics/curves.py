"""Metrics that need all rows at once: the ROC curve, and the similarity of all rows with one another."""
import numpy as np

from minispore.train.metrics.metric import Rows, ShardedMetric


class ROC(ShardedMetric):
    """True positive rate over false positive rate, for each threshold (MindSpore: `train.ROC`).

    Args:
        class_num: the number of classes where predictions have a score a class (N, C); then labels are (N,).
        pos_label: the label that counts as positive where predictions and labels have one shape; 1 if left out.

    eval(): (false positive rates, true positive rates, thresholds), falling thresholds, the first one above all scores;
    with class_num three lists, with a curve for each class against the rest. ValueError if there are no positive or no
    negative labels. It is the curve of all updates; MindSpore's is the last one's alone.

    >>> fpr, tpr, thresholds = ROC(pos_label=2)([3, 1, 4, 2], [0, 1, 2, 3])
    >>> tpr.tolist(), thresholds.tolist()
    ([0.0, 1.0, 1.0, 1.0, 1.0], [5, 4, 3, 2, 1])
    """

    def __init__(self, class_num=None, pos_label=None):
        for name, value in (("class_num", class_num), ("pos_label", pos_label)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise TypeError(f"ROC: {name} {value!r} must be a whole number or None")
        self.class_num, self.pos_label = class_num, pos_label
        super().__init__()

    def clear(self):
        self.predictions, self.labels = Rows(), Rows()

    def add(self, predictions, labels):
        several = predictions.ndim == labels.ndim + 1
        if several and (self.class_num != predictions.shape[1] or self.pos_label is not None):
            raise ValueError(f"ROC: predictions {predictions.shape} have a score for each of {predictions.shape[1]} classes, so "
                             f"class_num must be that and pos_label None; they are {self.class_num} and {self.pos_label}")
        if not several and (predictions.shape != labels.shape or self.class_num not in (None, 1)):
            raise ValueError(f"ROC: predictions {predictions.shape} and labels {labels.shape} must have one shape and class_num "
                             f"None or 1 (it is {self.class_num}), or predictions a classes axis behind the first besides")
        if several and labels.shape != (predictions.shape[0], *predictions.shape[2:]):
            raise ValueError(f"ROC: predictions {predictions.shape} need labels of shape "
                             f"{(predictions.shape[0], *predictions.shape[2:])}, got {labels.shape}")
        self.predictions += predictions
        self.labels += labels

    def eval(self) -> tuple:
        predictions, labels = self.counted(self.predictions), self.counted(self.labels)
        if predictions.ndim == labels.ndim:
            return curve(predictions.reshape(-1), labels.reshape(-1) == (1 if self.pos_label is None else self.pos_label))
        curves = [curve(predictions[:, c].reshape(-1), labels.reshape(-1) == c) for c in range(self.class_num)]
        return tuple(map(list, zip(*curves, strict=True)))


def curve(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(false positive rates, true positive rates, thresholds) of scores (N,) and bools (N,)."""
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], positive[order]
    last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)         # of each group of equal scores
    true = np.append(0, np.cumsum(positive)[last])
    false = np.append(0, np.cumsum(~positive)[last])
    for what, rate, counts in (("negative", "false", false), ("positive", "true", true)):
        if not counts[-1]:
            raise ValueError(f"ROC: none of the {len(scores)} labels is {what}, so the {rate} positive rate has no meaning; "
                             "check pos_label and the labels")
    return false / false[-1], true / true[-1], np.append(scores[0] + 1, scores[last])


def auc(x, y, reorder=False) -> float:
    """The area under a curve by trapezoids, e.g. of ROC's rates (MindSpore: `train.auc`).

    Args:
        x, y: arrays (n,) or (n, 1), n ≥ 2. x must rise or fall throughout unless reorder is True: it sorts the points.

    >>> auc(np.array([0.0, 0.5, 1.0]), np.array([0.0, 1.0, 1.0]))
    0.75
    """
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        raise TypeError(f"auc: x and y must be numpy arrays, they are {type(x).__name__} and {type(y).__name__}; of several "
                        "classes' curves take one, e.g. auc(fpr[0], tpr[0])")
    if any(a.ndim > 2 or a.shape[1:] not in ((), (1,)) or not a.ndim for a in (x, y)) or len(x) != len(y):
        raise ValueError(f"auc: x {x.shape} and y {y.shape} must be (n,), equally long")
    x, y = x.reshape(-1), y.reshape(-1)
    if len(x) < 2:
        raise ValueError(f"auc: a curve needs two points, x has {len(x)}")
    if reorder:
        order = np.lexsort((y, x))
        x, y = x[order], y[order]
    steps = np.diff(x)
    if (steps < 0).any() and (steps > 0).any():
        raise ValueError("auc: x must rise or fall throughout, it does both; reorder=True sorts the points")
    area = float(np.trapezoid(y, x))
    return -area if (steps < 0).any() else area


class CosineSimilarity(ShardedMetric):
    """How similar each row is to each other one, (N, N) (MindSpore: `train.CosineSimilarity`).

    Args:
        similarity: "cosine", or "dot" products.
        reduction: "none"; "sum" or "mean" of each row of the matrix, (N,).
        zero_diagonal: a row's similarity with itself is 0.

    It takes one input (N, D): in Model use `CosineSimilarity().set_indexes([0])`. The rows are those of all updates;
    MindSpore's are the last one's alone.

    >>> CosineSimilarity()([[1, 0], [3, 4]]).tolist()
    [[0.0, 0.6], [0.6, 0.0]]
    """

    takes = ("rows",)

    def __init__(self, similarity="cosine", reduction="none", zero_diagonal=True):
        for name, value, known in (("similarity", similarity, ("cosine", "dot")),
                                   ("reduction", reduction, ("none", "sum", "mean")),
                                   ("zero_diagonal", zero_diagonal, (True, False))):
            if value not in known:
                raise ValueError(f"CosineSimilarity: {name} {value!r} must be one of {known}")
        self.similarity, self.reduction, self.zero_diagonal = similarity, reduction, zero_diagonal
        super().__init__()

    def clear(self):
        self.rows = Rows()

    def add(self, rows):
        if rows.ndim != 2:
            raise ValueError(f"CosineSimilarity: the input must be (rows, features), got shape {rows.shape}")
        self.rows += rows

    def eval(self) -> np.ndarray:
        rows = self.counted(self.rows)
        if self.similarity == "cosine":
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        matrix = rows @ rows.T
        if self.zero_diagonal:
            np.fill_diagonal(matrix, 0)
        return matrix if self.reduction == "none" else getattr(matrix, self.reduction)(-1)
