"""Learning rates as lists, one number a step, for an optimizer's learning_rate (MindSpore: `mindspore.nn.dynamic_lr`).

They change once an epoch: step i belongs to epoch ⌊i / step_per_epoch⌋, called e below.
"""
from math import ceil, cos, exp, pi
from numbers import Real

__all__ = ["cosine_decay_lr", "exponential_decay_lr", "inverse_decay_lr", "natural_exp_decay_lr", "piecewise_constant_lr",
           "polynomial_decay_lr", "warmup_lr"]


def piecewise_constant_lr(milestone, learning_rates) -> list[float]:
    """learning_rates[t] until step milestone[t]; as many values as the last milestone says.

    >>> piecewise_constant_lr([2, 5], [0.1, 0.05])
    [0.1, 0.1, 0.05, 0.05, 0.05]
    """
    milestone, learning_rates = list(milestone), list(learning_rates)
    if len(milestone) != len(learning_rates):
        raise ValueError(f"piecewise_constant_lr: {len(milestone)} milestones but {len(learning_rates)} learning rates; give "
                         "one rate for each milestone")
    check("piecewise_constant_lr", whole={f"milestone[{i}]": m for i, m in enumerate(milestone)},
          not_negative={f"learning_rates[{i}]": r for i, r in enumerate(learning_rates)})
    rates: list[float] = []
    for i, (end, rate) in enumerate(zip(milestone, learning_rates, strict=True)):
        if end < len(rates):
            raise ValueError(f"piecewise_constant_lr: milestone[{i}] = {end} comes before milestone[{i - 1}] = {len(rates)}; "
                             "list them in rising order")
        rates += [rate] * (end - len(rates))
    return rates


def exponential_decay_lr(learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False) -> list[float]:
    """learning_rate · decay_rate^(e / decay_epoch), the exponent rounded down if is_stair.

    >>> exponential_decay_lr(0.1, 0.5, 4, 2, 1)
    [0.1, 0.1, 0.05, 0.05]
    """
    _check_decay("exponential_decay_lr", learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair)
    return [learning_rate * decay_rate ** (e // decay_epoch if is_stair else e / decay_epoch)
            for e in _epochs(total_step, step_per_epoch)]


def natural_exp_decay_lr(learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False) -> list[float]:
    """learning_rate · exp(-decay_rate · e); is_stair: of e rounded down to a multiple of decay_epoch.

    >>> [round(rate, 4) for rate in natural_exp_decay_lr(0.1, 0.9, 4, 2, 2)]
    [0.1, 0.1, 0.0407, 0.0407]
    """
    _check_decay("natural_exp_decay_lr", learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair)
    return [learning_rate * exp(-decay_rate * (e // decay_epoch * decay_epoch if is_stair else e))
            for e in _epochs(total_step, step_per_epoch)]


def inverse_decay_lr(learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False) -> list[float]:
    """learning_rate / (1 + decay_rate · e / decay_epoch), the quotient rounded down if is_stair.

    >>> inverse_decay_lr(0.1, 1.0, 3, 1, 1)
    [0.1, 0.05, 0.03333333333333333]
    """
    _check_decay("inverse_decay_lr", learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair)
    return [learning_rate / (1 + decay_rate * (e // decay_epoch if is_stair else e / decay_epoch))
            for e in _epochs(total_step, step_per_epoch)]


def cosine_decay_lr(min_lr, max_lr, total_step, step_per_epoch, decay_epoch) -> list[float]:
    """min_lr + (max_lr - min_lr)/2 · (1 + cos(π · min(e, decay_epoch) / decay_epoch)).

    >>> [round(rate, 4) for rate in cosine_decay_lr(0.01, 0.1, 6, 2, 2)]
    [0.1, 0.1, 0.055, 0.055, 0.01, 0.01]
    """
    check("cosine_decay_lr", positive={"max_lr": max_lr}, not_negative={"min_lr": min_lr},
          whole={"total_step": total_step, "step_per_epoch": step_per_epoch, "decay_epoch": decay_epoch})
    if min_lr >= max_lr:
        raise ValueError(f"cosine_decay_lr: max_lr {max_lr} must be greater than min_lr {min_lr}")
    return [min_lr + 0.5 * (max_lr - min_lr) * (1 + cos(pi * min(e, decay_epoch) / decay_epoch))
            for e in _epochs(total_step, step_per_epoch)]


def polynomial_decay_lr(learning_rate, end_learning_rate, total_step, step_per_epoch, decay_epoch, power,
                        update_decay_epoch=False) -> list[float]:
    """(learning_rate - end_learning_rate) · (1 - min(e, n)/n)^power + end_learning_rate with n = decay_epoch.

    update_decay_epoch: n = decay_epoch · ceil(e / decay_epoch), so that the decay begins anew at a lower height.

    >>> [round(rate, 4) for rate in polynomial_decay_lr(0.1, 0.01, 6, 2, 2, 0.5)]
    [0.1, 0.1, 0.0736, 0.0736, 0.01, 0.01]
    """
    check("polynomial_decay_lr", positive={"learning_rate": learning_rate, "power": power},
          not_negative={"end_learning_rate": end_learning_rate}, flags={"update_decay_epoch": update_decay_epoch},
          whole={"total_step": total_step, "step_per_epoch": step_per_epoch, "decay_epoch": decay_epoch})
    rates = []
    for e in _epochs(total_step, step_per_epoch):
        n = decay_epoch * max(ceil(e / decay_epoch), 1) if update_decay_epoch else decay_epoch
        rates.append((learning_rate - end_learning_rate) * (1 - min(e, n) / n) ** power + end_learning_rate)
    return rates


def warmup_lr(learning_rate, total_step, step_per_epoch, warmup_epoch) -> list[float]:
    """learning_rate · min(e, warmup_epoch) / warmup_epoch.

    >>> warmup_lr(0.1, 6, 2, 2)
    [0.0, 0.0, 0.05, 0.05, 0.1, 0.1]
    """
    check("warmup_lr", not_negative={"learning_rate": learning_rate},
          whole={"total_step": total_step, "step_per_epoch": step_per_epoch, "warmup_epoch": warmup_epoch})
    return [learning_rate * min(e, warmup_epoch) / warmup_epoch for e in _epochs(total_step, step_per_epoch)]


def _epochs(total_step, step_per_epoch) -> list[int]:
    """The epoch of each step."""
    return [i // step_per_epoch for i in range(total_step)]


def _check_decay(name, learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair):
    check(name, positive={"learning_rate": learning_rate, "decay_rate": decay_rate}, flags={"is_stair": is_stair},
          whole={"total_step": total_step, "step_per_epoch": step_per_epoch, "decay_epoch": decay_epoch})


def check(name: str, positive=(), not_negative=(), whole=(), flags=()) -> None:
    """Arguments by name, each in the kind it must be of; a ValueError or TypeError names the one that isn't."""
    kinds = [(positive, Real, lambda x: 0 < x < float("inf"), "a number > 0"),
             (not_negative, Real, lambda x: 0 <= x < float("inf"), "a number ≥ 0"),
             (whole, int, lambda x: x > 0, "a whole number ≥ 1"), (flags, bool, lambda x: True, "True or False")]
    for given, kind, good, wanted in kinds:
        for argument, value in dict(given).items():
            right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            if not right or not good(value):
                raise (ValueError if right else TypeError)(f"{name}: {argument}={value!r} must be {wanted}")
