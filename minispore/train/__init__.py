"""Training: Model, callbacks, metrics."""
from minispore.common.errors import missing
from minispore.train.callback import Callback, LossMonitor, RunContext, TimeMonitor
from minispore.train.metrics import Accuracy, Loss, Metric
from minispore.train.model import Model

__all__ = ["Accuracy", "Callback", "Loss", "LossMonitor", "Metric", "Model", "RunContext", "TimeMonitor"]

__getattr__ = missing(__name__, globals())
