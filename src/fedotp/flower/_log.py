"""The log of a server or a site, on standard error."""

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fedotp._text import printable
from fedotp._values import require
from fedotp.flower.link import silence

_EVERY = 10.0  # seconds between log lines about encoding
_LONGEST = 4000  # characters of a message


class _SafeFormatter(logging.Formatter):
    """Formats a record as one line, even with untrusted text, and indents a traceback below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = printable(record.message[:_LONGEST])
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"    {printable(line[:_LONGEST])}" for line in lines)


class _JsonFormatter(_SafeFormatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {"time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")}
        facts |= {
            "level": record.levelname,
            "logger": record.name,
            "message": printable(record.getMessage()[:_LONGEST]),
        }
        return json.dumps(facts | ({"error": self.formatException(record.exc_info)} if record.exc_info else {}))


def start_logging(log_format: str = "text") -> None:
    """Show log lines of fedotp, but none of Flower, as "text" or "json". Repeated calls have no effect."""
    require(log_format in ("text", "json"), "log-format", log_format, '"text" or "json"')
    logger = logging.getLogger("fedotp")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_SafeFormatter() if log_format == "text" else _JsonFormatter())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    silence()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # sites' connections that are closed at the end


def log_encoding(logger: logging.Logger) -> Callable[[str, int, int], None]:
    """Return a callback that logs the progress of encoding, at most every 10 s."""
    last = time.monotonic()

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            logger.info("%s: %d of %d", what, done, total)

    return report
