"""What ranks of threads print: shown in whole lines with the rank before them, as msrun does it, and kept for each rank."""
import sys
from contextvars import ContextVar

STREAMS = ("stdout", "stderr")
_page: ContextVar["Page | None"] = ContextVar("minispore_page", default=None)


class Page:
    """What one rank has printed. Threads that it starts in a copy of its context print here, too."""

    def __init__(self, output: "Output", rank: int, ranks: int):
        self.output, self.prefix = output, f"[rank {rank}] " if ranks > 1 else ""
        self.kept: list[str] = []
        self.rest = dict.fromkeys(STREAMS, "")              # lines that have no end yet

    def write(self, name: str, below, text: str) -> None:
        self.kept.append(text)
        *lines, self.rest[name] = (self.rest[name] + text).split("\n")
        if lines:                                           # in one piece: no other rank's line comes between
            below.write("".join(f"{self.prefix}{line}\n" for line in lines))

    def end(self) -> None:
        """The rank prints no more: show the last lines, if they had no end."""
        for name, rest in self.rest.items():
            if rest:
                getattr(sys, name).write("\n")
                self.kept.pop()                             # that end was ours


class Router:
    """A sys.stdout or sys.stderr that knows ranks of a job; everybody else's text goes through."""

    def __init__(self, output: "Output", name: str, below):
        self.output, self.name, self.below = output, name, below

    def write(self, text: str) -> int:
        page = _page.get()
        if page is None or page.output is not self.output:
            return self.below.write(text)
        page.write(self.name, self.below, text)
        return len(text)

    def writelines(self, lines) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self.below, name)


class Output:
    """with Output(n) as output: what threads print in which `output.begin(rank)` was called is that rank's.

    >>> with Output(2) as output:
    ...     output.begin(1)
    ...     print("to be", end=" ")
    ...     print("or not")
    ...     output.end(1)
    [rank 1] to be or not
    >>> output.texts()
    ['', 'to be or not\\n']
    """

    def __init__(self, ranks: int):
        self.pages, self.over = [Page(self, r, ranks) for r in range(ranks)], False

    def __enter__(self) -> "Output":
        for name in STREAMS:
            setattr(sys, name, Router(self, name, getattr(sys, name)))
        return self

    def __exit__(self, *_) -> None:
        # Jobs of several threads needn't end in the order in which they began: who ends last takes away what lies below.
        self.over = True
        for name in STREAMS:
            while isinstance(stream := getattr(sys, name), Router) and stream.output.over:
                setattr(sys, name, stream.below)

    def begin(self, rank: int) -> None:
        """From now on this thread is that rank."""
        _page.set(self.pages[rank])

    def end(self, rank: int) -> None:
        """This thread is that rank no longer."""
        self.pages[rank].end()
        _page.set(None)

    def texts(self) -> list[str]:
        """All that each rank has printed, errors too."""
        return ["".join(page.kept) for page in self.pages]
