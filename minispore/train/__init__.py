"""Training: Model, callbacks, metrics."""
from minispore.common.errors import missing
from minispore.train.callback import (
    Callback,
    EarlyStopping,
    History,
    LambdaCallback,
    LearningRateScheduler,
    LossMonitor,
    OnRequestExit,
    ReduceLROnPlateau,
    RunContext,
    SummaryCollector,
    TimeMonitor,
)
from minispore.train.metrics import (
    F1,
    MAE,
    MSE,
    ROC,
    Accuracy,
    ConfusionMatrix,
    ConfusionMatrixMetric,
    CosineSimilarity,
    Dice,
    Fbeta,
    Loss,
    Metric,
    Perplexity,
    Precision,
    Recall,
    Rows,
    ShardedMetric,
    Sum,
    Top1CategoricalAccuracy,
    Top5CategoricalAccuracy,
    TopKCategoricalAccuracy,
    auc,
    get_metric_fn,
    names,
    rearrange_inputs,
)
from minispore.train.model import Model

__all__ = [
    "F1", "MAE", "MSE", "ROC", "Accuracy", "Callback", "ConfusionMatrix", "ConfusionMatrixMetric", "CosineSimilarity", "Dice",
    "EarlyStopping", "Fbeta", "History", "LambdaCallback", "LearningRateScheduler", "Loss", "LossMonitor", "Metric", "Model",
    "OnRequestExit", "Perplexity", "Precision", "Recall", "ReduceLROnPlateau", "Rows", "RunContext", "ShardedMetric", "Sum",
    "SummaryCollector", "TimeMonitor", "Top1CategoricalAccuracy", "Top5CategoricalAccuracy", "TopKCategoricalAccuracy", "auc",
    "get_metric_fn", "names", "rearrange_inputs",
]

__getattr__ = missing(__name__, globals())
