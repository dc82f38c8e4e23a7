"""The workers' logs: each worker writes its own file, msrun reads them all and shows whole lines."""
import os

COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)      # of the terminal, one rank after another


class Tail:
    """What one log has grown by."""

    def __init__(self, path: str):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)    # empties an earlier job's
        self.rest = b""

    def lines(self, last: bool = False) -> list[bytes]:
        """New whole lines, at last also one without an end; cut there, so that no character is torn."""
        while data := os.read(self.fd, 1 << 20):
            self.rest += data
        *lines, self.rest = self.rest.split(b"\n")
        if last and self.rest:
            lines.append(self.rest)
            self.rest = b""
        return lines


class Screen:
    """The output of all ranks on one file descriptor, each line with its rank before it."""

    def __init__(self, logs: dict[int, str], shown: frozenset[int], out: int = 1):
        self.out = out
        self.tails = {rank: Tail(path) for rank, path in logs.items()}
        self.prefix = {rank: self._prefix(rank) for rank in self.tails if rank in shown}

    def _prefix(self, rank: int) -> bytes:
        if len(self.tails) == 1:
            return b""
        colour = os.isatty(self.out) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        text = f"[rank {rank}]"
        return (f"\033[{COLOURS[rank % len(COLOURS)]}m{text}\033[0m " if colour else f"{text} ").encode()

    def show(self, last: bool = False) -> None:
        """Write what is new. BrokenPipeError when nobody reads any more."""
        for rank, prefix in self.prefix.items():
            if lines := self.tails[rank].lines(last):
                data = memoryview(b"".join(prefix + line + b"\n" for line in lines))
                while data:
                    data = data[os.write(self.out, data):]
