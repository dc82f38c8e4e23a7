"""Callbacks: code that Model calls at fixed moments of training and evaluation."""
from minispore.train.callback.callback import Callback, RunContext
from minispore.train.callback.monitors import History, LambdaCallback, LossMonitor, SummaryCollector, TimeMonitor
from minispore.train.callback.plateau import EarlyStopping, LearningRateScheduler, ReduceLROnPlateau
from minispore.train.callback.request_exit import OnRequestExit

__all__ = [
    "Callback", "EarlyStopping", "History", "LambdaCallback", "LearningRateScheduler", "LossMonitor", "OnRequestExit",
    "ReduceLROnPlateau", "RunContext", "SummaryCollector", "TimeMonitor",
]

# MindSpore has these here, too; they stand above this module, so they are looked up when they are asked for.
_ELSEWHERE = {"CheckpointConfig": "minispore.train.checkpoint", "ModelCheckpoint": "minispore.train.checkpoint"}


def __getattr__(name):
    if name in _ELSEWHERE:
        from importlib import import_module
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
