"""Text files of users: lists of images, splits, partitions."""

from pathlib import Path
from typing import Any

from fedotp._files import parse_json, read_regular
from fedotp.errors import FedotpError

_MOST_BYTES = 128 << 20  # of a list: enough for millions of images


def read_text(path: Path) -> str:
    """Read a UTF-8 text file."""
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise FedotpError(f"cannot read {path}: {reason}") from error


def read_lines(path: Path) -> list[str]:
    """Read the non-empty lines of a text file, without surrounding whitespace."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise FedotpError(f"{path} is not JSON: {error}") from error
