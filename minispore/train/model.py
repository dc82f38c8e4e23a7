"""Model: trains, evaluates and predicts with a network, a loss and an optimizer (MindSpore: `mindspore.Model`)."""
from types import SimpleNamespace

import numpy as np

from minispore.common.errors import warn
from minispore.common.state import LOCAL_MODES, current
from minispore.common.tensor import Tensor
from minispore.communication.management import communicator, get_rank
from minispore.nn.cell import Cell
from minispore.nn.wrap import TrainOneStepCell, WithLossCell
from minispore.train.callback import RunContext, as_list, notify
from minispore.train.metrics import Loss, get_metrics
from minispore.train.progress import Progress


class Model:
    """A network with what is needed to train and judge it.

    Args:
        network: a Cell; without loss_fn it returns the loss itself.
        loss_fn: a Cell (outputs, labels) -> loss. optimizer: an nn.Optimizer.
        metrics: a set of names such as {"accuracy"}, or a dict of Metrics.
        eval_network: a Cell (data, label) -> (outputs, label) that `eval` uses instead of the network.
        amp_level, boost_level: only "O0" is there.
    """

    def __init__(self, network, loss_fn=None, optimizer=None, metrics=None, eval_network=None, eval_indexes=None,
                 amp_level="O0", boost_level="O0", **kwargs):
        for name, cell in (("network", network), ("loss_fn", loss_fn), ("optimizer", optimizer)):
            if not isinstance(cell, Cell) and not (cell is None and name != "network"):
                raise TypeError(f"Model: {name} is a {type(cell).__name__}; it must be an nn.Cell")
        if (amp_level, boost_level) != ("O0", "O0") or kwargs:
            raise ValueError(f"Model: amp_level={amp_level!r}, boost_level={boost_level!r}, {kwargs or ''}: only 'O0' is there")
        self._network, self._loss_fn, self._optimizer = network, loss_fn, optimizer
        self._metrics, self._eval_network = get_metrics(metrics), eval_network
        self._step = None

    @property
    def train_network(self) -> Cell:
        """The cell of one training step."""
        if self._step is None:
            if self._optimizer is None:
                raise ValueError("Model.train: no optimizer was given; Model(net, loss_fn=…, optimizer=nn.SGD(…))")
            loss_net = self._network if self._loss_fn is None else WithLossCell(self._network, self._loss_fn)
            self._step = TrainOneStepCell(loss_net, self._optimizer)
        return self._step

    def train(self, epoch, train_dataset, callbacks=None, dataset_sink_mode=False, sink_size=-1, initial_epoch=0,
              verbose=0) -> None:
        """Train for epochs number initial_epoch … epoch - 1.

        Args:
            epoch: number of passes over the dataset.
            train_dataset: gives (data, label), or the network's inputs if there is no loss_fn.
            callbacks: a Callback or a list of them.
            dataset_sink_mode, sink_size: accepted as in MindSpore; data are always made ahead.
            verbose: 1: progress, loss and speed on rank 0.

        Raises RuntimeError when ranks have different numbers of steps. A loss that is NaN or infinite is a warning with
        step and rank.
        """
        for name, value, least in (("epoch", epoch, 1), ("initial_epoch", initial_epoch, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"Model.train: {name}={value!r} must be a whole number ≥ {least}")
        callbacks, step, steps = as_list(callbacks), self.train_network, train_dataset.get_dataset_size()
        self._same_steps(steps)
        step.set_train()
        rows = train_dataset.get_batch_size() * self._ranks()
        progress = Progress(epoch, steps, rows) if verbose and get_rank() == 0 else None
        args = SimpleNamespace(epoch_num=epoch, batch_num=steps, cur_epoch_num=0, cur_step_num=initial_epoch * steps,
                               train_network=step, network=self._network, optimizer=self._optimizer, net_outputs=None,
                               train_dataset=train_dataset, mode="train")
        context, warned = RunContext(args), False
        notify(callbacks, "on_train_begin", context)
        try:
            for number in range(initial_epoch, epoch):
                args.cur_epoch_num = number + 1
                notify(callbacks, "on_train_epoch_begin", context)
                if progress:
                    progress.begin_epoch(number + 1)
                for columns, _ in train_dataset.batches(number):
                    args.cur_step_num += 1
                    notify(callbacks, "on_train_step_begin", context)
                    args.net_outputs = step(*map(Tensor.from_numpy, columns.values()))
                    loss = float(np.mean(args.net_outputs._data()))
                    if not np.isfinite(loss) and not warned:
                        warned = True
                        warn(f"the loss is {loss} at step {args.cur_step_num} (epoch {number + 1}) on rank "
                             f"{get_rank()}; lower the learning rate, or look for NaN in the data")
                    if progress:
                        progress.advance(loss)
                    notify(callbacks, "on_train_step_end", context)
                    if context.get_stop_requested():
                        break
                if progress:
                    progress.end_epoch()
                notify(callbacks, "on_train_epoch_end", context)
                if context.get_stop_requested():
                    break
        finally:
            if progress:
                progress.close()
        notify(callbacks, "on_train_end", context)

    def eval(self, valid_dataset, callbacks=None, dataset_sink_mode=False) -> dict[str, float]:
        """The metrics over a dataset; in data and hybrid parallel over all ranks' shards, no sample counted twice.

        Every rank gets the same result.
        """
        if not self._metrics:
            raise ValueError("Model.eval: no metrics were given; Model(net, loss_fn=…, metrics={'accuracy'})")
        net = (self._eval_network or self._network).set_train(False)
        for m in self._metrics.values():
            m.clear()
        context = RunContext(SimpleNamespace(network=net, mode="eval", batch_num=valid_dataset.get_dataset_size()))
        callbacks = as_list(callbacks)
        notify(callbacks, "on_eval_begin", context)
        for columns, valid in valid_dataset.batches(0):
            inputs = list(map(Tensor.from_numpy, columns.values()))
            outputs, label = net(*inputs) if self._eval_network else (net(*inputs[:-1]), inputs[-1])
            for m in self._metrics.values():
                self._update(m, outputs, label, np.atleast_1d(valid))
        if current().parallel["parallel_mode"] in LOCAL_MODES:
            world = communicator()
            for m in self._metrics.values():
                m.totals = world.all_reduce(m.totals).wait()
        context.original_args().metrics = results = {name: m.eval() for name, m in self._metrics.items()}
        notify(callbacks, "on_eval_end", context)
        return results

    def predict(self, *predict_data) -> Tensor:
        """The network's output, in evaluation mode."""
        return self._network.set_train(False)(*predict_data)

    def _update(self, metric, outputs, label, valid):
        if not isinstance(metric, Loss):
            metric.update(outputs, label, valid=valid)
            return
        if self._loss_fn is None:
            metric.update(outputs, valid=valid)
            return
        if not valid.all():         # the loss of the rows that count
            outputs, label = (Tensor.from_numpy(t._data()[valid]) for t in (outputs, label))
        if label.shape[0]:
            metric.update(self._loss_fn(outputs, label), valid=valid)

    def _ranks(self) -> int:
        return communicator().size if current().parallel["parallel_mode"] in LOCAL_MODES else 1

    def _same_steps(self, steps: int) -> None:
        """Ranks that train together must make equally many steps, or the last ones wait for ever."""
        if self._ranks() == 1:
            return
        counts = communicator().all_gather(np.array([steps])).wait()
        if (counts != counts[0]).any():
            listed = ", ".join(f"rank {r}: {n}" for r, n in enumerate(counts))
            raise RuntimeError(f"Model.train: the ranks have different numbers of steps an epoch ({listed}), so some would "
                               "wait for gradients that never come. Give the dataset num_shards=get_group_size() and "
                               "shard_id=get_rank() on every rank, and the same batch size")


