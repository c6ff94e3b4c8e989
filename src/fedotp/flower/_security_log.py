"""The security log of a server or a site: one JSON line per event, appended, each with the hash of the line before.

A process has at most one (`security_log`); `record` writes to it from any module and thread. Who changes, removes or
reorders lines breaks the chain of hashes.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from fedotp._files import cannot_write, opened_in_place
from fedotp.errors import FedotpError

Event = Literal[
    "start",
    "stop",
    "configuration",  # the configuration of a run, or a change of it
    "key-accepted",
    "key-refused",
    "order",  # a request of the server, with the digest of its agreement
    "order-refused",
    "update-refused",
    "round",
    "privacy-spent",
    "release",  # a classifier, or a private average
]
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


_current: SecurityLog | None = None


def record(event: Event, **facts: Any) -> None:
    """Write an event to this process's security log, if it has one."""
    assert event in get_args(Event)
    if _current is not None:
        _current.write(event, facts)


@contextmanager
def security_log(path: Path) -> Iterator[SecurityLog]:
    """Make `path` the security log of this process."""
    global _current
    _current = SecurityLog(path)
    try:
        yield _current
    finally:
        _current = None


def _end_of(path: Path) -> tuple[int, str]:
    """Return the number and the hash of the last line."""
    try:
        lines = path.read_bytes().splitlines() if path.is_file() else []
        return (json.loads(lines[-1])["n"], hashlib.sha256(lines[-1]).hexdigest()) if lines else (0, _FIRST)
    except (OSError, ValueError, KeyError) as error:
        raise FedotpError(f"cannot continue the security log {path}: {error}") from error
