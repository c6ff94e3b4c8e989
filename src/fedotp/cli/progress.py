"""Progress of one run (live display, plain lines or JSON lines) and of many runs (bars or lines)."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from fedotp._bars import EncodingBars
from fedotp._text import counted, printable
from fedotp.cli.show import cell
from fedotp.config import Config
from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation, View
from fedotp.runs.many import ManyObserver, Outcome, Update
from fedotp.runs.watch import STOPPING, LiveDisplay, Observer

_STOPPING_MANY = "Ctrl-C: finishing the rounds in progress; press it again to stop immediately"


@contextmanager
def run_progress(*, quiet: bool = False, as_json: bool = False) -> Iterator[Observer]:
    """Yield the observer for this terminal and these options."""
    console = Console(stderr=True)
    if as_json:
        yield JsonLines()
    elif quiet:
        yield Observer()
    elif console.is_terminal:
        with LiveDisplay(console) as display:
            yield display
    else:
        yield PlainLines()


class PlainLines(Observer):
    """One line on stderr for each evaluation, for log files."""

    def __init__(self) -> None:
        self._rounds = 0
        self._training = ""
        self._seen: set[str] = set()

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Print one line for each split to encode."""
        if what.startswith("encoding") and what not in self._seen:
            self._seen.add(what)
            say(f"{what}: {counted(total, 'image')}")

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Print the run's directory."""
        self._rounds = config.federation.rounds if images_per_round else 0
        say(f"{path}: " + (f"continuing after round {round_}" if round_ else counted(self._rounds, "round")))

    def on_round(self, report: RoundReport) -> None:
        """Save speed and loss for the next line."""
        self._training = f", {report.training_text}"

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """Print the accuracy."""
        say(f"round {round_} of {self._rounds}: {evaluation.text}{self._training}")

    def on_interrupt(self) -> None:
        """Confirm it."""
        say(STOPPING)


class JsonLines(Observer):
    """One JSON object on stdout for the start, each round and each evaluation."""

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Print the run's directory and rounds."""
        rounds = config.federation.rounds if images_per_round else 0
        print_json({"kind": "start", "run": str(path), "round": round_, "rounds": rounds})

    def on_round(self, report: RoundReport) -> None:
        """Print the record of metrics.jsonl."""
        print_json({"kind": "round", **report.as_dict()})

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """Print the record of metrics.jsonl."""
        print_json({"kind": "evaluation", "round": round_, **evaluation.as_dict()})

    def on_view(self, round_: int, view: View) -> None:
        """Print the record of metrics.jsonl."""
        print_json({"kind": "view", "round": round_, **view.as_dict()})


def print_json(record: dict[str, Any]) -> None:
    """Print one line of JSON to stdout and flush."""
    print(json.dumps(record, separators=(",", ":")), flush=True)


def say(text: str) -> None:
    """Print one line to stderr, with names made printable."""
    print(printable(text), file=sys.stderr, flush=True)


# Many runs -------------------------------------------------------------------------------------------------------


@contextmanager
def many_progress(*, quiet: bool) -> Iterator[ManyObserver]:
    """Yield the observer for this terminal and these options."""
    console = Console(stderr=True)
    if quiet:
        yield ManyObserver()
    elif console.is_terminal:
        with ManyBars(console) as bars:
            yield bars
    else:
        yield ManyLines()


class ManyLines(ManyObserver):
    """One line on stderr for each finished run."""

    def __init__(self) -> None:
        self._encoding = PlainLines()
        self._done = 0
        self._total = 0

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Print one line for each split to encode."""
        self._encoding.on_encoding(what, done, total)

    def on_begin(self, n_trials: int, n_complete: int) -> None:
        """Print the number of runs."""
        self._done, self._total = n_complete, n_trials
        self._say(counted(n_trials, "run") + (f", {n_complete} already complete" if n_complete else ""))

    def on_outcome(self, outcome: Outcome) -> None:
        """Print the result of a run."""
        name = outcome.trial.name
        if outcome.directory.is_complete:
            self._done += 1
            accuracy = 100 * outcome.directory.summary["final"]["accuracy"]
            self._say(f"{self._done} of {self._total}: {name}, accuracy {accuracy:.1f} %")
        else:
            self._say(f"{name}: {'failed' if outcome.error else 'interrupted'}")

    def on_interrupt(self) -> None:
        """Confirm it."""
        self._say(_STOPPING_MANY)

    def _say(self, text: str) -> None:
        say(text)


class ManyBars(ManyLines):
    """The same lines, with a bar for all runs and one for each active run."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._bars = EncodingBars()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            expand=True,
        )
        self._all: TaskID | None = None
        self._running: dict[str, TaskID] = {}

    def __enter__(self) -> "ManyBars":
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.close()
        self._progress.stop()

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Show separate bars."""
        self._bars.show(what, done, total)

    def on_begin(self, n_trials: int, n_complete: int) -> None:
        """Show the bar for all runs."""
        self._bars.close()
        super().on_begin(n_trials, n_complete)
        self._all = self._progress.add_task("all runs", total=n_trials, completed=n_complete, state="")
        self._progress.start()

    def on_update(self, update: Update) -> None:
        """Show or move the bar of a run."""
        if update.name not in self._running:
            self._running[update.name] = self._progress.add_task(update.name, total=1, state="")
        state = f"round {update.round} of {update.rounds}" if update.rounds else "evaluation"
        if update.accuracy is not None:
            state += f", {100 * update.accuracy:.1f} %"
        task = self._running[update.name]
        self._progress.update(task, completed=update.round, total=max(update.rounds, 1), state=state)

    def on_outcome(self, outcome: Outcome) -> None:
        """Remove the bar of a run."""
        task = self._running.pop(outcome.trial.name, None)
        if task is not None:
            self._progress.remove_task(task)
        super().on_outcome(outcome)
        if self._all is not None:
            self._progress.update(self._all, completed=self._done, state=f"{self._done} of {self._total}")

    def on_interrupt(self) -> None:
        """Confirm it; the display's thread draws it, since this is called in a signal handler."""
        if self._all is not None:
            self._progress.update(self._all, description=_STOPPING_MANY)

    def _say(self, text: str) -> None:
        self._progress.console.print(cell(text), soft_wrap=True)
