"""Callbacks: code of the user's that Model calls at fixed moments, and how ranks agree to stop.

Training on several ranks may only end on all of them after the same step. So where a callback may ask to stop, Model
asks all ranks (an AllReduce of one number): after each step, or after each epoch if only its epoch's end asks. Nothing
is exchanged where no callback may.
"""
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType

import numpy as np

from minispore.common.tensor import Tensor

EPOCH_ENDS = ("on_train_epoch_end", "epoch_end")
NEVER, AT_EPOCHS, AT_STEPS = 0, 1, 2        # when a callback may ask to stop
OLD_NAMES = ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end")


class Arguments(dict):
    """What a callback knows of a run, by key or as attributes: `args.cur_step_num`, `args["cur_step_num"]`, `args.get(…)`."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the run has no {name!r}; it has {sorted(self)}") from None

    __setattr__ = dict.__setitem__


class RunContext:
    """What a callback is given (MindSpore: `train.RunContext`).

    original_args() has epoch_num, batch_num (steps an epoch), cur_epoch_num and cur_step_num (from 1; steps count through
    all epochs), net_outputs, train_network, network, optimizer, loss_fn, train_dataset, valid_dataset, list_callback,
    mode ("train" or "eval"), parallel_mode, device_number, train_dataset_element, and in the end of an epoch of Model.fit
    metrics and eval_results.
    """

    def __init__(self, original_args: dict):
        if not isinstance(original_args, dict):
            raise TypeError(f"RunContext: original_args is a {type(original_args).__name__}; it must be a dict")
        self._args, self._stop = original_args, False
        self.refusal = ""           # why a stop can't be asked for just now

    def original_args(self) -> Arguments:
        return self._args

    def request_stop(self) -> None:
        """End training after this step, or this epoch where it is asked for at its end; on all ranks, if one of them asks.

        RuntimeError on several ranks if Model couldn't know before that this callback asks (see `Callback.may_stop`).
        """
        if self.refusal:
            raise RuntimeError(self.refusal)
        self._stop = True

    def get_stop_requested(self) -> bool:
        return self._stop


class Callback:
    """Base: override what you need (MindSpore: `train.Callback`). A callback is a context that Model enters and leaves.

    The moments are on_train_begin, on_train_epoch_begin, on_train_step_begin, on_train_step_end, on_train_epoch_end,
    on_train_end and the same with on_eval_. Each calls the moment's older name if it isn't overridden: begin,
    epoch_begin, step_begin, step_end, epoch_end, end, both in training and in evaluation.

    may_stop: whether the callback may call `run_context.request_stop()`. None: it may if its methods do so by name.

    >>> class Count(Callback):
    ...     steps = 0
    ...     def on_train_step_end(self, run_context):
    ...         self.steps += 1
    """

    may_stop: bool | None = None
    together = False            # whether it communicates, so that all ranks must have it

    def __enter__(self):
        return self

    def __exit__(self, *error): ...

    def begin(self, run_context): ...
    def epoch_begin(self, run_context): ...
    def step_begin(self, run_context): ...
    def step_end(self, run_context): ...
    def epoch_end(self, run_context): ...
    def end(self, run_context): ...

    def on_train_begin(self, run_context): self.begin(run_context)
    def on_train_epoch_begin(self, run_context): self.epoch_begin(run_context)
    def on_train_step_begin(self, run_context): self.step_begin(run_context)
    def on_train_step_end(self, run_context): self.step_end(run_context)
    def on_train_epoch_end(self, run_context): self.epoch_end(run_context)
    def on_train_end(self, run_context): self.end(run_context)
    def on_eval_begin(self, run_context): self.begin(run_context)
    def on_eval_epoch_begin(self, run_context): self.epoch_begin(run_context)
    def on_eval_step_begin(self, run_context): self.step_begin(run_context)
    def on_eval_step_end(self, run_context): self.step_end(run_context)
    def on_eval_epoch_end(self, run_context): self.epoch_end(run_context)
    def on_eval_end(self, run_context): self.end(run_context)


def as_list(callbacks) -> list[Callback]:
    """One callback or several, as a list."""
    items = [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    for c in items:
        if isinstance(c, type) and issubclass(c, Callback):
            raise TypeError(f"callback {c.__name__} is a class; give an object of it: {c.__name__}(…)")
        if not isinstance(c, Callback):
            raise TypeError(f"callback {c!r} is a {type(c).__name__}; it must be a train.Callback object, e.g. LossMonitor(), "
                            "or LambdaCallback(on_train_step_end=…) for a function")
    return items


def refuse_old_names(callbacks: list[Callback]) -> None:
    """In fit, which trains and evaluates, the old names can't tell the two apart; MindSpore refuses them, too."""
    for c in callbacks:
        old = [name for name in OLD_NAMES if not _owner(type(c), name).__module__.startswith("minispore.")]
        if old:
            raise ValueError(f"Model.fit: callback {type(c).__name__} overrides {', '.join(old)}, which would be called in "
                             "training and in evaluation; name them on_train_… or on_eval_…")


def _owner(cls: type, name: str) -> type:
    """The class that a method comes from."""
    return next(c for c in cls.__mro__ if name in vars(c))


@contextmanager
def entered(callbacks: list[Callback]):
    """The callbacks as contexts; what their __enter__ returns, if that is a Callback, takes their place."""
    with ExitStack() as stack:
        targets = [(c, stack.enter_context(c)) for c in callbacks]
        yield [t if isinstance(t, Callback) else c for c, t in targets]


def notify(callbacks, moment: str, run_context) -> None:
    """Tell every callback."""
    for c in callbacks:
        getattr(c, moment)(run_context)


def first_loss(outputs) -> float:
    """The loss in what a step returns: its first element if there are several, the mean if there is one a row."""
    while isinstance(outputs, (tuple, list)) and outputs:
        outputs = outputs[0]
    return float(np.mean(outputs._data() if isinstance(outputs, Tensor) else outputs))


# ---- stopping together ---------------------------------------------------------------------------------

def when_it_may_stop(callback: Callback) -> int:
    """NEVER, AT_EPOCHS (at their end only) or AT_STEPS."""
    if callback.may_stop is not None:
        return AT_STEPS if callback.may_stop else NEVER
    owners = [callback, *(cls for cls in type(callback).__mro__ if cls not in (Callback, object))]
    asking = {name for owner in owners for name, f in vars(owner).items() if _names_it(getattr(f, "__func__", f))}
    return AT_STEPS if asking - set(EPOCH_ENDS) else AT_EPOCHS if asking else NEVER


def _names_it(x) -> bool:
    """Whether a function, or one inside it, calls something named request_stop."""
    code = x.__code__ if isinstance(x, FunctionType) else x
    return isinstance(code, CodeType) and ("request_stop" in code.co_names or any(map(_names_it, code.co_consts)))


class Agreement:
    """Whether to stop, asked of all ranks of `world` (None: there is this one alone)."""

    def __init__(self, context: RunContext, world, level: int):
        self.context, self.world, self.level = context, world, level
        self.within(AT_STEPS)

    def within(self, moment: int) -> None:
        """From here on, stops are asked for in a step, or at an epoch's end."""
        silent = self.world is not None and self.level < moment
        self.context.refusal = "" if not silent else (
            f"request_stop() on rank {self.world.rank} of {self.world.size}: Model didn't know that this callback may ask to "
            f"stop {'in a step' if moment == AT_STEPS else 'an epoch'}, so the other ranks would go on and wait for this one. "
            "Write may_stop = True in the callback's class; Model then asks all ranks")

    def stop(self, moment: int) -> bool:
        """Whether any rank has asked to stop. Every rank asks at the same moments."""
        if self.world is not None and self.level >= moment:
            flag = np.array([self.context._stop], np.int32)
            self.context._stop = bool(self.world.all_reduce(flag, "max", name="stop").wait()[0])
        return self.context._stop
