"""Callbacks that act on what they see: end training, lower the learning rate, load the best weights again."""
import math

import numpy as np

from minispore.common.errors import warn
from minispore.common.parameter import Parameter
from minispore.common.state import LOCAL_MODES, current
from minispore.communication.management import communicator, get_rank
from minispore.train.callback.callback import Callback, first_loss

SMALLER_IS_BETTER = {"loss", "eval_loss", "mae", "mse", "perplexity", "hausdorff_distance", "mean_surface_distance",
                     "root_mean_square_distance"}


class _Watcher(Callback):
    """Watches one value an epoch, the same on all ranks (the mean of theirs), for whether it gets better.

    Args:
        monitor: "loss" (of the epoch's last step), "eval_loss" or the name of a metric; the latter two need Model.fit with
            a valid_dataset.
        min_delta: by how much a value must be better. mode: "min", "max", or "auto": by the monitor's name.
    """

    together = True

    def __init__(self, monitor, min_delta, patience, verbose, mode):
        name = type(self).__name__
        if not isinstance(monitor, str):
            raise TypeError(f"{name}: monitor {monitor!r} must be a string, e.g. 'eval_loss'")
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"{name}: mode {mode!r} must be 'auto', 'min' or 'max'")
        if not isinstance(patience, int) or isinstance(patience, bool) or patience < 0:
            raise ValueError(f"{name}: patience {patience!r} must be a whole number of epochs ≥ 0")
        if not isinstance(min_delta, (int, float)):
            raise TypeError(f"{name}: min_delta {min_delta!r} must be a number")
        self.monitor, self.min_delta, self.patience, self.verbose = monitor, abs(min_delta), patience, bool(verbose)
        self.sign = -1 if mode == "min" or (mode == "auto" and monitor in SMALLER_IS_BETTER) else 1
        self.wait, self.best = 0, -self.sign * math.inf

    def on_train_begin(self, run_context):
        self.wait, self.best = 0, -self.sign * math.inf

    def better(self, value: float, than: float) -> bool:
        return self.sign * (value - than) > self.min_delta

    def value(self, args) -> float | None:
        """The monitored value after this epoch; None where there is none. All ranks ask at the same time."""
        value = self._own_value(args)
        if current().parallel["parallel_mode"] not in LOCAL_MODES or communicator().size == 1:
            return value
        total, count = communicator().all_reduce(np.array([0.0 if value is None else value, value is not None])).wait()
        return total / count if count else None

    def _own_value(self, args):
        name, results = type(self).__name__, args.get("eval_results")
        if self.monitor == "loss":
            return first_loss(args.net_outputs)
        if results is None and args.get("valid_dataset") is not None:
            return None                 # fit evaluates, but not after this epoch
        if results is None or self.monitor not in results:
            warn(f"{name} watches {self.monitor!r}, which isn't there after epoch {args.cur_epoch_num}; there are: "
                 f"{', '.join(['loss', *(results or {})])}. eval_loss and metrics need Model.fit with a valid_dataset")
            return None
        if np.size(results[self.monitor]) != 1:
            raise ValueError(f"{name}: {self.monitor!r} is an array of shape {np.shape(results[self.monitor])}; only a single "
                             "number can be watched")
        return float(np.reshape(results[self.monitor], ()))

    def say(self, text: str) -> None:
        if self.verbose and get_rank() == 0:
            print(text, flush=True)


class EarlyStopping(_Watcher):
    """Ends training when a value hasn't got better for `patience` epochs (MindSpore: `train.EarlyStopping`).

    Args:
        monitor: "loss", "eval_loss" or a metric's name; all but "loss" need Model.fit with a valid_dataset.
        min_delta: what is better by no more than this isn't better.
        patience: epochs without a better value that are endured; with 0 and 1 the first one ends training.
        mode: "min", "max", or "auto" by the monitor's name.
        baseline: a value that must be passed as well for the waiting to begin anew.
        restore_best_weights: when it stops, load the state (weights and optimizer) of the best epoch again.

    On several ranks it is the mean of their values, so all stop after the same epoch.
    """

    def __init__(self, monitor="eval_loss", min_delta=0, patience=0, verbose=False, mode="auto", baseline=None,
                 restore_best_weights=False):
        super().__init__(monitor, min_delta, patience, verbose, mode)
        if baseline is not None and not isinstance(baseline, (int, float)):
            raise TypeError(f"EarlyStopping: baseline {baseline!r} must be a number or None")
        self.baseline, self.restore_best_weights = baseline, restore_best_weights
        self.stopped_epoch, self.best_state = 0, None

    def on_train_begin(self, run_context):
        super().on_train_begin(run_context)
        self.stopped_epoch, self.best_state = 0, None

    def on_train_epoch_end(self, run_context):
        args = run_context.original_args()
        value = self.value(args)
        if value is None:
            return
        self.wait += 1
        improved = self.better(value, self.best)
        if self.restore_best_weights and (improved or self.best_state is None):
            self.best_state = [(p, p.asnumpy()) for p in args.train_network.get_parameters()]
        if improved:
            self.best = value
            if self.baseline is None or self.better(value, self.baseline):
                self.wait = 0
        if self.wait and self.wait >= self.patience:
            self.stopped_epoch = args.cur_epoch_num
            run_context.request_stop()
            if self.restore_best_weights:
                self.say("Restoring model weights from the end of the best epoch.")
                for p, array in self.best_state:
                    p.set_data(array)

    def on_train_end(self, run_context):
        if self.stopped_epoch:
            self.say(f"Epoch {self.stopped_epoch:05d}: early stopping")


class ReduceLROnPlateau(_Watcher):
    """Lowers the learning rate when a value hasn't got better for `patience` epochs (MindSpore: `train.ReduceLROnPlateau`).

    Args:
        factor: what the rate is multiplied by, 0 < factor < 1. min_lr: it doesn't fall below.
        cooldown: epochs after a reduction that aren't judged. The others are EarlyStopping's.

    The optimizer's rate must be one number, not a schedule or one a group (ValueError).
    """

    def __init__(self, monitor="eval_loss", factor=0.1, patience=10, verbose=False, mode="auto", min_delta=1e-4, cooldown=0,
                 min_lr=0):
        super().__init__(monitor, min_delta, patience, verbose, mode)
        if not isinstance(factor, float) or not 0 < factor < 1:
            raise ValueError(f"ReduceLROnPlateau: factor {factor!r} must be a number between 0 and 1")
        if not isinstance(cooldown, int) or isinstance(cooldown, bool) or cooldown < 0:
            raise ValueError(f"ReduceLROnPlateau: cooldown {cooldown!r} must be a whole number of epochs ≥ 0")
        self.factor, self.cooldown, self.min_lr, self.pause = factor, cooldown, min_lr, 0

    def on_train_begin(self, run_context):
        super().on_train_begin(run_context)
        self.pause = 0

    def on_train_epoch_end(self, run_context):
        args = run_context.original_args()
        rate, value = single_rate("ReduceLROnPlateau", args.optimizer), self.value(args)
        if value is None:
            return
        if self.pause:
            self.pause -= 1
            self.wait = 0
        if self.better(value, self.best):
            self.best, self.wait = value, 0
        elif not self.pause:
            self.wait += 1
            if self.wait >= self.patience:
                self.wait, self.pause = 0, self.cooldown
                if float(rate) > self.min_lr:
                    rate.set_data(np.array(max(float(rate) * self.factor, self.min_lr), rate.dtype))
                    self.say(f"Epoch {args.cur_epoch_num:05d}: ReduceLROnPlateau reducing learning rate to {float(rate):.6g}.")


class LearningRateScheduler(Callback):
    """Sets the learning rate after each step to function(rate, step) (MindSpore: `train.LearningRateScheduler`).

    learning_rate_function: of the present rate and cur_step_num; returns the next step's rate.
    """

    def __init__(self, learning_rate_function):
        if not callable(learning_rate_function):
            raise TypeError(f"LearningRateScheduler: {learning_rate_function!r} is no function; give one of (rate, step)")
        self.learning_rate_function = learning_rate_function

    def on_train_step_end(self, run_context):
        args = run_context.original_args()
        rate = single_rate("LearningRateScheduler", args.optimizer)
        now = float(str(rate._data()))              # 0.1 for float32's 0.10000000149, as in MindSpore
        given = self.learning_rate_function(now, args.cur_step_num)
        try:
            new = float(given)
        except (TypeError, ValueError):
            raise TypeError(f"LearningRateScheduler: the function returned {given!r:.60} for rate {now} and step "
                            f"{args.cur_step_num}; it must return a number") from None
        if not math.isclose(now, new, rel_tol=1e-10):
            rate.set_data(np.array(new, rate.dtype))


def single_rate(name: str, optimizer) -> Parameter:
    """The optimizer's learning rate, if it is one number."""
    rate = optimizer.learning_rate
    groups = {id(r) for r in getattr(optimizer, "rates", [rate])}
    if not isinstance(rate, Parameter) or rate.ndim or len(groups) > 1:
        raise ValueError(f"{name}: the optimizer's learning rate is a schedule or differs between groups; give it one number, or "
                         "leave the callback out")
    return rate
