"""Wrappers that make a training step of a network: loss, gradients, their reduction, loss scale, the optimizer."""
from minispore.nn.wrap.cell_wrapper import (
    ForwardValueAndGrad,
    ParameterUpdate,
    TrainOneStepCell,
    WithEvalCell,
    WithLossCell,
    broadcast_parameters,
)
from minispore.nn.wrap.grad_reducer import DistributedGradReducer
from minispore.nn.wrap.loss_scale import (
    DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell,
    TrainOneStepWithLossScaleCell,
)

__all__ = [
    "DistributedGradReducer", "DynamicLossScaleUpdateCell", "FixedLossScaleUpdateCell", "ForwardValueAndGrad",
    "ParameterUpdate", "TrainOneStepCell", "TrainOneStepWithLossScaleCell", "WithEvalCell", "WithLossCell",
    "broadcast_parameters",
]
