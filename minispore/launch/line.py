"""The line: a worker's connection to msrun.

Over it a worker says who it is and how it fares, in lines of text:

    hello TOKEN RANK PID        here I am
    joining                     I wait in init() until all have come
    failed CODE                 my script has failed; msrun answers `first` or `later`
    shown                       my traceback is in the log now (that of a later one would be a consequence)
    ended                       my script has ended well
    over CODE                   (from the worker's guard) its process has ended: exit code, or minus a signal

It is open as long as the worker's process lives.
"""
import os
import secrets
import socket
from contextlib import suppress

VARIABLE = "MINISPORE_LINE"         # host:port:token, in the workers' environment


class Line:
    """A worker's end."""

    def __init__(self, where: str):
        host, port, self.token = where.rsplit(":", 2)
        self.fd = socket.create_connection((host, int(port))).detach()      # now only the kernel closes it

    def hello(self, rank: int) -> None:
        """Say who this process is."""
        os.register_at_fork(after_in_child=self._close)                     # no child keeps it open
        self.say("hello", self.token, rank, os.getpid())

    def _close(self) -> None:
        os.close(self.fd)
        self.fd = -1

    def say(self, *words) -> None:
        """Send a message. When msrun is gone there is nobody to tell."""
        with suppress(OSError):
            os.write(self.fd, f"{' '.join(map(str, words))}\n".encode())

    def failed(self, code: int) -> bool:
        """Report a failure; whether it is the job's first."""
        self.say("failed", code)
        try:
            return os.read(self.fd, 100) != b"later\n"
        except OSError:
            return True


class Switchboard:
    """msrun's end: where workers connect."""

    def __init__(self, address: tuple[str, int]):
        self.host, port = address
        try:
            self.socket = socket.create_server(address, backlog=256)
        except OSError as e:
            why = os.strerror(e.errno) if (e.errno or 0) > 0 else e.strerror
            raise SystemExit(f"msrun: can't listen on {self.host}, port {port} ({why}). Give "
                             "a --master_addr of this machine and a --master_port that is free, or neither"
                             ) from None
        self.port = self.socket.getsockname()[1]
        self.token = secrets.token_hex(8)
        self.where = f"{self.host}:{self.port}:{self.token}"

    def accept(self) -> "Caller":
        return Caller(self.socket.accept()[0])


class Caller:
    """msrun's end of one line."""

    def __init__(self, connection: socket.socket):
        self.socket, self.rest = connection, b""

    def hear(self) -> list[list[str]] | None:
        """The messages that have arrived; None when the line is closed."""
        data = b""
        with suppress(OSError):
            data = self.socket.recv(4096)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.decode(errors="replace").split() for line in lines]

    def answer(self, word: str) -> None:
        with suppress(OSError):
            self.socket.sendall(f"{word}\n".encode())
