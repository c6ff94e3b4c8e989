"""The security log of a server or a site: its events as a chain of JSON lines (`_chain.py`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedotp.flower._chain import Chain
from fedotp.flower._events import Event, handling


@contextmanager
def security_log(path: Path) -> Iterator[Chain]:
    """Append the events of this process to `path`."""
    chain = Chain(path)

    def write(event: Event, facts: dict[str, Any]) -> None:
        chain.append({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts})

    with handling(write):
        yield chain
