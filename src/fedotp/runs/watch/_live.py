"""Live displays of a run, at the bottom of a terminal or in a notebook, and which of them a run has."""

import html
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from fedotp._bars import OnBar, encoding_progress
from fedotp.config import Config
from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation
from fedotp.runs.watch._observer import Observer, Observers

STOPPING = "Ctrl-C: ending after this round; press it again to stop at once"
_EVERY = 0.2  # seconds between two drawings of a notebook


class EncodingBars:
    """Bars for hashing and encoding, which appear when the first is needed and go when all is done."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._show: OnBar | None = None

    def show(self, what: str, done: int, total: int) -> None:
        """Draw or move a bar."""
        if self._show is None:
            self._show = self._stack.enter_context(encoding_progress(transient=True))
        if self._show is not None:
            self._show(what, done, total)

    def close(self) -> None:
        """Take the bars away."""
        self._stack.close()
        self._show = None


class LiveDisplay(Observer):
    """Two lines at the bottom of the terminal: rounds and time left; accuracy, loss and speed."""

    def __init__(self, console: Console) -> None:
        self._encoding = EncodingBars()
        self._rounds = _Rounds(console)
        self._n_rounds = self._per_round = 0

    def __enter__(self) -> "LiveDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        self._encoding.close()
        self._rounds.stop()

    def on_encoding(self, what: str, done: int, total: int) -> None:
        self._encoding.show(what, done, total)

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        self._encoding.close()
        rounds = config.federation.rounds if images_per_round else 0
        self._n_rounds, self._per_round = rounds, images_per_round
        done, total = round_ * images_per_round, max(rounds * images_per_round, 1)
        self._rounds.add_task(_title(round_, rounds), total=total, completed=done)
        self._rounds.start()  # the clock for the time left starts now

    def on_images(self, n: int) -> None:
        """Move the bar; images of clients that join after the last round are not counted."""
        task = self._rounds.tasks[0]
        if task.completed < (task.total or 0):
            self._rounds.advance(task.id, n)

    def on_round(self, report: RoundReport) -> None:
        done, title = report.round * self._per_round, _title(report.round, self._n_rounds)
        self._rounds.update(self._rounds.tasks[0].id, completed=done, description=title)
        self._rounds.numbers |= {"loss": _loss_text(report), "speed": _speed_text(report)}

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        self._rounds.numbers["accuracy"] = accuracy_text(evaluation)

    def on_interrupt(self) -> None:
        """Show that Ctrl-C was received; the display's thread draws it, as this runs inside a signal handler."""
        self._rounds.note = STOPPING


class _Rounds(Progress):
    """A bar over the images of all rounds, and a line of numbers below it."""

    def __init__(self, console: Console) -> None:
        self.note = ""
        self.numbers = {"accuracy": "", "loss": "", "speed": ""}
        super().__init__(  # which draws for the first time
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
        """The bar, the numbers, a note."""
        yield self.make_tasks_table(self.tasks)
        yield Text("   ".join(filter(None, self.numbers.values())), no_wrap=True, overflow="ellipsis")
        if self.note:
            yield Text(self.note, style="yellow", no_wrap=True, overflow="ellipsis")


def _title(round_: int, rounds: int) -> str:
    """What is done after `round_` of `rounds` rounds."""
    return f"round {round_ + 1} of {rounds}" if round_ < rounds else "evaluation"


def _loss_text(report: RoundReport) -> str:
    return f"loss {report.mean_loss:.3f}{report.spent}"


def _speed_text(report: RoundReport) -> str:
    return f"{report.n_images / max(report.seconds, 1e-9):,.0f} images/s"


def accuracy_text(evaluation: Evaluation) -> str:
    """Mean and spread over clients, short."""
    return f"accuracy {100 * evaluation.mean:.1f} % ± {100 * evaluation.std:.1f}"


class NotebookDisplay(Observer):
    """A bar over all rounds, with accuracy, loss and speed beside it; the last line stays."""

    def __init__(self) -> None:
        self._shown: Any = None
        self._drawn = 0.0
        self._total = self._rounds = self._per_round = self._done = 0
        self._title = self._accuracy = self._training = ""

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """A bar of its own until the rounds begin."""
        self._title, self._done, self._total = what, done, total
        self._draw(at_once=done >= total)

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        self._rounds, self._per_round = config.federation.rounds, images_per_round
        self._done, self._total = round_ * images_per_round, config.federation.rounds * images_per_round
        self._title = _title(round_, self._rounds if images_per_round else 0)
        self._draw(at_once=True)

    def on_images(self, n: int) -> None:
        self._done = min(self._done + n, self._total)
        self._draw()

    def on_round(self, report: RoundReport) -> None:
        self._done = report.round * self._per_round
        self._training = f"{_loss_text(report)}, {_speed_text(report)}"
        self._title = _title(report.round, self._rounds)
        self._draw(at_once=True)

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        self._accuracy = accuracy_text(evaluation)
        self._draw(at_once=True)

    def on_interrupt(self) -> None:
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


@contextmanager
def watched(observer: Observer | None, progress: bool | None) -> Iterator[Observer]:
    """The observer of a run: `observer`, and a bar if `progress` is true.

    None shows one in a notebook or at a terminal, if no other observer is given.
    """
    console = Console(stderr=True)
    looked_at = console.is_jupyter or console.is_terminal
    if not (looked_at and observer is None if progress is None else progress):
        yield observer or Observer()
    elif console.is_jupyter:
        yield _both(NotebookDisplay(), observer)
    else:
        with LiveDisplay(console) as display:
            yield _both(display, observer)


def _both(display: Observer, observer: Observer | None) -> Observer:
    return display if observer is None else Observers(display, observer)
