"""A live display of a run in a notebook: one line of HTML that is written again, without widgets."""

import html
import time
from pathlib import Path
from typing import Any

from fedotp.config import Config
from fedotp.federation import Evaluation, RoundReport
from fedotp.runs._live import STOPPING, accuracy_text
from fedotp.runs._observer import Observer

_EVERY = 0.2  # seconds between two drawings


class NotebookDisplay(Observer):
    """A bar over all rounds, with accuracy, loss and speed beside it; the last line stays."""

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self._shown: Any = None
        self._drawn = 0.0
        self._total = self._rounds = self._per_round = self._done = 0
        self._title = self._accuracy = self._training = ""

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """A bar of its own until the rounds begin."""
        self._title, self._done, self._total = what, done, total
        self._draw(at_once=done >= total)

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Show the rounds."""
        self._rounds, self._per_round = config.federation.rounds, images_per_round
        self._done, self._total = round_ * images_per_round, config.federation.rounds * images_per_round
        self._title = f"round {round_ + 1} of {self._rounds}" if images_per_round else "evaluation"
        self._draw(at_once=True)

    def on_images(self, n: int) -> None:
        """Move the bar."""
        self._done = min(self._done + n, self._total)
        self._draw()

    def on_round(self, report: RoundReport) -> None:
        """Show loss and speed."""
        self._done = report.round * self._per_round
        speed = report.n_images / max(report.seconds, 1e-9)
        self._training = f"loss {report.mean_loss:.3f}{report.spent}, {speed:,.0f} images/s"
        self._title = f"round {report.round + 1} of {self._rounds}" if report.round < self._rounds else "evaluation"
        self._draw(at_once=True)

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """Show accuracy."""
        self._accuracy = accuracy_text(evaluation)
        self._draw(at_once=True)

    def on_interrupt(self) -> None:
        """Say that it was heard."""
        self._title = STOPPING

    def on_end(self, path: Path) -> None:
        """Leave a line that says what was done."""
        self._done, self._title = self._total, str(path)
        self._draw(at_once=True)

    def _draw(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._drawn < _EVERY:
            return
        from IPython.display import HTML, display

        self._drawn = now
        words = "; ".join(html.escape(text) for text in (self._title, self._accuracy, self._training) if text)
        line = HTML(f'<progress value="{self._done}" max="{max(self._total, 1)}"></progress> {words}')
        if self._shown is None:
            self._shown = display(line, display_id=True)
        else:
            self._shown.update(line)
