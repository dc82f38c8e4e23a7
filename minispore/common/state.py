"""What one rank knows about itself: its mode, seed, parallel settings and communicator.

Ranks may be threads of one process, so nothing of this may be a module-level variable: it lives in a
ContextVar, and every thread rank starts with a RankState of its own (see `lab.run_ranks`). A thread
started by a rank (the prefetcher) runs in a copy of its context and sees the same state.
"""
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

GRAPH_MODE, PYNATIVE_MODE = 0, 1
LOCAL_MODES = ("data_parallel", "hybrid_parallel")      # each rank runs its own program on its own shard
LOGICAL_MODES = ("semi_auto_parallel", "auto_parallel")     # the program is that of one device; a compiler cuts it

PARALLEL_DEFAULTS: dict[str, Any] = {
    "device_num": 1,
    "global_rank": 0,
    "parallel_mode": "stand_alone",
    "search_mode": "recursive_programming",
    "auto_parallel_search_mode": "recursive_programming",
    "gradients_mean": False,
    "gradient_fp32_sync": True,
    "loss_repeated_mean": True,
    "parameter_broadcast": False,
    "full_batch": False,
    "dataset_strategy": "data_parallel",
    "enable_parallel_optimizer": False,
    "parallel_optimizer_config": {"gradient_accumulation_shard": False, "parallel_optimizer_threshold": 64,
                                  "optimizer_weight_shard_size": -1},
    "enable_alltoall": False,
    "pipeline_stages": 1,
    "pipeline_result_broadcast": False,
    "pipeline_config": None,
    "comm_fusion": None,
    "all_reduce_fusion_config": [],
    "strategy_ckpt_load_file": "",
    "strategy_ckpt_save_file": "",
    "strategy_ckpt_config": {"load_file": "", "save_file": "", "only_trainable_params": True},
    "group_ckpt_save_file": "",
    "op_strategy_save_file": "",
    "op_strategy_load_file": "",
}

ALGORITHM_DEFAULTS: dict[str, Any] = {                  # of auto parallel's search, see parallel/algorithm.py
    "fully_use_devices": False,
    "elementwise_op_strategy_follow": False,
    "enable_algo_approxi": False,
    "algo_approxi_epsilon": 0.1,
    "tensor_slice_align_enable": False,
    "tensor_slice_align_size": 16,
}


@dataclass(eq=False)
class RankState:
    """All that is particular to one rank. `launched_*` come from the launcher, `world` from init()."""

    launched_rank: int = 0
    launched_size: int = 1
    transport: Any = None           # messages between the ranks; given by run_ranks, made by init() under MPI
    world: Any = None               # the Communicator of all ranks once init() has run
    groups: dict[str, Any] = field(default_factory=dict)
    mode: int = PYNATIVE_MODE
    context: dict[str, Any] = field(default_factory=dict)       # set_context's other keys
    parallel: dict[str, Any] = field(default_factory=lambda: dict(PARALLEL_DEFAULTS))
    algorithm: dict[str, Any] = field(default_factory=lambda: dict(ALGORITHM_DEFAULTS))     # set_algo_parameters
    seed: int | None = None
    dataset_seed: int | None = None
    draws: int = 0                  # initial values drawn since set_seed: the "which" of their key
    steps: int = 0                  # calls of programs that drew random numbers since set_seed
    warned: set[str] = field(default_factory=set)
    lazy: bool = False              # initial values are drawn when they are first wanted (nn.utils.no_init_parameters)
    compiler: Any = None            # what makes rank programs of logical ones (parallel/program.py), in LOGICAL_MODES
    simulated: bool = False         # this process stands for one rank of a job that isn't there (msrun --sim_level)
    stand_in: Any = None            # what is made of a program where it isn't run, but simulated (minispore simulate)
    cluster: Any = None             # ... and for which Cluster; else MINISPORE_CLUSTER says for which auto parallel searches
    single_ops: dict[Any, Any] = field(default_factory=dict)    # compiled ops that were called on tensors with a layout
    saving: Any = None              # the checkpoint that is being written in the background

    @property
    def rank(self) -> int:
        return self.world.rank if self.world else self.launched_rank

    @property
    def size(self) -> int:
        return self.world.size if self.world else self.launched_size


_state: ContextVar[RankState] = ContextVar("minispore_rank_state")
_main = RankState()


def current() -> RankState:
    """The state of the rank that asks."""
    return _state.get(_main)


def enter(state: RankState) -> None:
    """Make `state` the state of this thread (and of what it starts in a copy of its context)."""
    _state.set(state)
