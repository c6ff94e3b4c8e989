"""Observers of a run, such as a progress bar or a log."""

from contextlib import suppress
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
        """In this order."""
        self.observers = observers

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """To all."""
        for observer in self.observers:
            observer.on_encoding(what, done, total)

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """To all."""
        for observer in self.observers:
            observer.on_start(path, config, round_=round_, images_per_round=images_per_round)

    def on_images(self, n: int) -> None:
        """To all."""
        for observer in self.observers:
            observer.on_images(n)

    def on_round(self, report: RoundReport) -> None:
        """To all."""
        for observer in self.observers:
            observer.on_round(report)

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """To all."""
        for observer in self.observers:
            observer.on_evaluation(round_, evaluation)

    def on_view(self, round_: int, view: View) -> None:
        """To all."""
        for observer in self.observers:
            observer.on_view(round_, view)

    def on_interrupt(self) -> None:
        """To all."""
        for observer in self.observers:
            observer.on_interrupt()

    def on_end(self, path: Path) -> None:
        """To all."""
        for observer in self.observers:
            observer.on_end(path)

    def on_failure(self, path: Path) -> None:
        """To all, even if one of them fails."""
        for observer in self.observers:
            with suppress(Exception):
                observer.on_failure(path)
