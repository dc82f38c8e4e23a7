"""Where MindSpore's scripts, also older ones, look for things."""
import pytest

LINES = """
from mindspore import FixedLossScaleManager, Model, Parameter, ParameterTuple, Tensor, context, log, ms_function, mutable, nn, ops
from mindspore.amp import DynamicLossScaler, all_finite
from mindspore.common import dtype as mstype, set_seed
from mindspore.common.initializer import Normal, TruncatedNormal, XavierUniform, initializer
from mindspore.communication.comm_func import all_reduce, P2POp
from mindspore.communication.management import get_rank, init
from mindspore.context import ParallelMode
from mindspore.dataset import GeneratorDataset, transforms, vision
from mindspore.dataset.transforms import OneHot, TypeCast
from mindspore.dataset.vision import Inter
from mindspore.mint import nn as mint_nn
from mindspore.mint.distributed import all_gather_object, init_process_group
from mindspore.nn.cell import Cell
from mindspore.nn.dynamic_lr import cosine_decay_lr
from mindspore.nn.layer.activation import get_activation
from mindspore.nn.learning_rate_schedule import LearningRateSchedule, PolynomialDecayLR, WarmUpLR
from mindspore.nn.metrics import Accuracy, Loss
from mindspore.nn.optim import AdamWeightDecay, Lamb, Momentum
from mindspore.nn.optim.optimizer import Optimizer
from mindspore.nn.wrap.cell_wrapper import TrainOneStepCell, WithLossCell
from mindspore.nn.wrap.grad_reducer import DistributedGradReducer
from mindspore.nn.wrap.loss_scale import TrainOneStepWithLossScaleCell
from mindspore.ops import composite as C; C.GradOperation, C.HyperMap, C.clip_by_global_norm
from mindspore.ops import constexpr, functional as F, operations as P; F.cast, P.MatMul, P.LayerNorm, P.Dropout
from mindspore.train.amp import auto_mixed_precision
from mindspore.train.callback import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint, TimeMonitor
from mindspore.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager
from mindspore.train.metrics import Metric, rearrange_inputs
from mindspore.train.model import Model
from mindspore.train.serialization import load_checkpoint, load_param_into_net, save_checkpoint
import mindspore.dataset.transforms.c_transforms as C
import mindspore.dataset.vision.c_transforms as CV
import mindspore.mint as mint
""".strip().splitlines()


@pytest.mark.parametrize("line", LINES)
def test_names_are_where_mindspore_has_them(line):
    exec(line.replace("mindspore", "minispore"), {})        # `launch.alias` makes the one name the other


def test_messages_of_the_log(caplog):
    from minispore import log
    log.warning("seen %d", 1)
    log.debug("not seen")
    assert [r.getMessage() for r in caplog.records] == ["seen 1"]
