"""Metrics: how good a network is, over a whole dataset and over all ranks' shards of it."""
from minispore.train.metrics.classification import (
    F1,
    Accuracy,
    Fbeta,
    Precision,
    Recall,
    Top1CategoricalAccuracy,
    Top5CategoricalAccuracy,
    TopKCategoricalAccuracy,
)
from minispore.train.metrics.confusion import ConfusionMatrix, ConfusionMatrixMetric
from minispore.train.metrics.curves import ROC, CosineSimilarity, auc
from minispore.train.metrics.metric import Metric, Rows, ShardedMetric, Sum, merge, rearrange_inputs, state_of
from minispore.train.metrics.values import MAE, MSE, Dice, Loss, Perplexity

__all__ = [
    "F1", "MAE", "MSE", "ROC", "Accuracy", "ConfusionMatrix", "ConfusionMatrixMetric", "CosineSimilarity", "Dice", "Fbeta",
    "Loss", "Metric", "Perplexity", "Precision", "Recall", "Rows", "ShardedMetric", "Sum", "Top1CategoricalAccuracy",
    "Top5CategoricalAccuracy", "TopKCategoricalAccuracy", "auc", "get_metric_fn", "names", "rearrange_inputs",
]

NAMES = {
    "F1": F1, "acc": Accuracy, "accuracy": Accuracy, "auc": auc, "confusion_matrix": ConfusionMatrix,
    "confusion_matrix_metric": ConfusionMatrixMetric, "cosine_similarity": CosineSimilarity, "dice": Dice, "loss": Loss,
    "mae": MAE, "mse": MSE, "perplexity": Perplexity, "precision": Precision, "recall": Recall, "roc": ROC,
    "top_1_accuracy": Top1CategoricalAccuracy, "top_5_accuracy": Top5CategoricalAccuracy, "topk": TopKCategoricalAccuracy,
}
NEED_ARGUMENTS = {"auc", "confusion_matrix", "topk"}      # so a name alone doesn't make one


def names() -> list[str]:
    """The metrics' short names, for get_metric_fn and Model(metrics={…})."""
    return sorted(NAMES)


def get_metric_fn(name, *args, **kwargs):
    """A metric from its name and arguments (MindSpore: `train.get_metric_fn`). KeyError for an unknown name.

    >>> get_metric_fn("topk", k=3).k
    3
    """
    if name not in NAMES:
        raise KeyError(f"get_metric_fn: metric {name!r} is unknown; use one of {names()}")
    return NAMES[name](*args, **kwargs)


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
                raise ValueError(f"metric {metric!r} is unknown; use {names()}, or a Metric object in a dict")
            if metric in NEED_ARGUMENTS:
                raise ValueError(f"metric {metric!r} needs arguments, so its name isn't enough; give a dict, e.g. "
                                 "metrics={'topk': nn.TopKCategoricalAccuracy(3)}")
            metric = NAMES[metric]()
        if not isinstance(metric, Metric):
            raise TypeError(f"metric {name!r} is a {type(metric).__name__}; it must be a Metric object")
        out[name] = metric
    return out
