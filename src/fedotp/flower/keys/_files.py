"""Folders of keys: written completely or not at all, private keys readable by their owner only."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedotp._files import cannot_write, read_regular
from fedotp._text import one_line
from fedotp._toml import parse_toml
from fedotp.errors import FedotpError

_OWNER_ONLY, _READABLE = 0o600, 0o644
_MOST_BYTES = 1 << 20  # of a key, a certificate, a list of a thousand sites


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to write to, which becomes `folder` at the end; after a failure nothing is left of it."""
    made: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # 0700
        yield made
        os.rename(made, folder)
    except BaseException as error:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError):
            raise cannot_write(folder, error) from error
        raise


def write_folder(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write new files into a new folder (0700); files named *.key are for their owner only (0600)."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in files.items():
        mode = _OWNER_ONLY if name.endswith(".key") else _READABLE
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())


def present(path: Path, *, origin: str) -> Path:
    """Return `path` if it is a plain file that can be read; `origin` says what to copy if not."""
    try:
        read_regular(path, _MOST_BYTES)
        return path
    except FileNotFoundError:
        raise FedotpError(f"{path.parent} has no {path.name}; {origin}") from None
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror or error}") from error


def refuse_if_shared(key: Path) -> None:
    """Refuse a private key that others can read, as ssh does; a group may read the key of another user (root's)."""
    if os.name != "posix":
        return
    status = key.stat()
    forbidden = 0o077 if status.st_uid == os.getuid() else 0o007
    if stat.S_IMODE(status.st_mode) & forbidden:
        raise FedotpError(f"others than its owner can read the private key {key}; run: chmod 600 '{key}'")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, a number of too many digits, brackets without end
        raise FedotpError(f"{path} is not TOML: {one_line(error)}") from error
