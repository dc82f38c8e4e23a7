"""Callbacks: code of the user's that Model calls at fixed points of training."""
from time import perf_counter
from types import SimpleNamespace

import numpy as np

from minispore.communication.management import get_rank


class RunContext:
    """What a callback is given: `original_args()` has cur_epoch_num, cur_step_num, batch_num, epoch_num, net_outputs, …"""

    def __init__(self, original_args: SimpleNamespace):
        self._args, self._stop = original_args, False

    def original_args(self) -> SimpleNamespace:
        return self._args

    def request_stop(self) -> None:
        """End training after this step (on all ranks, if all of them ask)."""
        self._stop = True

    def get_stop_requested(self) -> bool:
        return self._stop


class Callback:
    """Base: override what you need (MindSpore: `train.Callback`).

    The names are those of MindSpore: on_train_begin, on_train_epoch_begin, on_train_step_begin, …_end, and on_eval_….
    """

    def on_train_begin(self, run_context): ...
    def on_train_epoch_begin(self, run_context): ...
    def on_train_step_begin(self, run_context): ...
    def on_train_step_end(self, run_context): ...
    def on_train_epoch_end(self, run_context): ...
    def on_train_end(self, run_context): ...
    def on_eval_begin(self, run_context): ...
    def on_eval_end(self, run_context): ...


class LossMonitor(Callback):
    """Prints the loss every `per_print_times` steps, on rank 0; 0: once an epoch."""

    def __init__(self, per_print_times=1):
        if not isinstance(per_print_times, int) or per_print_times < 0:
            raise ValueError(f"LossMonitor: per_print_times {per_print_times!r} must be a whole number ≥ 0")
        self.every = per_print_times

    def on_train_step_end(self, run_context):
        a = run_context.original_args()
        step = (a.cur_step_num - 1) % a.batch_num + 1
        due = step == a.batch_num if not self.every else a.cur_step_num % self.every == 0
        if due and get_rank() == 0:
            print(f"epoch: {a.cur_epoch_num} step: {step}, loss is {float(np.mean(a.net_outputs.asnumpy())):.6g}", flush=True)


class TimeMonitor(Callback):
    """Prints the time of each epoch and step, on rank 0."""

    def __init__(self, data_size=None, data_time=False):
        self.data_size = data_size

    def on_train_epoch_begin(self, run_context):
        self.begin = perf_counter()

    def on_train_epoch_end(self, run_context):
        ms, steps = (perf_counter() - self.begin) * 1e3, self.data_size or run_context.original_args().batch_num
        if get_rank() == 0:
            print(f"Train epoch time: {ms:.3f} ms, per step time: {ms / steps:.3f} ms", flush=True)


def as_list(callbacks) -> list[Callback]:
    """One callback or several, as a list."""
    items = [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    for c in items:
        if not isinstance(c, Callback):
            raise TypeError(f"callback {c!r} is a {type(c).__name__}; it must be a train.Callback object")
    return items


def notify(callbacks, moment: str, run_context) -> None:
    """Tell every callback."""
    for c in callbacks:
        getattr(c, moment)(run_context)
