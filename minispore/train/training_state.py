"""A training's whole state in one file, so that a run that was killed goes on bitwise as if it hadn't been.

That is: all parameters of the training cell (the optimizer's states, its step count and the loss scale are parameters) and
its buffers, the position in the data (epoch, step of the epoch; a dataset gives the same rows for the same epoch number),
and where the random numbers stand. Parameters are ordinary entries of the file, which MindSpore reads too; position and
random numbers are in the note.
"""
from dataclasses import dataclass, field

from minispore.common import random
from minispore.common.errors import warn
from minispore.common.parameter import Parameter
from minispore.communication import selection
from minispore.nn.cell import Cell
from minispore.train.files import naming, read_entries, some
from minispore.train.pieces import tensors, to_entries
from minispore.train.serialization import appended, assign_all, save_entries


@dataclass(frozen=True)
class TrainingState:
    """Where a training stands: `epoch` epochs and `step` steps of the next one are done."""

    epoch: int
    step: int
    random: dict = field(default_factory=random.get_state)
    within_step: bool = False       # saved because of an exception in the step after these: that may be half done


def save_training_state(ckpt_file_name, network, optimizer=None, epoch=0, step=0, append_dict=None, async_save=False,
                        format="ckpt", integrated_save=True) -> None:
    """Save all that is needed to go on with a training.

    Args:
        network: the training cell, e.g. TrainOneStepCell, or a network with its optimizer beside it.
        optimizer: if the network doesn't contain it.
        epoch: epochs that are done, step: steps done of the one under way.
        append_dict, async_save, format, integrated_save: as in save_checkpoint.

    >>> import tempfile
    >>> from minispore import nn
    >>> net = nn.Dense(2, 1)
    >>> optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    >>> name = tempfile.mkdtemp() + "/run.ckpt"
    >>> save_training_state(name, net, optimizer, epoch=3, step=17)
    >>> state = load_training_state(name, net, optimizer)
    >>> state.epoch, state.step
    (3, 17)
    """
    for what, value in (("epoch", epoch), ("step", step)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"save_training_state: {what}={value!r} must be a whole number ≥ 0")
    write_state(ckpt_file_name, (network, optimizer), TrainingState(epoch, step), append_dict, async_save=async_save,
                format=format, integrated_save=integrated_save)


def write_state(ckpt_file_name, cells: tuple, state: TrainingState, append_dict=None, integrated_save=True, **options) -> str:
    """Save cells' parameters with a TrainingState; returns the file's name."""
    more = appended(append_dict)
    entries, slices = to_entries([*kept("save_training_state", cells).items(), *more], integrated_save)
    note = {"state": vars(state), "appended": [name for name, _ in more], **slices}
    return save_entries(entries, ckpt_file_name, note, **options)


def load_training_state(ckpt_file_name, network, optimizer=None) -> TrainingState:
    """Set parameters and random numbers as they were; returns the TrainingState with `epoch` and `step` to go on from:

        state = load_training_state(train.latest_checkpoint("ckpt"), model.train_network)
        model.train(10, data, initial_epoch=state.epoch, initial_step=state.step)

    The network must have exactly the parameters that were saved, with their shapes and dtypes. RuntimeError tells what
    doesn't fit, ValueError that the file is damaged or has no training state; nothing has been changed then.
    """
    entries, note, file = read_entries(ckpt_file_name)
    try:
        state = TrainingState(**note["state"])
    except (KeyError, TypeError):
        raise ValueError(f"load_training_state: {file} has parameters only, no training state; load_checkpoint and "
                         "load_param_into_net load those. ModelCheckpoint and save_training_state save the state") from None
    left_out = set(note.get("appended", ()))
    with naming(file):
        values, origin = tensors(entries, note, file)
    values = {name: value for name, value in values if name not in left_out}
    wanted = kept("load_training_state", (network, optimizer))
    for missing, here, there in ((sorted(wanted.keys() - values.keys()), "the network", file),
                                 (sorted(values.keys() - wanted.keys()), file, "the network")):
        if missing:
            raise RuntimeError(f"load_training_state: {len(missing)} parameters of {here} aren't in {there}, so nothing was "
                               f"loaded: {some(missing)}. Build network and optimizer as they were when this was saved, or "
                               "use load_param_into_net for a part of them")
    before = random.get_state()
    random.set_state(state.random)
    try:
        assign_all("load_training_state", origin, [(p, name, values[name]) for name, p in wanted.items()], strict=True)
    except BaseException:
        random.set_state(before)
        raise
    if state.within_step:
        warn(f"load_training_state: {file} was saved because of an exception within a step, so some parameters may be a step "
             "ahead of others; an ordinary checkpoint resumes exactly")
    if note.get("algorithms", now := selection.fingerprint()) != now:
        warn(f"load_training_state: {file} was saved where ranks chose their collective algorithms otherwise (selection "
             f"{note['algorithms']}, here {now}), so sums may round differently from now on; MINISPORE_ALGORITHM, _TABLE and "
             "MINISPORE_NODE_SIZE as they were there resume exactly")
    return state


def kept(who: str, cells: tuple) -> dict[str, Parameter]:
    """What a training changes in these cells, by name: their parameters, and buffers that are part of the state."""
    found: dict[str, Parameter] = {}
    for cell in cells:
        if not isinstance(cell, Cell) and not (cell is None and cell is not cells[0]):
            raise TypeError(f"{who}: {cell!r} is a {type(cell).__name__}; network and optimizer must be Cells")
        for p in cell.get_parameters() if cell is not None else ():
            if found.setdefault(p.name, p) is not p:
                raise ValueError(f"{who}: two parameters are named {p.name!r} (shapes {found[p.name].shape} and {p.shape}), a "
                                 "file keeps one of each name; give Parameter(…, name=…) different names")
    parameters = set(found.values())
    for cell in cells:
        for place, tensor in cell.state_dict(keep_vars=True).items() if cell is not None else ():
            if tensor not in parameters:
                found[f"buffer.{place}"] = tensor
    return found
