"""Callbacks: code that Model calls at fixed moments of training and evaluation."""
from minispore.common.errors import missing
from minispore.train.callback.callback import Callback, RunContext
from minispore.train.callback.monitors import History, LambdaCallback, LossMonitor, SummaryCollector, TimeMonitor
from minispore.train.callback.plateau import EarlyStopping, LearningRateScheduler, ReduceLROnPlateau
from minispore.train.callback.request_exit import OnRequestExit

__all__ = [
    "Callback", "EarlyStopping", "History", "LambdaCallback", "LearningRateScheduler", "LossMonitor", "OnRequestExit",
    "ReduceLROnPlateau", "RunContext", "SummaryCollector", "TimeMonitor",
]

# MindSpore has these here, too; they stand above this module.
__getattr__ = missing(__name__, globals(), dict.fromkeys(("CheckpointConfig", "ModelCheckpoint"), "minispore.train.checkpoint"))
