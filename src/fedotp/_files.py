"""Files that are there completely or not at all."""

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedotp.errors import FedotpError, TransientError

# What may pass without a change to the command: a full disk, no descriptors or memory left, a file server that is away.
_MAY_PASS = {
    errno.EAGAIN,
    errno.EDQUOT,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o666) -> None:
    """Write `path`; a crash or a full disk leaves the old file or none, never half of the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to, there or not: before hours of work, and not after them."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise cannot_write(folder, error) from error


@contextlib.contextmanager
def held(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock `path` for this process; if another one does, refuse with the line `busy`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")  # noqa: SIM115  (closed below, after the lock)
    except OSError as error:
        raise cannot_write(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FedotpError(busy) from None
        yield


def cannot_write(path: Path, error: OSError) -> FedotpError:
    """The one line for a file that cannot be written: a full disk, a read-only folder."""
    kind = TransientError if error.errno in _MAY_PASS else FedotpError
    return kind(f"cannot write {path}: {error.strerror or error}; make room or choose another place")
