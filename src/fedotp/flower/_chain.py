"""Append-only files of JSON lines, each with the hash of the line before and a hash of its own.

A line that is changed, removed, inserted or moved breaks the chain at its place. Someone who can write the file can
make a new chain from that place on, and can remove the last lines; another party that has noted a hash can detect that.
"""

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedotp._files import cannot_write, opened_in_place, parse_json
from fedotp.errors import FedotpError

FIRST = "0" * 64
"""The hash before the first line."""

_END = ',"hash":"'
_LONGEST = 1 << 24  # bytes of a line


@dataclass(frozen=True)
class Line:
    """A line of a chain: its place in the file from 1, its content and hash; `wrong`: why it is invalid, or ""."""

    place: int
    content: Mapping[str, Any]
    hash: str
    wrong: str = ""


class Chain:
    """Appends to a chain; several processes may append to the same file."""

    def __init__(self, path: Path) -> None:
        """Continue the chain in `path`, or begin one."""
        self.path = path
        self._lock = threading.Lock()
        self._last = (0, FIRST)  # number and hash, if another program has moved the file away
        self._append(None)

    def append(self, content: Mapping[str, Any]) -> str:
        """Append a line and return its hash; on return it is on disk. "n", "previous" and "hash" are added."""
        with self._lock:
            return self._append(content)

    @property
    def hash(self) -> str:
        """The hash of the last line that this object has written or found."""
        return self._last[1]

    def _append(self, content: Mapping[str, Any] | None) -> str:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            with open(opened_in_place(self.path, flags, mode=0o600), "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._last = _last_of(file.fileno(), self.path) or self._last
                if content is not None:
                    number, previous = self._last
                    text, own = _sealed({"n": number + 1, **content, "previous": previous})
                    file.write(text.encode() + b"\n")
                    os.fsync(file.fileno())
                    self._last = number + 1, own
        except OSError as error:
            raise cannot_write(self.path, error) from error
        return self._last[1]


def read_chain(content: bytes, after: tuple[int, str] | None = (0, FIRST)) -> Iterator[Line]:
    """Check the lines of a chain that continues `after` a line with this number and hash; None: any."""
    *lines, rest = content.split(b"\n")
    for place, raw in enumerate(lines, 1):
        line = _checked(place, raw, after)
        yield line
        number = line.content.get("n")
        after = (number, line.hash) if isinstance(number, int) else None
    if rest:
        yield Line(len(lines) + 1, {}, "", "the last line is incomplete")


def _sealed(content: Mapping[str, Any]) -> tuple[str, str]:
    """Return a line with its own hash at the end, and the hash."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)[:-1]
    own = hashlib.sha256(body.encode()).hexdigest()
    return f'{body}{_END}{own}"}}', own


def _checked(place: int, raw: bytes, after: tuple[int, str] | None) -> Line:
    body, _, end = raw.rpartition(_END.encode())
    own = hashlib.sha256(body).hexdigest()
    if end != f'{own}"}}'.encode():
        return Line(place, {}, own, "the content does not match its hash")
    try:
        content = parse_json(raw.decode())
    except ValueError as error:
        return Line(place, {}, own, f"cannot parse it: {error}")
    if after is not None and (content.get("n"), content.get("previous")) != (after[0] + 1, after[1]):
        return Line(place, content, own, "it does not follow the line before: a line was removed, inserted or moved")
    return Line(place, content, own)


def _last_of(file: int, path: Path) -> tuple[int, str] | None:
    """Return number and hash of the last complete line; discard an incomplete one, left by a killed process."""
    size = os.fstat(file).st_size
    content = os.pread(file, min(size, _LONGEST), max(0, size - _LONGEST))
    *lines, rest = content.split(b"\n")
    if rest:
        os.ftruncate(file, size - len(rest))
    if not lines:
        return None
    line = _checked(0, lines[-1], None)
    if line.wrong or not isinstance(line.content.get("n"), int):
        raise FedotpError(f"cannot continue {path}: its last line was changed; move the file away and keep it")
    return line.content["n"], line.hash
