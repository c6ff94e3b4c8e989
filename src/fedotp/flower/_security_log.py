"""The security log of a server or a site: one JSON line per event, appended, each with the hash of the line before.

A line that is changed, removed or moved breaks the chain of hashes.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedotp._files import cannot_write, opened_in_place
from fedotp.errors import FedotpError
from fedotp.flower._events import Event, handling

_FIRST = "0" * 64


class SecurityLog:
    """A chain of events in a file."""

    def __init__(self, path: Path) -> None:
        """Continue the chain in `path`, or begin one."""
        self.path = path
        self._lock = threading.Lock()
        self._number, self._hash = _end_of(path)

    def write(self, event: Event, facts: dict[str, Any]) -> None:
        """Append an event; on return it is on disk."""
        with self._lock:
            line = {"n": self._number + 1, "time": datetime.now(UTC).isoformat(), "event": event, **facts}
            text = json.dumps({**line, "previous": self._hash}, ensure_ascii=False, separators=(",", ":"))
            try:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                with open(opened_in_place(self.path, flags), "a", encoding="utf-8") as file:
                    file.write(text + "\n")
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise cannot_write(self.path, error) from error
            self._number, self._hash = self._number + 1, hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def security_log(path: Path) -> Iterator[SecurityLog]:
    """Write the events of this process to `path`."""
    log = SecurityLog(path)
    with handling(log.write):
        yield log


def _end_of(path: Path) -> tuple[int, str]:
    """Return the number and the hash of the last line."""
    try:
        lines = path.read_bytes().splitlines() if path.is_file() else []
        return (json.loads(lines[-1])["n"], hashlib.sha256(lines[-1]).hexdigest()) if lines else (0, _FIRST)
    except (OSError, ValueError, KeyError) as error:
        raise FedotpError(f"cannot continue the security log {path}: {error}") from error
