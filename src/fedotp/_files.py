"""Files that are there completely or not at all, files of others that may be anything, and locks between processes.

A lock is a file that is held open, and is free again when its holder ends, however that happens.
"""

import contextlib
import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import platformdirs

from fedotp.errors import FedotpError, TransientError

# What may pass without a change to the command: a full disk, no descriptors or memory left, a file server that is away.
_MAY_PASS = {
    *(errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC),
    *(errno.ESTALE, errno.ETIMEDOUT),
}

_NOFOLLOW, _NONBLOCK = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)  # Windows has neither
_BINARY = getattr(os, "O_BINARY", 0)  # and would change line ends without this


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


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """The bytes of a plain file that has at most `most_bytes`; anything else is an `OSError` that says what it is.

    A pipe, which may never be written to, or a device, which may never end, is refused before it is opened.
    """
    _require_plain(os.stat(path), path, most_bytes)
    with open(opened_at_once(path), "rb") as file:
        status = os.fstat(file.fileno())
        _require_plain(status, path, most_bytes)  # something else may have taken its place
        return file.read(status.st_size) or b""  # no more than its size: it may grow meanwhile


def _require_plain(status: os.stat_result, path: str | Path, most_bytes: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a plain file but a pipe, a socket or a device", str(path))
    if status.st_size > most_bytes:
        reason = f"it has {status.st_size:,} bytes; at most {most_bytes:,} are read"
        raise OSError(errno.EFBIG, reason, str(path))


def opened_at_once(path: str | Path) -> int:
    """Open a file to read it; do not wait for a pipe without a writer."""
    return os.open(path, os.O_RDONLY | _NONBLOCK | _BINARY)


def opened_in_place(path: Path, flags: int, *, mode: int = 0o666) -> int:
    """Open a file that is to be written where it lies, unless it is a link: that may lead to another user's file.

    A folder with a run may come from anybody. Files that are replaced as a whole take the place of a link.
    """
    if not _NOFOLLOW and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, flags | _NOFOLLOW | _BINARY, mode)


def parse_json(text: str) -> Any:
    """Read JSON from a file that anybody may have written; whatever is wrong with it is a `ValueError`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def cannot_write(path: Path, error: OSError) -> FedotpError:
    """The one line for a file that cannot be written: a full disk, a read-only folder."""
    kind = TransientError if error.errno in _MAY_PASS else FedotpError
    return kind(f"cannot write {path}: {error.strerror or error}; make room or choose another place")


try:
    import fcntl

    def _take(file: IO[bytes], *, shared: bool) -> bool:
        """Lock `file` at once, unless another process has it locked."""
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

except ModuleNotFoundError:  # Windows
    from filelock import lock_descriptor

    def _take(file: IO[bytes], *, shared: bool) -> bool:
        """Lock `file` at once, unless another process has it locked; two that share it are in each other's way."""
        return lock_descriptor(file.fileno(), blocking=False)


@contextlib.contextmanager
def held(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock `path` for this process; if another one does, refuse with the line `busy`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(opened_in_place(path, os.O_RDWR | os.O_CREAT), "wb", buffering=0)  # noqa: SIM115  (closed below, after the lock)
    except OSError as error:
        raise cannot_write(path, error) from error
    with file:
        if not _take(file, shared=False):
            raise FedotpError(busy)
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds the lock `path` just now; reading the file is enough."""
    try:
        with open(opened_at_once(path), "rb", buffering=0) as file:
            return not _take(file, shared=True)
    except OSError:  # no lock, or not ours to look at
        return False


def cache_folder() -> Path:
    """`$FEDOTP_CACHE`, else `fedotp` in the user's cache: on Linux `$XDG_CACHE_HOME` or `~/.cache`."""
    if "FEDOTP_CACHE" in os.environ:
        return Path(os.environ["FEDOTP_CACHE"])
    return platformdirs.user_cache_path("fedotp", appauthor=False)
