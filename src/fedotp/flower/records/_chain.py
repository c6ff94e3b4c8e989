"""Append-only files of JSON lines, each with the hash of the line before and a hash of its own.

A line that is changed, removed, inserted or moved breaks the chain at its place. Someone who can write the file can
make a new chain from that place on, and can remove the last lines; another party that has noted a hash can detect that.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedotp._files import cannot_write, opened_in_place, parse_json, read_file
from fedotp.errors import FedotpError

FIRST = "0" * 64
"""The hash before the first line."""

MOST_BYTES = 1 << 30
"""Largest file that is read."""

_END = b',"hash":"'
_INCOMPLETE = "the last line is incomplete"

Place = tuple[int, str]
"""Number and hash of a line."""


@dataclass(frozen=True)
class Line:
    """A line of a chain: its place in the file from 1, its content and hash; `wrong`: why it is invalid, or ""."""

    place: int
    content: Mapping[str, Any]
    hash: str
    wrong: str = ""


class Chain:
    """Appends to a chain, from one thread at a time."""

    def __init__(self, path: Path, after: Place = (0, FIRST)) -> None:
        """Continue the chain in `path`; or, if `after` is not earlier, after that line, which was in another file."""
        self.path = path
        with self._opened() as file:
            found = _last_of(file.read(), path)
            file.truncate(found[2])
        self.last = after if after[0] >= found[0] else found[:2]

    def append(self, content: Mapping[str, Any]) -> str:
        """Append a line and return its hash; on return it is on disk. "n", "previous" and "hash" are added."""
        with self._opened() as file:
            number, previous = self.last
            body = json.dumps({"n": number + 1, **content, "previous": previous}, separators=(",", ":"))[:-1].encode()
            own = hashlib.sha256(body).hexdigest()
            end = file.seek(0, os.SEEK_END)
            try:
                file.write(b"%s%s%s" % (body, _END, f'{own}"}}\n'.encode()))
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                os.ftruncate(file.fileno(), end)  # the disk may be full in the middle of a line
                raise cannot_write(self.path, error) from error
            self.last = number + 1, own
            return own

    def _opened(self) -> Any:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return open(opened_in_place(self.path, os.O_RDWR | os.O_CREAT, mode=0o600), "r+b")
        except OSError as error:
            raise cannot_write(self.path, error) from error


def read_chain(path: Path, after: Place | None = (0, FIRST)) -> list[Line]:
    """Read and check the lines of a chain that continues `after` a line; None: any."""
    *whole, rest = read_file(path, MOST_BYTES).split(b"\n")
    lines: list[Line] = []
    for place, raw in enumerate(whole, 1):
        lines.append(_line(place, raw, after))
        number = lines[-1].content.get("n")
        after = (number, lines[-1].hash) if isinstance(number, int) else None
    return [*lines, _unended(len(whole) + 1, rest)] if rest else lines


def _line(place: int, raw: bytes, after: Place | None) -> Line:
    body, _, end = raw.rpartition(_END)
    own = hashlib.sha256(body).hexdigest()
    if end != f'{own}"}}'.encode():
        return Line(place, {}, own, "the content does not match its hash")
    try:
        content = parse_json(raw.decode())
    except ValueError as error:
        return Line(place, {}, own, f"cannot parse it: {error}")
    number, previous = content.get("n"), content.get("previous")
    if type(number) is not int or not isinstance(previous, str):
        return Line(place, {}, own, "it contains no number, or no hash of the line before")
    if after is not None and (number, previous) != (after[0] + 1, after[1]):
        return Line(place, content, own, "it does not follow the line before: a line was removed, inserted or moved")
    return Line(place, content, own)


def _unended(place: int, rest: bytes) -> Line:
    """Return the line of the bytes after the last end of a line: incomplete, or complete with another end."""
    line = _line(place, rest[:-1], None)
    return replace(line, wrong="its end was changed") if not line.wrong else Line(place, {}, "", _INCOMPLETE)


def _last_of(content: bytes, path: Path) -> tuple[int, str, int]:
    """Return number, hash and end of the last complete line; the rest was left by a killed process."""
    whole, _, rest = content.rpartition(b"\n")
    is_changed = bool(_unended(0, rest).hash)
    if not whole and not is_changed:
        return 0, FIRST, 0
    line = _line(0, whole.rpartition(b"\n")[2], None)
    if is_changed or line.wrong:
        raise FedotpError(f"cannot continue {path}: its last line was changed; move the file away and keep it")
    return line.content["n"], line.hash, len(whole) + 1
