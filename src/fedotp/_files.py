"""Atomic writes, safe reads of untrusted files, and locks between processes.

A lock is an open file; the system releases it when its process ends for any reason.
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import platformdirs

from fedotp._text import one_line
from fedotp.errors import FedotpError, TransientError

# Errors after which the same command may succeed later: full disk, no descriptors or memory, unreachable file server.
_TRANSIENT = {
    *(errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC),
    *(errno.ESTALE, errno.ETIMEDOUT),
}

_NOFOLLOW, _NONBLOCK = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)  # not on Windows
_BINARY = getattr(os, "O_BINARY", 0)  # Windows converts line ends without it


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o666) -> None:
    """Write `path`; a crash or a full disk leaves the old file or none, never an incomplete one."""
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
    """Check before hours of work that a folder, which need not exist yet, is writable."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise cannot_write(folder, error) from error


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """Read a regular file of at most `most_bytes` bytes; raise `OSError` for anything else.

    Pipes and devices, reading which may block forever, are rejected before they are opened.
    """
    _require_regular(os.stat(path), path, most_bytes)
    with open(opened_at_once(path), "rb") as file:
        status = os.fstat(file.fileno())
        _require_regular(status, path, most_bytes)  # the file may have been replaced
        return file.read(status.st_size) or b""  # at most its size: it may grow meanwhile


def read_file(path: Path, most_bytes: int) -> bytes:
    """Read as `read_regular` does, with a `FedotpError` that names the file."""
    try:
        return read_regular(path, most_bytes)
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror or error}") from error


def read_json(path: Path, most_bytes: int) -> Any:
    """Read a JSON file from an untrusted source."""
    try:
        return parse_json(read_file(path, most_bytes).decode("utf-8"))
    except ValueError as error:
        raise FedotpError(f"{path} is not JSON: {one_line(error)}") from error


def _require_regular(status: os.stat_result, path: str | Path, most_bytes: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file but a pipe, a socket or a device", str(path))
    if status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes: must be at most {most_bytes:,}", str(path))


def opened_at_once(path: str | Path) -> int:
    """Open a file for reading without waiting for the writer of a pipe."""
    return os.open(path, os.O_RDONLY | _NONBLOCK | _BINARY)


def opened_in_place(path: Path, flags: int, *, mode: int = 0o666) -> int:
    """Open a file to modify it in place; refuse a symbolic link, which may lead to another user's file.

    Run folders are untrusted. `write_atomically` replaces a link instead.
    """
    if not _NOFOLLOW and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, flags | _NOFOLLOW | _BINARY, mode)


def parse_json(text: str) -> Any:
    """Parse JSON from an untrusted source; any error is a `ValueError`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_digest(content: object) -> str:
    """Return the SHA-256 of the values of JSON, independent of the layout of a file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def cannot_write(path: Path, error: OSError) -> FedotpError:
    """Return the error for a file that cannot be written: a full disk, a read-only folder."""
    kind = TransientError if error.errno in _TRANSIENT else FedotpError
    return kind(f"cannot write {path}: {error.strerror or error}; free disk space or choose another location")


try:
    import fcntl

    def _take(file: IO[bytes], *, shared: bool) -> bool:
        """Try to lock `file` without waiting; return False if another process holds the lock."""
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

except ModuleNotFoundError:  # Windows
    from filelock import lock_descriptor

    def _take(file: IO[bytes], *, shared: bool) -> bool:
        """Try to lock `file` without waiting; shared locks exclude each other on Windows."""
        return lock_descriptor(file.fileno(), blocking=False)


@contextlib.contextmanager
def held(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock `path`; raise an error with the message `busy` if another process holds it."""
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
    """True if a process holds the lock `path`; requires only read access."""
    try:
        with open(opened_at_once(path), "rb", buffering=0) as file:
            return not _take(file, shared=True)
    except OSError:  # no lock, or no permission
        return False


def cache_folder() -> Path:
    """Return `$FEDOTP_CACHE`, by default `fedotp` in the user's cache: on Linux `$XDG_CACHE_HOME` or `~/.cache`."""
    if "FEDOTP_CACHE" in os.environ:
        return Path(os.environ["FEDOTP_CACHE"])
    return platformdirs.user_cache_path("fedotp", appauthor=False)
