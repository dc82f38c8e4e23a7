"""Training: Model, callbacks, metrics, checkpoints."""
from minispore.common.errors import missing
from minispore.train.background import async_ckpt_thread_status, wait_for_async_save
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
from minispore.train.checkpoint import CheckpointConfig, ModelCheckpoint
from minispore.train.files import latest_checkpoint
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
from minispore.train.serialization import load_checkpoint, load_param_into_net, save_checkpoint
from minispore.train.training_state import TrainingState, load_training_state, save_training_state

__getattr__ = missing(__name__, globals())
