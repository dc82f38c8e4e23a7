"""Files that are whole or not there, and the claim of one rank on a name.

A file is written under a temporary name in its own folder, brought to the disk and only then renamed; renaming is one
step, so whoever reads finds the old file or the new one, also after a kill or a power cut. The writer keeps a lock on
its temporary file. Locks end with their process, so what the next writer can lock was left behind, and goes.
"""
import os
from collections.abc import Iterable
from contextlib import suppress

try:
    import fcntl
except ImportError:             # Windows: there an open file can't be removed, which serves as the lock
    fcntl = None

BEGIN, END = ".minispore-", ".saving"


def write_whole(path: str, chunks: Iterable) -> None:
    """Make `path` a file of these chunks (bytes-like), or leave it as it is and raise.

    OSError (PermissionError, FileNotFoundError, …) says what the system refused; the temporary file is gone then.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "x")
    >>> write_whole(str(file), [b"one ", b"whole"])
    >>> file.read_bytes(), os.listdir(file.parent)
    (b'one whole', ['x'])
    """
    target = os.path.realpath(path)         # a link stays a link
    folder, temporary = os.path.dirname(target), None
    try:
        remove_stale(folder)
        file, temporary = _temporary(folder)
        with file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            if fcntl:
                os.replace(temporary, target)
        if not fcntl:
            os.replace(temporary, target)
        _sync_folder(folder)
    except BaseException as e:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        if not isinstance(e, OSError) or e.errno is None:
            raise
        kept = "the file that is there is as it was" if os.path.exists(target) else "no file was made"
        hint = (f"make the folder {folder} first" if isinstance(e, FileNotFoundError) else
                "free some space, or save elsewhere" if e.errno == 28 else "check the folder's rights, or save elsewhere")
        raise OSError(e.errno, f"{path} can't be written ({e.strerror}); {kept}: {hint}") from None


def make_folder(path: str) -> None:
    """The folder, if it isn't there; OSError says what the system refused."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        raise OSError(e.errno, f"the folder {path} can't be made ({e.strerror}): check the path and its rights, or save "
                      "elsewhere") from None


def remove_stale(folder: str) -> None:
    """Remove the temporary files of writers that ended before they were done; never one of a living writer."""
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.startswith(BEGIN) and e.name.endswith(END)]
    for name in names:
        with suppress(OSError):
            path = os.path.join(folder, name)
            if not fcntl:
                os.unlink(path)
                continue
            handle = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(handle)


def _temporary(folder: str):
    """(file, path) of a new file that this process has locked."""
    while True:
        path = os.path.join(folder, f"{BEGIN}{os.urandom(8).hex()}{END}")
        file = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666), "wb")
        if _locked(file.fileno(), path):
            return file, path
        file.close()            # a remover came between making and locking it


def _locked(handle: int, path: str) -> bool:
    """Lock an open file; False where somebody else has, or has removed it. A file system without locks says True."""
    if not fcntl:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _sync_folder(folder: str) -> None:
    if fcntl:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---- claims ------------------------------------------------------------------------------------------


def claim(path: str, owner: str) -> tuple[int | None, str]:
    """(handle, owner) when the name is claimed until `give_up` or the process's end; (None, who has it) else.

    >>> import tempfile
    >>> name = tempfile.mkdtemp() + "/claim"
    >>> handle, _ = claim(name, "rank 0")
    >>> claim(name, "rank 1")
    (None, 'rank 0')
    >>> give_up(name, handle)
    """
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        if _locked(handle, path):
            os.ftruncate(handle, 0)
            os.write(handle, owner.encode())
            return handle, owner
        holder = os.read(handle, 1000).decode()
        os.close(handle)
        if os.path.exists(path):
            return None, holder


def give_up(path: str, handle: int) -> None:
    """End a claim."""
    with suppress(OSError):
        os.unlink(path)
    os.close(handle)
