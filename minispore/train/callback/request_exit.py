"""OnRequestExit: a signal, or a line in a file, ends training in order, with a checkpoint."""
import json
import os
import signal
import threading

import numpy as np

from minispore.common.errors import warn
from minispore.common.state import LOCAL_MODES, current
from minispore.communication.management import communicator, get_rank
from minispore.train.atomic import make_folder
from minispore.train.callback.callback import Callback


class OnRequestExit(Callback):
    """Ends training, or evaluation, after the step in which a signal comes, and saves (MindSpore: `train.OnRequestExit`).

    If one rank gets the signal, all stop after the same step; give the callback to all ranks.

    Args:
        save_ckpt: save the state of the training step (weights and optimizer) in `<directory>/<file_name>_train.ckpt`, in
            an evaluation the network in `…_eval.ckpt`. If that file is there when a run begins, it is loaded. In data
            parallel rank 0 saves; in hybrid parallel, where ranks differ, each one in `…_train_rank<rank>.ckpt`.
        save_mindir: accepted as in MindSpore; minispore writes no MINDIR files.
        config_file: a JSON file; when it says {"GracefulExit": 1}, that is like the signal.
        sig: the signal; the handler it had is put back in the end. Signals reach Python's main thread only, so for ranks
            that are threads there is the config_file.
    """

    together = True

    def __init__(self, save_ckpt=True, save_mindir=True, file_name="Net", directory="./", config_file=None,
                 sig=signal.SIGTERM):
        for name, value, kind in (("save_ckpt", save_ckpt, bool), ("save_mindir", save_mindir, bool),
                                  ("file_name", file_name, str), ("directory", directory, str)):
            if not isinstance(value, kind):
                raise ValueError(f"OnRequestExit: {name} {value!r} must be a {kind.__name__}")
        if config_file is not None and not isinstance(config_file, str):
            raise ValueError(f"OnRequestExit: config_file {config_file!r} must be a path or None")
        if not isinstance(sig, int) or isinstance(sig, bool) or sig in (getattr(signal, "SIGKILL", None),
                                                                        getattr(signal, "SIGSTOP", None)):
            raise ValueError(f"OnRequestExit: sig {sig!r} must be a signal that a program can handle, e.g. signal.SIGTERM")
        self.save_ckpt, self.save_mindir, self.config_file, self.sig = save_ckpt, save_mindir, config_file, sig
        self.path = os.path.join(os.path.abspath(directory), file_name)
        if save_ckpt:
            make_folder(os.path.abspath(directory))
        self.exit, self.training = False, False
        self._before = None             # the signal's former handler, in a list

    # ---- the request ----------------------------------------------------------------------------------

    def _listen(self):
        self.exit = False
        if threading.current_thread() is threading.main_thread():
            self._before = self._before or [signal.signal(self.sig, self._handle)]
        elif self.config_file is None:
            warn(f"OnRequestExit: rank {get_rank()} is a thread, which signals don't reach; give a config_file and write "
                 '{"GracefulExit": 1} into it to end training')

    def _handle(self, number, frame):
        self.exit = True

    def __exit__(self, *error):
        if self._before:
            signal.signal(self.sig, self._before[0] or signal.SIG_DFL)
        self._before = None

    def _look(self, run_context):
        self.exit = self.exit or self._asked_by_file()
        if self.exit:
            run_context.request_stop()

    def _asked_by_file(self) -> bool:
        try:
            with open(self.config_file or os.devnull, encoding="utf-8") as f:
                return json.load(f).get("GracefulExit") == 1
        except (OSError, ValueError, AttributeError):       # not there, being written, or not such a file
            return False

    # ---- training and evaluation ------------------------------------------------------------------------

    def on_train_begin(self, run_context):
        self.training = True
        self._listen()
        self._load(run_context.original_args().train_network, "train")

    def on_train_step_end(self, run_context):
        self._look(run_context)

    def on_train_epoch_end(self, run_context):      # the request may have come while fit evaluated
        self._look(run_context)

    def on_train_end(self, run_context):
        self.training = False
        args = run_context.original_args()
        if self._all_know(run_context):
            epoch, step = divmod(args.cur_step_num, args.batch_num)
            self._save(args.train_network, "train", f"training ends on request after step {args.cur_step_num}; to go on: "
                       f"initial_epoch={epoch}, initial_step={step}")

    def on_eval_begin(self, run_context):
        if not self.training:           # else fit evaluates: what training has done needn't be done again
            self._listen()
            self._load(run_context.original_args().eval_network, "eval", "train")

    def on_eval_step_end(self, run_context):
        self._look(run_context)

    def on_eval_end(self, run_context):
        if not self.training and self._all_know(run_context):
            self._save(run_context.original_args().eval_network, "eval", "evaluation ends on request")

    def _all_know(self, run_context) -> bool:
        """Whether this callback has ended the run, on any rank."""
        if not run_context.get_stop_requested():
            return False
        if self._ranks() > 1:
            self.exit = bool(communicator().all_reduce(np.array([self.exit], np.int32), "max").wait()[0])
        return self.exit

    # ---- files --------------------------------------------------------------------------------------------

    def _ranks(self) -> int:
        state = current()
        together = state.parallel["parallel_mode"] in LOCAL_MODES or (state.compiler and state.world)
        return communicator().size if together else 1

    def _file(self, kind: str) -> str:
        own = current().parallel["parallel_mode"] == "hybrid_parallel"
        return f"{self.path}_{kind}{f'_rank{get_rank()}' if own else ''}.ckpt"

    def _load(self, network, *kinds):
        for kind in kinds:
            if self.save_ckpt and os.path.isfile(self._file(kind)):
                from minispore.train.serialization import load_checkpoint
                load_checkpoint(self._file(kind), net=network)
                if get_rank() == 0:
                    print(f"OnRequestExit: goes on with the parameters of {self._file(kind)}", flush=True)
                return

    def _save(self, network, kind: str, what: str):
        own = current().parallel["parallel_mode"] == "hybrid_parallel"
        if self.save_ckpt and (own or get_rank() == 0):
            from minispore.train.serialization import save_checkpoint
            save_checkpoint(network, self._file(kind))
        if get_rank() == 0:
            print(f"OnRequestExit: {what}{f'; saved in {self._file(kind)}' if self.save_ckpt else ''}", flush=True)
