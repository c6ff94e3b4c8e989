"""Text files of users: lists of images, splits, partitions."""

from pathlib import Path

from fedotp._files import read_file
from fedotp.errors import FedotpError

MOST_BYTES = 128 << 20  # of a list: enough for millions of images


def read_text(path: Path) -> str:
    """Read a UTF-8 text file."""
    try:
        return read_file(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FedotpError(f"cannot read {path}: not UTF-8 text") from error


def read_lines(path: Path) -> list[str]:
    """Read the non-empty lines of a text file, without surrounding whitespace."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]
