"""minispore: MindSpore's distributed training, small enough to read and real enough to run.

    import minispore as ms
    from minispore import nn, ops

The names are MindSpore's; `import mindspore` also finds them in programs started by `msrun` or `minispore run`.
"""
from minispore import common, communication, context, graph, mint, nn, ops
from minispore.common import dtype
from minispore.common.dtype import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from minispore.common.errors import CollectiveError, TraceError, missing
from minispore.common.initializer import initializer
from minispore.common.parameter import Parameter, ParameterTuple
from minispore.common.tensor import Tensor
from minispore.communication import create_group, destroy_group, get_group_size, get_rank, init, release
from minispore.context import (
    GRAPH_MODE,
    PYNATIVE_MODE,
    ParallelMode,
    get_auto_parallel_context,
    get_context,
    get_seed,
    reset_auto_parallel_context,
    set_auto_parallel_context,
    set_context,
    set_device,
    set_seed,
)
from minispore.graph.api import grad, jit, mutable, value_and_grad
from minispore.nn import loss
from minispore.ops.functional import cast

ops.GradOperation = graph.api.GradOperation         # MindSpore has it there; it stands above ops in this house
ops.grad, ops.value_and_grad = grad, value_and_grad
ms_function = jit                                   # its older name

__version__ = "0.1.0"

__all__ = [
    "GRAPH_MODE",
    "PYNATIVE_MODE",
    "CollectiveError",
    "DynamicLossScaleManager",
    "FixedLossScaleManager",
    "Layout",
    "Model",
    "ParallelMode",
    "Parameter",
    "ParameterTuple",
    "Tensor",
    "TraceError",
    "amp",
    "async_ckpt_thread_status",
    "bfloat16",
    "bool_",
    "build_searched_strategy",
    "cast",
    "common",
    "communication",
    "compile",
    "context",
    "create_group",
    "dataset",
    "destroy_group",
    "dtype",
    "float16",
    "float32",
    "float64",
    "get_auto_parallel_context",
    "get_context",
    "get_group_size",
    "get_rank",
    "get_seed",
    "grad",
    "graph",
    "init",
    "initializer",
    "int8",
    "int16",
    "int32",
    "int64",
    "jit",
    "load_checkpoint",
    "load_distributed_checkpoint",
    "load_param_into_net",
    "log",
    "loss",
    "merge_pipeline_strategys",
    "merge_sliced_parameter",
    "mint",
    "ms_function",
    "mutable",
    "nn",
    "ops",
    "parallel",
    "rank_list_for_transform",
    "release",
    "reset_auto_parallel_context",
    "save_checkpoint",
    "set_auto_parallel_context",
    "set_context",
    "set_device",
    "set_seed",
    "shard",
    "train",
    "transform_checkpoint_by_rank",
    "transform_checkpoints",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unified_safetensors",
    "value_and_grad",
]

# What a script may do without costs nothing until it is asked for.
__getattr__ = missing(__name__, globals(), {
    "amp": "minispore.amp", "log": "minispore.log", "dataset": "minispore.dataset", "train": "minispore.train",
    "parallel": "minispore.parallel",
    **dict.fromkeys(("Model", "async_ckpt_thread_status", "load_checkpoint", "load_param_into_net", "save_checkpoint"),
                    "minispore.train"),
    **dict.fromkeys(("Layout", "build_searched_strategy", "compile", "load_distributed_checkpoint", "merge_pipeline_strategys",
                     "merge_sliced_parameter", "rank_list_for_transform", "shard", "transform_checkpoint_by_rank",
                     "transform_checkpoints", "unified_safetensors"), "minispore.parallel"),
    **dict.fromkeys(("DynamicLossScaleManager", "FixedLossScaleManager"), "minispore.amp"),
})
