"""The security log of a server or a site: its events as a chain of JSON lines (`_chain.py`).

The number and hash of the last line are also in a file `.NAME.head` beside the log, so that the chain continues when
the log has been moved away, and that removed last lines are detected.
"""

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedotp._files import cannot_write, held, opened_in_place, read_file
from fedotp.errors import FedotpError
from fedotp.flower._events import Event, handling
from fedotp.flower.records._chain import FIRST, Chain, Place, read_chain

_LONGEST = 16 << 20  # bytes after which a new file begins
_HEAD = "{:020} {}\n"


@contextmanager
def security_log(path: Path) -> Iterator[None]:
    """Append the events of this process to `path`; a file of 16 MiB is renamed to `path`.N, N its last line."""
    head, lock = _head_of(path), threading.Lock()
    with held(head, f"{path} is in use by another process; stop it, or choose another file"):
        chain = Chain(path, _read_head(head))

        def write(event: Event, facts: dict[str, Any]) -> None:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            try:
                with lock:
                    if path.exists() and path.stat().st_size > _LONGEST:
                        path.rename(f"{path}.{chain.last[0]}")
                    chain.append({"time": now, "event": event, **facts})
                    with open(opened_in_place(head, os.O_WRONLY), "wb", buffering=0) as file:
                        file.write(_HEAD.format(*chain.last).encode())
            except OSError as error:
                raise cannot_write(path, error) from error

        with handling(write):
            yield


@dataclass
class LogCheck:
    """The result of a check of log files: numbers of lines and events, errors and other findings."""

    n_lines: int = 0
    events: Counter[str] = field(default_factory=Counter)
    times: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_logs(paths: Sequence[Path]) -> LogCheck:
    """Check the files of one log, in any order."""
    files = {path: read_chain(path, None) for path in paths}
    heads = {path: _read_head(head) for path in paths if (head := _head_of(path)).exists()}
    check, seen = LogCheck(), {(0, FIRST)}
    if not heads:
        check.notes.append(f"there is no {_head_of(paths[0]).name}: removed last lines cannot be detected")
    last: Place = (0, FIRST)
    for path in sorted(files, key=lambda path: [line.content.get("n", 0) for line in files[path][:1]]):
        for line in files[path]:
            where, n = f"{path}, line {line.place}", line.content.get("n", last[0] + 1)
            if line.wrong:
                is_cut_short = not line.hash and path in heads  # by a killed process, which is no change
                (check.notes if is_cut_short else check.wrong).append(f"{where}: {line.wrong}")
            elif line.place == 1 and (n, line.content["previous"]) != (last[0] + 1, last[1]):
                gap = f"{where}: it has number {n}, but the line before it is not in these files"
                (check.wrong if check.n_lines else check.notes).append(gap)
            if line.hash:
                last = n, line.hash
                seen.add(last)
                check.n_lines += 1
                check.events[str(line.content.get("event", "invalid"))] += 1
                check.times += [str(line.content["time"])] if "time" in line.content else []
    for path, known in heads.items():
        if known not in seen:
            check.wrong.append(f"{path}: line {known[0]} with hash {known[1]} is missing ({_head_of(path).name})")
    return check


def _head_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.head")


def _read_head(head: Path) -> Place:
    """Return number and hash of the last line; an empty file is that of a new log."""
    text = read_file(head, _LONGEST).decode("utf-8", "replace")
    if not text:
        return 0, FIRST
    if not re.fullmatch(r"\d{20} [0-9a-f]{64}\n", text, re.ASCII):
        raise FedotpError(f"{head} was changed: it must contain the number and the hash of the log's last line")
    return int(text[:20]), text[21:-1]
