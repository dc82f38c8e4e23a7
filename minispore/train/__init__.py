"""Training: Model, callbacks, metrics."""
from minispore.train.callback import Callback, LossMonitor, RunContext, TimeMonitor
from minispore.train.metrics import Accuracy, Loss, Metric
from minispore.train.model import Model

__all__ = ["Accuracy", "Callback", "Loss", "LossMonitor", "Metric", "Model", "RunContext", "TimeMonitor"]
