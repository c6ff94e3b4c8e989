"""One run of many: how it is run, and who is told of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fedotp._memory import shortage
from fedotp._text import one_line
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import Evaluation, RoundReport
from fedotp.runs._directory import RunDirectory
from fedotp.runs._observer import Observer
from fedotp.runs._run import resume, run
from fedotp.runs._trials import Trial


@dataclass(frozen=True)
class Update:
    """How far a run has come: after `round` of `rounds` rounds, with the last accuracy if there is one."""

    name: str
    round: int
    rounds: int
    accuracy: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a trial: complete, failed with an `error` (one line), or neither: interrupted or not begun."""

    trial: Trial
    directory: RunDirectory
    error: str = ""


class ManyObserver:
    """Is told how many runs go; does nothing. Override what you want to hear of."""

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Images are being hashed or encoded, once for all runs."""

    def on_begin(self, n_trials: int, n_complete: int) -> None:
        """All is prepared; so many runs were complete before."""

    def on_update(self, update: Update) -> None:
        """A run has begun, or gone on."""

    def on_lost(self, name: str, why: str) -> None:
        """The node of a cluster that had a run is lost; it goes on elsewhere from its last checkpoint."""

    def on_outcome(self, outcome: Outcome) -> None:
        """A run has ended in one way or another."""

    def on_interrupt(self) -> None:
        """The user asked to stop; the rounds in progress are finished first."""


def run_one(trial: Trial, path: Path, tell: Callable[[Update], object], on_interrupt: Callable[[], object]) -> str:
    """Run or resume a trial; return what went wrong, in one line, or nothing."""
    relay = Relay(trial.name, tell, on_interrupt)
    try:
        if RunDirectory(path).is_begun:
            resume(path, observer=relay)
        else:
            run(trial.config, path, observer=relay)
    except Exception as error:  # even a bug, or a library's limit: the other runs must go on
        return why(error)
    return ""


def why(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, FedotpError):
        return str(error)
    return shortage(error) or one_line(f"{type(error).__name__}: {error}")


class Relay(Observer):
    """Makes updates of what a run reports."""

    def __init__(
        self, name: str, tell: Callable[[Update], object], on_interrupt: Callable[[], object] = lambda: None
    ) -> None:
        self.update = Update(name, 0, 0)
        self.tell = tell
        self.interrupted = on_interrupt

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        self._tell(round=round_, rounds=config.federation.rounds if images_per_round else 0)

    def on_round(self, report: RoundReport) -> None:
        self._tell(round=report.round)

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        self._tell(accuracy=evaluation.mean)

    def on_interrupt(self) -> None:
        self.interrupted()

    def _tell(self, **changes: float) -> None:
        self.update = replace(self.update, **changes)  # type: ignore[arg-type]  # the fields' own types
        self.tell(self.update)
