"""Gradients summed or averaged over the ranks (MindSpore: `mindspore.nn.wrap.grad_reducer`)."""
from minispore import ops
from minispore.common.dtype import float32, is_float
from minispore.common.state import GRAPH_MODE, current
from minispore.communication.buckets import buckets
from minispore.communication.management import HCCL_WORLD_COMM_GROUP, communicator
from minispore.nn.cell import Cell
from minispore.ops.communication import AllReduce, fused


class DistributedGradReducer(Cell):
    """Sums gradients over the ranks, or averages them (MindSpore: `nn.DistributedGradReducer`).

    Called with a tuple of gradients, it returns them reduced; those of `layerwise_parallel` parameters are left as they are.
    They travel in buckets, the last layers' first, each a message (communication/buckets.py says how large); in GRAPH_MODE a
    bucket goes out while the rest of the backward pass still runs. 16-bit gradients travel as float32 unless
    set_auto_parallel_context(gradient_fp32_sync=False).

    Args:
        parameters: the gradients' parameters, e.g. optimizer.parameters.
        mean: True: average; None: what set_auto_parallel_context(gradients_mean=…) says when this is made.
        degree: the number to divide by; None: the group's size.
        fusion_type: accepted as in MindSpore; which gradients are fused is the parallel context's to say.
        group: name of the group of ranks.
    """

    def __init__(self, parameters, mean=None, degree=None, fusion_type=1, group=HCCL_WORLD_COMM_GROUP):
        super().__init__(auto_prefix=False)
        state = current()
        mode = state.parallel["parallel_mode"]
        if state.mode == GRAPH_MODE and mode in ("semi_auto_parallel", "auto_parallel"):
            raise RuntimeError(f"DistributedGradReducer: in {mode} the compiler reduces the gradients itself; remove the "
                               "reducer, or use data_parallel or hybrid_parallel")
        size = communicator(group).size
        if degree is not None and (not isinstance(degree, int) or isinstance(degree, bool) or degree < 1):
            raise ValueError(f"DistributedGradReducer: degree {degree!r} must be a positive whole number, or None for the "
                             f"group's size ({size})")
        self.mean = state.parallel["gradients_mean"] if mean is None else bool(mean)
        self.degree, self.group = degree or size, group
        self.wide = state.parallel["gradient_fp32_sync"]
        self.reduced = [not p.layerwise_parallel for p in parameters]
        self.settings, self.numbers = state.parallel, [p.comm_fusion for p in parameters]

    def construct(self, gradients):
        gradients = tuple(gradients)
        if len(gradients) != len(self.reduced):
            raise ValueError(f"DistributedGradReducer: got {len(gradients)} gradients, it was made for "
                             f"{len(self.reduced)} parameters; pass one for each")
        chosen = [i for i, reduce in enumerate(self.reduced) if reduce][::-1]      # gradients of the last layers come first
        if not chosen:
            return gradients
        sent = [ops.cast(gradients[i], float32) if self.wide and is_narrow(gradients[i].dtype) else gradients[i]
                for i in chosen]
        out = list(gradients)
        for bucket in buckets(self.settings, "allreduce", sent, [self.numbers[i] for i in chosen]):
            for j, total in zip(bucket, fused(AllReduce("sum", self.group), [sent[j] for j in bucket]), strict=True):
                total = total * (1 / self.degree) if self.mean and is_float(total.dtype) else total
                out[chosen[j]] = ops.cast(total, gradients[chosen[j]].dtype)
        return tuple(out)


def is_narrow(dtype) -> bool:
    """A float of 16 bits."""
    return is_float(dtype) and dtype.itemsize == 2
