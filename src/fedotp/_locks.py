"""Locks between processes: a file that is held open, and is free again when its holder ends, however that happens."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedotp._files import cannot_write, opened_at_once, opened_in_place
from fedotp.errors import FedotpError

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
    """Whether a process holds the lock `path` just now; whoever may read the file may ask."""
    try:
        with open(opened_at_once(path), "rb", buffering=0) as file:
            return not _take(file, shared=True)
    except OSError:  # no lock, or not ours to look at
        return False
