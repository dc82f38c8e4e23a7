"""ModelCheckpoint saves while Model trains, CheckpointConfig says when and what."""
import os
from contextlib import suppress
from time import monotonic

import numpy as np

from minispore.common.state import LOGICAL_MODES, current
from minispore.common.tensor import Tensor
from minispore.communication.management import get_group_size, get_rank
from minispore.nn.cell import Cell
from minispore.train.atomic import claim, give_up, make_folder
from minispore.train.background import wait_for_async_save
from minispore.train.callback import Callback
from minispore.train.files import FORMATS, free_prefix
from minispore.train.pieces import take_part
from minispore.train.serialization import appended, save_checkpoint
from minispore.train.training_state import TrainingState, kept, write_state


class CheckpointConfig:
    """When ModelCheckpoint saves, what, and which files it keeps (MindSpore: `train.CheckpointConfig`).

    Args:
        save_checkpoint_steps: save after so many steps, again and again; goes before save_checkpoint_seconds.
        save_checkpoint_seconds: save when so many seconds have passed since the last save.
        keep_checkpoint_max: keep the newest so many files of this run; goes before keep_checkpoint_per_n_minutes.
        keep_checkpoint_per_n_minutes: of every n minutes keep the last file. Neither: keep the newest alone.
        integrated_save: in semi_auto_parallel and auto_parallel mode, True: save whole tensors, gathered from the ranks; False:
            each rank saves its pieces, see save_checkpoint.
        enc_mode, remove_redundancy: accepted as in MindSpore.
        async_save, crc_check, format: as in save_checkpoint.
        saved_network: a Cell to save instead of the training cell; such files have no training state.
        append_info: what to save beside the parameters: "epoch_num", "step_num" (of all epochs), "lr", and a dict
            {name: value}; numbers in it under the first two names are added to them.
        enc_key: None; minispore doesn't encrypt.
        exception_save: save when training ends by an exception, as "{prefix}-{epoch}_{step}_breakpoint.ckpt".

    >>> CheckpointConfig(save_checkpoint_steps=100, keep_checkpoint_max=3).save_checkpoint_seconds is None
    True
    """

    def __init__(self, save_checkpoint_steps=1, save_checkpoint_seconds=0, keep_checkpoint_max=5,
                 keep_checkpoint_per_n_minutes=0, integrated_save=True, async_save=False, saved_network=None,
                 append_info=None, enc_key=None, enc_mode="AES-GCM", exception_save=False, crc_check=False,
                 remove_redundancy=False, format="ckpt", **kwargs):
        counts = {"save_checkpoint_steps": save_checkpoint_steps, "save_checkpoint_seconds": save_checkpoint_seconds,
                  "keep_checkpoint_max": keep_checkpoint_max, "keep_checkpoint_per_n_minutes": keep_checkpoint_per_n_minutes}
        for name, value in counts.items():
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ValueError(f"CheckpointConfig: {name}={value!r} must be a whole number ≥ 0, or None")
        if not any(counts.values()):
            raise ValueError(f"CheckpointConfig: one of {list(counts)} must be more than 0, or nothing would be saved")
        if saved_network is not None and not isinstance(saved_network, Cell):
            raise TypeError(f"CheckpointConfig: saved_network is a {type(saved_network).__name__}; it must be an nn.Cell")
        if enc_key is not None:
            raise ValueError("CheckpointConfig: enc_key was given, but minispore doesn't encrypt; leave it out")
        if format not in FORMATS:
            raise ValueError(f"CheckpointConfig: format {format!r} is unknown; use one of {FORMATS}")
        if kwargs.keys() - {"incremental", "enable_redundance"} or any(kwargs.values()):
            raise TypeError(f"CheckpointConfig: {kwargs} isn't there in minispore; leave it out")
        self.save_checkpoint_steps = save_checkpoint_steps
        self.save_checkpoint_seconds = None if save_checkpoint_steps else save_checkpoint_seconds
        self.keep_checkpoint_max = keep_checkpoint_max or (0 if keep_checkpoint_per_n_minutes else 1)
        self.keep_checkpoint_per_n_minutes = None if keep_checkpoint_max else keep_checkpoint_per_n_minutes
        self.integrated_save, self.async_save, self.saved_network = integrated_save, bool(async_save), saved_network
        self.enc_key, self.enc_mode, self.remove_redundancy = enc_key, enc_mode, remove_redundancy
        self.exception_save, self.crc_check, self.format = bool(exception_save), bool(crc_check), format
        self.append_dict = _append_info(append_info)

    def get_checkpoint_policy(self) -> dict:
        """When to save and what to keep, by MindSpore's names."""
        names = ("save_checkpoint_steps", "save_checkpoint_seconds", "keep_checkpoint_max", "keep_checkpoint_per_n_minutes",
                 "saved_network")
        return {name: getattr(self, name) for name in names}


class ModelCheckpoint(Callback):
    """Saves the training cell while Model trains, and once more at the end (MindSpore: `train.ModelCheckpoint`).

    The files are `{prefix}-{epoch}_{step}.ckpt`; where such files of another run lie in the directory, the prefix gets a
    `_1`, `_2`, … behind it. Each holds the whole training state: see load_training_state.

    Ranks of one job: in data parallel they have the same parameters, so of ranks with the same directory and prefix one
    writes (rank 0, if it has this callback); a directory of its own for each, as MindSpore asks for, works too. So it is in
    semi_auto_parallel and auto_parallel with integrated_save=True, where every rank must have this callback, since all
    take part in the gathering. Where what ranks save differs, two with one directory and prefix are an error.

    Args:
        prefix: a str without "/", or a function of the callback's arguments that returns one, which is then the whole name.
        directory: made if it isn't there; None: the current one; or a function of the callback's arguments.
        config: a CheckpointConfig.
    """

    def __init__(self, prefix="CKP", directory=None, config=None):
        if not callable(prefix) and (not isinstance(prefix, str) or "/" in prefix or not prefix):
            raise ValueError(f"ModelCheckpoint: prefix {prefix!r} must be a str without '/', or a function that returns one")
        if config is not None and not isinstance(config, CheckpointConfig):
            raise TypeError(f"ModelCheckpoint: config is a {type(config).__name__}; it must be a CheckpointConfig")
        if directory is not None and not callable(directory) and not isinstance(directory, (str, os.PathLike)):
            raise ValueError(f"ModelCheckpoint: directory {directory!r} must be a folder's name, or a function that returns one")
        self.config = config or CheckpointConfig()
        self._prefix, self._directory = prefix, os.getcwd() if directory is None else directory
        if not callable(directory):
            self._directory = os.path.abspath(os.fspath(self._directory))
            make_folder(self._directory)
            if not callable(prefix):
                # On all ranks before any of them saves, so that all find the same
                self._prefix = free_prefix(self._directory, prefix)
        self._files: list[tuple[float, str]] = []       # (when, name) of what this run saved and keeps
        self._latest, self._last_step, self._claim, self._args = "", 0, None, None
        self._writes: dict[str, bool] = {}              # whether this rank writes in a folder
        self._begin = self._last_time = monotonic()

    @property
    def latest_ckpt_file_name(self) -> str:
        """The file saved last; "" before there is one. On a rank that leaves the writing to another: which that one writes,
        perhaps not yet to its end; a Barrier after training waits for it."""
        return self._latest

    # ---- moments of the training ---------------------------------------------------------------------

    def on_train_begin(self, run_context):
        args, every = run_context.original_args(), self.config.save_checkpoint_steps
        self._args, self._done, self._writes = args, args.cur_step_num, {}
        # A resumed run saves at the steps at which the undisturbed one would
        self._last_step = args.cur_step_num // every * every if every else args.cur_step_num
        self._last_time = monotonic()
        # Rank 0 claims the directory now, the others ask after the first step: that one needs rank 0's gradients, so rank 0
        # has begun, and it hasn't ended yet
        if get_rank() == 0 and not callable(self._directory):
            self._is_writer(self._directory)

    def on_train_step_end(self, run_context):
        args = run_context.original_args()
        self._done = args.cur_step_num
        if not callable(self._directory):
            self._is_writer(self._directory)
        if self.config.save_checkpoint_steps:
            due = args.cur_step_num >= self._last_step + self.config.save_checkpoint_steps
        else:
            seconds = self.config.save_checkpoint_seconds
            due = bool(seconds) and agreed(monotonic() - self._last_time >= seconds)
        if due:
            self._save(args)

    def on_train_end(self, run_context):
        args = run_context.original_args()
        try:
            if args.cur_step_num != self._last_step:
                self._save(args)
            wait_for_async_save()
        finally:
            self._give_up()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        """Model leaves its callbacks so, also by an exception."""
        args, self._args = self._args, None
        try:
            if kind and args and args.cur_step_num and self.config.exception_save:
                self._save(args, breakpoint=True)
                wait_for_async_save()
        except Exception as e:              # the error that ended the training is the one to see
            error.add_note(f"ModelCheckpoint(exception_save=True) couldn't save, either: {e}")
        finally:
            self._give_up()

    # ---- saving --------------------------------------------------------------------------------------

    def _save(self, args, breakpoint=False) -> None:
        self._last_step, self._last_time = args.cur_step_num, monotonic()
        folder, name = self._place(args)
        if breakpoint and not callable(self._prefix):
            name += "_breakpoint"
        file = os.path.join(folder, f"{name}.{self.config.format}")
        if self._is_writer(folder):
            make_folder(folder)
            self._write(args, file, breakpoint)
            if not breakpoint:
                self._keep(file)
        elif self.config.integrated_save:
            take_part(self._saved(args).values())
        self._latest = file

    def _saved(self, args) -> dict[str, Tensor]:
        """What is saved, in the order in which it is."""
        if self.config.saved_network is not None:
            return {p.name: p for p in self.config.saved_network.get_parameters()}
        return kept("ModelCheckpoint", (args.train_network,))

    def _place(self, args) -> tuple[str, str]:
        """(folder, file name without suffix) for this step."""
        folder = os.path.abspath(os.fspath(self._directory(args))) if callable(self._directory) else self._directory
        if not callable(self._prefix):
            return folder, f"{self._prefix}-{args.cur_epoch_num}_{_step_in_epoch(args)}"
        name = self._prefix(args)
        if not isinstance(name, str) or "/" in name or not name:
            raise ValueError(f"ModelCheckpoint: prefix(…) returned {name!r}; it must return a str without '/'")
        return folder, name

    def _write(self, args, file: str, breakpoint: bool) -> None:
        config = self.config
        options = {"append_dict": self._append_dict(args), "async_save": config.async_save, "crc_check": config.crc_check,
                   "format": config.format, "integrated_save": config.integrated_save}
        if config.saved_network is not None:
            save_checkpoint(config.saved_network, file, **options)
            return
        done = self._done if breakpoint else args.cur_step_num
        state = TrainingState(*divmod(done, args.batch_num), within_step=done != args.cur_step_num)
        write_state(file, (args.train_network,), state, **options)

    def _append_dict(self, args) -> dict:
        out = dict(self.config.append_dict)
        for name, value in (("epoch_num", args.cur_epoch_num), ("step_num", args.cur_step_num)):
            if name in out:
                out[name] += value
        if "lr" in out and out["lr"] is None:
            optimizer = args.optimizer if args.optimizer is not None else args.train_network.optimizer
            rates = optimizer.get_lr()
            out["lr"] = Tensor([float(r) for r in rates]) if isinstance(rates, (tuple, list)) else rates
        return out

    def _keep(self, file: str) -> None:
        """Note a new file and remove those that needn't be kept. The new one is there first."""
        now, config = monotonic(), self.config
        files = [f for f in self._files if f[1] != file]
        if config.keep_checkpoint_max:
            old = files[:len(files) + 1 - config.keep_checkpoint_max]
        else:
            span = 60 * config.keep_checkpoint_per_n_minutes
            old = [f for f in files[-1:] if (f[0] - self._begin) // span == (now - self._begin) // span]
        if old and config.async_save:
            wait_for_async_save()
        for f in old:
            with suppress(FileNotFoundError):
                os.remove(f[1])
        self._files = [f for f in files if f not in old] + [(now, file)]

    # ---- one writer for each directory and prefix ------------------------------------------------------

    def _is_writer(self, folder: str) -> bool:
        """Whether this rank is the one that writes there. Ranks can't be asked: perhaps not all have this callback."""
        if folder not in self._writes:
            self._writes[folder] = get_group_size() == 1 or self._claimed(folder)
        return self._writes[folder]

    def _claimed(self, folder: str) -> bool:
        self._give_up()
        make_folder(folder)
        path = os.path.join(folder, f".{self._prefix if isinstance(self._prefix, str) else 'checkpoints'}.writer")
        me = f"rank {get_rank()} of process {os.getpid()}"
        handle, holder = claim(path, me)
        if handle is not None:
            self._claim = path, handle
        if holder == me:            # or an earlier training of this rank that ended by an exception
            return True
        mode = current().parallel["parallel_mode"]
        if get_rank() and (mode == "data_parallel" or (mode in LOGICAL_MODES and self.config.integrated_save)):
            return False
        raise RuntimeError(f"ModelCheckpoint: {me}, is to save in {folder} under the prefix of {holder or 'another run'}, so one "
                           "would overwrite the other's files; give each rank, and each run, a directory of its own, e.g. "
                           "directory=f'checkpoints/rank_{get_rank()}'")

    def __del__(self):
        if "_claim" in self.__dict__:
            self._give_up()

    def _give_up(self) -> None:
        if self._claim:
            give_up(*self._claim)
            self._claim = None


def agreed(due: bool) -> bool:
    """Rank 0's answer, where ranks save parts of one checkpoint: by their own clocks they would save different steps."""
    state = current()
    if state.size == 1 or state.parallel["parallel_mode"] not in LOGICAL_MODES:
        return due
    return bool(state.world.broadcast(np.array([due], np.uint8), 0).wait()[0])


def _step_in_epoch(args) -> int:
    return (args.cur_step_num - 1) % args.batch_num + 1


def _append_info(info) -> dict:
    """{name: what is saved, or to which number it is added} of an append_info."""
    out: dict = {}
    if not isinstance(info, (list, tuple, type(None))):
        raise TypeError(f"CheckpointConfig: append_info is a {type(info).__name__}; it must be a list")
    for item in info or ():
        if isinstance(item, dict):
            appended(item)                      # raises if they can't be saved
            out |= item
        elif item in ("epoch_num", "step_num"):
            out.setdefault(item, 0)
        elif item == "lr":
            out.setdefault(item, None)
        else:
            raise ValueError(f"CheckpointConfig: append_info has {item!r}; it takes 'epoch_num', 'step_num', 'lr' and a dict of "
                             "names and values")
    return out
