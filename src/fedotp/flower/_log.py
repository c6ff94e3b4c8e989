"""What happens in a federation, line by line, on standard error."""

import logging
import time
from collections.abc import Callable

_EVERY = 10.0  # seconds between two lines about encoding


def start_logging() -> None:
    """Show the lines of fedotp's own loggers, once."""
    logger = logging.getLogger("fedotp")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


def log_encoding(logger: logging.Logger) -> Callable[[str, int, int], None]:
    """Tells how encoding goes, at most every few seconds."""
    last = time.monotonic()

    def tell(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            logger.info("%s: %d of %d", what, done, total)

    return tell
