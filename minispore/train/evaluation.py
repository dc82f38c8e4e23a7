"""Evaluation: a network over a dataset, batch by batch, into metrics; on several ranks as if it were one."""
import numpy as np

from minispore import ops
from minispore.common.errors import warn
from minispore.common.state import current
from minispore.common.tensor import is_tensor
from minispore.common.tree import flatten, unflatten
from minispore.communication.management import get_rank
from minispore.nn.cell import Cell
from minispore.train.callback.callback import AT_STEPS, Agreement, RunContext, notify
from minispore.train.counting import Counted
from minispore.train.metrics import Loss, Metric, merge, state_of
from minispore.train.model_checks import check_columns, check_dataset, check_equal_steps


class Evaluation:
    """What is evaluated, and how its outputs reach the metrics.

    With an eval_network: it gets all columns, the metrics all its outputs; or, with indexes (loss, predictions, labels),
    a Loss the first and all others the other two. Without: the last column is the label; a Loss gets the loss_fn's value,
    the others the network's outputs and the label. A network without a loss_fn that has but Loss metrics gets all columns
    and returns the loss. in_float32: outputs of the network are cast to it.
    """

    def __init__(self, network: Cell, loss_fn, eval_network, indexes, metrics: dict[str, Metric], in_float32=False):
        self.loss_fn, self.metrics, self.indexes = loss_fn, metrics, indexes
        self.custom = eval_network is not None
        self.network = eval_network if self.custom else network
        self.called = Float32(network) if in_float32 and not self.custom else self.network
        self.loss_only = not self.custom and loss_fn is None and all(isinstance(m, Loss) for m in metrics.values())
        self.all_columns = self.custom or self.loss_only
        self.has_loss = indexes is not None if self.custom else loss_fn is not None or self.loss_only

    def check(self, name: str, dataset, world) -> None:
        """ValueError where metrics, loss or columns are missing."""
        if not self.metrics:
            raise ValueError(f"{name}: no metrics were given; Model(net, loss_fn=…, metrics={{'accuracy'}})")
        check_dataset(f"{name}: valid_dataset", dataset, world)
        if not self.custom and not self.has_loss and any(isinstance(m, Loss) for m in self.metrics.values()):
            raise ValueError(f"{name}: the metric 'loss' among {sorted(self.metrics)} needs a loss; "
                             "Model(net, loss_fn=…, metrics=…)")
        check_columns(name, dataset, self.network, "" if self.all_columns else "label")

    def run(self, dataset, callbacks, args, world, level, losses: dict[str, Loss]) -> dict:
        """The metrics' values. `losses` are Loss metrics besides them, whose values are only in args.eval_results.

        world: the ranks that evaluate together (None: this one alone). level: when a callback may ask to stop.
        """
        context, metrics, ranks = RunContext(args), {**self.metrics, **losses}, ()
        if current().compiler is not None and world:        # all ranks run one program
            check_equal_steps("Model.eval", world.all_gather(np.array([args.batch_num])).wait())
        agreement = Agreement(context, world, level)
        for m in metrics.values():
            m.clear()
        args.eval_network = self.network.set_train(False)
        notify(callbacks, "on_eval_begin", context)
        notify(callbacks, "on_eval_epoch_begin", context)
        for columns, valid in dataset.batches(0):
            args.cur_step_num += 1
            args.eval_dataset_element = inputs = dataset.tensors("Model.eval", columns)
            notify(callbacks, "on_eval_step_begin", context)
            counted = Counted(inputs, valid, world)
            args.net_outputs = outputs = self.outputs(inputs, counted)
            notify(callbacks, "on_eval_step_end", context)
            if outputs is not None and counted.mine:
                self.update(metrics, outputs, counted.mine)
            ranks = counted.ranks
            if agreement.stop(AT_STEPS):
                break
        notify(callbacks, "on_eval_epoch_end", context)
        if world and len(ranks) != 1:
            lonely = [name for name, m in metrics.items() if not state_of(m)]
            merge(metrics, world, ranks or range(world.size))
            if lonely:
                warn(f"Model.eval: {', '.join(lonely)} can't be added up over the {world.size} ranks, so each rank has the value "
                     "of its own shard. Keep what it counts in Sum and Rows attributes (see train.Metric)")
        args.metrics = {name: m.eval() for name, m in self.metrics.items()}
        args.eval_results = {**args.metrics, **{name: m.eval() for name, m in losses.items()}}
        notify(callbacks, "on_eval_end", context)
        return args.metrics

    def outputs(self, inputs, counted: Counted):
        """The eval_network's outputs, or ([loss,] outputs, label), of the rows that count; None if there are none."""
        if self.all_columns:
            outputs = self.rows(inputs, counted)
            return outputs if outputs is None or isinstance(outputs, (tuple, list)) else (outputs,)
        outputs = self.rows(inputs[:-1], counted)
        if outputs is None:
            return None
        label = counted.keep(inputs[-1])
        return (outputs, label) if self.loss_fn is None else (self.loss_fn(outputs, label), outputs, label)

    def rows(self, inputs, counted: Counted):
        """network(*inputs), without the rows that only fill a shard; None if there are no others."""
        outputs = self.called(*inputs)         # all rows, as on the other ranks: the network may communicate
        if counted.all:
            return outputs
        if counted.none:
            return None
        leaves = flatten(outputs, is_tensor)[0]
        if all(map(counted.has, leaves)):
            return counted.keep(outputs)
        if current().parallel["parallel_mode"] == "hybrid_parallel":
            raise RuntimeError(
                f"Model.eval: on rank {get_rank()} {np.sum(~counted.marks)} rows of a batch only fill the shard, but "
                f"{type(self.network).__name__} returns values of shapes {[t.shape for t in leaves]} instead of one a row, so "
                "they can't be left out. Let it return one a row, or use a dataset that divides by the ranks")
        return self.called(*map(counted.keep, inputs))

    def update(self, metrics, outputs, rows: int) -> None:
        """Give every metric its part of the outputs."""
        losses = rest = outputs
        if not self.custom:
            losses, rest = outputs[:1], outputs[-2:]
        elif self.indexes is not None:
            if len(outputs) <= max(self.indexes):
                raise ValueError(f"Model.eval: the eval_network returned {len(outputs)} values, eval_indexes are {self.indexes}")
            losses, *rest = (outputs[i] for i in self.indexes)
            losses = [losses]
        for m in metrics.values():
            if isinstance(m, Loss):
                m.update(*losses, valid=np.ones(rows, bool))
            else:
                m.update(*rest)


class Float32(Cell):
    """A network whose float16 outputs become float32, as losses and metrics need them."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self._backbone = network

    def construct(self, *inputs):
        leaves, shape = flatten(self._backbone(*inputs), is_tensor)
        return unflatten(shape, [ops.cast(t, np.float32) if t.dtype.name in ("float16", "bfloat16") else t for t in leaves])
