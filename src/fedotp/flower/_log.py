"""What happens in a federation, line by line, on standard error."""

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

from fedotp.config import Config
from fedotp.federation import Evaluation, RoundReport
from fedotp.runs import Observer

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
    logging.getLogger("flwr").setLevel(logging.ERROR)  # it tells every request; what matters is told above
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # connections of sites that are cut at the end


def log_encoding(logger: logging.Logger) -> Callable[[str, int, int], None]:
    """Tells how encoding goes, at most every few seconds."""
    last = time.monotonic()

    def tell(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            logger.info("%s: %d of %d", what, done, total)

    return tell


class LogObserver(Observer):
    """Tells a run's rounds and evaluations as lines."""

    def __init__(self, logger: logging.Logger) -> None:
        """Lines go to `logger`."""
        self._log = logger

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Where the run is written."""
        rounds = config.federation.rounds
        self._log.info("%s, %d rounds, %d done; writing to %s", config.method.title, rounds, round_, path)

    def on_round(self, report: RoundReport) -> None:
        """How many answered."""
        answered = f"{len(report.answered)} of {len(report.sampled)} sites answered"
        loss = "" if math.isnan(report.mean_loss) else f", loss {report.mean_loss:.4f}"
        self._log.info("round %d: %s%s, %.1f s", report.round, answered, loss, report.seconds)

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """The mean over sites."""
        n = len(evaluation.clients)
        sites = f"mean of {n} sites" if n > 1 else "one site"
        self._log.info("after round %d: accuracy %.2f %% (%s)", round_, 100 * evaluation.mean, sites)

    def on_interrupt(self) -> None:
        """The round in progress is finished first."""
        self._log.info("stopping after this round; once more stops at once")

    def on_end(self, path: Path) -> None:
        """Everything is written."""
        self._log.info("everything is written to %s", path)
