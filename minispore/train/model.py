"""Model: trains, evaluates and predicts with a network, a loss and an optimizer (MindSpore: `mindspore.Model`)."""
from contextlib import nullcontext
from functools import wraps
from itertools import islice
from zlib import crc32

import numpy as np

from minispore.common.errors import warn
from minispore.common.state import GRAPH_MODE, LOCAL_MODES, current
from minispore.common.tensor import Tensor
from minispore.communication.management import communicator, get_group_size, get_rank
from minispore.graph.compile import trace_call
from minispore.nn.cell import Cell
from minispore.nn.optim import Optimizer
from minispore.nn.wrap import TrainOneStepCell, WithLossCell
from minispore.train.callback.callback import (
    AT_EPOCHS,
    AT_STEPS,
    NEVER,
    Agreement,
    Arguments,
    RunContext,
    as_list,
    entered,
    first_loss,
    notify,
    refuse_old_names,
    when_it_may_stop,
)
from minispore.train.callback.monitors import overflowed
from minispore.train.evaluation import Evaluation, Float32
from minispore.train.metrics import Loss, get_metrics
from minispore.train.model_checks import (
    CALLS,
    amp_level_of,
    check_columns,
    check_dataset,
    check_equal_calls,
    check_equal_steps,
    check_sink,
    check_valid_frequency,
    counted,
    natural,
)
from minispore.train.progress import Progress


def under_its_settings(method):
    """Of a Model whose network is an AutoParallel: run under that one's settings."""
    @wraps(method)
    def call(self, *args, **kwargs):
        with self._parallel.active() if self._parallel is not None else nullcontext():
            return method(self, *args, **kwargs)
    return call


class Model:
    """A network with what is needed to train and judge it.

    Args:
        network: a Cell, or an AutoParallel, whose settings are then those of all that the Model does. Without loss_fn it
            returns the loss itself, or a tuple that begins with it. As in MindSpore all of a tuple's values are differentiated
            together: ops.stop_gradient(…) around those that are only to be seen.
        loss_fn: a Cell (outputs, labels) -> loss. optimizer: an nn.Optimizer; without, the network makes the whole
            training step itself, e.g. an nn.TrainOneStepCell.
        metrics: a set of names such as {"accuracy"}, or a dict of Metrics.
        eval_network: a Cell that `eval` calls with all columns instead of the network; the metrics get its outputs.
        eval_indexes: [loss, predictions, labels]: which of the eval_network's outputs are these. Then the Loss metric gets
            the loss, all others predictions and labels.
        amp_level: "O0"; "O2": float16, batch norms in float32, with dynamic loss scale; "O3": float16; "auto": O2 on GPU,
            O3 on Ascend.
        boost_level: "O0".
        loss_scale_manager: e.g. a DynamicLossScaleManager; steps whose gradients overflow are left out.
        keep_batchnorm_fp32: batch norms in float32, whatever the amp_level says.

    >>> import minispore.dataset as ds
    >>> from minispore import nn
    >>> x = np.array([[1, 0], [0, 1], [2, 1], [1, 3]], np.float32)
    >>> data = ds.NumpySlicesDataset((x, np.array([0, 1, 0, 1])), ["x", "label"]).batch(2)
    >>> net = nn.Dense(2, 2)
    >>> model = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.5), metrics={"accuracy"})
    >>> model.train(20, data)
    >>> model.eval(data)
    {'accuracy': 1.0}
    """

    def __init__(self, network, loss_fn=None, optimizer=None, metrics=None, eval_network=None, eval_indexes=None,
                 amp_level="O0", boost_level="O0", **kwargs):
        for name, cell in (("network", network), ("loss_fn", loss_fn), ("optimizer", optimizer),
                           ("eval_network", eval_network)):
            if not isinstance(cell, Cell) and not (cell is None and name != "network"):
                raise TypeError(f"Model: {name} is a {type(cell).__name__}; it must be an nn.Cell")
        unknown = sorted(set(kwargs) - {"loss_scale_manager", "keep_batchnorm_fp32", "boost_config_dict"})
        if unknown:
            raise ValueError(f"Model: there is no argument {', '.join(unknown)}; besides the named ones there are "
                             "loss_scale_manager and keep_batchnorm_fp32")
        if boost_level != "O0" or kwargs.get("boost_config_dict"):
            raise ValueError(f"Model: boost_level={boost_level!r}, boost_config_dict={kwargs.get('boost_config_dict')!r}: only "
                             "'O0' is there")
        if eval_indexes is not None and (not isinstance(eval_indexes, list) or len(eval_indexes) != 3):
            raise ValueError(f"Model: eval_indexes {eval_indexes!r} must be a list of three: the places of loss, predictions and "
                             "labels in what the eval_network returns")
        self._parallel = network if hasattr(network, "active") else None        # an AutoParallel: its settings are the run's
        if self._parallel is not None:
            network = network.network
        self._loss_fn, self._optimizer = loss_fn, optimizer
        self._level, keep = amp_level_of(amp_level, optimizer), kwargs.get("keep_batchnorm_fp32")
        self._scale_manager = kwargs.get("loss_scale_manager")
        if self._scale_manager is not None and optimizer is None:
            raise ValueError("Model: a loss_scale_manager needs an optimizer; Model(net, loss_fn=…, optimizer=nn.SGD(…), …)")
        if self._level != "O0":
            from minispore.train import amp
            keep = self._level == "O2" if keep is None else keep
            network = amp.auto_mixed_precision(network, "O2" if keep else "O3")
            if self._level == "O2" and "loss_scale_manager" not in kwargs:
                self._scale_manager = amp.DynamicLossScaleManager()
        self._network, self._step = network, None
        self._evaluation = Evaluation(network, loss_fn, eval_network, eval_indexes, get_metrics(metrics),
                                      self._level != "O0")

    # ---- the cells --------------------------------------------------------------------------------------

    @property
    def train_network(self) -> Cell:
        """The cell of one training step."""
        if self._step is None:
            self._step = self._make_step()
        return self._step

    @property
    def predict_network(self) -> Cell:
        """The cell that `predict` calls."""
        return self._network

    @property
    def eval_network(self) -> Cell:
        """The cell that `eval` calls."""
        return self._evaluation.network

    def _make_step(self) -> Cell:
        net = self._network
        if self._optimizer is None:
            if self._loss_fn is None and _optimizer_in(net):
                return net
            raise ValueError("Model.train: no optimizer was given; Model(net, loss_fn=…, optimizer=nn.SGD(…))")
        if self._loss_fn is not None:
            net = WithLossCell(net if self._level == "O0" else Float32(net), self._loss_fn)
        if self._scale_manager is None:
            return TrainOneStepCell(net, self._optimizer)
        scale = self._scale_manager.get_update_cell()
        if scale is None:
            return TrainOneStepCell(net, self._optimizer, sens=self._scale_manager.get_loss_scale())
        from minispore.nn import TrainOneStepWithLossScaleCell
        return TrainOneStepWithLossScaleCell(net, self._optimizer, scale)

    # ---- training ---------------------------------------------------------------------------------------

    @under_its_settings
    def train(self, epoch, train_dataset, callbacks=None, dataset_sink_mode=False, sink_size=-1, initial_epoch=0,
              verbose=0, *, initial_step=0) -> None:
        """Train for epochs number initial_epoch … epoch - 1.

        Args:
            epoch: number of passes over the dataset, those before initial_epoch included.
            train_dataset: gives (data, label), or the network's inputs if there is no loss_fn.
            callbacks: a Callback or a list of them.
            dataset_sink_mode, sink_size: accepted as in MindSpore; data are always made ahead.
            initial_epoch: the first epoch's number; each has its own order of the data, so a resumed run goes on as the one
                that wasn't interrupted. cur_step_num goes on as well.
            verbose: 1: progress, loss and speed on rank 0.
            initial_step: steps of epoch initial_epoch that are done already: their data are passed over.

        Raises RuntimeError when ranks have different numbers of steps. A loss that is NaN or infinite is a warning with
        step and rank.
        """
        check_sink("Model.train", sink_size, dataset_sink_mode=dataset_sink_mode)
        self._run("Model.train", epoch, train_dataset, as_list(callbacks), dataset_sink_mode, initial_epoch, initial_step,
                  verbose)

    @under_its_settings
    def fit(self, epoch, train_dataset, valid_dataset=None, valid_frequency=1, callbacks=None, dataset_sink_mode=False,
            valid_dataset_sink_mode=False, sink_size=-1, initial_epoch=0, verbose=0, *, initial_step=0) -> None:
        """Train, and evaluate on valid_dataset after epochs; the arguments besides are train's.

        The results are in the run's arguments `metrics` and `eval_results` in on_train_epoch_end; the latter has the
        metrics and, where there is a loss, "eval_loss".

        Args:
            valid_frequency: evaluate after every so many epochs, or after those in a list (counted from 1).
        """
        check_sink("Model.fit", sink_size, dataset_sink_mode=dataset_sink_mode, valid_dataset_sink_mode=valid_dataset_sink_mode)
        check_valid_frequency(valid_frequency)
        callbacks = as_list(callbacks)
        refuse_old_names(callbacks)
        if valid_dataset is not None:
            self._evaluation.check("Model.fit", valid_dataset, self._world())
        self._run("Model.fit", epoch, train_dataset, callbacks, dataset_sink_mode, initial_epoch, initial_step, verbose,
                  valid_dataset, valid_frequency)

    def _run(self, name, epoch, dataset, callbacks, dataset_sink_mode, initial_epoch, initial_step, verbose,
             valid_dataset=None, valid_frequency=1):
        for what, value, least in (("epoch", epoch, 1), ("initial_epoch", initial_epoch, 0), ("initial_step", initial_step, 0)):
            natural(f"{name}: {what}", value, least)
        check_dataset(f"{name}: train_dataset", dataset)
        step, steps = self.train_network, dataset.get_dataset_size()
        check_columns(name, dataset, self._network, "loss" if self._loss_fn is not None else "")
        if initial_epoch >= epoch or initial_step >= steps:
            raise ValueError(f"{name}: nothing is left to do from initial_epoch={initial_epoch}, initial_step={initial_step} on: "
                             f"epoch={epoch} is the number of epochs in all, and each has {steps} steps. If epoch "
                             f"{initial_epoch} is done, give initial_epoch={initial_epoch + 1}")
        world = self._world()
        level = self._agreed_level(name, steps, callbacks, world)
        shards = dataset.stage.share[1] if current().compiler else world.size if world else 1
        rows = dataset.get_batch_size() * shards
        progress = Progress(epoch, steps, rows) if verbose and get_rank() == 0 else None
        args = self._arguments("train", callbacks, train_network=step, train_dataset=dataset, valid_dataset=valid_dataset,
                               epoch_num=epoch, batch_num=steps, cur_epoch_num=0,
                               cur_step_num=initial_epoch * steps + initial_step, dataset_sink_mode=dataset_sink_mode)
        context = RunContext(args)
        agreement = Agreement(context, world, level)
        try:
            with entered(callbacks) as callbacks:
                args.list_callback = callbacks
                notify(callbacks, "on_train_begin", context)
                for number in range(initial_epoch, epoch):
                    args.cur_epoch_num = number + 1
                    self._epoch(number, initial_step if number == initial_epoch else 0, callbacks, context, agreement, progress)
                    results = self._evaluate_within(callbacks, args, world, level, valid_dataset, valid_frequency)
                    if progress:
                        progress.end_epoch("".join(f"  {key} {value:.4f}" for key, value in results.items()
                                                   if np.ndim(value) == 0))
                    agreement.within(AT_EPOCHS)
                    notify(callbacks, "on_train_epoch_end", context)
                    for key in ("metrics", "eval_results"):
                        args.pop(key, None)
                    if agreement.stop(AT_EPOCHS):
                        break
                    agreement.within(AT_STEPS)
                notify(callbacks, "on_train_end", context)
        finally:
            if progress:
                progress.close()

    def _epoch(self, number, done, callbacks, context, agreement, progress):
        """The steps of one epoch, without the first `done`."""
        args = context.original_args()
        step, dataset = args.train_network.set_train(), args.train_dataset
        notify(callbacks, "on_train_epoch_begin", context)
        if progress:
            progress.begin_epoch(number + 1, done)
        batches = dataset.batches(number)
        if dataset.get_repeat_count() == -1:        # an endless dataset has no last batch
            batches = islice(batches, args.batch_num)
        for columns, _ in islice(counted(batches, args.batch_num, number + 1, agreement.world), done, None):
            args.cur_step_num += 1
            args.train_dataset_element = dataset.tensors("Model.train", columns)
            notify(callbacks, "on_train_step_begin", context)
            args.net_outputs = step(*args.train_dataset_element)
            loss = self._look_at(args)
            if progress:
                progress.advance(loss)
            notify(callbacks, "on_train_step_end", context)
            if agreement.stop(AT_STEPS):
                break

    def _look_at(self, args) -> float:
        """The step's loss; a warning if it is no number."""
        loss, overflow = first_loss(args.net_outputs), overflowed(args.net_outputs)
        if self._scale_manager is not None and self._scale_manager.get_drop_overflow_update():
            self._scale_manager.update_loss_scale(overflow)
        if not np.isfinite(loss) and not overflow and not args.setdefault("nan_seen", False):
            args.nan_seen = True
            warn(f"the loss is {loss} at step {args.cur_step_num} (epoch {args.cur_epoch_num}) on rank {get_rank()}; lower the "
                 "learning rate, or look for NaN in the data")
        return loss

    def _evaluate_within(self, callbacks, args, world, level, dataset, frequency) -> dict:
        """fit's evaluation, if one is due after this epoch."""
        epoch = args.cur_epoch_num
        if dataset is None or (epoch % frequency if isinstance(frequency, int) else epoch not in frequency):
            return {}
        kept = {key: args[key] for key in ("mode", "batch_num", "cur_step_num", "net_outputs")}
        args.update(mode="eval", batch_num=dataset.get_dataset_size(), cur_step_num=0, net_outputs=None)
        losses = {"eval_loss": Loss()} if self._evaluation.has_loss else {}
        results = self._evaluation.run(dataset, callbacks, args, world, level, losses)
        args.update(kept)
        return results

    # ---- evaluation and prediction ------------------------------------------------------------------------

    @under_its_settings
    def eval(self, valid_dataset, callbacks=None, dataset_sink_mode=False) -> dict:
        """The metrics over a dataset, over all ranks' shards where it is sharded, no sample counted twice.

        Every rank gets the same result. A metric of the user's that doesn't say how it adds up (see `train.Metric`) has
        each rank's own value, and a warning.
        """
        callbacks, world = as_list(callbacks), self._world()
        self._evaluation.check("Model.eval", valid_dataset, world)
        check_sink("Model.eval", dataset_sink_mode=dataset_sink_mode)
        level = self._agreed_level("Model.eval", None, callbacks, world)
        args = self._arguments("eval", callbacks, valid_dataset=valid_dataset, batch_num=valid_dataset.get_dataset_size(),
                               cur_step_num=0, dataset_sink_mode=dataset_sink_mode)
        with entered(callbacks) as callbacks:
            args.list_callback = callbacks
            return self._evaluation.run(valid_dataset, callbacks, args, world, level, {})

    @under_its_settings
    def predict(self, *predict_data) -> Tensor:
        """The network's output, in evaluation mode."""
        return self._network.set_train(False)(*predict_data)

    @under_its_settings
    def build(self, train_dataset=None, valid_dataset=None, sink_size=-1, epoch=1, sink_mode=True) -> None:
        """Look for errors before a training begins: makes the training step, and in GRAPH_MODE traces it and the evaluation
        with the datasets' first batches. Nothing is computed or changed; compiling is left to the first call.
        """
        for name, dataset in (("train_dataset", train_dataset), ("valid_dataset", valid_dataset)):
            if dataset is None:
                continue
            check_dataset(f"Model.build: {name}", dataset)
            if name == "train_dataset":
                cell, used = self.train_network.set_train(), slice(None)
                check_columns("Model.build", dataset, self._network, "loss" if self._loss_fn is not None else "")
            else:
                self._evaluation.check("Model.build", dataset, None)
                cell = self.eval_network.set_train(False)
                used = slice(None) if self._evaluation.all_columns else slice(-1)
            if current().mode == GRAPH_MODE:
                columns, _ = next(dataset.batches(0))
                trace_call(cell._run, *dataset.tensors("Model.build", columns)[used])

    # ---- what several of them need ------------------------------------------------------------------------

    def _arguments(self, mode, callbacks, **more) -> Arguments:
        optimizer = self._optimizer or _optimizer_in(self._network)
        return Arguments(mode=mode, network=self._network, loss_fn=self._loss_fn, optimizer=optimizer, net_outputs=None,
                         list_callback=callbacks, parallel_mode=current().parallel["parallel_mode"],
                         device_number=get_group_size(), last_save_ckpt_step=None, latest_ckpt_file=None, **more)

    def _world(self):
        """The ranks that train and evaluate together; None if this one does alone."""
        state = current()
        world = communicator() if state.parallel["parallel_mode"] in LOCAL_MODES else state.world if state.compiler else None
        return world if world and world.size > 1 else None

    def _agreed_level(self, name, steps, callbacks, world) -> int:
        """When any rank's callbacks may stop. Ranks that train together must make equally many steps, and have the same of the
        callbacks that communicate.
        """
        level = max(map(when_it_may_stop, callbacks), default=NEVER)
        if world is None:
            return level
        together = [type(c).__name__ for c in callbacks if c.together]
        mine = [[steps or 0, level, crc32(repr(together).encode()), CALLS.index(name)]]
        counts, levels, sums, calls = world.all_gather(np.array(mine)).wait().T
        check_equal_calls(calls)
        check_equal_steps(name, counts)
        if (sums != sums[0]).any():
            raise RuntimeError(f"{name}: rank {world.rank} has the callbacks {together}, other ranks have others of this kind, "
                               "which communicate; give each of them to every rank, in the same order")
        return int(levels.max())


def _optimizer_in(network: Cell) -> Optimizer | None:
    """The optimizer of a network that makes the whole training step."""
    return next((cell for _, cell in network.cells_and_names() if isinstance(cell, Optimizer)), None)
