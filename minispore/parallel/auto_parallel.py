"""AutoParallel: parallel settings that belong to one cell instead of the whole rank (MindSpore's newer interface)."""
from contextlib import contextmanager

from minispore.common.recorder import recorder
from minispore.common.state import PARALLEL_DEFAULTS, current
from minispore.context import merged
from minispore.nn.cell import Cell
from minispore.parallel.operator_strategy import json_path
from minispore.parallel.program import Compiler

MODES = {
    "semi_auto": {"parallel_mode": "semi_auto_parallel"},
    "sharding_propagation": {"parallel_mode": "auto_parallel", "search_mode": "sharding_propagation"},
    "recursive_programming": {"parallel_mode": "auto_parallel", "search_mode": "recursive_programming"},
    "dynamic_programming": {"parallel_mode": "auto_parallel", "search_mode": "dynamic_programming"},
    "ilp": {"parallel_mode": "auto_parallel", "search_mode": "ilp"},
}


class AutoParallel(Cell):
    """A cell or function that runs as a logical program, cut for all ranks (MindSpore: `parallel.auto_parallel.AutoParallel`).

    It goes around the outermost call: a network for inference, or the whole training step. A `Model` takes the settings of an
    AutoParallel network for all that it does.

    Args:
        network: a Cell or a function of tensors.
        parallel_mode: "semi_auto", or for auto parallel a search mode: "sharding_propagation", "recursive_programming",
            "dynamic_programming" or "ilp".

    >>> from minispore import Tensor, nn
    >>> AutoParallel(nn.ReLU()).dataset_strategy("full_batch")(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, network, parallel_mode="semi_auto"):
        super().__init__(auto_prefix=False)
        if not callable(network):
            raise TypeError(f"AutoParallel: network is a {type(network).__name__}; give a Cell or a function")
        if parallel_mode not in MODES:
            raise ValueError(f"AutoParallel: parallel_mode {parallel_mode!r} must be one of {', '.join(MODES)}")
        self.network = network
        self.__dict__["settings"], self.__dict__["compiler"] = dict(PARALLEL_DEFAULTS), None
        self._set(dataset_strategy="data_parallel", **MODES[parallel_mode])

    def _set(self, **changes) -> "AutoParallel":
        self.__dict__["settings"] = merged(self.settings, changes)
        self.__dict__["compiler"] = Compiler(self.settings)
        return self

    @contextmanager
    def active(self):
        """The settings are the rank's in this scope."""
        state = current()
        before = state.parallel, state.compiler
        state.parallel, state.compiler = self.settings, self.compiler
        try:
            yield
        finally:
            state.parallel, state.compiler = before

    def __call__(self, *args, **kwargs):
        if recorder() is not None and current().compiler is None:
            raise RuntimeError("AutoParallel is called inside another graph or gradient, which isn't cut for the ranks; put it "
                               "around the outermost function instead, e.g. AutoParallel(train_step)")
        with self.active():
            return super().__call__(*args, **kwargs)

    def construct(self, *args, **kwargs):
        return self.network(*args, **kwargs)

    # ---- settings ------------------------------------------------------------------------------------------

    def hsdp(self, shard_size=-1, threshold=64, optimizer_level="level1"):
        """Share optimizer states out (ZeRO): among at most shard_size ranks (-1: all replicas), of parameters of at least
        `threshold` KB; optimizer_level: "level1" and "level2" the states, "level3" the parameters too."""
        if not isinstance(shard_size, int) or isinstance(shard_size, bool) or (shard_size != -1 and shard_size < 1):
            raise ValueError(f"hsdp: shard_size {shard_size!r} must be a whole number ≥ 1, or -1 for all ranks")
        config = {"optimizer_weight_shard_size": shard_size, "parallel_optimizer_threshold": threshold,
                  "optimizer_level": optimizer_level}
        return self._set(enable_parallel_optimizer=True, parallel_optimizer_config=config)

    def dataset_strategy(self, config):
        """How batches lie: "data_parallel", "full_batch", a tuple of strategies or of layouts."""
        return self._set(dataset_strategy=config)

    def comm_fusion(self, config):
        """How collectives are bucketed, as set_auto_parallel_context's comm_fusion."""
        return self._set(comm_fusion=config)

    def pipeline(self, stages=1, output_broadcast=False, interleave=False, scheduler="1f1b"):
        """Pipeline stages; more than one comes with pipeline parallel."""
        if stages != 1:
            raise NotImplementedError(f"AutoParallel.pipeline: {stages} stages; pipeline parallel isn't there yet, use 1")
        return self

    def get_pipeline_stages(self) -> int:
        """The number of pipeline stages."""
        return self.settings["pipeline_stages"]

    def save_operator_strategy_file(self, file_path):
        """Write how the ops are split into a file whose name ends in .json, once a program is compiled."""
        return self._set(op_strategy_save_file=json_path(file_path, "save_operator_strategy_file: file_path"))

    def load_operator_strategy_file(self, file_path):
        """Split the ops as such a file says; no search is needed for them."""
        return self._set(op_strategy_load_file=json_path(file_path, "load_operator_strategy_file: file_path"))

    def save_param_strategy_file(self, file_path):
        """Write how parameters lie into a file, once they are laid out."""
        return self._set(strategy_ckpt_save_file=file_path)

    def load_param_strategy_file(self, file_path):
        """Lay parameters out as a file says."""
        return self._set(strategy_ckpt_load_file=file_path)

    def disable_strategy_file_only_for_trainable_params(self):
        """Let the file hold parameters that aren't trained, too."""
        config = self.settings["strategy_ckpt_config"] or {}
        return self._set(strategy_ckpt_config={**config, "only_trainable_params": False})

    def set_group_ckpt_save_file(self, file_path):
        """Accepted: groups of ranks follow from the strategy file."""
        return self._set(group_ckpt_save_file=file_path)

    def enable_gradients_mean(self):
        """Accepted: a logical program's gradients are those of its loss; there is nothing to average."""
        return self._set(gradients_mean=True)

    def disable_gradient_fp32_sync(self):
        """Accepted: gradients are reduced in the dtype they have."""
        return self._set(gradient_fp32_sync=False)

    def disable_loss_repeated_mean(self):
        """Accepted: repeated calculation needs no scaling here."""
        return self._set(loss_repeated_mean=False)

    def no_init_parameters_in_compile(self):
        """Accepted: parameters made under no_init_parameters are drawn when a program first wants them, and only the piece."""
        return self
