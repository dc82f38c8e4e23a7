"""Parallel training over layouts, and what MindSpore has under `mindspore.parallel`."""
from minispore.common.errors import missing

# Imported when asked for: minispore.train stands above this package.
__getattr__ = missing(__name__, globals(), {
    **dict.fromkeys(("build_searched_strategy", "merge_pipeline_strategys"), "minispore.parallel.strategy_file"),
    **dict.fromkeys(("rank_list_for_transform", "transform_checkpoint_by_rank", "transform_checkpoints", "unified_safetensors"),
                    "minispore.train.transform"),
    **dict.fromkeys(("load_distributed_checkpoint", "merge_sliced_parameter"), "minispore.train.distributed"),
})
