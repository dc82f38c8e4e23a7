"""Parallel programs of logical ones: layouts, strategies, the compiler, and looking at what it makes (`mindspore.parallel`)."""
from minispore.common.errors import missing
from minispore.ops.strategy import Layout
from minispore.parallel.lockstep import LockStep
from minispore.parallel.placement import Placement
from minispore.parallel.shard import shard
from minispore.parallel.simulate import LocalProgram, compile

# Imported when asked for: minispore.nn and minispore.train stand above this package.
__getattr__ = missing(__name__, globals(), {
    **dict.fromkeys(("build_searched_strategy", "merge_pipeline_strategys"), "minispore.parallel.strategy_file"),
    **dict.fromkeys(("set_algo_parameters", "get_algo_parameters", "reset_algo_parameters"), "minispore.parallel.algorithm"),
    "set_op_strategy_config": "minispore.parallel.operator_strategy",
    **dict.fromkeys(("rank_list_for_transform", "transform_checkpoint_by_rank", "transform_checkpoints", "unified_safetensors"),
                    "minispore.train.transform"),
    **dict.fromkeys(("load_distributed_checkpoint", "merge_sliced_parameter"), "minispore.train.distributed"),
    "auto_parallel": "minispore.parallel.auto_parallel", "AutoParallel": "minispore.parallel.auto_parallel",
})
