"""Live displays of a run, in a terminal or a notebook."""

import html
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from fedotp._bars import EncodingBars
from fedotp.config import Config
from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation
from fedotp.runs.watch._observer import Observer, Observers

STOPPING = "Ctrl-C: finishing this round; press it again to stop immediately"
_EVERY = 0.2  # seconds between updates of a notebook


class _Display(Observer):
    """State of a display: title, images, accuracy, loss and speed; a subclass draws it."""

    def __init__(self) -> None:
        self._total = self._rounds = self._per_round = self._done = 0
        self._title = self._accuracy = self._training = ""

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        self._rounds, self._per_round = config.federation.rounds if images_per_round else 0, images_per_round
        self._done, self._total = round_ * images_per_round, self._rounds * images_per_round
        self._title = _title(round_, self._rounds)
        self._draw(at_once=True)

    def on_images(self, n: int) -> None:
        """Count images, except those of clients that join after the last round."""
        self._done = min(self._done + n, self._total)
        self._draw()

    def on_round(self, report: RoundReport) -> None:
        self._done, self._title = report.round * self._per_round, _title(report.round, self._rounds)
        self._training = report.training_text
        self._draw(at_once=True)

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        self._accuracy = evaluation.text
        self._draw(at_once=True)

    def _draw(self, *, at_once: bool = False) -> None:
        raise NotImplementedError


class LiveDisplay(_Display):
    """Two lines at the bottom of the terminal: rounds and time left; accuracy, loss and speed."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._encoding = EncodingBars()
        self._bar = _Rounds(console)

    def __enter__(self) -> "LiveDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        self._encoding.close()
        self._bar.stop()

    def on_encoding(self, what: str, done: int, total: int) -> None:
        self._encoding.show(what, done, total)

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        self._encoding.close()
        self._bar.add_task("")
        super().on_start(path, config, round_=round_, images_per_round=images_per_round)
        self._bar.start()  # starts the estimate of the remaining time

    def on_interrupt(self) -> None:
        """Show that Ctrl-C was received; the display's thread draws it, since this is called in a signal handler."""
        self._bar.note = STOPPING

    def _draw(self, *, at_once: bool = False) -> None:
        self._bar.numbers = "   ".join(filter(None, (self._accuracy, self._training)))
        only = self._bar.tasks[0].id
        self._bar.update(only, completed=self._done, total=max(self._total, 1), description=self._title)


class _Rounds(Progress):
    """A progress bar over the images of all rounds, and a line of numbers below."""

    def __init__(self, console: Console) -> None:
        self.note = self.numbers = ""
        super().__init__(  # draws for the first time
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            transient=True,
            expand=True,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar, the numbers and a note."""
        yield self.make_tasks_table(self.tasks)
        yield Text(self.numbers, no_wrap=True, overflow="ellipsis")
        if self.note:
            yield Text(self.note, style="yellow", no_wrap=True, overflow="ellipsis")


def _title(round_: int, rounds: int) -> str:
    """Return the next step after `round_` of `rounds` rounds."""
    return f"round {round_ + 1} of {rounds}" if round_ < rounds else "evaluation"


class NotebookDisplay(_Display):
    """A progress bar over all rounds, with accuracy, loss and speed; the last line remains."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: Any = None
        self._drawn = 0.0

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Show a separate bar until the rounds start."""
        self._title, self._done, self._total = what, done, total
        self._draw(at_once=done >= total)

    def on_interrupt(self) -> None:
        self._title = STOPPING

    def on_end(self, path: Path) -> None:
        """Draw the final line."""
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


@contextmanager
def watched(observer: Observer | None, progress: bool | None) -> Iterator[Observer]:
    """Yield `observer`, with a bar if `progress`; None: in notebooks and terminals, if no `observer` is given."""
    console = Console(stderr=True)
    looked_at = console.is_jupyter or console.is_terminal
    given = observer or Observer()
    if not (looked_at and observer is None if progress is None else progress):
        yield given
    elif console.is_jupyter:
        yield Observers(NotebookDisplay(), given)
    else:
        with LiveDisplay(console) as display:
            yield Observers(display, given)
