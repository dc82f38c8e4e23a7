"""What Model asks of its arguments, and says when they aren't so."""
from collections.abc import Iterator
from inspect import Parameter, signature

from minispore.common.errors import warn
from minispore.communication.management import get_rank
from minispore.context import get_context
from minispore.dataset.core import Dataset


def natural(what: str, value, least: int) -> None:
    """ValueError unless it is a whole number ≥ least."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{what}={value!r} must be a whole number ≥ {least}")


def check_sink(name: str, sink_size=-1, **modes) -> None:
    """dataset_sink_mode and its relatives: of the right kind; what they do in MindSpore is always done."""
    for what, value in modes.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name}: {what} {value!r} must be True or False")
    if not isinstance(sink_size, int) or isinstance(sink_size, bool) or sink_size < -1 or sink_size == 0:
        raise ValueError(f"{name}: sink_size {sink_size!r} must be -1 or a whole number ≥ 1")
    if modes["dataset_sink_mode"] and sink_size != -1:
        warn(f"{name}: sink_size={sink_size} is left out of account, an epoch is one pass over the dataset (as in MindSpore on "
             "CPU); for shorter ones use dataset.take(…)")


def check_valid_frequency(value) -> None:
    items = value if isinstance(value, list) else [value]
    if any(not isinstance(v, int) or isinstance(v, bool) or v < 1 for v in items):
        raise TypeError(f"Model.fit: valid_frequency {value!r} must be a whole number ≥ 1, or a list of epochs' numbers, which "
                        "begin with 1")


def check_dataset(what: str, dataset, world=None) -> None:
    """Is it one, and not empty? Of the ranks of `world`, where it is given, some may have none of its rows."""
    if not isinstance(dataset, Dataset):
        raise TypeError(f"{what} is a {type(dataset).__name__}; it must be a dataset, e.g. "
                        "ds.NumpySlicesDataset((images, labels), ['image', 'label']).batch(32)")
    if not world and not dataset.get_dataset_size():
        raise ValueError(f"{what} has no batch; check the files, the filters and drop_remainder of batch()")


CALLS = "Model.train", "Model.fit", "Model.eval"        # those in which ranks work together


def check_equal_calls(calls) -> None:
    """RuntimeError unless all ranks have come to the same call; `calls` are the places in CALLS."""
    if any(c != calls[0] for c in calls):
        listed = ", ".join(f"rank {r} is in {CALLS[c]}" for r, c in enumerate(calls))
        raise RuntimeError(f"Model: {listed}. In data_parallel and hybrid_parallel all ranks must make the same calls in one "
                           "order; print or save on one rank alone, but train and evaluate on all")


def check_equal_steps(name: str, counts) -> None:
    """RuntimeError unless all ranks, of which `counts` are the numbers of steps, make the same."""
    if any(n != counts[0] for n in counts):
        listed = ", ".join(f"rank {r}: {n}" for r, n in enumerate(counts))
        raise RuntimeError(f"{name}: the ranks have different numbers of steps an epoch ({listed}), so some would wait for "
                           "others that never come. Give the dataset num_shards=get_group_size() and shard_id=get_rank() on "
                           "every rank, and the same batch size")


def counted(batches: Iterator, steps: int, epoch: int, world) -> Iterator:
    """The batches of an epoch. RuntimeError where they are more or fewer than `steps`: ranks would wait for each other, or add
    up gradients of different steps. Where this rank trains alone (world: None), a warning; but none at all is an error, too.
    """
    made = 0
    for made, batch in enumerate(batches, 1):
        if made > steps and world:
            break
        yield batch
    if made == steps:
        return
    number = f"more than {steps}" if made > steps and world else made
    text = (f"Model.train: the dataset gave {number} batches in epoch {epoch} on rank {get_rank()}, but get_dataset_size() says "
            f"{steps}: an iterable's __len__ is wrong, its __iter__ doesn't begin anew, or a filter leaves another number in "
            "each epoch")
    if world or not made:
        raise RuntimeError(text)
    warn(text)


def check_columns(name: str, dataset, network, last: str) -> None:
    """Do the dataset's columns fit construct? last: what the last column is for, "loss", "label" or "" (the network)."""
    columns = dataset.get_col_names()
    inputs = columns[:-1] if last else columns
    try:
        takes = signature(network.construct)
    except (TypeError, ValueError):
        return
    fits = len(columns) == 2 if last == "loss" else True
    try:
        takes.bind(*inputs)
    except TypeError:
        fits = False
    if not fits:
        wanted = ", ".join(p.name if p.kind != Parameter.VAR_POSITIONAL else f"*{p.name}" for p in takes.parameters.values())
        rule = {"loss": "With a loss_fn it must give two, the network's data and the label",
                "label": "The last one is the label, the others go to the network",
                "": "All of them go to the network"}[last]
        more = "; if the network doesn't compute the loss itself, give Model a loss_fn" if not last else ""
        raise ValueError(f"{name}: the dataset gives {len(columns)} columns ({', '.join(columns)}). {rule}, "
                         f"{type(network).__name__}.construct({wanted}). Choose them with dataset.project([…]){more}")


def amp_level_of(level, optimizer) -> str:
    """"O0", "O2" or "O3"."""
    if level not in ("O0", "O2", "O3", "auto"):
        raise ValueError(f"Model: amp_level {level!r} must be 'O0', 'O2', 'O3' or 'auto'")
    if level == "O0":
        return level
    if optimizer is None:
        raise ValueError(f"Model: amp_level={level!r} needs an optimizer; give one, or amp_level='O0'")
    if level != "auto":
        return level
    target = get_context("device_target")
    if target not in ("GPU", "Ascend"):
        raise ValueError(f"Model: amp_level='auto' is O2 on GPU and O3 on Ascend, but device_target is {target!r}; say 'O2' or "
                         "'O3'")
    return {"GPU": "O2", "Ascend": "O3"}[target]
