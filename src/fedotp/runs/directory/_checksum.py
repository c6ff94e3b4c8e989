"""Checksums of the files of a run, which show whether they are still as they were written.

A JSON file ends with the SHA-256 of the rest of it. The checksum of `metrics.jsonl`, which grows, is elsewhere: the
checkpoint, and at the end the summary, record its length and digest.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedotp._files import parse_json, read_regular
from fedotp.errors import FedotpError

_MOST_BYTES = 256 << 20  # of a file: a summary has a line for every client
_SHA256 = "sha256"


def with_checksum(content: Mapping[str, Any]) -> str:
    """`content` as the text of a file, with its checksum."""
    return json.dumps({**content, _SHA256: _digest(content)}, indent=2) + "\n"


def read_checked(path: Path) -> dict[str, Any]:
    """The content of a file whose checksum is right."""
    try:
        content = parse_json(read_regular(path, _MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise FedotpError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise FedotpError(f"cannot read {path}: it should hold one JSON object")
    if content.pop(_SHA256, None) != _digest(content):
        raise checksum_error(path)
    return content


def checksum_error(path: Path) -> FedotpError:
    """The one line for a file that is not what was written."""
    return FedotpError(f"{path} is damaged or was edited: its digest does not match; restore it from a copy")


class RunningDigest:
    """Length and digest of a file that grows: of what was written, not of what is there."""

    def __init__(self, content: bytes = b"") -> None:
        self._sha = hashlib.sha256(content)
        self.n_bytes = len(content)

    @property
    def digest(self) -> str:
        """SHA-256 so far."""
        return self._sha.hexdigest()

    def add(self, content: bytes) -> None:
        """`content` was written behind the rest."""
        self._sha.update(content)
        self.n_bytes += len(content)


def _digest(content: Mapping[str, Any]) -> str:
    """Of the values, however they are laid out in the file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
