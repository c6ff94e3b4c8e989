"""Observers of a run, such as a progress bar or a log."""

from contextlib import nullcontext, suppress
from functools import partialmethod
from pathlib import Path

from fedotp.config import Config
from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation, View


class Observer:
    """Base class for observers of a run; override the events of interest."""

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Handle progress of hashing or encoding images."""

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Handle the start after `round_` rounds; `images_per_round` is 0 if the method trains nothing."""

    def on_images(self, n: int) -> None:
        """Handle `n` more training images."""

    def on_round(self, report: RoundReport) -> None:
        """Handle the end of a round."""

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """Handle an evaluation of the clients after round `round_`."""

    def on_view(self, round_: int, view: View) -> None:
        """Handle an evaluation in another view."""

    def on_interrupt(self) -> None:
        """Handle Ctrl-C; the round in progress is finished first."""

    def on_end(self, path: Path) -> None:
        """Handle the end of a complete or interrupted run, after everything is written."""

    def on_failure(self, path: Path) -> None:
        """Handle an error, possibly before `on_start`; the run can be resumed from its checkpoint."""


class Observers(Observer):
    """Observer that forwards every event to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def _pass_on(self, event: str, *args: object, **named: object) -> None:
        """Forward an event to all observers; `on_failure` even if one of them fails."""
        for observer in self.observers:
            with suppress(Exception) if event == "on_failure" else nullcontext():
                getattr(observer, event)(*args, **named)


for _event in (name for name in vars(Observer) if name.startswith("on_")):
    setattr(Observers, _event, partialmethod(Observers._pass_on, _event))
