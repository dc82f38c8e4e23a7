"""What a training shows while it runs: a bar in a terminal, a line now and then elsewhere."""
import sys
from time import perf_counter

LINE_EVERY = 2.0            # seconds between two lines where there is no terminal


class Progress:
    """Shows steps, loss and speed of each epoch. Where the output is a terminal, as a bar that moves (rich)."""

    def __init__(self, epochs: int, steps: int, rows: int):
        self.epochs, self.steps, self.rows = epochs, steps, rows        # rows: samples a step on all ranks
        self.bar = None
        if sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
            self.bar = Progress(TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"), BarColumn(),
                                MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}  "
                                                                 "{task.fields[speed]:,.0f} samples/s"),
                                TimeRemainingColumn())
            self.bar.start()

    def begin_epoch(self, epoch: int, done: int = 0) -> None:
        """An epoch of which `done` steps were made before this run."""
        self.epoch, self.step, self.done, self.total = epoch, done, done, 0.0
        self.begin = self.shown = perf_counter()
        if self.bar:
            self.task = self.bar.add_task("", total=self.steps, completed=done, epoch=epoch, epochs=self.epochs,
                                          loss=float("nan"), speed=0)

    def advance(self, loss: float) -> None:
        """One more step; `loss` is its mean loss on this rank."""
        self.step += 1
        self.total += loss
        if self.bar:
            self.bar.update(self.task, advance=1, loss=self.mean, speed=self.speed)
        elif perf_counter() - self.shown > LINE_EVERY and self.step < self.steps:
            self.shown = perf_counter()
            print(self.line(), flush=True)

    def end_epoch(self, extra: str = "") -> None:
        if not self.bar:
            print(self.line() + extra, flush=True)
        elif extra:
            self.bar.print(self.line() + extra)

    def close(self) -> None:
        if self.bar:
            self.bar.stop()

    @property
    def mean(self) -> float:
        return self.total / max(self.step - self.done, 1)

    @property
    def speed(self) -> float:
        return (self.step - self.done) * self.rows / max(perf_counter() - self.begin, 1e-9)

    def line(self) -> str:
        """This epoch so far, as text."""
        width = 20
        full = width * self.step // max(self.steps, 1)
        return (f"epoch {self.epoch}/{self.epochs} [{'#' * full}{'.' * (width - full)}] {self.step}/{self.steps}  "
                f"loss {self.mean:.4f}  {self.speed:,.0f} samples/s")
