"""Checkpoints written by a thread while training goes on: one at a time for each rank."""
import atexit
import sys
import threading
from collections.abc import Callable

from minispore.common.state import current


class Saving:
    """One file being written. Its thread isn't a daemon, so Python waits for it at the end."""

    def __init__(self, file: str, write: Callable[[], None]):
        self.file, self.write, self.error = file, write, None
        self.thread = threading.Thread(target=self._run, name="async_save_checkpoint")
        self.thread.start()

    def _run(self):
        try:
            self.write()
        except BaseException as e:
            self.error = e
            atexit.register(self._tell)

    def _tell(self):
        print(f"minispore: a checkpoint was NOT written: {self.error}", file=sys.stderr)

    def finish(self) -> None:
        """Wait, and raise what went wrong."""
        self.thread.join()
        if self.error is not None:
            atexit.unregister(self._tell)
            self.error.add_note(f"while {self.file} was saved with async_save=True")
            raise self.error


def save_in_background(file: str, write: Callable[[], None]) -> None:
    """Start writing; first wait for the one before, and raise its error."""
    wait_for_async_save()
    current().saving = Saving(file, write)


def wait_for_async_save() -> None:
    """Wait until this rank's checkpoint is on the disk; raises what went wrong while it was saved."""
    state = current()
    saving, state.saving = state.saving, None
    if saving is not None:
        saving.finish()


def async_ckpt_thread_status() -> bool:
    """Whether a checkpoint of this rank is being written in the background (MindSpore: `async_ckpt_thread_status`)."""
    saving = current().saving
    return saving is not None and saving.thread.is_alive()
