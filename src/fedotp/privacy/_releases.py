"""What was released, written down before it leaves."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedotp._files import cannot_write, opened_in_place, parse_json
from fedotp.errors import FedotpError


class Releases:
    """What was published, averages or updates, each a line in a file, on disk *before* it leaves.

    A server that is killed between a release and its checkpoint makes the round again: that is a second release.
    """

    def __init__(
        self, path: Path, least: int = 0, is_right: Callable[[dict[str, Any]], bool] = lambda line: "round" in line
    ) -> None:
        """What is in the file `path`, if it is there; `least` releases are known from elsewhere.

        A file with a record that is not right is refused.
        """
        self.path = path
        self._records = _read(path, is_right)
        self.count = max(len(self._records), least)

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Those in the file, the oldest first."""
        return self._records

    def add(self, record: dict[str, Any]) -> None:
        """Count one more. When this returns, a power failure cannot undo it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with open(opened_in_place(self.path, flags), "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # the file may be new
            finally:
                os.close(folder)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._records.append(record)
        self.count += 1


def _read(path: Path, is_right: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """The records of a file. A last line that a kill cut short is taken away: what it speaks of did not leave."""
    try:
        content = path.read_bytes() if path.is_file() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with open(opened_in_place(path, os.O_WRONLY), "wb") as file:
                file.truncate(len(whole))
        records = [parse_json(line.decode()) for line in whole.splitlines()]
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        records = [None]
    if not all(isinstance(record, dict) and is_right(record) for record in records):
        raise FedotpError(f"{path} is damaged: it should be one JSON object per release; restore it from a copy")
    return records
