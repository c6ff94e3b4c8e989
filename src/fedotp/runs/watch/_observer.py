"""Observers of a run, such as a progress bar or a log."""

from contextlib import nullcontext, suppress
from functools import partialmethod
from pathlib import Path

from fedotp.config import Config
from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation, View


class Observer:
    """Does nothing; override the events of interest."""

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Images are being hashed or encoded."""

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Training begins or resumes after `round_` rounds; no images if there is nothing to train."""

    def on_images(self, n: int) -> None:
        """`n` more images went through training."""

    def on_round(self, report: RoundReport) -> None:
        """A round has ended."""

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """The clients were evaluated after round `round_`."""

    def on_view(self, round_: int, view: View) -> None:
        """So they were in another view."""

    def on_interrupt(self) -> None:
        """The user asked to stop; the round in progress is finished first."""

    def on_end(self, path: Path) -> None:
        """The run is complete, or stopped, and everything is written."""

    def on_failure(self, path: Path) -> None:
        """An error ended it, perhaps before `on_start`; it can be resumed from its checkpoint."""


class Observers(Observer):
    """Passes every event on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def _pass_on(self, event: str, *args: object, **named: object) -> None:
        """To all; that a run failed even if one of them fails."""
        for observer in self.observers:
            with suppress(Exception) if event == "on_failure" else nullcontext():
                getattr(observer, event)(*args, **named)


for _event in (name for name in vars(Observer) if name.startswith("on_")):
    setattr(Observers, _event, partialmethod(Observers._pass_on, _event))
