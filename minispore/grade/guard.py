"""What a submission may not do while it is graded, refused with errors that teach.

An audit hook (PEP 578) sees processes being started, files opened, sockets connected, before it happens. This is no fortress:
who tries hard gets round a hook that lives in his own process. The second line is in run.py: limits, and an end to all
processes of a submission, whatever they did. Together they keep honest mistakes and easy tricks from harm.

The files that a submission may read are its own folder and the installed libraries; not the exercises (tests, solutions), not
the sources of functions that it is to write itself, not other people's work. It writes in its own folder only.
"""
import os
import re
import stat
import sys
import sysconfig
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
SYSTEM = ("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", *DEVICES, "/System", "/Library", "/opt/homebrew",
          os.environ.get("SYSTEMROOT", "/usr"))

STARTS = ("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system", "os.startfile", "os.startfile/2",
          "subprocess.Popen", "pty.spawn")
PEEKS = ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._getframe", "sys._current_frames",
         "sys._current_exceptions", "sys.settrace", "sys.setprofile")
CALLS_C = ("ctypes.dlopen", "ctypes.dlsym", "ctypes.dlsym/handle", "ctypes.cdata", "ctypes.cdata/buffer", "ctypes.string_at",
           "ctypes.wstring_at", "ctypes.set_errno", "ctypes.addressof", "ctypes.call_function")
CHANGES = ("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.lchown", "os.lchmod", "os.chflags", "os.lchflags",
           "os.truncate", "os.utime", "os.setxattr", "os.removexattr", "os.chdir", "os.fchdir", "sqlite3.connect")
MOVES = ("os.rename", "os.link", "os.symlink")
LISTS = ("os.listdir", "os.scandir", "os.walk", "os.fwalk", "glob.glob")
CONNECTS = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
            "socket.gethostbyaddr")
SIGNALS = ("os.kill", "os.killpg", "signal.pthread_kill")
LIMITS = ("resource.setrlimit", "resource.prlimit")


@dataclass(frozen=True)
class Rules:
    """who: the exercise, as "E5"; file: the submission's, as its code objects name it. Folders and files are real paths:
    own: may be written; readable: too; private: neither, wherever they lie."""
    who: str
    file: str
    own: tuple[str, ...]
    readable: tuple[str, ...]
    private: tuple[str, ...]


class Refused(PermissionError):
    """What a submission asked for and doesn't get. An OSError, as libraries expect of a file that can't be read."""


def libraries() -> tuple[str, ...]:
    """The folders that any program on this Python reads: its own, what is installed, the system's."""
    package = Path(__file__).parents[1]
    paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values(), str(package), *SYSTEM,
             *(path for path in sys.path if path and Path(path).resolve() != package.parent)}
    return tuple(sorted({os.path.realpath(path) for path in paths} - {os.path.realpath("/")}))


def inside(path: str, folders: Sequence[str]) -> bool:
    """Whether a real path is one of these, or below one.

    >>> inside("/a/b/c", ["/a/b"]), inside("/a/bc", ["/a/b"])
    (True, False)
    """
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)


def seal(rules: Rules) -> None:
    """From now on the rules hold, in every thread but this one, until the process ends."""
    trusted, ident, realpath, facts, is_file = threading.get_ident(), threading.get_ident, os.path.realpath, os.stat, stat.S_ISREG
    mine, others, known = f"/proc/{os.getpid()}", re.compile(r"/proc/\d+"), {rules.file: False}

    def hook(event, args):
        refuse = table.get(event)
        if refuse is not None and ident() != trusted:
            refuse(event, args)

    def no(text):
        raise Refused(f"{rules.who}: {text}")

    def real(path):
        return realpath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None

    def may_read(path):
        path = "." if path is None or path == "" else path
        path = real(path)
        if path is None or inside(path, rules.own):
            return                                      # a number: of a file that is open
        if inside(path, rules.private) or not inside(path, rules.readable) or (
                others.match(path) and not inside(path, [mine])):
            no(f"your file may not read {path}: while it is graded, it reads its own folder and the installed libraries, and "
               "answers with what is written in it")

    def may_write(event, path):
        path = real(path)
        if path is None or path in DEVICES:
            return
        if not inside(path, rules.own):
            no(f"your file may not change {path} ({event}): while it is graded, it writes in its own folder only")
        try:
            info = facts(path)
        except OSError:
            return                                      # it isn't there yet
        if event == "open" and is_file(info.st_mode) and info.st_nlink > 1:
            no(f"your file may not change {path}, which is also elsewhere")

    def opened(event, args):
        path, mode, flags = args
        if (isinstance(flags, int) and flags & WRITING) or (isinstance(mode, str) and set(mode) & set("wax+")):
            may_write(event, path)
        else:
            may_read(path)

    def by_submission():
        """Whether it is the submission, and no library, that asks."""
        try:
            raise LookupError
        except LookupError as e:                        # sys._getframe would be an event itself
            frame = e.__traceback__.tb_frame.f_back.f_back.f_back
        while frame is not None and f"{os.sep}ctypes{os.sep}" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame is not None and not of_library(frame.f_code.co_filename)

    def of_library(file):
        """Whether code is a library's, by its file: not the submission's, nor of modules that it has written."""
        if file not in known:
            known[file] = file.startswith("<frozen ") or inside(realpath(file), rules.readable)
        return known[file]

    def peek(event, args):
        if by_submission():
            no(f"{event} looks into the grader; write the answer with what is given to it")

    def c_call(event, args):
        if by_submission():
            no(f"your file may not call C libraries by ctypes ({event}); numpy and Numba may be used")

    def code_made(event, args):
        name = args[1]
        if isinstance(name, str | bytes) and of_library(os.fsdecode(name)) and by_submission():
            no(f"code of your file can't go by the name of another ({event} {os.fsdecode(name)})")

    def unmarshal(event, args):
        if by_submission():
            no(f"your file may not load compiled code ({event}); write the answer in Python")

    def code_set(event, args):
        if args[1] == "__code__":
            no("functions keep their code while a file is graded (__code__ was to be set)")

    table = {
        **dict.fromkeys(STARTS, lambda event, args: no(f"your file may not start processes ({event}): it is graded in one")),
        **dict.fromkeys(CHANGES, lambda event, args: may_write(event, args[0])),
        **dict.fromkeys(MOVES, lambda event, args: (may_write(event, args[0]) if event != "os.symlink" else None,
                                                    may_write(event, args[1]))),
        **dict.fromkeys(LISTS, lambda event, args: may_read(args[0])),
        **dict.fromkeys(CONNECTS, lambda event, args: no(f"your file may not use the network ({event})")),
        **dict.fromkeys(SIGNALS, lambda event, args: no(f"your file may not send signals ({event})")),
        **dict.fromkeys(LIMITS, lambda event, args: no(f"the limits stay as they are ({event})")),
        **dict.fromkeys(PEEKS, peek), **dict.fromkeys(CALLS_C, c_call),
        "open": opened, "object.__setattr__": code_set, "compile": code_made, "code.__new__": code_made,
        "marshal.loads": unmarshal,
    }
    sys.addaudithook(hook)
