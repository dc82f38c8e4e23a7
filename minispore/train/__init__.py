"""Training: Model, callbacks, metrics, checkpoints."""
from minispore.train.background import async_ckpt_thread_status, wait_for_async_save
from minispore.train.callback import Callback, LossMonitor, RunContext, TimeMonitor
from minispore.train.checkpoint import CheckpointConfig, ModelCheckpoint
from minispore.train.files import latest_checkpoint
from minispore.train.metrics import Accuracy, Loss, Metric
from minispore.train.model import Model
from minispore.train.serialization import load_checkpoint, load_param_into_net, save_checkpoint
from minispore.train.training_state import TrainingState, load_training_state, save_training_state

__all__ = ["Accuracy", "Callback", "CheckpointConfig", "Loss", "LossMonitor", "Metric", "Model", "ModelCheckpoint", "RunContext",
           "TimeMonitor", "TrainingState", "async_ckpt_thread_status", "latest_checkpoint", "load_checkpoint",
           "load_param_into_net", "load_training_state", "save_checkpoint", "save_training_state", "wait_for_async_save"]
