"""Metrics over batches and over ranks: each keeps sums, so shards add up and no sample is counted twice."""
import numpy as np

from minispore.common.tensor import Tensor


class Metric:
    """Base: `clear`, `update(*outputs)` for every batch, `eval` in the end (MindSpore: `train.Metric`).

    `totals` is an array of sums; what the ranks have is added up before `eval`. update's last argument `valid`, a bool a
    row, marks the rows that count (the filling of uneven shards doesn't).
    """

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        self.totals = np.zeros(2)

    def update(self, *inputs, valid=None) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines no update(*inputs, valid=None)")

    def eval(self):
        raise NotImplementedError(f"{type(self).__name__} defines no eval()")


class Accuracy(Metric):
    """Share of rows whose largest value is at the label (MindSpore: `train.Accuracy`).

    >>> metric = Accuracy()
    >>> metric.update([[0.1, 0.9], [0.8, 0.2]], [1, 1])
    >>> metric.eval()
    0.5
    """

    def __init__(self, eval_type="classification"):
        if eval_type != "classification":
            raise ValueError(f"Accuracy: eval_type {eval_type!r}; only 'classification' is there")
        super().__init__()

    def update(self, *inputs, valid=None):
        if len(inputs) != 2:
            raise ValueError(f"Accuracy: update got {len(inputs)} inputs, it takes (predictions, labels)")
        predictions, labels = map(array_of, inputs)
        if labels.ndim == predictions.ndim and predictions.shape == labels.shape:
            labels = labels.argmax(1)                           # one-hot
        if predictions.ndim < 2 or labels.shape != (predictions.shape[0], *predictions.shape[2:]):
            raise ValueError(f"Accuracy: predictions {predictions.shape} need labels of shape "
                             f"{(*predictions.shape[:1], *predictions.shape[2:])}, got {labels.shape}")
        hits = predictions.argmax(1) == labels
        hits = hits[rows(valid, len(hits))]
        self.totals += hits.sum(), hits.size

    def eval(self):
        if not self.totals[1]:
            raise RuntimeError("Accuracy: no samples seen; call update, or check that the dataset isn't empty")
        return float(self.totals[0] / self.totals[1])


class Loss(Metric):
    """Mean loss over the rows (MindSpore: `train.Loss`)."""

    def update(self, *inputs, valid=None):
        loss = array_of(inputs[0]).mean()
        count = 1 if valid is None else int(np.sum(valid))
        self.totals += loss * count, count

    def eval(self):
        if not self.totals[1]:
            raise RuntimeError("Loss: no samples seen; call update, or check that the dataset isn't empty")
        return float(self.totals[0] / self.totals[1])


NAMES = {"accuracy": Accuracy, "acc": Accuracy, "loss": Loss}


def get_metrics(metrics) -> dict[str, Metric]:
    """Metrics by name from MindSpore's forms: a set or list of names, or a dict of name: Metric."""
    if metrics is None:
        return {}
    if not isinstance(metrics, (dict, set, list, tuple)):
        raise TypeError(f"metrics {metrics!r} must be a set of names such as {{'accuracy'}}, or a dict of Metrics")
    out = {}
    for name in sorted(metrics):
        metric = metrics[name] if isinstance(metrics, dict) else name
        if isinstance(metric, str):
            if metric not in NAMES:
                raise ValueError(f"metric {metric!r} is unknown; use {sorted(NAMES)}, or a Metric object in a dict")
            metric = NAMES[metric]()
        if not isinstance(metric, Metric):
            raise TypeError(f"metric {name!r} is a {type(metric).__name__}; it must be a Metric")
        out[name] = metric
    return out


def array_of(x) -> np.ndarray:
    return x._data() if isinstance(x, Tensor) else np.asarray(x)


def rows(valid, count: int) -> np.ndarray:
    """The mark of every row; all count where nothing is marked."""
    return np.ones(count, bool) if valid is None else np.asarray(valid, bool)
