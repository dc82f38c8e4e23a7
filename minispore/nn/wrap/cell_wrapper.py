"""Cells around a network: with its loss, its gradients, its optimizer (MindSpore: `mindspore.nn.wrap.cell_wrapper`)."""
from minispore import ops
from minispore.common.dtype import float32, is_float
from minispore.common.parameter import Parameter, ParameterTuple
from minispore.common.recorder import recorder
from minispore.common.state import LOCAL_MODES, current
from minispore.common.tensor import is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.communication.management import HCCL_WORLD_COMM_GROUP, communicator
from minispore.graph.api import GradOperation, value_and_grad
from minispore.nn.cell import Cell
from minispore.nn.wrap.grad_reducer import DistributedGradReducer, is_narrow


class WithLossCell(Cell):
    """loss_fn(backbone(data), label) as one cell (MindSpore: `nn.WithLossCell`).

    16-bit outputs, as a network in mixed precision has, become float32 before the loss.
    """

    def __init__(self, backbone, loss_fn):
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn

    def construct(self, data, label):
        return self._loss_fn(widened(self._backbone(data)), widened(label))

    @property
    def backbone_network(self):
        return self._backbone


class WithEvalCell(Cell):
    """(loss, outputs, label) of a batch, for evaluation (MindSpore: `nn.WithEvalCell`).

    add_cast_fp32: outputs and labels that are floats become float32 before the loss.
    """

    def __init__(self, network, loss_fn, add_cast_fp32=False):
        super().__init__(auto_prefix=False)
        if not isinstance(add_cast_fp32, bool):
            raise TypeError(f"WithEvalCell: add_cast_fp32 {add_cast_fp32!r} must be True or False")
        self._network, self._loss_fn, self.add_cast_fp32 = network, loss_fn, add_cast_fp32

    def construct(self, data, label):
        outputs = self._network(data)
        if self.add_cast_fp32:
            outputs, label = widened(outputs, is_float), widened(label, is_float)
        return self._loss_fn(outputs, label), outputs, label


class ForwardValueAndGrad(Cell):
    """(the network's output, its gradients) (MindSpore: `nn.ForwardValueAndGrad`).

    get_all: gradients to all inputs instead of the first; get_by_list: to `weights` (with get_all: (inputs, weights)).
    sens_param: the last argument of the call, a number or a tensor of the output's shape, is the upstream gradient.

    >>> from minispore import Tensor, nn
    >>> value, slope = nn.ForwardValueAndGrad(nn.ReLU())(Tensor([3.0]))
    >>> value.tolist(), slope.tolist()
    ([3.0], [1.0])
    """

    def __init__(self, network, weights=None, get_all=False, get_by_list=False, sens_param=False):
        super().__init__(auto_prefix=False)
        if get_by_list and weights is None:
            raise ValueError("ForwardValueAndGrad: get_by_list=True, but no weights; pass network.trainable_params()")
        self.network, self.weights = network, None if weights is None else ParameterTuple(weights)
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param

    def construct(self, *inputs):
        inputs, sens = (inputs[:-1], inputs[-1]) if self.sens_param else (inputs, None)
        positions = tuple(range(len(inputs))) if self.get_all else None if self.get_by_list else 0

        def scaled(*xs):
            out = self.network(*xs)
            return (out if sens is None else out * sens), out
        (_, out), grads = value_and_grad(scaled, positions, self.weights if self.get_by_list else None, has_aux=True)(*inputs)
        return out, grads


class ParameterUpdate(Cell):
    """Called with a tensor, gives the parameter its values and returns it (MindSpore: `nn.ParameterUpdate`)."""

    def __init__(self, param):
        super().__init__(auto_prefix=False)
        if not isinstance(param, Parameter):
            raise TypeError(f"ParameterUpdate: param is a {type(param).__name__}; it must be a Parameter")
        self._param = param

    def construct(self, x):
        ops.assign(self._param, x)
        return x


class TrainOneStepCell(Cell):
    """One training step: loss and gradients of `network`, reduced in data and hybrid parallel, then the optimizer.

    Called with the network's inputs it returns the loss (MindSpore: `nn.TrainOneStepCell`). A subclass's construct finds
    self.network, self.optimizer, self.weights, self.sens, self.grad (a GradOperation to weights, with sens) and
    self.grad_reducer, which outside data and hybrid parallel returns its argument.

    Args:
        network: a cell that returns the loss, e.g. WithLossCell(net, loss_fn).
        optimizer: changes its parameters.
        sens: the upstream gradient of the loss, a number or a tensor (None: 1).
        return_grad: True: (loss, gradients).
    """

    def __init__(self, network, optimizer, sens=None, return_grad=False):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer = network, optimizer
        self.weights = ParameterTuple(optimizer.parameters)
        self.sens, self.return_grad = sens, return_grad
        self.grad = GradOperation(get_by_list=True, sens_param=True)
        parallel = current().parallel
        self.reducer_flag = local = parallel["parallel_mode"] in LOCAL_MODES
        self.grad_reducer = DistributedGradReducer(self.weights) if local else tuple
        self._equal_start = not (local and parallel["parameter_broadcast"])

    def __call__(self, *inputs):
        if not self._equal_start and recorder() is None:
            broadcast_parameters(self.network.get_parameters())
            self._equal_start = True
        return super().__call__(*inputs)

    def set_sens(self, sens) -> None:
        """The upstream gradient of the loss, from now on."""
        self.sens = sens

    def construct(self, *inputs):
        loss, grads = self.loss_and_gradients(inputs, self.sens)
        grads = self.grad_reducer(grads)
        self.optimizer(grads)
        return (loss, grads) if self.return_grad else loss

    def loss_and_gradients(self, inputs, sens=None) -> tuple:
        """The loss, and the gradients of loss · sens to the weights; not reduced yet."""
        def scaled(*xs):
            loss = self.network(*xs)
            return (loss if sens is None else loss * sens), loss
        (_, loss), grads = value_and_grad(scaled, None, self.weights, has_aux=True)(*inputs)
        return loss, grads


def broadcast_parameters(parameters, group=HCCL_WORLD_COMM_GROUP) -> None:
    """Give all ranks the first rank's values; `layerwise_parallel` parameters keep their own."""
    comm = communicator(group)
    shared = [p for p in parameters if not p.layerwise_parallel]
    handles = [comm.broadcast(p._data(), 0) for p in shared]
    for p, handle in zip(shared, handles, strict=True):
        p.set_data(handle.wait())


def widened(tree, chosen=is_narrow):
    """The tree with tensors of the chosen dtypes, 16-bit floats by default, as float32."""
    leaves, skeleton = flatten(tree, is_tensor)
    return unflatten(skeleton, [ops.cast(t, float32) if chosen(t.dtype) else t for t in leaves])
