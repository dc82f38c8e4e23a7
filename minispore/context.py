"""Settings of a rank under MindSpore's names: set_context, set_auto_parallel_context, set_seed and their kin."""
import os

from minispore.common.errors import warn
from minispore.common.seed import get_seed, set_seed
from minispore.common.state import GRAPH_MODE, LOGICAL_MODES, PARALLEL_DEFAULTS, PYNATIVE_MODE, current
from minispore.ops.strategy import NamedLayout

__all__ = ["GRAPH_MODE", "PYNATIVE_MODE", "ParallelMode", "get_auto_parallel_context", "get_context", "get_seed",
           "reset_auto_parallel_context", "set_auto_parallel_context", "set_context", "set_device", "set_seed"]

CONTEXT_DEFAULTS = {
    "mode": PYNATIVE_MODE, "device_target": "CPU", "device_id": 0, "save_graphs": False, "save_graphs_path": ".",
    "max_call_depth": 1000, "max_device_memory": "1024GB", "enable_graph_kernel": False, "jit_level": "O0",
    "jit_config": None, "pynative_synchronize": False, "deterministic": "ON", "memory_optimize_level": "O0",
    "ascend_config": None, "gpu_config": None, "runtime_num_threads": 30, "enable_compile_cache": False,
    "compile_cache_path": "",
}
DEVICES = ("CPU", "GPU", "Ascend")
SCHEDULERS = ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")


class ParallelMode:
    """Names of the parallel modes (MindSpore: `mindspore.ParallelMode`)."""
    STAND_ALONE = "stand_alone"
    DATA_PARALLEL = "data_parallel"
    HYBRID_PARALLEL = "hybrid_parallel"
    SEMI_AUTO_PARALLEL = "semi_auto_parallel"
    AUTO_PARALLEL = "auto_parallel"
    MODE_LIST = (STAND_ALONE, DATA_PARALLEL, HYBRID_PARALLEL, SEMI_AUTO_PARALLEL, AUTO_PARALLEL)


def set_context(**kwargs) -> None:
    """Set how this rank runs.

    mode: GRAPH_MODE compiles, PYNATIVE_MODE (default) runs op by op. device_target: "CPU", "GPU" or "Ascend"; where the
    device isn't there, the CPU is used with one warning on rank 0 (with MINISPORE_STRICT_DEVICE=1: RuntimeError).
    The other keys of MindSpore are kept and have no effect here. An unknown key is a ValueError.
    """
    state = current()
    for key, value in kwargs.items():
        if key not in CONTEXT_DEFAULTS:
            raise ValueError(f"set_context: unknown key {key!r}; the keys are {', '.join(sorted(CONTEXT_DEFAULTS))}")
        if key == "mode":
            if value not in (GRAPH_MODE, PYNATIVE_MODE):
                raise ValueError(f"set_context: mode {value!r} must be ms.GRAPH_MODE (0) or ms.PYNATIVE_MODE (1)")
            state.mode = GRAPH_MODE if state.stand_in else value            # what is simulated is a program
        elif key == "device_target":
            _check_device(value)
    state.context.update(kwargs)


def get_context(attr_key: str):
    """The value of a set_context key."""
    if attr_key not in CONTEXT_DEFAULTS:
        raise ValueError(f"get_context: unknown key {attr_key!r}; the keys are {', '.join(sorted(CONTEXT_DEFAULTS))}")
    state = current()
    return state.mode if attr_key == "mode" else state.context.get(attr_key, CONTEXT_DEFAULTS[attr_key])


def set_device(device_target: str, device_id: int | None = None) -> None:
    """Choose the device; as set_context(device_target=…, device_id=…)."""
    set_context(device_target=device_target, **({} if device_id is None else {"device_id": device_id}))


def _check_device(target) -> None:
    if target not in DEVICES:
        raise ValueError(f"device_target {target!r} must be one of {', '.join(DEVICES)}")
    if target == "CPU" or current().stand_in is not None:
        return
    message = f"device_target={target!r}: there is no {target} device here, this job runs on the CPU"
    if os.environ.get("MINISPORE_STRICT_DEVICE", "0") not in ("", "0"):
        raise RuntimeError(f"{message[:message.index(',')]} and MINISPORE_STRICT_DEVICE is set; unset it, or use 'CPU'")
    state = current()
    from minispore.communication.management import get_rank
    if target not in state.warned and get_rank() == 0:
        warn(f"{message} (MINISPORE_STRICT_DEVICE=1 makes this an error)")
    state.warned.add(target)


# ---- parallel settings ---------------------------------------------------------------------------

def _flag(key, value):
    if not isinstance(value, bool):
        raise TypeError(f"set_auto_parallel_context: {key}={value!r} must be True or False")


def _whole(low, high):
    def check(key, value):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"set_auto_parallel_context: {key}={value!r} must be a whole number")
        if not low <= value <= high:
            raise ValueError(f"set_auto_parallel_context: {key}={value} must be in {low} … {high}")
    return check


def _one_of(*choices):
    def check(key, value):
        if value not in choices:
            raise ValueError(f"set_auto_parallel_context: {key}={value!r} must be one of {', '.join(choices)}")
    return check


def _indices(key, value):
    if not isinstance(value, (list, tuple)) or any(not isinstance(i, int) or isinstance(i, bool) for i in value):
        raise TypeError(f"set_auto_parallel_context: {key}={value!r} must be a list of whole numbers")
    if len(set(value)) < len(value):
        raise ValueError(f"set_auto_parallel_context: {key}={value} names an index twice; each once")


def _fusion(key, value):
    if value is None:
        return
    if not isinstance(value, dict):
        raise TypeError(f"set_auto_parallel_context: {key}={value!r} must be a dict such as "
                        '{"allreduce": {"mode": "auto", "config": None}}')
    for op, setting in value.items():
        _one_of("allreduce", "allgather", "reducescatter")(key, op)
        if not isinstance(setting, dict):
            raise TypeError(f"set_auto_parallel_context: {key}[{op!r}]={setting!r} must be a dict with 'mode' and 'config'")
        for part in ("mode", "config"):
            if part not in setting:
                raise KeyError(f"set_auto_parallel_context: {key}[{op!r}] lacks {part!r}; give both 'mode' and 'config'")
        _one_of("auto", "size", "index")(f"{key}[{op!r}]['mode']", setting["mode"])


def _dataset_strategy(key, value):
    if isinstance(value, str):
        _one_of("data_parallel", "full_batch")(key, value)
        return
    if not isinstance(value, tuple):
        raise TypeError(f"set_auto_parallel_context: {key}={value!r} must be 'data_parallel', 'full_batch' or a tuple with a "
                        "strategy or a Layout's for each column, e.g. ((4, 1), (4,))")
    if not value:
        raise ValueError(f"set_auto_parallel_context: {key}=() is empty; give an entry for each column, e.g. ((4, 1), (4,))")
    for i, entry in enumerate(value):
        if isinstance(entry, NamedLayout):
            continue
        if not isinstance(entry, tuple):
            raise TypeError(f"set_auto_parallel_context: entry {i} of {key}={value!r} is {entry!r}; each must be a tuple of "
                            "split counts, one a dim of the column, or a Layout's (mind the outer tuple: ((4, 1),) for one "
                            "column)")
        for n in entry:
            if not isinstance(n, int) or isinstance(n, bool):
                raise TypeError(f"set_auto_parallel_context: entry {i} of {key}={value!r} holds {n!r}; split counts are whole "
                                "numbers")
            if n < 1:
                raise ValueError(f"set_auto_parallel_context: entry {i} of {key}={value!r} holds {n}; a split count is at least "
                                 "1 (1: not split)")


def _text(key, value):
    if not isinstance(value, str):
        raise TypeError(f"set_auto_parallel_context: {key}={value!r} is a {type(value).__name__}; give a file's name")


def _of(known: dict):
    """A dict (or None) with some of the `known` keys, each of whose values its check accepts."""
    def check(key, value):
        if value is None:
            return
        if not isinstance(value, dict):
            raise TypeError(f"set_auto_parallel_context: {key}={value!r} must be a dict with keys among {sorted(known)}")
        unknown = sorted(set(value) - set(known), key=str)
        if unknown:
            raise ValueError(f"set_auto_parallel_context: {key} has no {unknown[0]!r}; its keys are {', '.join(sorted(known))}")
        for part, setting in value.items():
            known[part](f"{key}[{part!r}]", setting)
    return check


def _threshold(key, value):
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"set_auto_parallel_context: {key}={value!r} must be a whole number (KB)")
    if value < 0:
        raise ValueError(f"set_auto_parallel_context: {key}={value} must be ≥ 0 (KB)")


def _shard_size(key, value):
    if value != -1:
        _whole(1, 4096)(key, value)


_SEARCH = _one_of("recursive_programming", "sharding_propagation", "dynamic_programming", "ilp")
CHECKS = {
    "device_num": _whole(1, 4096), "global_rank": _whole(0, 4095), "pipeline_stages": _whole(1, 4096),
    "parallel_mode": _one_of(*ParallelMode.MODE_LIST),
    "search_mode": _SEARCH, "auto_parallel_search_mode": _SEARCH,
    "dataset_strategy": _dataset_strategy, "comm_fusion": _fusion, "all_reduce_fusion_config": _indices,
    "parallel_optimizer_config": _of({"gradient_accumulation_shard": _flag, "parallel_optimizer_threshold": _threshold,
                                      "optimizer_weight_shard_size": _shard_size,
                                      "optimizer_level": _one_of("level1", "level2", "level3")}),
    "strategy_ckpt_config": _of({"load_file": _text, "save_file": _text, "only_trainable_params": _flag}),
    "pipeline_config": _of({"pipeline_interleave": _flag, "pipeline_scheduler": _one_of(*SCHEDULERS)}),
    **dict.fromkeys(("strategy_ckpt_load_file", "strategy_ckpt_save_file", "group_ckpt_save_file", "op_strategy_save_file",
                     "op_strategy_load_file"), _text),
    **dict.fromkeys(("gradients_mean", "gradient_fp32_sync", "loss_repeated_mean", "parameter_broadcast", "full_batch",
                     "enable_parallel_optimizer", "enable_alltoall", "pipeline_result_broadcast"), _flag),
}


def set_auto_parallel_context(**kwargs) -> None:
    """Set how training is spread over the ranks (MindSpore: `mindspore.set_auto_parallel_context`).

    parallel_mode: "stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel".
    gradients_mean: average gradients over the ranks instead of summing. parameter_broadcast: start from rank 0's
    parameters. device_num, global_rank: after init() the group's size and this rank, unless set.
    dataset_strategy, in semi-auto and auto mode: "data_parallel", a dataset in device_num shards; "full_batch" (full_batch=True),
    all rows on every rank; or a tuple with the split counts, or a Layout's, of each column.
    Nothing is changed when one of the values is refused (ValueError, TypeError, KeyError or RuntimeError, see the text).
    """
    _use(merged(current().parallel, kwargs))


def merged(settings: dict, changes: dict) -> dict:
    """Parallel settings with some changed, checked one by one and together."""
    for key, value in changes.items():
        if key not in PARALLEL_DEFAULTS:
            raise ValueError(f"set_auto_parallel_context: unknown key {key!r}; the keys are "
                             f"{', '.join(sorted(PARALLEL_DEFAULTS))}")
        if key in CHECKS:
            CHECKS[key](key, value)
        if isinstance(PARALLEL_DEFAULTS[key], dict):
            changes = {**changes, key: {**PARALLEL_DEFAULTS[key], **(value or {})}}     # what isn't given is as at the start
    new = {**settings, **changes, **_batch_settings(settings, changes), **_search_settings(changes)}
    mode = new["parallel_mode"]
    if new["full_batch"] and mode == "data_parallel":
        raise RuntimeError("set_auto_parallel_context: full_batch=True with parallel_mode='data_parallel': there each "
                           "rank reads its own shard. Leave full_batch False, or use 'semi_auto_parallel'")
    if new["parameter_broadcast"] and mode in LOGICAL_MODES:
        raise ValueError(f"set_auto_parallel_context: parameter_broadcast=True with parallel_mode={mode!r}: there a rank "
                         "may hold a slice only. Leave it False; initial values are equal on all ranks anyway")
    return new


def _batch_settings(settings: dict, given: dict) -> dict:
    """full_batch and dataset_strategy="full_batch" are one setting under two names."""
    if "dataset_strategy" in given:
        full = given["dataset_strategy"] == "full_batch"
        if given.get("full_batch", full) != full:
            raise ValueError(f"set_auto_parallel_context: full_batch={given['full_batch']} and dataset_strategy="
                             f"{given['dataset_strategy']!r} contradict each other; give dataset_strategy alone")
        return {"full_batch": full}
    if "full_batch" in given and given["full_batch"] != (settings["dataset_strategy"] == "full_batch"):
        return {"dataset_strategy": "full_batch" if given["full_batch"] else "data_parallel"}
    return {}


def _search_settings(given: dict) -> dict:
    """search_mode's older name is the same setting."""
    names = [name for name in ("search_mode", "auto_parallel_search_mode") if name in given]
    if len({given[name] for name in names}) > 1:
        raise ValueError(f"set_auto_parallel_context: search_mode={given['search_mode']!r} and auto_parallel_search_mode="
                         f"{given['auto_parallel_search_mode']!r} are one setting; give search_mode alone")
    return dict.fromkeys(("search_mode", "auto_parallel_search_mode"), given[names[0]]) if names else {}


def get_auto_parallel_context(attr_key: str):
    """The value of a set_auto_parallel_context key; "rank_id" is this rank."""
    state = current()
    values = state.parallel
    if attr_key in ("rank_id", "global_rank"):
        return values["global_rank"] or state.rank
    if attr_key == "device_num":
        return values["device_num"] if values["device_num"] != 1 else state.size
    if attr_key not in values:
        raise ValueError(f"get_auto_parallel_context: unknown key {attr_key!r}; the keys are "
                         f"{', '.join(sorted([*values, 'rank_id']))}")
    return values[attr_key]


def reset_auto_parallel_context() -> None:
    """All settings as they were at the start."""
    _use(dict(PARALLEL_DEFAULTS))


def _use(settings: dict) -> None:
    state = current()
    state.parallel, state.compiler = settings, None
    if settings["parallel_mode"] in LOGICAL_MODES:
        from minispore.parallel.program import Compiler  # wanted in these modes only
        state.compiler = Compiler(settings)
