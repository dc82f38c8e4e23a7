"""Wrappers that make a training step of a network: loss, gradients, their reduction, the optimizer."""
from minispore import ops
from minispore.common.dtype import float16, float32, is_float
from minispore.common.parameter import ParameterTuple
from minispore.common.recorder import recorder
from minispore.common.state import GRAPH_MODE, LOCAL_MODES, current
from minispore.communication.management import HCCL_WORLD_COMM_GROUP, communicator
from minispore.graph.api import value_and_grad
from minispore.nn.cell import Cell
from minispore.ops.communication import AllReduce, fused


class WithLossCell(Cell):
    """loss_fn(backbone(data), label) as one cell (MindSpore: `nn.WithLossCell`)."""

    def __init__(self, backbone, loss_fn):
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn

    def construct(self, data, label):
        return self._loss_fn(self._backbone(data), label)

    @property
    def backbone_network(self):
        return self._backbone


class DistributedGradReducer(Cell):
    """Sums gradients over the ranks, or averages them (MindSpore: `nn.DistributedGradReducer`).

    All gradients travel as one message a dtype. Called with a tuple of gradients, it returns them reduced; those of
    `layerwise_parallel` parameters are left as they are.

    Args:
        parameters: the gradients' parameters, e.g. optimizer.parameters.
        mean: True: average; None: what set_auto_parallel_context(gradients_mean=…) says when this is made.
        degree: the number to divide by; None: the group's size.
        fusion_type: accepted as in MindSpore; gradients are always fused.
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

    def construct(self, gradients):
        gradients = tuple(gradients)
        if len(gradients) != len(self.reduced):
            raise ValueError(f"DistributedGradReducer: got {len(gradients)} gradients, it was made for "
                             f"{len(self.reduced)} parameters; pass one for each")
        chosen = [i for i, reduce in enumerate(self.reduced) if reduce]
        if not chosen:
            return gradients
        sent = [ops.cast(gradients[i], float32) if self.wide and gradients[i].dtype == float16 else gradients[i]
                for i in chosen]
        out = list(gradients)
        for i, total in zip(chosen, fused(AllReduce("sum", self.group), sent), strict=True):
            total = total * (1 / self.degree) if self.mean and is_float(total.dtype) else total
            out[i] = ops.cast(total, gradients[i].dtype)
        return tuple(out)


class TrainOneStepCell(Cell):
    """One training step: loss and gradients of `network`, reduced in data and hybrid parallel, then the optimizer.

    Called with the network's inputs it returns the loss (MindSpore: `nn.TrainOneStepCell`).

    Args:
        network: a cell that returns the loss, e.g. WithLossCell(net, loss_fn).
        optimizer: changes its parameters.
        sens: the upstream gradient of the loss (None: 1).
        return_grad: True: (loss, gradients).
    """

    def __init__(self, network, optimizer, sens=None, return_grad=False):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer = network, optimizer
        self.weights = ParameterTuple(optimizer.parameters)
        self.sens, self.return_grad = sens, return_grad
        parallel = current().parallel
        local = parallel["parallel_mode"] in LOCAL_MODES
        self.grad_reducer = DistributedGradReducer(self.weights) if local else None
        self._equal_start = not (local and parallel["parameter_broadcast"])

    def __call__(self, *inputs):
        if not self._equal_start and recorder() is None:
            broadcast_parameters(self.network.get_parameters())
            self._equal_start = True
        return super().__call__(*inputs)

    def construct(self, *inputs):
        (_, loss), grads = value_and_grad(self._scaled_loss, None, self.weights, has_aux=True)(*inputs)
        if self.grad_reducer is not None:
            grads = self.grad_reducer(grads)
        self.optimizer(grads)
        return (loss, grads) if self.return_grad else loss

    def _scaled_loss(self, *inputs):
        loss = self.network(*inputs)
        return (loss if self.sens is None else loss * self.sens), loss


def broadcast_parameters(parameters, group=HCCL_WORLD_COMM_GROUP) -> None:
    """Give all ranks the first rank's values; `layerwise_parallel` parameters keep their own."""
    comm = communicator(group)
    shared = [p for p in parameters if not p.layerwise_parallel]
    handles = [comm.broadcast(p._data(), 0) for p in shared]
    for p, handle in zip(shared, handles, strict=True):
        p.set_data(handle.wait())
