"""A live display of a run at the bottom of a terminal."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from fedotp._bars import OnBar, encoding_progress
from fedotp.config import Config
from fedotp.federation import Evaluation, RoundReport
from fedotp.runs._observer import Observer

STOPPING = "Ctrl-C: ending after this round; press it again to stop at once"


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

    def __enter__(self) -> "LiveDisplay":
        """Use it as a context, so that the terminal is left as it was whatever happens."""
        return self

    def __exit__(self, *_: object) -> None:
        self._encoding.close()
        self._rounds.stop()

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Bars of their own."""
        self._encoding.show(what, done, total)

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Show the rounds."""
        self._encoding.close()
        self._rounds.begin(round_, config.federation.rounds if images_per_round else 0, images_per_round)

    def on_images(self, n: int) -> None:
        """Move the bar."""
        self._rounds.move(n)

    def on_round(self, report: RoundReport) -> None:
        """Show loss and speed."""
        self._rounds.end_round(report.round)
        self._rounds.tell(
            loss=f"loss {report.mean_loss:.3f}{report.spent}",
            speed=f"{report.n_images / max(report.seconds, 1e-9):,.0f} images/s",
        )

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """Show accuracy."""
        self._rounds.tell(accuracy=accuracy_text(evaluation))

    def on_interrupt(self) -> None:
        """Say that it was heard; drawn by the display's own thread, for this runs inside a signal handler."""
        self._rounds.note = STOPPING


class _Rounds(Progress):
    """A bar over the images of all rounds, and a line of numbers below it."""

    def __init__(self, console: Console) -> None:
        self.note = ""
        self._numbers = {"accuracy": "", "loss": "", "speed": ""}
        self._rounds = 0
        self._per_round = 0
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
        yield Text("   ".join(filter(None, self._numbers.values())), no_wrap=True, overflow="ellipsis")
        if self.note:
            yield Text(self.note, style="yellow", no_wrap=True, overflow="ellipsis")

    def begin(self, round_: int, rounds: int, per_round: int) -> None:
        """Show the bar; the clock for the time left starts now."""
        self._rounds, self._per_round = rounds, per_round
        self.add_task(self._title(round_), total=max(rounds * per_round, 1), completed=round_ * per_round)
        self.start()

    def move(self, n: int) -> None:
        """`n` images more; those of clients that join after the last round are not counted."""
        task = self.tasks[0]
        if task.completed < (task.total or 0):
            self.advance(task.id, n)

    def end_round(self, round_: int) -> None:
        """Put the bar where the round ends."""
        self.update(self.tasks[0].id, completed=round_ * self._per_round, description=self._title(round_))

    def _title(self, round_: int) -> str:
        return f"round {round_ + 1} of {self._rounds}" if round_ < self._rounds else "evaluation"

    def tell(self, **numbers: str) -> None:
        """Change the line of numbers."""
        self._numbers |= numbers


def accuracy_text(evaluation: Evaluation) -> str:
    """Mean and spread over clients, short."""
    return f"accuracy {100 * evaluation.mean:.1f} % ± {100 * evaluation.std:.1f}"
