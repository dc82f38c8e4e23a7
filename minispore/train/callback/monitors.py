"""Callbacks that look on: loss, time, history; and one made of functions."""
from time import perf_counter

import numpy as np

from minispore.communication.management import get_rank
from minispore.train.callback.callback import Callback, first_loss


class LossMonitor(Callback):
    """Prints the loss every `per_print_times` steps, on rank 0; 0: never (MindSpore: `train.LossMonitor`).

    In Model.fit also the results of the evaluation after an epoch. A loss that is NaN or infinite ends training with a
    ValueError, unless the step was an overflow that loss scaling left out.
    """

    def __init__(self, per_print_times=1):
        if not isinstance(per_print_times, int) or isinstance(per_print_times, bool) or per_print_times < 0:
            raise ValueError(f"LossMonitor: per_print_times {per_print_times!r} must be a whole number ≥ 0")
        self.every = per_print_times

    def on_train_step_end(self, run_context):
        a = run_context.original_args()
        step, loss = (a.cur_step_num - 1) % a.batch_num + 1, first_loss(a.net_outputs)
        if not np.isfinite(loss) and not overflowed(a.net_outputs):
            raise ValueError(f"LossMonitor: in epoch {a.cur_epoch_num}, step {step} the loss is {loss} on rank {get_rank()}; "
                             "training can't go on. Lower the learning rate, or look for NaN in the data")
        if self.every and a.cur_step_num % self.every == 0 and get_rank() == 0:
            print(f"epoch: {a.cur_epoch_num} step: {step}, loss is {loss:.6g}", flush=True)

    def on_train_epoch_end(self, run_context):
        a = run_context.original_args()
        if a.get("metrics") and get_rank() == 0:
            print(f"Eval result: epoch {a.cur_epoch_num}, metrics: {a.metrics}", flush=True)


def overflowed(outputs) -> bool:
    """Whether a step's outputs are those of a loss-scale cell, (loss, overflow, scale), that left the step out."""
    return isinstance(outputs, (tuple, list)) and len(outputs) == 3 and outputs[1].dtype == bool and bool(outputs[1])


class TimeMonitor(Callback):
    """Prints the time of each epoch and step, on rank 0 (MindSpore: `train.TimeMonitor`).

    Args:
        data_size: accepted as in MindSpore; the steps of an epoch are counted.
        data_time: also print the time a step waited for its data.
    """

    def __init__(self, data_size=None, data_time=False):
        if data_size is not None and (not isinstance(data_size, int) or isinstance(data_size, bool) or data_size < 1):
            raise ValueError(f"TimeMonitor: data_size {data_size!r} must be a whole number ≥ 1, or None")
        if not isinstance(data_time, bool):
            raise TypeError(f"TimeMonitor: data_time {data_time!r} must be True or False")
        self.data_time = data_time
        self.epochs = {}            # mode: [begin, steps, seconds waited for data, when the last step ended]

    def epoch_begin(self, run_context):
        now = perf_counter()
        self.epochs[run_context.original_args().mode] = [now, 0, 0.0, now]

    def step_begin(self, run_context):
        epoch = self.epochs[run_context.original_args().mode]
        epoch[1] += 1
        epoch[2] += perf_counter() - epoch[3]

    def step_end(self, run_context):
        self.epochs[run_context.original_args().mode][3] = perf_counter()

    def epoch_end(self, run_context):
        mode = run_context.original_args().mode
        begin, steps, waited, _ = self.epochs[mode]
        ms, steps = (perf_counter() - begin) * 1e3, max(steps, 1)
        data = f" (data time: {waited * 1e3 / steps:.3f} ms)" if self.data_time else ""
        if get_rank() == 0:
            print(f"{mode.title()} epoch time: {ms:.3f} ms, per step time: {ms / steps:.3f} ms{data}", flush=True)


class History(Callback):
    """Keeps each epoch's last loss and, in Model.fit, its metrics (MindSpore: `train.History`).

    history: {"net_output": [a loss an epoch], metric name: [a value an evaluation]}; epoch: {"epoch": [their numbers]}.
    """

    def __init__(self):
        self.history, self.epoch = {}, None

    def on_train_begin(self, run_context):
        self.epoch = {"epoch": []}

    def on_train_epoch_end(self, run_context):
        a = run_context.original_args()
        self.epoch["epoch"].append(a.cur_epoch_num)
        for name, value in {"net_output": first_loss(a.net_outputs), **a.get("metrics", {})}.items():
            self.history.setdefault(name, []).append(value)


class LambdaCallback(Callback):
    """A callback of functions of the run context, one a moment (MindSpore: `train.LambdaCallback`).

    >>> lines = []
    >>> callback = LambdaCallback(on_train_epoch_end=lambda run: lines.append("epoch"))
    >>> callback.on_train_epoch_end(None)
    >>> lines
    ['epoch']
    """

    def __init__(self, on_train_epoch_begin=None, on_train_epoch_end=None, on_train_step_begin=None, on_train_step_end=None,
                 on_train_begin=None, on_train_end=None, on_eval_epoch_begin=None, on_eval_epoch_end=None,
                 on_eval_step_begin=None, on_eval_step_end=None, on_eval_begin=None, on_eval_end=None):
        for moment, function in dict(locals()).items():
            if moment == "self" or function is None:
                continue
            if not callable(function):
                raise TypeError(f"LambdaCallback: {moment} is a {type(function).__name__}; it must be a function of the "
                                "run context")
            setattr(self, moment, function)


class SummaryCollector(Callback):
    """Not there: MindSpore's collects for MindInsight, which minispore has no part of."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError("SummaryCollector isn't there, since its files are for MindInsight. Use History for losses and "
                                  "metrics, LossMonitor and TimeMonitor for lines, Model.train(…, verbose=1) for progress, or "
                                  "LambdaCallback to collect what you need")
