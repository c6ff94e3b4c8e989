"""Checksums of the files of a run, to detect changes.

A JSON file ends with the SHA-256 of the rest. The length and digest of the growing `metrics.jsonl` are recorded in the
checkpoint, and at the end in the summary.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedotp._files import json_digest, parse_json, read_regular
from fedotp.errors import FedotpError

_MOST_BYTES = 256 << 20  # size limit of a file: a summary has a line for every client
_SHA256 = "sha256"


def with_checksum(content: Mapping[str, Any]) -> str:
    """Return `content` as the text of a file, with its checksum."""
    return json.dumps({**content, _SHA256: json_digest(content)}, indent=2) + "\n"


def read_checked(path: Path) -> dict[str, Any]:
    """Read a file and check its checksum."""
    try:
        content = parse_json(read_regular(path, _MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise FedotpError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise FedotpError(f"cannot read {path}: must be one JSON object")
    if content.pop(_SHA256, None) != json_digest(content):
        raise checksum_error(path)
    return content


def checksum_error(path: Path) -> FedotpError:
    """Return the error for a changed file."""
    return FedotpError(f"{path} is corrupt or was edited: its digest does not match; restore it from a backup")


class RunningDigest:
    """Length and digest of the bytes written to a growing file."""

    def __init__(self, content: bytes = b"") -> None:
        self._sha = hashlib.sha256(content)
        self.n_bytes = len(content)

    @property
    def digest(self) -> str:
        """SHA-256 so far."""
        return self._sha.hexdigest()

    def add(self, content: bytes) -> None:
        """Add `content` that was appended."""
        self._sha.update(content)
        self.n_bytes += len(content)
