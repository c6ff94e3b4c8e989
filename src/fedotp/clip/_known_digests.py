"""Digests of weights, remembered: half a gigabyte need not be hashed in every run.

A file is known again by its place, size, inode and times of change; one that was changed in the two seconds before it
was read is not remembered, because one more change could leave the same times.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from fedotp._files import cache_folder, parse_json, read_regular, write_atomically
from fedotp.errors import FedotpError

_UNSETTLED_NS = 2_000_000_000  # the coarsest clock among file systems
_MOST_BYTES = 4096
_RULE = 1  # how a digest follows from a file; another number, and all are computed again


class KnownDigest:
    """What is remembered of the weights in one file; made before they are read."""

    def __init__(self, path: Path) -> None:
        self._facts: list[int] = []
        self._settled = False
        with suppress(OSError):  # reading it raises
            status = os.stat(path)
            self._facts = [_RULE, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
            self._settled = max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - _UNSETTLED_NS
        place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
        self._memo = cache_folder() / "digests" / f"{place}.json"

    def recall(self) -> str | None:
        """The digest, if it is known and the file is the same."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            known = parse_json(read_regular(self._memo, _MOST_BYTES).decode())
            if known["file"] == self._facts and len(bytes.fromhex(known["digest"])) == hashlib.sha256().digest_size:
                return str(known["digest"])
        return None

    def remember(self, digest: str) -> None:
        """Keep it for the next time, if it can be kept: it is a convenience."""
        if self._settled:
            with suppress(FedotpError):
                write_atomically(self._memo, json.dumps({"file": self._facts, "digest": digest}))
